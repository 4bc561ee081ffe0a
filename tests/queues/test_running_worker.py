"""A worker that runs, on a real database: settings that change, batches that are prolonged, a stop meanwhile."""

from __future__ import annotations

import queue
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TypeVar

import anyio
import anyio.to_thread
import pytest
from support.crew import DEADLINE_S, SECOND, until
from support.queue_tasks import CONTRACT, EMAILS, SMS, Email, Sms
from support.queues import storage_of

from matrixsched import App
from matrixsched.events import BatchEnded
from matrixsched.queues.database import DatabaseStorage
from matrixsched.rules.queues import VISIBILITY_MIN
from matrixsched.store.opening import open_store
from matrixsched.store.store import Store
from matrixsched.store.transition import Transition
from matrixsched.store.wrapper import StoreWrapper
from matrixsched.worker import Worker, WorkerPolicy

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]

T = TypeVar("T")
LONGER_S = 1.5
"""So many times their visibility timeout tasks are held."""


class Line:
    """What goes to the database, from whichever thread."""

    def __init__(self) -> None:
        self.answered: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.hangs = threading.Event()
        """Extensions are asked for, and no answer comes."""
        self.is_hanging = threading.Event()
        self.repaired = threading.Event()

    async def heard(self, name: str, *, times: int = 1) -> None:
        """Wait for so many answers more."""
        while times:
            times -= name == await anyio.to_thread.run_sync(partial(self.answered.get, timeout=DEADLINE_S))


class WatchedStore(StoreWrapper):
    def __init__(self, inner: Store, line: Line) -> None:
        super().__init__(inner)
        self._line = line

    async def run(self, transition: Transition[T]) -> T:
        if transition.name == "extend_tasks" and self._line.hangs.is_set():
            self._line.is_hanging.set()
            await anyio.to_thread.run_sync(self._line.repaired.wait, abandon_on_cancel=True)
        answer = await self._inner.run(transition)
        self._line.answered.put(transition.name)
        return answer

    def sibling(self) -> Store:
        return WatchedStore(self._inner.sibling(), self._line)


@pytest.fixture
def line() -> Line:
    return Line()


@pytest.fixture
async def watched(database_url: str, line: Line, anyio_backend: str) -> App:
    """In real time: the thread that prolongs batches has its own."""
    app = App(database_url, store=WatchedStore(open_store(database_url), line))
    app.queues.use(CONTRACT)
    await app.init(shards=4)
    return app


@pytest.fixture
async def other(watched: App, database_url: str) -> AsyncIterator[DatabaseStorage]:
    """Another worker, who would take what it can get."""
    store = open_store(database_url)
    await store.open()
    yield storage_of(store, seed=2)
    await store.close()


class Ends:
    """The batches that ended."""

    def __init__(self, app: App) -> None:
        self.events: list[BatchEnded] = []
        app.events.subscribe(BatchEnded, self.events.append)

    @property
    def counts(self) -> tuple[int, int, int]:
        """Tasks that were processed, that others had, that were left."""
        return (
            sum(event.processed for event in self.events),
            sum(event.stale for event in self.events),
            sum(event.left for event in self.events),
        )


async def test_settings_that_change_in_the_store_count_from_the_next_batch_on(watched: App, other: DatabaseStorage):
    """At once: a look tells of it, and whoever looks reads them before anything else is taken."""
    may_end, seen, ends, have_heard = anyio.Event(), [], Ends(watched), anyio.Event()

    @watched.queues.handler("emails", batch_size=2, visibility=60 * SECOND)
    async def send(tasks: list[Email]) -> None:
        held = [one for one in await other.peek(EMAILS) if one.state == "taken"]
        seen.append((len(tasks), {round((one.due_at - datetime.now(UTC)) / (30 * SECOND)) for one in held}))
        await may_end.wait()

    worker = Worker(watched, WorkerPolicy(processors=2), only_queues=True)
    hear = worker.processors.on_settings_change

    async def hearing() -> None:
        await hear()
        have_heard.set()

    worker.processors.on_settings_change = hearing
    async with worker:
        await watched.queues.put_many([Email(to=str(number)) for number in range(2)])
        with anyio.fail_after(DEADLINE_S):
            await until(lambda: len(seen) == 1)
            await other.change_settings(EMAILS, lambda now: replace(now, batch_size=3, visibility=300 * SECOND))
            await have_heard.wait()
            await watched.queues.put_many([Email(to=str(number)) for number in range(2, 5)])
            await until(lambda: len(seen) == 2)
            may_end.set()
            await until(lambda: len(ends.events) == 2)
    assert seen == [(2, {2}), (3, {2, 10})]
    assert ends.counts == (5, 0, 0)


