"""Contracts of queues: which queues there are, and which fields their tasks have.

A task is stored as an **array** in the order of its contract's fields, without their names. So a field may be added at
the end, if it has a default for the tasks that were put before; names and descriptions may change at any time; types
and order must not. `queues/compare.py` says so of two contracts.

The rules here answer with what is wrong and what to do, or with None: a contract that is read from a file collects all
of them with their places, one that is made in Python raises the first.
"""

from __future__ import annotations

import re
import unicodedata
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from keyword import iskeyword
from typing import TypeAlias

from matrixsched.errors import InvalidContract, UnknownQueue, shown
from matrixsched.rules.queues import QUEUE_MAX

INT_MIN, INT_MAX = -(2**63), 2**63 - 1
NAME_CHARACTERS_MAX = 40
VERSION_MAX = 2**31 - 1

OWN_NAMES = frozenset({"stored", "task_id", "attempts", "created_at", "start_at", "previous_start_at", "receipt"})
"""What every task has beside its fields."""
PYTHON_NAMES = frozenset({"int", "str", "bool", "bytes", "tuple", "dataclasses"})
"""A field called so would hide what the fields after it are declared with."""
OWN_CLASSES = frozenset({"QueueTask", "StoredTask"})
"""What a class of tasks cannot be called, for these are there already."""

Value: TypeAlias = int | str | bool | bytes | tuple[int, ...]

_SNAKE_CASE = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_UNPRINTED = ("Cc", "Cs", "Zl", "Zp")


class FieldType(StrEnum):
    """The types of the contract, as they are written there."""

    INT = "int"
    INT64 = "int64"
    STRING = "string"
    BOOL = "bool"
    BYTES = "[]byte"
    INTS = "[]int"
    INT64S = "[]int64"

    @property
    def python(self) -> str:
        """The type in Python."""
        return _PYTHON[self]

    @property
    def is_list(self) -> bool:
        return self in (FieldType.INTS, FieldType.INT64S)


_PYTHON = {
    FieldType.INT: "int",
    FieldType.INT64: "int",
    FieldType.STRING: "str",
    FieldType.BOOL: "bool",
    FieldType.BYTES: "bytes",
    FieldType.INTS: "tuple[int, ...]",
    FieldType.INT64S: "tuple[int, ...]",
}


# One value.


def value_fault(type: FieldType, value: object) -> str | None:
    """Why a value is not of a type. The value is not repeated, for it may be anybody's secret."""
    match type:
        case FieldType.INT | FieldType.INT64:
            return _integer_fault(value)
        case FieldType.INTS | FieldType.INT64S:
            return _integers_fault(value)
        case FieldType.STRING:
            return _text_fault(value)
        case FieldType.BOOL:
            return None if value is True or value is False else _wrong_type(value, "bool")
        case FieldType.BYTES:
            return None if value.__class__ is bytes else _wrong_type(value, "bytes")


def _integer_fault(value: object) -> str | None:
    if not (isinstance(value, int) and value.__class__ is int):  # neither bool nor any other that only behaves as one
        return _wrong_type(value, "int")
    return None if INT_MIN <= value <= INT_MAX else "is outside of 64 bits: it must be from -2**63 to 2**63 - 1"


def _integers_fault(value: object) -> str | None:
    if not isinstance(value, list | tuple):
        return _wrong_type(value, "tuple or list of int")
    for place, one in enumerate(value):
        if why := _integer_fault(one):
            return f"{why} (number {place + 1} of {len(value):,})"
    return None


def _text_fault(value: object) -> str | None:
    if not (isinstance(value, str) and value.__class__ is str):
        return _wrong_type(value, "str")
    if value.isascii():
        return None
    try:
        value.encode()
    except UnicodeEncodeError:
        return "holds a lone surrogate, which is not text"
    return None


def _wrong_type(value: object, wanted: str) -> str:
    return f"is of type {type(value).__name__}, must be {wanted}"


def value_from_plain(type: FieldType, plain: object) -> Value:
    """A value as a contract writes it: bytes are in base64 there. ValueError says why it is none."""
    value = _from_base64(plain) if type is FieldType.BYTES else plain
    if why := value_fault(type, value):
        raise ValueError(why)
    return tuple(value) if isinstance(value, list) else value  # type: ignore[return-value]  # that was checked


def _from_base64(plain: object) -> object:
    if not isinstance(plain, str):
        raise ValueError(_wrong_type(plain, "a text in base64"))
    try:
        return b64decode(plain, validate=True)
    except ValueError:
        raise ValueError("is not base64, as in aGVsbG8=") from None


def plain_value(value: Value) -> object:
    """The value as a contract writes it."""
    if isinstance(value, bytes):
        return b64encode(value).decode()
    return list(value) if isinstance(value, tuple) else value


# Names and texts.


def name_fault(name: object) -> str | None:
    """Why a name cannot be that of a queue or of a field."""
    if not isinstance(name, str):
        return "is no text: write it in quotes"
    if not _SNAKE_CASE.fullmatch(name):
        return "is not in snake_case: begin with a letter, use a-z and 0-9, and single _ between words"
    if len(name) > NAME_CHARACTERS_MAX:
        return f"has {len(name)} characters: use {NAME_CHARACTERS_MAX} at most"
    if iskeyword(name):
        return "is a word of the language Python: choose another"
    return None


def queue_name_fault(name: str) -> str | None:
    if why := name_fault(name):
        return why
    if (kind := class_name(name)) in OWN_CLASSES:
        return f"would make a class {kind}, which matrixsched has already: choose another"
    return None


