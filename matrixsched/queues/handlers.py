"""The queues that an application knows, and who handles their batches."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol, TypeVar, overload

from matrixsched.errors import BadInput, QueueContradiction, UnknownQueue
from matrixsched.handlers import code_of
from matrixsched.queues.codec import decode
from matrixsched.queues.results import BatchResult
from matrixsched.queues.storage import QueueStorage, SyncQueueStorage
from matrixsched.queues.tasks import QueueTask, task_class
from matrixsched.rules.contract import QueueContract
from matrixsched.rules.queues import StoredTask, check_count, check_visibility
from matrixsched.rules.times import check_duration

BatchFunction = Callable[..., Awaitable[BatchResult] | BatchResult]
"""Takes (tasks) or (tasks, storage)."""

T = TypeVar("T", bound=QueueTask)
Answer = TypeVar("Answer", bound=Awaitable[BatchResult] | BatchResult)
Awaited = TypeVar("Awaited", bound=Awaitable[BatchResult])
Returned = TypeVar("Returned", bound=BatchResult)


class HandlerOf(Protocol[T]):
    """What registers a function that takes batches of this class of tasks: mypy refuses one of others."""

    @overload
    def __call__(self, function: Callable[[list[T]], Answer], /) -> Callable[[list[T]], Answer]: ...

    @overload
    def __call__(
        self, function: Callable[[list[T], QueueStorage], Awaited], /
    ) -> Callable[[list[T], QueueStorage], Awaited]: ...

    @overload
    def __call__(
        self, function: Callable[[list[T], SyncQueueStorage], Returned], /
    ) -> Callable[[list[T], SyncQueueStorage], Returned]: ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BatchHandler:
    """Who handles the batches of a queue."""

    queue: QueueContract
    function: BatchFunction
    task_class: type[QueueTask]
    is_async: bool
    takes_storage: bool
    batch_size: int | None
    """None: as the worker says."""
    visibility: timedelta | None
    timeout: timedelta | None
    """None: it may take as long as it likes."""

    def decode(self, stored: StoredTask) -> QueueTask:
        return decode(self.task_class, stored)


class QueueHandlers:
    """All queues of an application, with their handlers if they have one here."""

    def __init__(self) -> None:
        self._queues: dict[str, QueueContract] = {}
        self._handlers: dict[int, BatchHandler] = {}

    def __iter__(self) -> Iterator[BatchHandler]:
        return iter(self._handlers.values())

    def __len__(self) -> int:
        """How many queues are handled here."""
        return len(self._handlers)

    @property
    def names(self) -> list[str]:
        """Of the queues that are declared."""
        return sorted(self._queues)

    @property
    def declared(self) -> list[QueueContract]:
        return list(self._queues.values())

    # Queues.

    def declare(self, queues: Iterable[QueueContract]) -> None:
        """Know these queues, all or none; the same ones again are fine."""
        known = dict(self._queues)
        for queue in queues:
            _refuse_contradiction(known, queue)
            known.setdefault(queue.name, queue)
        self._queues = known

    def queue(self, name: str) -> QueueContract:
        """The queue of that name; UnknownQueue if none is declared."""
        queue = self._queues.get(name) if isinstance(name, str) else None
        if queue is None:
            raise UnknownQueue(name, self.names)
        return queue

    def queue_of(self, kind: type) -> QueueContract:
        """The queue that tasks of this class belong to."""
        contract: QueueContract | None = getattr(kind, "__contract__", None)
        if not issubclass(kind, QueueTask) or contract is None:
            raise BadInput(f"a task must be of a class made from a contract, not {kind.__name__}")
        queue = self.queue(contract.name)
        _refuse_contradiction(self._queues, contract)
        return queue

    # Handlers.

    def register(
        self,
        name: str | type[QueueTask],
        function: BatchFunction,
        *,
        batch_size: int | None,
        visibility: timedelta | None,
        timeout: timedelta | None = None,
    ) -> BatchHandler:
        queue = self.queue_of(name) if isinstance(name, type) else self.queue(name)
        if queue.id in self._handlers:
            raise BadInput(f"queue {queue.name!r} has a handler already")
        if batch_size is not None:
            check_count("batch_size", batch_size)
        if visibility is not None:
            check_visibility(visibility)
        if timeout is not None:
            check_duration("timeout", timeout, zero=False)
        handler = BatchHandler(
            queue=queue,
            function=function,
            task_class=name if isinstance(name, type) else task_class(queue),
            takes_storage=_takes_storage(queue.name, function),
            is_async=inspect.iscoroutinefunction(code_of(function)),
            batch_size=batch_size,
            visibility=visibility,
            timeout=timeout,
        )
        self._handlers[queue.id] = handler
        return handler

    def find(self, queue: int) -> BatchHandler | None:
        return self._handlers.get(queue)


def _refuse_contradiction(known: Mapping[str, QueueContract], contract: QueueContract) -> None:
    for queue in known.values():
        if queue.name == contract.name and queue.id != contract.id:
            raise QueueContradiction(contract.name, f"its number is {queue.id} there and {contract.id} here")
        if queue.id == contract.id and queue.name != contract.name:
            raise QueueContradiction(contract.name, f"its number {queue.id} is that of {queue.name!r}")
        if queue.name == contract.name and not queue.is_like(contract):
            raise QueueContradiction(contract.name, "its tasks have other fields")


def _takes_storage(name: str, function: object) -> bool:
    """Whether it wants the storage beside the tasks."""
    if not callable(function):
        raise BadInput(f"the handler of queue {name!r} must be a function, not {type(function).__name__}")
    code = code_of(function)
    if inspect.isgeneratorfunction(code) or inspect.isasyncgenfunction(code):
        raise BadInput(f"the handler of queue {name!r} is a generator, which nobody would iterate: remove its yield")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        raise BadInput(f"what the handler of queue {name!r} takes cannot be told: wrap it in a function") from None
    if _fits(signature, "tasks") and "storage" not in signature.parameters:
        return False
    if _fits(signature, "tasks", "storage"):
        return True
    raise BadInput(f"the handler of queue {name!r} must take (tasks) or (tasks, storage)")


def _fits(signature: inspect.Signature, *arguments: str) -> bool:
    try:
        signature.bind(*arguments)
    except TypeError:
        return False
    return True
