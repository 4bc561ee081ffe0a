"""`app.sync.semaphores`: the same from synchronous code, in a transaction of our own or in the caller's."""

from __future__ import annotations

import builtins
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from datetime import timedelta
from typing import Any, Protocol, TypeVar
from uuid import UUID

from matrixsched.clock import Chance
from matrixsched.rules.semaphore import ACTIVE_DEFAULT, Semaphore, Task
from matrixsched.semaphores import (
    COUNT_MAX,
    PAGE_MAX,
    Priorities,
    SemaphoreBalance,
    Semaphores,
    SemaphoreStatistics,
    TaskSemaphore,
)
from matrixsched.store.callers import AsyncCaller, SyncCaller, run_in_sync
from matrixsched.store.store import Store
from matrixsched.store.transition import Transition

T = TypeVar("T")

Tasks = builtins.list[Task]


class CarryOut(Protocol):
    """Awaits what is done with semaphores, elsewhere or in the caller's transaction; what came of it."""

    def __call__(self, connection: SyncCaller | None, work: Callable[[Semaphores], Awaitable[T]], /) -> T: ...


class SemaphoresInside(Semaphores):
    """Semaphores in a caller's synchronous transaction: nothing of it is ever awaited."""

    def __init__(self, connection: SyncCaller, store: Store, chance: Chance) -> None:
        super().__init__(lambda: store, chance=lambda: chance, wrote=lambda: None)
        self._connection = connection

    async def _run(self, transition: Transition[T], connection: AsyncCaller | None) -> T:
        return run_in_sync(self._connection, self._store().dialect, transition)

    async def _once(self, transition: Transition[T], connection: AsyncCaller | None) -> T:
        return await self._run(transition, connection)

    def _is_inside(self, connection: AsyncCaller | None) -> bool:
        return True


def at_once(work: Awaitable[T]) -> T:
    """The answer of something that never waits."""
    coroutine: Coroutine[Any, Any, T] = work  # type: ignore[assignment]
    try:
        coroutine.send(None)
    except StopIteration as end:
        answer: T = end.value
        return answer
    raise AssertionError("it waits for something")


class SyncSemaphores:
    def __init__(self, carry_out: CarryOut) -> None:
        self._carry_out = carry_out

    def get_or_create(
        self,
        key: str,
        *,
        active: int = ACTIVE_DEFAULT,
        try_release: int | None = None,
        hold_for: timedelta | None = None,
        connection: SyncCaller | None = None,
    ) -> SyncTaskSemaphore:
        """As Semaphores.get_or_create."""
        made = self._carry_out(
            connection,
            lambda semaphores: semaphores.get_or_create(key, active=active, try_release=try_release, hold_for=hold_for),
        )
        return SyncTaskSemaphore(self._carry_out, made.key)

    def get(self, key: str, *, connection: SyncCaller | None = None) -> SyncTaskSemaphore:
        """As Semaphores.get."""
        return SyncTaskSemaphore(self._carry_out, self._carry_out(connection, lambda one: one.get(key)).key)

    def settings(self, key: str, *, connection: SyncCaller | None = None) -> Semaphore:
        """As Semaphores.settings."""
        return self._carry_out(connection, lambda semaphores: semaphores.settings(key))

    def list(self, *, after: str = "", limit: int = 1000) -> builtins.list[Semaphore]:
        """As Semaphores.list."""
        return self._carry_out(None, lambda semaphores: semaphores.list(after=after, limit=limit))

    def update(
        self,
        key: str,
        active: int | None = None,
        try_release: int | None = None,
        *,
        hold_for: timedelta | None = None,
        holds_for_good: bool = False,
        connection: SyncCaller | None = None,
    ) -> Semaphore:
        """As Semaphores.update."""
        return self._carry_out(
            connection,
            lambda semaphores: semaphores.update(
                key, active, try_release, hold_for=hold_for, holds_for_good=holds_for_good
            ),
        )


class SyncTaskSemaphore:
    """As TaskSemaphore."""

    def __init__(self, carry_out: CarryOut, key: str) -> None:
        self._carry_out = carry_out
        self.key = key

    def __repr__(self) -> str:
        return f"<SyncTaskSemaphore {self.key!r}>"

    def _with(self, connection: SyncCaller | None, work: Callable[[TaskSemaphore], Awaitable[T]]) -> T:
        return self._carry_out(connection, lambda semaphores: work(TaskSemaphore(semaphores, self.key)))

    def enqueue(self, task_id: str, priority: float = 0, *, connection: SyncCaller | None = None) -> bool:
        """As TaskSemaphore.enqueue."""
        return self._with(connection, lambda semaphore: semaphore.enqueue(task_id, priority))

    def enqueue_many(self, tasks: Priorities, *, connection: SyncCaller | None = None) -> int:
        """As TaskSemaphore.enqueue_many."""
        return self._with(connection, lambda semaphore: semaphore.enqueue_many(tasks))

    def release(
        self,
        task_id: str,
        *,
        hold: UUID | None = None,
        missing_ok: bool = False,
        connection: SyncCaller | None = None,
    ) -> bool:
        """As TaskSemaphore.release."""
        return self._with(connection, lambda semaphore: semaphore.release(task_id, hold=hold, missing_ok=missing_ok))

    def release_many(
        self, task_ids: Iterable[str], *, missing_ok: bool = False, connection: SyncCaller | None = None
    ) -> int:
        """As TaskSemaphore.release_many."""
        return self._with(connection, lambda semaphore: semaphore.release_many(task_ids, missing_ok=missing_ok))

    def step_back(
        self,
        task_id: str,
        *,
        priority: float | None = None,
        hold: UUID | None = None,
        connection: SyncCaller | None = None,
    ) -> bool:
        """As TaskSemaphore.step_back."""
        return self._with(connection, lambda semaphore: semaphore.step_back(task_id, priority=priority, hold=hold))

    def renew(self, task_id: str, *, hold: UUID | None = None, connection: SyncCaller | None = None) -> bool:
        """As TaskSemaphore.renew."""
        return self._with(connection, lambda semaphore: semaphore.renew(task_id, hold=hold))

    def renew_many(self, task_ids: Iterable[str], *, connection: SyncCaller | None = None) -> int:
        """As TaskSemaphore.renew_many."""
        return self._with(connection, lambda semaphore: semaphore.renew_many(task_ids))

    def balance(self) -> SemaphoreBalance | None:
        """As TaskSemaphore.balance."""
        return self._with(None, lambda semaphore: semaphore.balance())

    def holders(self, limit: int = PAGE_MAX, *, connection: SyncCaller | None = None) -> Tasks:
        """As TaskSemaphore.holders."""
        return self._with(connection, lambda semaphore: semaphore.holders(limit))

    def waiting(self, limit: int = 100, *, connection: SyncCaller | None = None) -> Tasks:
        """As TaskSemaphore.waiting."""
        return self._with(connection, lambda semaphore: semaphore.waiting(limit))

    def get(self, task_id: str, *, connection: SyncCaller | None = None) -> Task:
        """As TaskSemaphore.get."""
        return self._with(connection, lambda semaphore: semaphore.get(task_id))

    def position(self, task_id: str, *, connection: SyncCaller | None = None) -> int | None:
        """As TaskSemaphore.position."""
        return self._with(connection, lambda semaphore: semaphore.position(task_id))

    def statistics(self, *, count_max: int = COUNT_MAX, connection: SyncCaller | None = None) -> SemaphoreStatistics:
        """As TaskSemaphore.statistics."""
        return self._with(connection, lambda semaphore: semaphore.statistics(count_max=count_max))
