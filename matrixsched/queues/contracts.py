"""Contracts as files: read, judged as a whole with the place of every mistake, and made into a `Contract`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from difflib import get_close_matches
from functools import cache
from os import PathLike, fspath
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, TypeAlias

from matrixsched.errors import InvalidContract, InvalidContractFile, Mistake, shown
from matrixsched.queues.extra import extra
from matrixsched.queues.yaml_places import BEGIN, Document, Path, Place, read_yaml
from matrixsched.rules.contract import (
    Contract,
    Field,
    FieldType,
    QueueContract,
    class_name,
    default_missing,
    description_fault,
    field_name_fault,
    name_fault,
    queue_name_fault,
    repeated,
    value_from_plain,
    without_default,
)
from matrixsched.store.migrations import schema_folder

if TYPE_CHECKING:
    from jsonschema import ValidationError
    from jsonschema.protocols import Validator

Fault: TypeAlias = tuple[Path, str]

SCHEMA_FILE = "queue-contract.schema.json"
EXAMPLE = "queues: [{id: 1, name: emails, fields: [{name: to, type: string}]}]"


def load_contract(path: str | PathLike[str]) -> Contract:
    """The contract in a file. InvalidContractFile names all mistakes at once, each with line and column."""
    if not isinstance(path, str | PathLike) or not isinstance(file := fspath(path), str):
        raise InvalidContract(f"a contract is loaded from a file by its path, not from {shown(path)}")
    try:
        data = FilePath(path).read_bytes()
    except (OSError, ValueError) as error:  # a path with a NUL is a ValueError
        why = getattr(error, "strerror", None) or str(error)
        raise InvalidContractFile([Mistake(file, None, None, f"cannot be read ({why}): check the path")]) from None
    return parse_contract(data, file=file)


def parse_contract(text: str | bytes, *, file: str = "contract") -> Contract:
    """The contract in a text; `file` is what its mistakes are said to be in."""
    if not isinstance(text, str | bytes):
        raise InvalidContract(f"a contract is read from a text, not from {shown(text)}")
    document = read_yaml(text.encode(errors="surrogatepass") if isinstance(text, str) else text)
    found = dict.fromkeys([*document.faults, *_faults(document)])  # each once, if it is found in two ways
    if found:
        raise InvalidContractFile([Mistake(file, place.line, place.column, what) for place, what in sorted(found)])
    return _contract(document.plain)


def _faults(document: Document) -> Iterator[tuple[Place, str]]:
    plain: Any = document.plain
    if document.is_empty:
        yield BEGIN, f"the file is empty: describe a queue, as in {EXAMPLE}"
        return
    if plain is None and document.faults:
        return  # it is not even YAML
    by_schema = [fault for error in _validator().iter_errors(plain) for fault in _told(document, error)]
    silent = (
        document.faulty | {path for path, _ in by_schema} | {path[:-1] for path, _ in by_schema if "default" in path}
    )
    for path, what in by_schema:
        if path not in document.faulty:
            yield document.keys[path] if what.startswith(_UNKNOWN) else document.place(path), what
    for path, what in _own_faults(document):
        if path not in silent:
            yield document.place(path), what


# What the schema finds, in our words.


@cache
def _validator() -> Validator:
    with extra():
        from jsonschema import Draft202012Validator
        from jsonschema.validators import extend

    schema = json.loads(schema_folder().joinpath(SCHEMA_FILE).read_text("utf-8"))
    # To the schema 1.0 is an integer; to a contract it is none.
    types = Draft202012Validator.TYPE_CHECKER.redefine("integer", lambda _, value: type(value) is int)
    validator: Validator = extend(Draft202012Validator, type_checker=types)(schema)  # type: ignore[no-untyped-call]
    return validator


_UNKNOWN = "unknown key"
_KINDS = {
    "object": "a mapping",
    "array": "a list",
    "string": "a text",
    "integer": "a whole number",
    "boolean": "true or false",
}
_FOUND = {
    dict: "a mapping",
    list: "a list",
    str: "a text",
    int: "a number",
    float: "a number with a point",
    bool: "true or false",
    type(None): "nothing",
}


def _told(document: Document, error: ValidationError) -> Iterator[Fault]:
    path: Path = tuple(error.absolute_path)
    value: Any = error.instance
    wanted: Any = error.validator_value
    schema: Any = error.schema
    match error.validator:
        case "required":
            for key in wanted:
                if key not in value and (*path, key) not in document.faulty:
                    yield path, f"{_label(path)} has no {key}: add it"
        case "additionalProperties":
            for key in value:
                if key not in schema["properties"]:
                    yield (*path, key), f"{_UNKNOWN} {key!r:.80}: {_closest(key, list(schema['properties']))}"
        case "type":
            hint = " (put it in quotes)" if wanted == "string" and isinstance(value, bool | int | float) else ""
            hint = " (leave it out if there is none)" if value is None else hint
            yield path, f"{_label(path)} is {_FOUND[type(value)]}: it must be {_KINDS[wanted]}{hint}"
        case "enum":
            yield path, f"{_label(path)} is {value!r:.80}: {_closest(value, wanted)}"
        case "minimum" | "maximum":
            limits = f"from {schema['minimum']} to {schema['maximum']}"
            yield path, f"{_label(path)} is {str(value):.40}: it must be {limits}"
        case "minItems":
            yield path, f"{_label(path)} is an empty list: describe one at least, as in {EXAMPLE}"
        case "pattern" | "maxLength":
            yield path, f"{_label(path)} {value!r:.80} {name_fault(value)}"
        case _:
            yield path, f"{_label(path)} is not as the schema says: {error.message:.200}"


def _closest(given: object, known: list[str]) -> str:
    close = get_close_matches(given, known, 1) if isinstance(given, str) else []
    return f"use one of {', '.join(known)}" + (f"; did you mean {close[0]}?" if close else "")


def _label(path: Path) -> str:
    """What a value is called: `the type of field 2`."""
    match path:
        case ():
            return "the contract"
        case (*_, "queues", int(place)):
            return f"queue {place + 1}"
        case (*_, "fields", int(place)):
            return f"field {place + 1}"
        case (*outer, "default", int(place)):
            return f"number {place + 1} in {_label((*outer, 'default'))}"
        case (*outer, str(key)):
            return key if not outer else f"the {key} of {_label(tuple(outer))}"
    return "this"


# What no schema can say.


def _own_faults(document: Document) -> Iterator[Fault]:
    root = document.plain if isinstance(document.plain, dict) else {}
    yield from _text_faults((), root)
    queues = dict(_mappings(root, "queues", ()))
    for path, queue in queues.items():
        yield from _text_faults(path, queue)
        yield from _name_faults(path, queue, queue_name_fault)
        yield from _field_faults(path, queue)
    yield from _repeated_faults(document, queues, "id")
    yield from _repeated_faults(document, queues, "name")
    yield from _class_faults(queues)


def _mappings(outer: dict[str, Any], key: str, path: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Those in a list that are mappings; of the others the schema has said so."""
    inner = outer.get(key)
    for place, one in enumerate(inner if isinstance(inner, list) else ()):
        if isinstance(one, dict):
            yield (*path, key, place), one


