"""`app.sync.queues`: the same from synchronous code, in a transaction of our own or in the caller's."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Protocol, TypeVar

from matrixsched.queues.api import Queues
from matrixsched.queues.tasks import QueueTask
from matrixsched.rules.arguments import each
from matrixsched.rules.queues import DeadTask, QueueStat, check_ids
from matrixsched.store.callers import SyncCaller

T = TypeVar("T")


class CarryOut(Protocol):
    """Awaits what is done with queues, elsewhere or in the caller's transaction; what came of it."""

    def __call__(self, connection: SyncCaller | None, work: Callable[[Queues], Awaitable[T]], /) -> T: ...


class SyncQueues:
    def __init__(self, carry_out: CarryOut) -> None:
        self._carry_out = carry_out

    def put(
        self,
        task: QueueTask,
        *,
        at: datetime | None = None,
        delay: timedelta | None = None,
        connection: SyncCaller | None = None,
    ) -> int:
        """As Queues.put."""
        return self._carry_out(connection, lambda queues: queues.put(task, at=at, delay=delay))

    def put_many(
        self,
        tasks: Iterable[QueueTask],
        *,
        at: datetime | None = None,
        delay: timedelta | None = None,
        connection: SyncCaller | None = None,
    ) -> list[int]:
        """As Queues.put_many. The tasks are drawn in this thread."""
        drawn = list(each("tasks", tasks, "a list of tasks"))
        return self._carry_out(connection, lambda queues: queues.put_many(drawn, at=at, delay=delay))

    def stat(self) -> Mapping[str, QueueStat]:
        """As Queues.stat: counting stops at 1,000,000 of those that are ready, of the others, and of the dead."""
        return self._carry_out(None, lambda queues: queues.stat())

    def dead_letters(self, name: str, *, after: int = 0, limit: int = 100) -> list[DeadTask]:
        """As Queues.dead_letters."""
        return self._carry_out(None, lambda queues: queues.dead_letters(name, after=after, limit=limit))

    def redrive(self, name: str, *, ids: Iterable[int] | None = None, limit: int = 1000) -> int:
        """As Queues.redrive. The ids are drawn in this thread."""
        chosen = check_ids(ids)
        return self._carry_out(None, lambda queues: queues.redrive(name, ids=chosen, limit=limit))

    def purge_dead(self, name: str, *, ids: Iterable[int] | None = None, limit: int = 1000) -> int:
        """As Queues.purge_dead. The ids are drawn in this thread."""
        chosen = check_ids(ids)
        return self._carry_out(None, lambda queues: queues.purge_dead(name, ids=chosen, limit=limit))

    def pause(self, name: str) -> bool:
        """As Queues.pause."""
        return self._carry_out(None, lambda queues: queues.pause(name))

    def resume(self, name: str) -> bool:
        """As Queues.resume."""
        return self._carry_out(None, lambda queues: queues.resume(name))
