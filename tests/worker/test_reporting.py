"""What workers tell of their minutes, as whoever looks at the fleet reads it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import anyio
import pytest
from sqlalchemy import Engine
from support.behind import change, engine_of

from matrixsched import App, Outcome
from matrixsched.clock import ManualClock
from matrixsched.errors import DatabaseError
from matrixsched.ops.fleet import overview
from matrixsched.rules.explanation import Why
from matrixsched.rules.minutes import MINUTE, minute_of
from matrixsched.worker import Worker
from matrixsched.worker.reporting import KEEP_MINUTES, SECOND_REPORT_S

pytestmark = pytest.mark.anyio


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    engine = engine_of(database_url)
    yield engine
    engine.dispose()


@pytest.fixture
def worker(app: App) -> Worker:
    @app.action("work")
    async def work(fails: bool) -> None:
        if fails:
            raise RuntimeError

    return Worker(app, name="host/1")


async def test_attempts_are_told_of_their_minute_with_how_late_they_began(
    app: App, worker: Worker, clock: ManualClock
) -> None:
    for number in range(3):
        await app.schedule("work", number == 0, id=f"a{number}")
    clock.advance(timedelta(seconds=2))
    await worker.run_due()
    assert await worker.minutes.step() == SECOND_REPORT_S
    seen = await overview(app)
    assert seen.minutes[-1].outcomes == {Outcome.SUCCEEDED: 2, Outcome.FAILED: 1}
    assert (seen.late_s(0.5), seen.went_wrong) == (2.5, 1)
    (one,) = seen.workers
    assert (one.attempts, one.went_wrong) == (3, 1)
    assert (one.name, one.slots, one.handlers) == ("host/1", 100, ("work",))
    assert one.started_at == one.seen_at == clock.now()


async def test_a_report_that_is_sent_twice_counts_once(app: App, worker: Worker, clock: ManualClock) -> None:
    await app.schedule("work", False, id="a")
    await worker.run_due()
    await worker.minutes.step()
    await worker.minutes.step()
    assert (await overview(app)).minutes[-1].attempts == 1


async def test_what_came_after_the_last_report_of_a_minute_is_told_with_the_next(
    app: App, worker: Worker, clock: ManualClock
) -> None:
    await worker.minutes.step()
    await app.schedule("work", False, id="a")
    await worker.run_due()
    clock.advance(MINUTE)
    await app.schedule("work", False, id="b")
    await app.schedule("work", False, id="c")
    await worker.run_due()
    await worker.minutes.step()
    # What ran in the new minute before that was told is of the minute in which the tally was.
    assert [one.attempts for one in (await overview(app)).minutes[-2:]] == [3, 0]


async def test_minutes_are_told_later_if_the_database_did_not_answer(
    app: App, worker: Worker, clock: ManualClock, engine: Engine
) -> None:
    await worker.minutes.step()
    begin = minute_of(clock.now())
    change(engine, "alter table {worker_minutes} rename column late to away")
    for number in range(2):
        await app.schedule("work", False, id=f"a{number}")
        await worker.run_due()
        clock.advance(MINUTE)
        with pytest.raises(DatabaseError):
            await worker.minutes.step()
    change(engine, "alter table {worker_minutes} rename column away to late")
    await worker.minutes.step()
    told = {one.minute: one.attempts for one in (await overview(app)).minutes}
    assert [told[begin + MINUTE * later] for later in range(3)] == [1, 1, 0]


async def test_a_worker_that_left_or_is_silent_is_not_among_those_seen(
    app: App, worker: Worker, clock: ManualClock
) -> None:
    await worker.minutes.step()
    clock.advance(timedelta(seconds=70))
    assert [one.name for one in (await overview(app)).workers] == ["host/1"]
    clock.advance(timedelta(seconds=10))
    assert (await overview(app)).workers == []
    await worker.minutes.step()
    assert len((await overview(app)).workers) == 1
    await worker.minutes.leave()
    assert (await overview(app)).workers == []


@pytest.mark.parametrize("names", [("step", "leave"), ("leave", "step")], ids=" and then ".join)
async def test_a_worker_that_leaves_during_a_report_is_gone_and_its_minutes_are_told(
    app: App, worker: Worker, clock: ManualClock, names: tuple[str, str]
) -> None:
    await app.schedule("work", False, id="a")
    await worker.run_due()
    clock.advance(MINUTE)
    async with anyio.create_task_group() as group:
        for name in names:
            group.start_soon(getattr(worker.minutes, name))
    seen = await overview(app)
    assert seen.workers == []
    assert [one.attempts for one in seen.minutes[-2:]] == [1, 0]


async def test_minutes_that_nobody_looks_at_any_more_go(app: App, worker: Worker, clock: ManualClock) -> None:
    await worker.minutes.step()
    clock.advance(KEEP_MINUTES + MINUTE)
    for _ in range(20):
        await worker.minutes.step()
    told = await app.store.run(app.store.transitions.worker_minutes(since=10 * KEEP_MINUTES))
    assert {one.minute for one in told} == {minute_of(clock.now())}


async def test_a_worker_that_was_killed_is_forgotten_after_a_while(
    app: App, worker: Worker, clock: ManualClock
) -> None:
    killed = Worker(app, name="host/2")
    await killed.minutes.step()
    await worker.minutes.step()
    clock.advance(KEEP_MINUTES + MINUTE)
    for _ in range(20):
        await worker.minutes.step()
    assert [one.name for one in await app.store.run(app.store.transitions.workers_seen())] == ["host/1"]


async def test_the_overview_says_what_is_due_and_since_when(app: App, worker: Worker, clock: ManualClock) -> None:
    await app.schedule("work", False, id="a")
    await app.schedule("work", False, id="b", delay=timedelta(hours=1))
    clock.advance(timedelta(seconds=30))
    seen = await overview(app)
    assert (seen.due.value, seen.oldest_due) == (1, timedelta(seconds=30))
    assert (seen.workers, seen.throughput, seen.late_s(0.99)) == ([], 0.0, None)


async def test_an_action_whose_handler_nobody_has_who_is_there_is_explained_by_that(app: App, worker: Worker) -> None:
    await app.schedule("elsewhere", id="a")
    assert (await app.explain("a")).reason.why is not Why.NO_HANDLER
    await worker.minutes.step()
    reason = (await app.explain("a")).reason
    assert reason.why is Why.NO_HANDLER
    assert "'elsewhere'" in reason.text
