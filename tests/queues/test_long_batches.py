"""Batches that take long, and a database that is away when they end."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from support.crew import SECOND, Crew, until
from support.queue_tasks import EMAILS, Email, Sms

from matrixsched.errors import DatabaseBusy, DatabaseUnavailable
from matrixsched.events import BatchEnded, StepFailed
from matrixsched.queues.ledger import Fate, Ledger
from matrixsched.queues.results import Done, HandlerStats, RetryAt
from matrixsched.queues.storage import QueueStorage
from matrixsched.worker import WorkerPolicy

pytestmark = pytest.mark.anyio


# Long batches.


async def test_tasks_that_came_after_their_timeout_are_not_handed_on(crew: Crew):
    """The process was stopped, or the answer was under way for long: others may have them by now."""
    handled: list[Any] = []
    crew.handle("emails", handled.append)
    crew.storage.answers_take = 60 * SECOND
    await crew.emails("ann", "bob")
    processors = crew.processors()
    assert await processors.run_ready() == 2
    assert handled == []
    assert [(one.processed, one.stale) for one in crew.told if isinstance(one, BatchEnded)] == [(0, 2)]

    crew.storage.answers_take = 59 * SECOND
    assert await processors.run_ready() == 2
    assert [[one.to for one in batch] for batch in handled] == [["ann", "bob"]]


async def test_a_batch_that_takes_long_is_prolonged_and_settled(crew: Crew):
    may_end = anyio.Event()

    async def send(tasks: list[Email]) -> None:
        await may_end.wait()

    crew.handle("emails", send, visibility=30 * SECOND)
    await crew.emails("ada", "bob")
    async with crew.at_work() as processors:
        await until(lambda: processors.running == 1)
        assert await processors.batches.prolong(crew.storage) == pytest.approx(1 / 3)
        assert "extend" not in crew.storage.calls
        for _ in range(20):
            crew.clock.advance(10 * SECOND)
            assert await processors.batches.prolong(crew.storage) == pytest.approx(1 / 3)
            assert await crew.storage.get(EMAILS, 10) == []
        may_end.set()
        await until(lambda: len(crew.of(BatchEnded)) == 1)
    assert crew.storage.calls.count("extend") == 20
    assert (crew.ended.processed, crew.ended.stale) == (2, 0)
    assert crew.ended.is_overlong


async def test_batches_are_prolonged_each_in_its_own_time_and_those_of_one_timeout_together(crew: Crew):
    async def send(tasks: list[Any]) -> None:
        await anyio.sleep_forever()

    crew.handle("emails", send, batch_size=1, visibility=30 * SECOND)
    crew.handle("sms", send, visibility=3 * SECOND)
    await crew.emails("ada", "bob")
    await crew.app.queues.put(Sms(number=1))
    async with crew.at_work(processors=3) as processors:
        await until(lambda: processors.running == 3)
        assert await processors.batches.prolong(crew.storage) == pytest.approx(1 / 3)
        for _ in range(10):
            crew.clock.advance(SECOND)
            await processors.batches.prolong(crew.storage)
        assert crew.storage.calls.count("extend") == 11
        processors.stop()
        processors.cancel_running()


async def test_tasks_that_were_lost_are_said_to_be_and_not_counted(crew: Crew):
    may_end = anyio.Event()

    async def send(tasks: list[Email]) -> None:
        await may_end.wait()

    crew.handle("emails", send, visibility=30 * SECOND)
    await crew.emails("ada", "bob")
    async with crew.at_work() as processors:
        await until(lambda: processors.running == 1)
        crew.clock.advance(30 * SECOND)  # as if the process had been stopped
        (other, _) = await crew.storage.get(EMAILS, 10)
        await processors.batches.prolong(crew.storage)
        may_end.set()
        await until(lambda: len(crew.of(BatchEnded)) == 1)
    assert (crew.ended.processed, crew.ended.stale, crew.ended.left) == (0, 2, 0)
    assert crew.storage.calls.count("done") == 0
    assert (await crew.storage.done([other])).settled == {other.id}


async def test_a_loss_is_found_when_settling_at_the_latest(crew: Crew):
    async def send(tasks: list[Email], storage: QueueStorage) -> list[Done]:
        await storage.done(tasks[:1])
        crew.clock.advance(60 * SECOND)
        assert (await storage.done(tasks[1:2])).stale == {tasks[1].task_id}
        return [Done()] * 3

    crew.handle("emails", send)
    await crew.emails("ada", "bob", "eve")
    await crew.processors().run_ready()
    assert (crew.ended.processed, crew.ended.stale) == (1, 2)
    assert crew.ended.cycle_s == 60.0


async def test_what_a_handler_holds_on_to_for_longer_is_not_cut_short(crew: Crew):
    extended, may_end = anyio.Event(), anyio.Event()

    async def send(tasks: list[Email], storage: QueueStorage) -> None:
        await storage.extend(tasks[:1], visibility=600 * SECOND)
        extended.set()
        await may_end.wait()

    crew.handle("emails", send, visibility=30 * SECOND)
    await crew.emails("ada", "bob")
    async with crew.at_work() as processors:
        await extended.wait()
        crew.clock.advance(10 * SECOND)
        await processors.batches.prolong(crew.storage)
        assert crew.storage.calls.count("extend") == 2
        crew.clock.advance(30 * SECOND)
        assert [task.attempts for task in await crew.storage.get(EMAILS, 9)] == [1], "bob's, which nobody prolonged"
        crew.clock.advance(559 * SECOND)
        assert (await crew.stat()).taken == 1
        may_end.set()


async def test_what_became_of_a_batch_is_read_while_no_other_thread_notes_losses(crew: Crew):
    await crew.emails("ada", "bob")
    ledger = Ledger(await crew.storage.get(EMAILS, 2))

    class Guarded(dict[int, Fate]):
        def values(self) -> Any:
            assert ledger._lock.locked()
            return super().values()

        def get(self, *which: Any) -> Any:
            assert ledger._lock.locked()
            return super().get(*which)

    ledger._fates = Guarded()
    ids = [task.id for task in ledger.open]
    ledger.lose(ids[:1])
    assert (ledger.count(Fate.STALE), ledger.met(Fate.STALE, ids)) == (1, ids[:1])


async def test_what_is_settled_while_it_is_prolonged_is_not_taken_for_lost(crew: Crew):
    settled, may_end = anyio.Event(), anyio.Event()

    async def send(tasks: list[Email], storage: QueueStorage) -> HandlerStats:
        await storage.done(tasks[:1])
        settled.set()
        await may_end.wait()
        await storage.done(tasks[1:])
        return HandlerStats(processed=2)

    crew.handle("emails", send, visibility=30 * SECOND)
    await crew.emails("ada", "bob")
    async with crew.at_work() as processors:
        await settled.wait()
        crew.clock.advance(10 * SECOND)
        await processors.batches.prolong(crew.storage)
        may_end.set()
        await until(lambda: len(crew.of(BatchEnded)) == 1)
    assert (crew.ended.processed, crew.ended.stale) == (2, 0)


# A database that is away.


@pytest.mark.parametrize("error", [DatabaseUnavailable("away"), DatabaseBusy("locked")])
async def test_what_was_done_is_settled_once_the_database_is_back(crew: Crew, error: Exception):
    calls: list[int] = []
    crew.handle("emails", lambda tasks: calls.append(len(tasks)))
    crew.storage.fails["done"] = [error] * 3
    await crew.emails("ada")
    async with crew.at_work():
        for attempts in range(1, 4):
            await until(lambda attempts=attempts: crew.storage.calls.count("done") == attempts)  # type: ignore[misc]
            crew.clock.advance(SECOND)
        await until(lambda: len(crew.of(BatchEnded)) == 1)
    assert (crew.ended.processed, calls) == (1, [1])


@pytest.mark.parametrize(("failures", "processed"), [(2, 1), (9, 0)])
async def test_a_stop_waits_a_farewell_long_for_the_database_to_be_back(crew: Crew, failures: int, processed: int):
    crew.handle("emails", lambda tasks: None)
    crew.storage.fails["done"] = [DatabaseUnavailable("away")] * failures
    await crew.emails("ada")
    async with crew.at_work() as processors:
        await until(lambda: crew.storage.calls.count("done") == 1)
        processors.stop()
        while not crew.of(BatchEnded):
            crew.clock.advance(SECOND)
            await anyio.wait_all_tasks_blocked()
    assert (crew.ended.processed, crew.ended.left) == (processed, 1 - processed)
    assert crew.storage.calls.count("done") <= 1 + WorkerPolicy().farewell / SECOND


async def test_an_answer_that_was_lost_is_not_taken_for_a_loss_of_the_task(crew: Crew):
    crew.handle("emails", lambda tasks: None)
    crew.storage.answers_lost = 1
    await crew.emails("ada")
    async with crew.at_work():
        await until(lambda: crew.storage.calls.count("done") == 1)
        crew.clock.advance(SECOND)
        await until(lambda: len(crew.of(BatchEnded)) == 1)
    assert (crew.ended.processed, crew.ended.stale) == (1, 0)


async def test_after_their_timeout_nobody_insists_and_the_step_is_said_to_have_failed(crew: Crew):
    crew.handle("emails", lambda tasks: [Done(), RetryAt(SECOND)])
    crew.storage.fails["done"] = [DatabaseUnavailable("away")] * 2
    await crew.emails("ada", "bob")
    async with crew.at_work():
        await until(lambda: crew.storage.calls.count("done") == 1)
        crew.clock.advance(60 * SECOND)
        await until(lambda: len(crew.of(StepFailed)) == 1)
    assert (crew.ended.processed, crew.ended.left, crew.ended.stale) == (0, 1, 1)


async def test_a_worker_that_cannot_ask_is_not_ready_and_asks_again(crew: Crew):
    crew.handle("emails", lambda tasks: None)
    crew.storage.fails["look"] = [DatabaseUnavailable("away")] * 2
    async with crew.at_work() as processors:
        await until(lambda: len(crew.of(StepFailed)) == 1)
        assert processors.looked_at is None
        crew.clock.advance(5 * SECOND)
        await until(lambda: len(crew.of(StepFailed)) == 2)
        assert processors.looked_at is None
        crew.clock.advance(5 * SECOND)
        await until(lambda: processors.looked_at == 10.0)
