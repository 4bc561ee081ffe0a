"""A YAML file as plain values, with the place of each of them, and all that is wrong with it as YAML."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from matrixsched.queues.extra import extra

if TYPE_CHECKING:
    from yaml import Mark, MarkedYAMLError, Node, SafeLoader, ScalarNode
    from yaml.nodes import MappingNode
    from yaml.reader import ReaderError

Path: TypeAlias = tuple[str | int, ...]
"""How to come to a value: ("queues", 0, "name")."""

BYTES_MAX = 256 * 1024
DEPTH_MAX = 20
BITS_MAX = 256
"""Of a whole number; those of a contract have 64, and those that are much longer cannot even be printed."""
_TAG = "tag:yaml.org,2002:"
_PLAIN_NUMBER = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_BARE_LIST_TYPE = re.compile(r"(?<![\"'\w])\[ *\] *\w+")
"""As in `type: []byte`, where YAML sees an empty list, and then a word that is too many."""


class Place(NamedTuple):
    line: int
    column: int


BEGIN = Place(1, 1)


@dataclass(slots=True)
class Document:
    """What a file holds; `faults` are what could not be understood."""

    plain: object = None
    is_empty: bool = False
    places: dict[Path, Place] = field(default_factory=dict)
    keys: dict[Path, Place] = field(default_factory=dict)
    faults: list[tuple[Place, str]] = field(default_factory=list)
    faulty: set[Path] = field(default_factory=set)
    """Of which enough is said already."""

    def place(self, path: Path) -> Place:
        return self.places.get(path, BEGIN)


def read_yaml(data: bytes) -> Document:
    with extra():
        import yaml
        from yaml.reader import ReaderError

    document = Document()
    try:
        if len(data) > BYTES_MAX:
            document.faults.append((BEGIN, f"the file has {len(data):,} bytes: use {BYTES_MAX:,} at most"))
            return document
        text = data.decode("utf-8-sig")
        document.faults += _strange(text)
        if not document.faults:
            _compose(document, text)
    except UnicodeDecodeError as error:
        place = Place(data.count(b"\n", 0, error.start) + 1, error.start - data.rfind(b"\n", 0, error.start))
        document.faults.append((place, "this is not UTF-8: save the file in that encoding"))
    except ReaderError as error:
        document.faults.append(_unreadable(text, error))
    except yaml.MarkedYAMLError as error:
        document.faults.append(_malformed(text, error))
    return document


def _strange(text: str) -> Iterator[tuple[Place, str]]:
    """What could make of a small file an endless one, found before anything is made of it."""
    import yaml

    depth = 0
    for event in yaml.parse(text, yaml.SafeLoader):
        match event:
            case yaml.AliasEvent():
                yield _place(event.start_mark), "aliases (*name) are not understood here: write out what is meant"
            case yaml.CollectionStartEvent():
                depth += 1
            case yaml.CollectionEndEvent():
                depth -= 1
        if depth > DEPTH_MAX:
            yield _place(event.start_mark), "this is nested too deeply: a contract needs no more than five levels"
            return


def _unreadable(text: str, error: ReaderError) -> tuple[Place, str]:
    before = text[: error.position]
    place = Place(before.count("\n") + 1, len(before) - before.rfind("\n"))
    code = error.character if isinstance(error.character, int) else ord(error.character[:1])
    return place, f"the character U+{code:04X} cannot be in YAML: leave it out"


def _malformed(text: str, error: MarkedYAMLError) -> tuple[Place, str]:
    mark = error.problem_mark or error.context_mark
    if mark is not None and (bare := _bare_list_type(text, mark)) is not None:
        return bare
    if error.problem == "but found another document":
        return _place(mark), "another document begins here: a contract is one document, so leave the others out"
    told = ", ".join(filter(None, (error.context, error.problem)))
    return (
        _place(mark),
        f"this is not YAML ({told}): check indentation, quotes and colons; tabs cannot indent",
    )


def _bare_list_type(text: str, mark: Mark) -> tuple[Place, str] | None:
    """What to say if the mark is at the word behind the brackets of a type without quotes."""
    for found in _BARE_LIST_TYPE.finditer(text):
        if found.start() < mark.index < found.end():
            place = Place(mark.line + 1, mark.column + 1 - (mark.index - found.start()))
            return place, f'types with brackets must be in quotes: write "{found[0].replace(" ", "")}"'
    return None


def _place(mark: Any) -> Place:
    return BEGIN if mark is None else Place(mark.line + 1, mark.column + 1)


def _compose(document: Document, text: str) -> None:
    import yaml

    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        if node is not None:
            document.plain = _Reading(document, loader).value(node, ())
        document.is_empty = document.plain is None and not document.faults
    finally:
        loader.dispose()


@dataclass(frozen=True, slots=True)
class _Reading:
    document: Document
    loader: SafeLoader

    def value(self, node: Node, path: Path) -> object:
        """The plain value of a node; its place, and those inside of it, are noted."""
        import yaml

        self.document.places[path] = _place(node.start_mark)
        match node:
            case yaml.MappingNode(tag="tag:yaml.org,2002:map"):
                return {key: self.value(value, (*path, key)) for key, value in self._pairs(node, path)}
            case yaml.SequenceNode(tag="tag:yaml.org,2002:seq"):
                return [self.value(item, (*path, place)) for place, item in enumerate(node.value)]
            case yaml.ScalarNode():
                return self._scalar(node, path)
        return self._refused(node, path, f"the tag {node.tag!r:.80} is not understood: leave it out")

    def _pairs(self, node: MappingNode, path: Path) -> Iterator[tuple[str, Node]]:
        seen: dict[str, Place] = {}
        for key_node, value_node in node.value:
            key, place = key_node.value, _place(key_node.start_mark)
            if key_node.tag not in (f"{_TAG}str", f"{_TAG}merge"):
                self.document.faults.append(
                    (place, "this key is no text: use one of the contract's, or put it in quotes")
                )
            elif key in seen:
                why = f"the key {key!r:.80} is given twice, first at line {seen[key].line}: leave out one of them"
                self.document.faults.append((place, why))
            else:
                seen[key] = self.document.keys[(*path, key)] = place
                yield key, value_node

    def _scalar(self, node: ScalarNode, path: Path) -> object:
        try:
            match node.tag.removeprefix(_TAG):
                case "str":
                    return node.value
                case "null":
                    return None
                case "bool":
                    return self.loader.construct_yaml_bool(node)
                case "int":
                    return self._integer(node, path)
                case "float":
                    return self.loader.construct_yaml_float(node)
                case "timestamp":
                    return self._refused(node, path, "this is read as a date: put it in quotes")
        except (ValueError, LookupError):
            return self._refused(node, path, "this is not what its tag says, or too long: write it plainly")
        return self._refused(node, path, f"the tag {node.tag!r:.80} is not understood: leave it out")

    def _integer(self, node: ScalarNode, path: Path) -> object:
        """Only as people write numbers: YAML reads 010 as 8, and 1:30 as 90."""
        number: int = self.loader.construct_yaml_int(node)
        if number.bit_length() > BITS_MAX:
            raise ValueError
        if not _PLAIN_NUMBER.fullmatch(node.value):
            why = f"{node.value!r:.40} is read as {number}: write it plainly, or in quotes if it is a text"
            return self._refused(node, path, why)
        return number

    def _refused(self, node: Node, path: Path, why: str) -> object:
        self.document.faults.append((_place(node.start_mark), why))
        self.document.faulty.add(path)
        return None
