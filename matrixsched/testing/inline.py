"""Inline mode: what is scheduled, or put, for now runs before the call that did so returns."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any
from uuid import UUID

from matrixsched.calls import Call, Exists, Scheduled, ScheduledMany
from matrixsched.operations import Operation
from matrixsched.queues.database import DatabaseStorage
from matrixsched.queues.inside import StoreInside, StoreInsideSync
from matrixsched.rules.queues import NewItem
from matrixsched.scheduler import Scheduler
from matrixsched.store.callers import AsyncCaller
from matrixsched.store.store import Store


class InlineStorage(DatabaseStorage):
    """Lets what can be taken be handled before the call that put it returns; not in a caller's transaction."""

    def __init__(self, store: Store, *, run: Callable[[], Awaitable[None]], **ports: Any) -> None:
        super().__init__(lambda: store, **ports)
        self._run_inline = None if isinstance(store, StoreInside | StoreInsideSync) else run

    async def put_many(self, items: Iterable[NewItem]) -> list[int]:
        ids = await super().put_many(items)
        if self._run_inline is not None:
            await self._run_inline()
        return ids


class InlineScheduler(Scheduler):
    """Runs what is due at once, before the call that wrote it returns. What is in a caller's transaction waits."""

    def __init__(self, *arguments: Any, run: Callable[[], Awaitable[None]], **ports: Any) -> None:
        super().__init__(*arguments, **ports)
        self._run = run

    async def schedule(
        self, call: Call, *, exists: Exists, expected_guid: UUID | None, connection: AsyncCaller | None
    ) -> Scheduled:
        scheduled = await super().schedule(call, exists=exists, expected_guid=expected_guid, connection=connection)
        await self._run_unless(connection)
        return scheduled

    async def schedule_many(
        self,
        calls: Iterable[Call],
        *,
        exists: Exists,
        connection: AsyncCaller | None,
        progress: Callable[[int], object] | None,
    ) -> ScheduledMany:
        many = await super().schedule_many(calls, exists=exists, connection=connection, progress=progress)
        await self._run_unless(connection)
        return many

    async def change(self, operation: Operation[Scheduled], connection: AsyncCaller | None) -> Scheduled:
        scheduled = await super().change(operation, connection)
        await self._run_unless(connection)
        return scheduled

    async def _run_unless(self, connection: AsyncCaller | None) -> None:
        if connection is None:
            await self._run()