def field_name_fault(name: str) -> str | None:
    if why := name_fault(name):
        return why
    if name in OWN_NAMES:
        return "is what every task has already: choose another"
    if name in PYTHON_NAMES:
        return "is what fields are declared with in Python: choose another"
    return None


def class_name(queue_name: str, suffix: str = "Task") -> str:
    return "".join(word[:1].upper() + word[1:] for word in queue_name.split("_")) + suffix


def description_fault(text: object) -> str | None:
    if not isinstance(text, str):
        return "is no text: write it in quotes"
    for char in text:
        if unicodedata.category(char) in _UNPRINTED and char not in "\n\t":
            return f"holds the character U+{ord(char):04X}, which cannot be printed: leave it out"
    return None


# Many of them together.


def repeated(names: Sequence[object]) -> Iterator[tuple[int, int]]:
    """Where something stands once more, and where it stood first; None stands for what is unknown."""
    first: dict[object, int] = {}
    for place, name in enumerate(names):
        if name is not None and first.setdefault(name, place) != place:
            yield place, first[name]


def without_default(defaults: Sequence[bool]) -> Iterator[int]:
    """Which fields have none though one before them does: then tasks without that one could not be completed."""
    seen = False
    for place, has_default in enumerate(defaults):
        seen = seen or has_default
        if seen and not has_default:
            yield place


def default_missing(name: str) -> str:
    return (
        f"the field {name!r} has no default, but one before it does: tasks that lack that one lack this one, too. "
        "Give it a default, or put it before"
    )


# The contract itself.


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One value of a task."""

    name: str
    type: FieldType
    default: Value | None = None
    """None: it has none, and must be given."""
    description: str = ""

    def __post_init__(self) -> None:
        _refuse(f"the name of field {shown(self.name)}", field_name_fault(self.name))
        if not isinstance(self.type, FieldType):
            raise InvalidContract(f"the type of field {self.name!r} is {shown(self.type)}: use one of FieldType")
        _refuse(f"the description of field {self.name!r}", description_fault(self.description))
        if self.default is not None:
            _refuse(f"the default of field {self.name!r}", value_fault(self.type, self.default))
            if isinstance(self.default, list):
                object.__setattr__(self, "default", tuple(self.default))


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueContract:
    """One queue, and what its tasks hold, in the order in which it is stored."""

    id: int
    name: str
    fields: tuple[Field, ...]
    description: str = ""

    def __post_init__(self) -> None:
        _refuse(f"the name of queue {shown(self.name)}", queue_name_fault(self.name))
        if not (self.id.__class__ is int and 1 <= self.id <= QUEUE_MAX):
            raise InvalidContract(f"the id of queue {self.name!r} is {shown(self.id)}: use 1 to {QUEUE_MAX}")
        _refuse(f"the description of queue {self.name!r}", description_fault(self.description))
        _refuse_others(f"the fields of queue {self.name!r}", self.fields, Field)
        for place, _ in repeated([field.name for field in self.fields]):
            raise InvalidContract(f"queue {self.name!r} has two fields named {self.fields[place].name!r}: rename one")
        for place in without_default([field.default is not None for field in self.fields]):
            raise InvalidContract(f"queue {self.name!r}: {default_missing(self.fields[place].name)}")

    @property
    def class_name(self) -> str:
        """What the class of its tasks is called."""
        return class_name(self.name)

    @property
    def handler_name(self) -> str:
        return class_name(self.name, "Handler")

    @property
    def plain_handler_name(self) -> str:
        """Of one that awaits nothing; no other queue makes a class of that name, for theirs end otherwise."""
        return class_name(self.name, "HandlerSync")

    def is_like(self, other: QueueContract) -> bool:
        """Whether it says the same of its tasks; descriptions are for people, and may differ."""
        return (self.id, self.name, self._stored) == (other.id, other.name, other._stored)

    @property
    def _stored(self) -> list[tuple[str, FieldType, Value | None]]:
        return [(field.name, field.type, field.default) for field in self.fields]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """All queues that belong together. Its version is for people; which tasks can be read does not depend on it."""

    queues: tuple[QueueContract, ...]
    version: int = 1
    description: str = ""

    def __post_init__(self) -> None:
        if not (self.version.__class__ is int and 1 <= self.version <= VERSION_MAX):
            raise InvalidContract(f"the version is {shown(self.version)}: use 1 to {VERSION_MAX}")
        _refuse("the description of the contract", description_fault(self.description))
        _refuse_others("the queues of the contract", self.queues, QueueContract)
        if not self.queues:
            raise InvalidContract("the contract has no queues: describe one at least")
        for what, values in (
            ("id", [queue.id for queue in self.queues]),
            ("name", [queue.name for queue in self.queues]),
            ("class", [queue.class_name for queue in self.queues]),
        ):
            for place, _ in repeated(values):
                raise InvalidContract(f"two queues have the {what} {values[place]!r}: change one")

    def queue(self, name: str | int) -> QueueContract:
        """The queue of that name, or of that id."""
        for queue in self.queues:
            if name == (queue.name if isinstance(name, str) else queue.id):
                return queue
        raise UnknownQueue(name, [queue.name for queue in self.queues])


def _refuse(what: str, why: str | None) -> None:
    if why is not None:
        raise InvalidContract(f"{what} {why}")


def _refuse_others(what: str, given: object, kind: type) -> None:
    if not isinstance(given, tuple | list) or not all(isinstance(one, kind) for one in given):
        raise InvalidContract(f"{what} are {shown(given)}: pass a tuple of {kind.__name__}s")
