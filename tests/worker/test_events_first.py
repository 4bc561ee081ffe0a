"""Nothing that is due goes before the events of semaphores, wherever they are and however much of it there is."""

from __future__ import annotations

from datetime import timedelta

import anyio
import pytest

from matrixsched import Acquired, App, call
from matrixsched.clock import ManualClock
from matrixsched.rules.names import shard_of
from matrixsched.rules.semaphore import acquired_handler, event_id
from matrixsched.semaphores import TaskSemaphore
from matrixsched.worker import Worker, WorkerPolicy

pytestmark = pytest.mark.anyio

DEADLINE_S = 30
TEN_AT_ONCE = WorkerPolicy(concurrency=10)
EVENT = event_id(acquired_handler("pool"), "urgent")


@pytest.fixture
def started(app: App) -> list[str]:
    """What was started, in that order."""
    started: list[str] = []

    @app.action("slow")
    async def slow() -> None:
        started.append("slow")

    @app.on_acquired("pool")
    async def hand_out(event: Acquired) -> None:
        started.append(event.task_id)

    return started


@pytest.fixture
async def pool(app: App) -> TaskSemaphore:
    return await app.semaphores.get_or_create("pool", active=10)


async def run_claimed(worker: Worker) -> None:
    while worker.runner.has_waiting:
        await worker.runner.run_next()
    while not worker.recorder.is_idle:
        await worker.recorder.step()


async def test_a_new_event_is_among_the_next_starts_though_all_shards_are_full(
    app: App, clock: ManualClock, started: list[str], pool: TaskSemaphore
):
    worker = Worker(app, TEN_AT_ONCE)
    for _ in range(2):  # in processing, overdue; and then as many that are new, before the event is
        await app.schedule_many([call("slow") for _ in range(600)])
        clock.advance(timedelta(seconds=1))
        for _ in range(4):
            await worker.intake.step()
            await run_claimed(worker)
    await app.schedule_many([call("slow") for _ in range(600)])
    clock.advance(timedelta(seconds=1))
    await pool.enqueue("urgent")
    await worker.balancing.step()
    started.clear()
    worker = Worker(app, TEN_AT_ONCE)
    await worker.intake.step()
    await run_claimed(worker)
    assert len(started) == 10
    assert "urgent" in started


async def test_an_event_is_started_before_what_was_claimed_earlier(app: App, started: list[str], pool: TaskSemaphore):
    worker = Worker(app, TEN_AT_ONCE)
    await app.schedule_many([call("slow") for _ in range(5)])
    while await worker.intake.step() == 0:
        pass
    await pool.enqueue("urgent")
    await worker.balancing.step()
    await worker.intake.step()
    await run_claimed(worker)
    assert started == ["urgent", *["slow"] * 5]


async def test_events_that_are_not_started_are_given_back(app: App, started: list[str], pool: TaskSemaphore):
    worker = Worker(app, TEN_AT_ONCE)
    await pool.enqueue("urgent")
    await worker.balancing.step()
    await worker.intake.step()
    worker.runner.give_back_waiting()
    await worker.runner.giving_back.step()
    assert worker.runner.giving_back.count == 1
    await worker.run_due()
    assert started == ["urgent"]


async def test_and_those_that_wait_for_long(app: App, clock: ManualClock, started: list[str], pool: TaskSemaphore):
    worker = Worker(app, TEN_AT_ONCE)
    await pool.enqueue("urgent")
    await worker.balancing.step()
    await worker.intake.step()
    clock.advance(TEN_AT_ONCE.attempt_lease / 2)
    await worker.runner.watch()
    assert not worker.runner.has_waiting
    await worker.run_due()
    assert started == ["urgent"]


async def test_an_event_passes_what_was_claimed_ahead_though_there_is_no_room(
    app: App, clock: ManualClock, started: list[str], pool: TaskSemaphore
):
    worker = Worker(app, TEN_AT_ONCE)
    await app.schedule_many([call("slow") for _ in range(1200)])
    while worker.runner.room > 0:
        await worker.intake.step()
    await pool.enqueue_many({f"urgent {number}": 0 for number in range(10)})
    await worker.balancing.step()
    while await worker.intake.step() == 0:
        pass
    assert (worker.intake.event_room, worker.runner.held) == (0, 20)  # no more of them than of what they pass
    started.clear()
    await run_claimed(worker)
    assert {name.split()[0] for name in started[:10]} == {"urgent"}
    assert len(started) == 20


async def test_an_event_that_others_have_parked_goes_before_what_is_due_beside_it(
    app: App, database_url: str, clock: ManualClock, started: list[str], pool: TaskSemaphore
):
    beside = [id for id in map(str, range(200)) if shard_of(id, 4) == shard_of(EVENT, 4)]
    await app.schedule_many([call("slow", id=id) for id in beside])
    async with App(database_url, clock=clock) as elsewhere:
        elsewhere.action("slow")(lambda: None)
        worker = Worker(elsewhere, WorkerPolicy(concurrency=1))
        await worker.intake.step()  # all the others are in processing now
        await run_claimed(worker)
        await pool.enqueue("urgent")
        await Worker(app).balancing.step()
        await worker.intake.step()
    worker = Worker(app, TEN_AT_ONCE)
    await worker.intake.step()
    await run_claimed(worker)
    assert started == ["urgent", *["slow"] * 9]


@pytest.mark.direct("LISTEN needs a session")
async def test_who_knows_an_event_is_told_when_others_have_parked_it(
    app: App, database_url: str, clock: ManualClock, started: list[str], pool: TaskSemaphore
):
    await pool.enqueue("urgent")
    await Worker(app).balancing.step()
    told: list[anyio.Event] = [anyio.Event()]
    async with App(database_url, clock=clock) as elsewhere, anyio.create_task_group() as watching:
        elsewhere.action("unlike")(lambda: None)
        watching.start_soon(app.store.watch, lambda *_: told[-1].set())
        with anyio.fail_after(DEADLINE_S):
            await told[-1].wait()  # of what was written before
            told.append(anyio.Event())
            await Worker(elsewhere).intake.step()
            await told[-1].wait()
        watching.cancel_scope.cancel()
    worker = Worker(app)
    await worker.intake.step()
    await run_claimed(worker)
    assert started == ["urgent"]
