"""What an input is: a surface and its arguments, built anew on each side, printed as it can be pasted into a test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal

from matrixsched import CatchUp, Daily, Period, Retry, call, cron, every
from matrixsched.queues import Contract, Field, FieldType, QueueContract, task_class
from matrixsched.rules.queues import NewItem, QueueSettings
from matrixsched.rules.rates import Rate
from matrixsched.rules.templates import SendWindow

Door = Literal["async", "sync"]
SECRET = "hunter2"
"""In every text of a payload; so in no message."""

MIXED = Contract(
    version=1,
    description="Tasks with every kind of field",
    queues=(
        QueueContract(
            id=1,
            name="mixed",
            fields=(
                Field(name="number", type=FieldType.INT),
                Field(name="large", type=FieldType.INT64, default=0),
                Field(name="text", type=FieldType.STRING, default=""),
                Field(name="yes", type=FieldType.BOOL, default=False),
                Field(name="raw", type=FieldType.BYTES, default=b""),
                Field(name="numbers", type=FieldType.INTS, default=()),
            ),
        ),
        QueueContract(id=2, name="plain", fields=(Field(name="text", type=FieldType.STRING),)),
    ),
)
STRANGE = QueueContract(id=7, name="strange", fields=(Field(name="text", type=FieldType.STRING),))
"""Of a contract that the applications do not use."""


@dataclass(frozen=True)
class Made:
    """A value that is made when the input is carried out: making it may be refused, and it may depend on the side."""

    what: str
    args: tuple[Any, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        options = f", {self.options!r}" if self.options else ""
        return f"Made({self.what!r}, {self.args!r}{options})" if self.args or options else f"Made({self.what!r})"


@dataclass(frozen=True)
class Input:
    surface: str
    args: tuple[Any, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    door: Door = "async"

    def __repr__(self) -> str:
        door = "" if self.door == "async" else f", door={self.door!r}"
        return f"Input({self.surface!r}, {self.args!r}, {self.options!r}{door})"


def nested(depth: int) -> list[Any]:
    inner: list[Any] = []
    for _ in range(depth):
        inner = [inner]
    return inner


def _nothing() -> None: ...


AN_OBJECT = object()


MAKERS: dict[str, Callable[..., Any]] = {
    "Retry": Retry,
    "every": every,
    "cron": cron,
    "catch_up": CatchUp,
    "Daily": Daily,
    "Period": Period,
    "call": call,
    "Rate": Rate,
    "SendWindow": SendWindow,
    "NewItem": NewItem,
    "Contract": Contract,
    "QueueContract": QueueContract,
    "Field": Field,
    "FieldType": lambda name: FieldType(name) if name in list(FieldType) else name,
    "Mixed": task_class(MIXED.queue("mixed")),
    "Plain": task_class(MIXED.queue("plain")),
    "Strange": task_class(STRANGE),
    "nested": nested,
    "long": lambda text, times: text * times,
    "power": pow,  # a number that Python does not agree to write has no repr
    "object": lambda: AN_OBJECT,
    "function": lambda: _nothing,
    "type": lambda: int,
    "iterator": lambda *values: iter(values),
    "Decimal": Decimal,
    "change": lambda **changed: lambda now: QueueSettings(**(_plain(now) | changed)),
}


def _plain(settings: QueueSettings) -> dict[str, Any]:
    return {name: getattr(settings, name) for name in QueueSettings.__dataclass_fields__}


def references(value: Any) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """All that depends on the side."""
    if isinstance(value, Made):
        if value.what not in MAKERS:
            yield value.what, value.args
        yield from references((value.args, value.options))
    elif type(value) in (list, tuple):
        for one in value:
            yield from references(one)
    elif type(value) is dict:
        yield from references([*value, *value.values()])


def build(value: Any, lookup: Callable[[str, tuple[Any, ...]], Any]) -> Any:
    """The value itself. `lookup` answers for what depends on the side: guids, tasks that were taken."""
    if isinstance(value, Made):
        args = tuple(build(one, lookup) for one in value.args)
        options = {name: build(one, lookup) for name, one in value.options.items()}
        maker = MAKERS.get(value.what)
        return lookup(value.what, args) if maker is None else maker(*args, **options)
    if type(value) is list:
        return [build(one, lookup) for one in value]
    if type(value) is tuple:
        return tuple(build(one, lookup) for one in value)
    if type(value) is dict:
        return {build(key, lookup): build(one, lookup) for key, one in value.items()}
    return value
