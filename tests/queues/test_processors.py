"""Processors: how they are stopped, what they give back, and what is told of them."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from datetime import timedelta

import anyio
import anyio.to_thread
import pytest
from support.crew import DEADLINE_S, SECOND, Crew, until
from support.queue_tasks import EMAILS, SMS, Email

from matrixsched.events import BatchTaken, ProcessorsRunning, QueueHandlerFailed
from matrixsched.queues.results import RetryAt
from matrixsched.queues.storage import QueueStorage

pytestmark = pytest.mark.anyio


# The end.


async def test_a_stop_takes_no_new_batch_and_lets_the_present_one_finish(crew: Crew):
    may_end = anyio.Event()

    async def send(tasks: list[Email]) -> None:
        await may_end.wait()

    crew.handle("emails", send, batch_size=1)
    await crew.emails("ada", "bob")
    async with crew.at_work() as processors:
        await until(lambda: processors.running == 1)
        processors.stop()
        await anyio.wait_all_tasks_blocked()
        assert processors.running == 1
        may_end.set()
    stat = await crew.stat()
    assert (stat.total, stat.ready) == (1, 1)
    assert [event.count for event in crew.of(ProcessorsRunning)] == [1, 0]


async def test_what_a_stop_cuts_short_is_given_back_at_once_with_one_more_attempt(crew: Crew):
    async def send(tasks: list[Email], storage: QueueStorage) -> None:
        await storage.done(tasks[:1])
        await anyio.sleep_forever()

    crew.handle("emails", send)
    await crew.emails("ada", "bob")
    await crew.storage.put(EMAILS, b"nonsense")
    async with crew.at_work() as processors:
        await until(lambda: processors.running == 1)
        processors.stop()
        assert processors.cancel_running() == 1
    (again,) = await crew.storage.get(EMAILS, 10)
    assert (again.attempts, again.start_at) == (1, crew.clock.now())
    assert (crew.ended.processed, crew.ended.retried, crew.ended.dead) == (1, 1, 1)
    assert crew.of(QueueHandlerFailed) == []


async def test_a_worker_whose_surroundings_are_cancelled_gives_its_tasks_back_as_well(crew: Crew):
    async def send(tasks: list[Email]) -> None:
        await anyio.sleep_forever()

    crew.handle("emails", send)
    await crew.emails("ada")
    with anyio.CancelScope() as surroundings:
        async with crew.at_work() as processors:
            await until(lambda: processors.running == 1)
            surroundings.cancel()
    (again,) = await crew.storage.get(EMAILS, 10)
    assert again.attempts == 1


async def test_the_tasks_of_a_thread_that_goes_on_are_left_to_their_timeout(crew: Crew):
    began, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def send(tasks: list[Email]) -> None:
        began.set()
        may_end.wait()
        ended.set()

    crew.handle("emails", send)
    await crew.emails("ada")
    try:
        async with crew.at_work() as processors:
            assert await anyio.to_thread.run_sync(began.wait, DEADLINE_S)
            processors.stop()
            processors.cancel_running()
        assert (processors.leaked, crew.ended.left) == (1, 1)
        assert (await crew.stat()).taken == 1
    finally:
        may_end.set()
    assert await anyio.to_thread.run_sync(ended.wait, DEADLINE_S)
    crew.clock.advance(60 * SECOND)
    (again,) = await crew.storage.get(EMAILS, 10)
    assert again.attempts == 1


async def test_a_handler_that_leaves_a_scope_open_fails_alone(crew: Crew):
    async def send(tasks: list[Email]) -> None:
        anyio.CancelScope().__enter__()

    crew.handle("emails", send, batch_size=1)
    await crew.emails("ada")
    await crew.processors().run_ready()
    (failed,) = crew.of(QueueHandlerFailed)
    assert "scope" in failed.error
    assert crew.ended.left == 1


async def test_a_cycle_is_told_when_it_begins_and_ends(crew: Crew):
    async def send(tasks: list[Email]) -> None:
        crew.clock.advance(11 * SECOND)

    crew.handle("emails", send)
    await crew.emails("ada", "bob")
    await crew.processors().run_ready()
    assert crew.of(BatchTaken) == [BatchTaken(EMAILS, "emails", 2)]
    ended = crew.ended
    assert (ended.queue, ended.name, ended.tasks, ended.duration_s, ended.cycle_s) == (EMAILS, "emails", 2, 11.0, 11.0)
    assert ended.is_overlong


def test_the_queues_and_how_many_processors_can_be_asked(crew: Crew):
    crew.handle("sms", lambda tasks: None)
    processors = crew.processors(processors=4)
    assert (processors.processors_max, processors.queues) == (4, {SMS: "sms"})
    assigned: Mapping[int, int] | None = processors.assigned
    assert assigned is None


# By hand.


async def test_by_hand_no_more_is_handled_than_was_ready_when_it_began(crew: Crew):
    async def send(tasks: list[Email]) -> RetryAt:
        assert len(crew.of(BatchTaken)) <= 3, "it does not end"
        await crew.emails("new")
        return RetryAt(timedelta(0))

    crew.handle("emails", send, batch_size=2)
    await crew.emails("ada", "bob", "eve", "joe", "kim")
    assert await crew.processors().run_ready() == 5
    assert [event.tasks for event in crew.of(BatchTaken)] == [2, 2, 1]
    assert (await crew.stat()).ready == 8


async def test_by_hand_a_paused_queue_is_left_alone(crew: Crew):
    crew.handle("emails", lambda tasks: None)
    await crew.emails("ada")
    await crew.app.queues.pause("emails")
    assert await crew.processors().run_ready() == 0
