"""The same calls from synchronous code.

Calls in a transaction of our own go to an event loop in a background thread, where they are coalesced like any others.
Calls with `connection` run on the caller's own connection, in the caller's thread.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import ExitStack
from datetime import datetime, timedelta
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar
from uuid import UUID

from anyio.from_thread import BlockingPortal, start_blocking_portal

from matrixsched.calls import Call, Exists, Scheduled, ScheduledMany, batches
from matrixsched.foresight import look_ahead
from matrixsched.handlers import Handler
from matrixsched.limits import Limits, SyncLimits
from matrixsched.operations import Operation
from matrixsched.pruning import Progress, prune
from matrixsched.queues.api import Queues
from matrixsched.queues.inside import StoreInsideSync
from matrixsched.queues.sync import SyncQueues
from matrixsched.rules.action import Action, PastAttempt, State
from matrixsched.rules.arguments import check_function
from matrixsched.rules.explanation import Explanation
from matrixsched.rules.forecast import Forecast
from matrixsched.rules.names import SHARDS_DEFAULT
from matrixsched.rules.retention import Keep
from matrixsched.rules.retry import Retry
from matrixsched.rules.schedule import Repeat
from matrixsched.scheduler import Scheduler
from matrixsched.semaphores import Semaphores
from matrixsched.store.callers import SyncCaller, run_in_sync
from matrixsched.store.store import Store
from matrixsched.store.transition import Transition
from matrixsched.store.values import ActionFilter
from matrixsched.sync_semaphores import SemaphoresInside, SyncSemaphores, at_once
from matrixsched.templates import Quota, SyncQuota, SyncTemplates, Templates

if TYPE_CHECKING:
    from matrixsched.app import App

T = TypeVar("T")

History = list[PastAttempt]
Runs = list[datetime]


class SyncApp:
    """`app.sync`: connects at the first call; close it, use it as a context manager, or let the process end."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._opening = threading.Lock()
        self._process = os.getpid()
        self._inherited: list[ExitStack | None] = []
        self._life: ExitStack | None = None
        self._portal: BlockingPortal | None = None
        self._store: Store | None = None
        self._scheduler: Scheduler | None = None
        # For callers' own transactions: conversations only, nothing of it is ever awaited.
        self._composer: Scheduler | None = None
        self.limits = SyncLimits(self._with_limits)
        self.templates = SyncTemplates(self._with_templates)
        self.quota = SyncQuota(self._with_templates)
        self.semaphores = SyncSemaphores(self._with_semaphores)
        self.queues = SyncQueues(self._with_queues)

    def __enter__(self) -> Self:
        self._connected()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def is_connected(self) -> bool:
        return self._life is not None

    def close(self) -> None:
        with self._opening:
            life, self._life, self._composer = self._life, None, None
            if life is not None:
                atexit.unregister(self.close)
                life.close()

    @property
    def store(self) -> Store | None:
        """What it is connected by; None while it is not."""
        return None if self._life is None else self._store

    def init(self, *, shards: int = SHARDS_DEFAULT, distributed: bool | None = None) -> list[str]:
        """As App.init."""
        with start_blocking_portal() as portal:
            return portal.call(lambda: self._app.init(shards=shards, distributed=distributed))

    def schedule(
        self,
        handler: Handler[..., Any] | str,
        payload: object = None,
        *,
        id: str | None = None,
        at: datetime | None = None,
        delay: timedelta | None = None,
        repeat: Repeat | None = None,
        retry: Retry | None = None,
        timeout: timedelta | None = None,
        start_within: timedelta | None = None,
        expires_at: datetime | None = None,
        priority: int = 0,
        template: str | None = None,
        zone: str | None = None,
        limit: str | None = None,
        payload_version: int | None = None,
        exists: Exists = "replace",
        expected_guid: UUID | None = None,
        request_id: str | None = None,
        connection: SyncCaller | None = None,
    ) -> Scheduled:
        """As App.schedule; `connection` is a Connection or Session of SQLAlchemy, a connection of Django, psycopg or
        sqlite3."""
        call = Call(
            handler=handler,
            payload=payload,
            id=id,
            at=at,
            delay=delay,
            repeat=repeat,
            retry=retry,
            timeout=timeout,
            start_within=start_within,
            expires_at=expires_at,
            priority=priority,
            template=template,
            zone=zone,
            limit=limit,
            payload_version=payload_version,
            request_id=request_id,
        )
        with self._app.tracer.producing(call) as answered:
            scheduled = self._scheduled(call, exists, expected_guid, connection)
            answered(scheduled)
        return scheduled

    def _scheduled(
        self, call: Call, exists: Exists, expected_guid: UUID | None, connection: SyncCaller | None
    ) -> Scheduled:
        if connection is None:
            return self._await(
                lambda scheduler: scheduler.schedule(call, exists=exists, expected_guid=expected_guid, connection=None)
            )
        if expected_guid is not None:
            return self._inside(connection, lambda scheduler: scheduler.replacing(call, expected_guid))
        return self._inside(connection, lambda scheduler: scheduler.scheduling(call, exists))

    def schedule_many(
        self,
        calls: Iterable[Call],
        *,
        exists: Exists = "replace",
        connection: SyncCaller | None = None,
        progress: Callable[[int], object] | None = None,
    ) -> ScheduledMany:
        """As App.schedule_many. The calls are drawn in this thread."""
        with self._app.tracer.producing(None) as answered:
            many = self._scheduled_many(calls, exists, connection, progress)
            answered(many)
        return many

    def _scheduled_many(
        self,
        calls: Iterable[Call],
        exists: Exists,
        connection: SyncCaller | None,
        progress: Callable[[int], object] | None,
    ) -> ScheduledMany:
        if progress is not None:
            check_function("progress", progress)
        many = ScheduledMany()
        for batch in batches(calls, self._app.policy.batch_max):
            if connection is None:
                many += self._await(
                    lambda scheduler, batch=batch: scheduler.schedule_many(  # type: ignore[misc]
                        batch, exists=exists, connection=None, progress=None
                    )
                )
            else:
                many += self._inside(
                    connection,
                    lambda scheduler, batch=batch: scheduler.scheduling_many(batch, exists),  # type: ignore[misc]
                )
            if progress is not None:
                progress(many.total)
        return many

    def reschedule(
        self,
        id: str,
        *,
        at: datetime | None = None,
        delay: timedelta | None = None,
        expected_guid: UUID | None = None,
        request_id: str | None = None,
        connection: SyncCaller | None = None,
    ) -> Scheduled:
        """As App.reschedule."""
        return self._change(
            connection,
            lambda scheduler: scheduler.rescheduling(
                id, at=at, delay=delay, expected_guid=expected_guid, request_id=request_id
            ),
        )

    def run_now(
        self,
        id: str,
        *,
        expected_guid: UUID | None = None,
        request_id: str | None = None,
        connection: SyncCaller | None = None,
    ) -> Scheduled:
        """As App.run_now."""
        return self._change(
            connection,
            lambda scheduler: scheduler.rescheduling(
                id, revive=True, expected_guid=expected_guid, request_id=request_id
            ),
        )

    def cancel(
        self,
        id: str,
        *,
        expected_guid: UUID | None = None,
        request_id: str | None = None,
        connection: SyncCaller | None = None,
    ) -> Scheduled:
        """As App.cancel."""
        return self._change(
            connection,
            lambda scheduler: scheduler.cancelling(id, expected_guid=expected_guid, request_id=request_id),
        )

    def get(self, id: str, *, connection: SyncCaller | None = None) -> Action:
        """As App.get."""
        return self._read(connection, lambda scheduler: scheduler.finding(id))

    def list(
        self,
        *,
        state: State | None = None,
        handler: str | None = None,
        template: str | None = None,
        id_prefix: str | None = None,
        due_before: datetime | None = None,
        after: Action | str | None = None,
        limit: int = 100,
        connection: SyncCaller | None = None,
    ) -> list[Action]:
        """As App.list."""
        wanted = ActionFilter(
            state=state, handler=handler, template=template, id_prefix=id_prefix, due_before=due_before
        )
        return self._read(connection, lambda scheduler: scheduler.listing(wanted, after, limit))

    def history(self, id: str) -> History:
        """As App.history."""
        return self._read(None, lambda scheduler: scheduler.remembering(id))

    def next_runs(self, id: str, count: int = 5, *, connection: SyncCaller | None = None) -> Runs:
        """As App.next_runs."""
        return self._read(connection, lambda scheduler: scheduler.foreseeing(id, count))

    def explain(self, id: str) -> Explanation:
        """As App.explain."""
        return self._read(None, lambda scheduler: scheduler.explaining(id))

    def prune(
        self, keep: Keep = None, *, progress: Progress | None = None, dry_run: bool = False
    ) -> Mapping[State, int]:
        """As App.prune; `progress` is called in the background thread."""
        portal, _ = self._connected()
        assert self._store is not None
        return portal.call(partial(prune, self._store, keep, progress=progress, dry_run=dry_run))

    def foresee(self, hours: int = 24) -> Forecast:
        """As App.foresee."""
        portal, _ = self._connected()
        assert self._store is not None
        return portal.call(look_ahead, self._store, hours)

    # How they are carried out.

    def _with_limits(self, work: Callable[[Limits], Awaitable[T]]) -> T:
        return self._await(
            lambda _: work(Limits(self._connected_store, wrote=lambda: None, events=lambda: self._app.events))
        )

    def _with_templates(self, work: Callable[[Templates, Quota], Awaitable[T]]) -> T:
        store, app = self._connected_store, self._app
        templates = Templates(store, chance=lambda: app.chance, wrote=lambda: None, events=lambda: app.events)
        return self._await(lambda _: work(templates, Quota(store)))

    def _with_semaphores(self, connection: SyncCaller | None, work: Callable[[Semaphores], Awaitable[T]]) -> T:
        app = self._app
        if connection is not None:
            return at_once(work(SemaphoresInside(connection, app.store, app.chance)))
        semaphores = Semaphores(self._connected_store, chance=lambda: app.chance, wrote=lambda: None)
        return self._await(lambda _: work(semaphores))

    def _with_queues(self, connection: SyncCaller | None, work: Callable[[Queues], Awaitable[T]]) -> T:
        queues = self._app.queues
        if connection is not None:
            queues.refuse_elsewhere()
            return at_once(work(queues.over(StoreInsideSync(self._app.store, connection))))
        return self._await(lambda _: work(queues.over(self._connected_store())))

    def _connected_store(self) -> Store:
        assert self._store is not None
        return self._store

    def _change(
        self, connection: SyncCaller | None, operation: Callable[[Scheduler], Operation[Scheduled]]
    ) -> Scheduled:
        if connection is not None:
            return self._inside(connection, operation)
        return self._await(lambda scheduler: scheduler.change(operation(scheduler), None))

    def _read(self, connection: SyncCaller | None, operation: Callable[[Scheduler], Transition[T]]) -> T:
        if connection is not None:
            return self._inside(connection, operation)
        return self._await(lambda scheduler: scheduler.read(operation(scheduler), None))

    def _inside(self, connection: SyncCaller, operation: Callable[[Scheduler], Transition[T]]) -> T:
        if self._composer is None:
            self._composer = self._app.scheduler_for(self._app.store)
        return run_in_sync(connection, self._app.store.dialect, operation(self._composer))

    def _await(self, work: Callable[[Scheduler], Awaitable[T]]) -> T:
        portal, scheduler = self._connected()

        async def carried_out() -> T:
            return await work(scheduler)

        return portal.call(carried_out)

    def _connected(self) -> tuple[BlockingPortal, Scheduler]:
        if self._process != os.getpid():
            # After a fork the background thread is the parent's alone, and the lock may have been held by one of its
            # threads. This process begins anew. What it inherited is kept: thrown away, it would wait for that thread.
            self._inherited.append(self._life)
            self._process, self._opening, self._life = os.getpid(), threading.Lock(), None
        with self._opening:
            if self._life is None:
                self._open()
            assert self._portal is not None
            assert self._scheduler is not None
            return self._portal, self._scheduler

    def _open(self) -> None:
        with ExitStack() as life:
            portal = life.enter_context(start_blocking_portal())
            store = self._app.store.sibling()
            portal.call(store.open)
            life.callback(portal.call, store.close)
            self._portal, self._store = portal, store
            self._scheduler = self._app.scheduler_for(store)
            portal.call(store.run, self._scheduler.installing())
            self._life = life.pop_all()
            atexit.register(self.close)
