"""The typed task: what all of them have, beside the fields of their contract; and its classes, made at run time."""

from __future__ import annotations

from dataclasses import dataclass, field, make_dataclass
from datetime import datetime
from functools import cache
from typing import ClassVar

from matrixsched.errors import BadInput, shown
from matrixsched.rules.contract import FieldType, QueueContract
from matrixsched.rules.queues import Receipt, StoredTask


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueTask:
    """A task of a queue. Subclasses, generated or made from a contract at run time, add its fields.

    One that is to be put has only those; one that was taken knows the rest. Lists of numbers may be given as a list,
    and become tuples: a task does not change.
    """

    __contract__: ClassVar[QueueContract]
    """What its class was made from."""

    stored: StoredTask | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in _lists(type(self)):
            value = getattr(self, name)
            if isinstance(value, list):
                object.__setattr__(self, name, tuple(value))

    @property
    def task_id(self) -> int:
        return self._taken.id

    @property
    def attempts(self) -> int:
        """How often it has come back to the queue; 0 the first time."""
        return self._taken.attempts

    @property
    def created_at(self) -> datetime:
        return self._taken.created_at

    @property
    def start_at(self) -> datetime:
        """Since when it could be taken."""
        return self._taken.start_at

    @property
    def previous_start_at(self) -> datetime | None:
        """The same of the time before; None the first time."""
        return self._taken.previous_start_at

    @property
    def receipt(self) -> Receipt:
        return self._taken.receipt

    @property
    def _taken(self) -> StoredTask:
        if self.stored is None:
            raise BadInput(
                f"this {type(self).__name__} was not taken from a queue: only those have an id and a receipt"
            )
        return self.stored


_LISTS: dict[type, tuple[str, ...]] = {}


def _lists(kind: type[QueueTask]) -> tuple[str, ...]:
    """Which fields of a class are lists; noted, for it is asked whenever a task is made."""
    if kind not in _LISTS:
        fields = kind.__contract__.fields if hasattr(kind, "__contract__") else ()
        _LISTS[kind] = tuple(field.name for field in fields if field.type.is_list)
    return _LISTS[kind]


_TYPES: dict[FieldType, object] = {
    FieldType.INT: int,
    FieldType.INT64: int,
    FieldType.STRING: str,
    FieldType.BOOL: bool,
    FieldType.BYTES: bytes,
    FieldType.INTS: tuple[int, ...],
    FieldType.INT64S: tuple[int, ...],
}


def task_text(queue: QueueContract) -> str:
    """What is said of the class."""
    return queue.description.strip() or f"A task of the queue {queue.name}."


def task_class(queue: QueueContract) -> type[QueueTask]:
    """The class of a queue's tasks, of the same shape as `matrixsched contract generate` writes it; always the same."""
    if not isinstance(queue, QueueContract):
        raise BadInput(f"tasks are of a queue as contract.queue(name) gives it, not of {shown(queue)}")
    return _task_class(queue)


@cache
def _task_class(queue: QueueContract) -> type[QueueTask]:
    return make_dataclass(
        queue.class_name,
        [
            (one.name, _TYPES[one.type], field() if one.default is None else field(default=one.default))
            for one in queue.fields
        ],
        bases=(QueueTask,),
        namespace={"__contract__": queue, "__doc__": task_text(queue), "__module__": __name__},
        frozen=True,
        slots=True,
        kw_only=True,
    )