async def test_several_long_batches_are_prolonged_at_the_same_time_and_nobody_else_gets_them(
    watched: App, line: Line, other: DatabaseStorage
):
    may_end, ends, begun = anyio.Event(), Ends(watched), []

    async def wait(tasks: list[Email]) -> None:
        begun.append(len(tasks))
        await may_end.wait()

    watched.queues.handler("emails", batch_size=2, visibility=VISIBILITY_MIN)(wait)
    watched.queues.handler("sms", batch_size=2, visibility=2 * VISIBILITY_MIN)(wait)
    async with Worker(watched, WorkerPolicy(processors=4), only_queues=True):
        await watched.queues.put_many([Email(to=str(number)) for number in range(6)])
        await watched.queues.put_many([Sms(number=number) for number in range(2)])
        with anyio.fail_after(DEADLINE_S):
            await until(lambda: len(begun) == 4)
            ends_at = anyio.current_time() + LONGER_S * 2 * VISIBILITY_MIN.total_seconds()
            while anyio.current_time() < ends_at:
                await line.heard("extend_tasks")
                assert await other.get(EMAILS, 10) == []
                assert await other.get(SMS, 10) == []
            may_end.set()
            await until(lambda: len(ends.events) == 4)
    assert ends.counts == (8, 0, 0)
    assert [stat.total for stat in (await other.stat()).values()] == [0, 0]


async def test_a_worker_that_stops_prolongs_what_it_lets_finish(watched: App, line: Line, other: DatabaseStorage):
    may_end, begun, ends = anyio.Event(), anyio.Event(), Ends(watched)

    @watched.queues.handler("emails", visibility=VISIBILITY_MIN)
    async def send(tasks: list[Email]) -> None:
        begun.set()
        await may_end.wait()

    with anyio.fail_after(DEADLINE_S):
        async with anyio.create_task_group() as group, Worker(watched, only_queues=True) as worker:
            await watched.queues.put_many([Email(to="ada"), Email(to="bob")])
            await begun.wait()

            async def end_when_prolonged() -> None:
                await worker.stopping.wait()
                ends_at = anyio.current_time() + LONGER_S * VISIBILITY_MIN.total_seconds()
                while anyio.current_time() < ends_at:
                    await line.heard("extend_tasks")
                    assert await other.get(EMAILS, 10) == []
                may_end.set()

            group.start_soon(end_when_prolonged)
    assert ends.counts == (2, 0, 0)


async def test_an_extension_without_an_answer_does_not_keep_a_worker_from_stopping(watched: App, line: Line):
    may_end, begun, ends = anyio.Event(), anyio.Event(), Ends(watched)

    @watched.queues.handler("emails", visibility=3 * VISIBILITY_MIN)
    async def send(tasks: list[Email]) -> None:
        begun.set()
        await may_end.wait()

    line.hangs.set()
    try:
        with anyio.fail_after(DEADLINE_S):
            async with Worker(watched, only_queues=True):
                await watched.queues.put(Email(to="ada"))
                await begun.wait()
                assert await anyio.to_thread.run_sync(line.is_hanging.wait, DEADLINE_S)
                may_end.set()
    finally:
        line.repaired.set()
    assert ends.counts == (1, 0, 0)
