"""The time limit of a batch handler: cancelled, waited for in its grace, or left to itself."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import anyio
import anyio.to_thread
import pytest
from support.crew import DEADLINE_S, SECOND, Crew, until
from support.queue_tasks import CONTRACT, EMAILS, Email, Sms

from matrixsched import App
from matrixsched.errors import HandlersLeaked, InvalidDuration
from matrixsched.events import BatchEnded, QueueHandlerFailed
from matrixsched.queues.results import Done
from matrixsched.queues.storage import QueueStorage
from matrixsched.worker import Worker, WorkerPolicy

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]

LIMIT, GRACE, VISIBILITY = 10 * SECOND, 5 * SECOND, 30 * SECOND


class Stubborn:
    """A plain function that goes on until it is released."""

    def __init__(self) -> None:
        self.begun, self.release, self.ended = threading.Event(), threading.Event(), threading.Event()

    def __call__(self, tasks: list[Email]) -> list[Done]:
        self.begun.set()
        self.release.wait(DEADLINE_S)
        self.ended.set()
        return [Done() for _ in tasks]

    async def has_begun(self) -> None:
        assert await anyio.to_thread.run_sync(self.begun.wait, DEADLINE_S)

    async def end(self) -> None:
        self.release.set()
        assert await anyio.to_thread.run_sync(self.ended.wait, DEADLINE_S)


async def test_a_handler_is_cancelled_when_its_time_is_over_and_has_failed(crew: Crew):
    async def send(tasks: list[Email], storage: QueueStorage) -> None:
        await storage.done(tasks[:1])
        await anyio.sleep_forever()

    crew.handle("emails", send, visibility=VISIBILITY, timeout=LIMIT)
    await crew.emails("ada", "bob", "eve")
    async with crew.at_work() as processors:
        await until(lambda: processors.running == 1)
        crew.clock.advance(LIMIT - SECOND)
        await anyio.wait_all_tasks_blocked()
        assert processors.running == 1
        crew.clock.advance(SECOND)
        await until(lambda: len(crew.of(BatchEnded)) == 1)
        (failed,) = crew.of(QueueHandlerFailed)
        assert (failed.name, failed.tasks) == ("emails", 3)
        assert failed.error.startswith("it was cancelled after its timeout of 10 s: raise the handler's timeout")
        assert (crew.ended.processed, crew.ended.left, crew.ended.errors) == (1, 2, 2)
        assert processors.leaked == 0
    assert (await crew.stat()).taken == 2
    crew.clock.advance(VISIBILITY)
    assert [task.attempts for task in await crew.storage.get(EMAILS, 10)] == [1, 1]


async def test_without_a_limit_it_may_take_as_long_as_it_likes(crew: Crew):
    may_end = anyio.Event()

    async def send(tasks: list[Email]) -> None:
        await may_end.wait()

    crew.handle("emails", send)
    await crew.emails("ada")
    async with crew.at_work() as processors:
        await until(lambda: processors.running == 1)
        for _ in range(100):
            crew.clock.advance(15 * SECOND)
            await processors.batches.prolong(crew.storage)
            await processors.watch()
        may_end.set()
        await until(lambda: len(crew.of(BatchEnded)) == 1)
    assert crew.ended.processed == 1


async def test_what_it_returns_in_its_grace_counts(crew: Crew):
    async def clean_up(tasks: list[Email]) -> Done:
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            return Done()

    crew.handle("emails", clean_up, timeout=LIMIT)
    await crew.emails("ada")
    async with crew.at_work() as processors:
        await until(lambda: processors.running == 1)
        crew.clock.advance(LIMIT)
        await until(lambda: len(crew.of(BatchEnded)) == 1)
    assert (crew.ended.processed, crew.of(QueueHandlerFailed)) == (1, [])


async def test_a_thread_is_waited_for_in_its_grace(crew: Crew):
    stubborn = Stubborn()
    crew.handle("emails", stubborn, visibility=VISIBILITY, timeout=LIMIT)
    await crew.emails("ada")
    async with crew.at_work() as processors:
        await stubborn.has_begun()
        crew.clock.advance(LIMIT + GRACE - SECOND)
        await processors.watch()
        assert processors.running == 1
        await stubborn.end()
        await until(lambda: len(crew.of(BatchEnded)) == 1)
    assert (crew.ended.processed, processors.leaked, crew.of(QueueHandlerFailed)) == (1, 0, [])


async def test_a_thread_that_outlives_its_grace_goes_on_alone_and_takes_the_place_of_a_processor(crew: Crew):
    stubborn, may_end = Stubborn(), anyio.Event()

    async def wait(tasks: list[Any]) -> None:
        await may_end.wait()

    crew.handle("emails", stubborn, batch_size=1, visibility=VISIBILITY, timeout=LIMIT)
    crew.handle("sms", wait, batch_size=1)
    await crew.emails("ada")
    try:
        async with crew.at_work(processors=2) as processors:
            await stubborn.has_begun()
            crew.clock.advance(LIMIT + GRACE)
            await until(lambda: len(crew.of(BatchEnded)) == 1)
            (failed,) = crew.of(QueueHandlerFailed)
            assert failed.error.startswith("it goes on after its timeout of 10 s")
            assert (crew.ended.left, crew.ended.errors, processors.leaked) == (1, 1, 1)
            await crew.app.queues.put_many([Sms(number=number) for number in range(3)])
            processors.hear()
            crew.clock.advance(SECOND)
            await until(lambda: processors.running == 1)
            crew.clock.advance(SECOND)
            await anyio.wait_all_tasks_blocked()
            assert processors.running == 1
            await stubborn.end()
            await until(lambda: processors.leaked == 0)
            crew.clock.advance(SECOND)
            await until(lambda: processors.running == 2)
            may_end.set()
    finally:
        stubborn.release.set()


async def test_one_that_ignores_its_cancellation_is_told_of_and_prolonged_no_more(crew: Crew):
    may_end = anyio.Event()

    async def send(tasks: list[Email]) -> Done:
        with anyio.CancelScope(shield=True):
            await may_end.wait()
        return Done()

    crew.handle("emails", send, visibility=VISIBILITY, timeout=LIMIT)
    await crew.emails("ada")
    async with crew.at_work() as processors:
        await until(lambda: processors.running == 1)
        crew.clock.advance(LIMIT)
        await processors.watch()
        assert processors.leaked == 0
        crew.clock.advance(GRACE)
        await until(lambda: processors.leaked == 1)
        (failed,) = crew.of(QueueHandlerFailed)
        assert failed.error.startswith("it goes on after its timeout of 10 s")
        crew.clock.advance(VISIBILITY)
        (other,) = await crew.storage.get(EMAILS, 10)
        may_end.set()
        await until(lambda: len(crew.of(BatchEnded)) == 1)
        assert processors.leaked == 0
    assert (crew.ended.processed, crew.ended.left, crew.ended.errors) == (0, 1, 1)
    assert len(crew.of(QueueHandlerFailed)) == 1
    assert (await crew.storage.done([other])).settled == {other.id}


@pytest.mark.parametrize("timeout", [timedelta(0), -SECOND, 5])
def test_a_limit_that_makes_no_sense_is_refused(crew: Crew, timeout: Any):
    with pytest.raises(InvalidDuration):
        crew.handle("emails", lambda tasks: None, timeout=timeout)
    crew.handle("emails", lambda tasks: None)


# Through a worker.


@pytest.fixture
async def installed(database_url: str, anyio_backend: str) -> App:
    """In real time."""
    app = App(database_url)
    app.queues.use(CONTRACT)
    await app.init(shards=4)
    return app


async def test_a_worker_cancels_a_handler_at_its_limit(installed: App):
    ended, batches = anyio.Event(), []

    @installed.on(BatchEnded)
    def end(event: BatchEnded) -> None:
        batches.append(event)
        ended.set()

    @installed.queues.handler("emails", timeout=timedelta(milliseconds=50))
    async def send(tasks: list[Email]) -> None:
        await anyio.sleep_forever()

    async with Worker(installed):
        await installed.queues.put(Email(to="ada"))
        with anyio.fail_after(DEADLINE_S):
            await ended.wait()
    assert (batches[0].left, batches[0].errors) == (1, 1)


async def test_a_worker_whose_processors_are_all_held_by_threads_gives_up(installed: App):
    stubborn = Stubborn()
    installed.queues.handler("emails", timeout=timedelta(milliseconds=50))(stubborn)

    async def work() -> None:
        policy = WorkerPolicy(timeout_grace=timedelta(0))
        with anyio.fail_after(DEADLINE_S):
            async with Worker(installed, policy, only_queues=True) as worker:
                await installed.queues.put(Email(to="ada"))
                await worker.stopping.wait()

    try:
        with pytest.raises(HandlersLeaked, match="1 of 1 handler slots"):
            await work()
    finally:
        stubborn.release.set()