def _text_faults(path: Path, outer: dict[str, Any]) -> Iterator[Fault]:
    text = outer.get("description")
    if isinstance(text, str) and (why := description_fault(text)):
        yield (*path, "description"), f"{_label((*path, 'description'))} {why}"


def _name_faults(path: Path, outer: dict[str, Any], fault: Any) -> Iterator[Fault]:
    name = outer.get("name")
    if isinstance(name, str) and (why := fault(name)):
        yield (*path, "name"), f"{_label((*path, 'name'))} {name!r:.80} {why}"


def _field_faults(path: Path, queue: dict[str, Any]) -> Iterator[Fault]:
    fields = dict(_mappings(queue, "fields", path))
    for place, field in fields.items():
        yield from _text_faults(place, field)
        yield from _name_faults(place, field, field_name_fault)
        yield from _default_faults(place, field)
    places = list(fields)
    for first, second in repeated([_hashable(field.get("name")) for field in fields.values()]):
        name = fields[places[first]]["name"]
        yield (
            (*places[first], "name"),
            f"the name {name!r:.80} is that of {_label(places[second])} already: choose another",
        )
    for late in without_default(["default" in field for field in fields.values()]):
        yield places[late], default_missing(str(fields[places[late]].get("name", late + 1)))


def _default_faults(path: Path, field: dict[str, Any]) -> Iterator[Fault]:
    if "default" in field and field.get("type") in list(FieldType):
        try:
            value_from_plain(FieldType(field["type"]), field["default"])
        except ValueError as error:
            yield (*path, "default"), f"{_label((*path, 'default'))} {error}"


def _repeated_faults(document: Document, queues: dict[Path, dict[str, Any]], key: str) -> Iterator[Fault]:
    places = list(queues)
    for again, first in repeated([_hashable(queue.get(key)) for queue in queues.values()]):
        line = document.place((*places[first], key)).line
        value = queues[places[again]][key]
        yield (*places[again], key), f"the {key} {value!r:.80} is that of the queue at line {line} already: change one"


def _class_faults(queues: dict[Path, dict[str, Any]]) -> Iterator[Fault]:
    """Names that differ, and yet make the same class: a_1 and a1."""
    names = {path: queue["name"] for path, queue in queues.items() if isinstance(queue.get("name"), str)}
    places, classes = list(names), [class_name(name) for name in names.values()]
    for again, first in repeated(classes):
        one, other = names[places[again]], names[places[first]]
        if one != other:
            yield (
                (*places[again], "name"),
                f"the names {one!r:.80} and {other!r:.80} would both make a class {classes[again]}: change one",
            )


def _hashable(value: object) -> object:
    return None if isinstance(value, list | dict | bool) else value


# The contract, of a file without mistakes.


def _contract(plain: Any) -> Contract:
    return Contract(
        version=plain.get("version", 1),
        description=plain.get("description", ""),
        queues=tuple(map(_queue, plain["queues"])),
    )


def _queue(plain: Any) -> QueueContract:
    return QueueContract(
        id=plain["id"],
        name=plain["name"],
        description=plain.get("description", ""),
        fields=tuple(map(_field, plain["fields"])),
    )


def _field(plain: Any) -> Field:
    type = FieldType(plain["type"])
    return Field(
        name=plain["name"],
        type=type,
        default=value_from_plain(type, plain["default"]) if "default" in plain else None,
        description=plain.get("description", ""),
    )
