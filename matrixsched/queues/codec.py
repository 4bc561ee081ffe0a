"""Tasks as bytes: a msgpack array of the fields' values, in the order of the contract, without names.

What was put by an older contract has fewer values, and is completed with the defaults. What has more was put by a newer
one, and is left to those who know it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Generic, NamedTuple, TypeVar, overload

from matrixsched.errors import BadInput, InvalidTask, TaskTooNew, TaskUnreadable, shown
from matrixsched.queues.extra import extra
from matrixsched.queues.tasks import QueueTask, task_class
from matrixsched.rules.contract import INT_MAX, INT_MIN, Field, FieldType, QueueContract, value_fault
from matrixsched.rules.queues import StoredTask

if TYPE_CHECKING:
    from msgspec import Raw
    from msgspec.msgpack import Decoder, Encoder

T = TypeVar("T", bound=QueueTask)

_BROKEN = (ValueError, RecursionError)
"""What msgspec raises for bytes that are not as expected."""


def encode(task: QueueTask) -> bytes:
    """The bytes to be stored. InvalidTask names the field whose value is not as the contract says."""
    return _codec(type(task)).encode(task)


@overload
def decode(kind: type[T], stored: StoredTask | bytes) -> T: ...


@overload
def decode(kind: QueueContract, stored: StoredTask | bytes) -> QueueTask: ...


def decode(kind: type[T] | QueueContract, stored: StoredTask | bytes) -> T | QueueTask:
    """The task in what was taken, or in bytes alone: then it has no id and no receipt.

    TaskTooNew says that a newer contract wrote it, TaskUnreadable that it is something else.
    """
    if isinstance(kind, QueueContract):
        return _codec(task_class(kind)).decode(stored)
    return _codec(kind).decode(stored)


_CODECS: dict[type, _Codec[Any]] = {}


def _codec(kind: type[T]) -> _Codec[T]:
    if not isinstance(kind, type) or kind not in _CODECS:
        if not (isinstance(kind, type) and issubclass(kind, QueueTask) and hasattr(kind, "__contract__")):
            raise BadInput(
                f"{shown(kind)} is no class of tasks: take one from a generated module, or from task_class(queue)"
            )
        _CODECS[kind] = _Codec(kind)
    return _CODECS[kind]


class _Wire(NamedTuple):
    """What msgspec does for one queue."""

    encoder: Encoder
    whole: Decoder[tuple[Any, ...]]
    """Of a task as it is put today: the fast way."""
    parts: Decoder[list[Raw]]
    each: tuple[Decoder[Any], ...]


class _Codec(Generic[T]):
    def __init__(self, kind: type[T]) -> None:
        self.kind = kind
        self.contract = kind.__contract__
        self.names = tuple(field.name for field in self.contract.fields)
        self.wire = _wire(self.contract.fields)

    def encode(self, task: QueueTask) -> bytes:
        values = []
        for field in self.contract.fields:
            value = getattr(task, field.name)
            if why := value_fault(field.type, value):
                raise InvalidTask(self.contract.name, field.name, why)
            values.append(value)
        return self.wire.encoder.encode(values)

    def decode(self, stored: StoredTask | bytes) -> T:
        if isinstance(stored, StoredTask):
            self._check_queue(stored)
            data, task = stored.data, stored
        elif isinstance(stored, bytes):
            data, task = stored, None
        else:
            raise BadInput(f"a stored task or bytes can be decoded, not {type(stored).__name__}")
        try:
            values = self.wire.whole.decode(data)
        except _BROKEN:
            values = self._decode_parts(data, None if task is None else task.id)
        return self.kind(stored=task, **dict(zip(self.names, values, strict=True)))

    def _check_queue(self, stored: StoredTask) -> None:
        if stored.queue != self.contract.id:
            raise BadInput(
                f"task {stored.id} is of queue {stored.queue}, but {self.kind.__name__} is for queue {self.contract.id}"
            )

    def _decode_parts(self, data: bytes, task_id: int | None) -> tuple[Any, ...]:
        """The values one by one: of an older task, or until the one at fault."""
        name, fields = self.contract.name, self.contract.fields
        try:
            parts = self.wire.parts.decode(data)
        except _BROKEN:
            raise TaskUnreadable(name, task_id, None, "is not a msgpack array") from None
        if len(parts) > len(fields):
            raise TaskTooNew(name, task_id, len(parts), len(fields))
        values = []
        for field, decoder, part in zip(fields, self.wire.each, parts, strict=False):
            try:
                values.append(decoder.decode(part))
            except _BROKEN:
                raise TaskUnreadable(name, task_id, field.name, f"is not of type {field.type}") from None
        for field in fields[len(parts) :]:
            if field.default is None:
                raise TaskUnreadable(name, task_id, field.name, "is not there, and has no default")
            values.append(field.default)
        return tuple(values)


def _wire(fields: tuple[Field, ...]) -> _Wire:
    with extra():
        from msgspec import Meta, Raw
        from msgspec.msgpack import Decoder, Encoder

    integer = Annotated[int, Meta(ge=INT_MIN, le=INT_MAX)]
    types: dict[FieldType, Any] = {
        FieldType.INT: integer,
        FieldType.INT64: integer,
        FieldType.STRING: str,
        FieldType.BOOL: bool,
        FieldType.BYTES: bytes,
        FieldType.INTS: tuple[integer, ...],
        FieldType.INT64S: tuple[integer, ...],
    }
    wanted = tuple(types[field.type] for field in fields)
    return _Wire(
        encoder=Encoder(),
        whole=Decoder(tuple[wanted]),  # type: ignore[valid-type]  # known at run time only
        parts=Decoder(list[Raw]),
        each=tuple(map(Decoder, wanted)),
    )
