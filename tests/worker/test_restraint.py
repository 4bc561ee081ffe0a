"""Of a fleet at rest all know of the same action: most leave it to the others, and nothing is late for that."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from simulation.quiet_fleet import WORK, QuietFleet
from support.elsewhere import schedule_elsewhere
from support.queue_contract import CONTRACT, NAMES

from matrixsched import App, RetryAt
from matrixsched.clock import ManualClock, SeededChance
from matrixsched.rules.minutes import SEEN_WITHIN, Fleet
from matrixsched.store.news import News
from matrixsched.store.transition import Transition
from matrixsched.store.values import Acquired
from matrixsched.worker import Worker, WorkerPolicy
from matrixsched.worker.reporting import REPORT_EVERY_S, SECOND_REPORT_S
from matrixsched.worker.restraint import HOLD_MAX_S, LOOK_S, LOOK_SHARD_S, VAIN_SHARE, Restraint

SHARDS = 64
STATEMENT_S = 0.003


def restraint_of(clock: ManualClock, *, others: int, rest_max_s: float = 60.0) -> Restraint:
    restraint = Restraint(clock, SeededChance(1), rest_max_s=rest_max_s)
    restraint.learn(others=others, shards=SHARDS)
    return restraint


def hold_back(restraint: Restraint) -> None:
    restraint.learn(others=100_000, shards=SHARDS)
    while not restraint.rest_s:
        restraint.found_nothing()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


# By itself.


def test_a_worker_without_others_is_never_held_back(clock: ManualClock) -> None:
    restraint = restraint_of(clock, others=0)
    for _ in range(10):
        restraint.found_nothing()
        assert restraint.rest_s == 0


def test_only_the_second_look_in_vain_holds_it_back(clock: ManualClock) -> None:
    restraint = restraint_of(clock, others=9)
    restraint.found_nothing()
    assert restraint.rest_s == 0
    restraint.found_nothing()
    assert restraint.rest_s > 0


@pytest.mark.anyio
async def test_a_look_that_others_were_faster_than_is_none_in_vain(app: App, clock: ManualClock) -> None:
    async def run(transition: Transition[Any]) -> Any:
        assert transition.name == "acquire_shard"
        return Acquired(now=clock.now(), shard=None, next_due_at=clock.now(), contended=True)

    app.action("work")(lambda: None)
    app.store.run = run  # type: ignore[method-assign, assignment]
    worker = Worker(app)
    worker.intake.restraint.learn(others=100_000, shards=SHARDS)
    for _ in range(4):
        await worker.intake.step()
        assert worker.intake.restraint.rest_s == 0


def test_who_knows_of_something_goes_on_and_begins_anew(clock: ManualClock) -> None:
    restraint = restraint_of(clock, others=9)
    restraint.found_nothing()
    restraint.found_nothing()
    restraint.lift()
    assert restraint.rest_s == 0
    restraint.found_nothing()
    assert restraint.rest_s == 0


@pytest.mark.parametrize("others", [1, 9, 31])
def test_looks_in_vain_of_a_fleet_take_their_share_of_a_processor(clock: ManualClock, others: int) -> None:
    restraint, look_s, looks = restraint_of(clock, others=others), LOOK_S + LOOK_SHARD_S * SHARDS, 0
    while clock.monotonic() < 1_000:
        restraint.found_nothing()
        looks += 1
        clock.advance(timedelta(seconds=look_s + restraint.rest_s))
    assert (others + 1) * looks * look_s / clock.monotonic() == pytest.approx(VAIN_SHARE, rel=0.15)


@pytest.mark.parametrize(("rest_max_s", "longest_s"), [(0.2, 0.2), (3_600.0, HOLD_MAX_S)])
def test_nobody_is_held_back_for_long(clock: ManualClock, rest_max_s: float, longest_s: float) -> None:
    restraint, rests = restraint_of(clock, others=100_000, rest_max_s=rest_max_s), []
    for _ in range(200):
        restraint.found_nothing()
        rests.append(restraint.rest_s)
        clock.advance(timedelta(seconds=restraint.rest_s))
    assert 0.9 * longest_s < max(rests) <= longest_s


def test_others_are_those_who_may_do_the_same_work() -> None:
    fleet = Fleet(SHARDS, {("a", "b"): 5, ("a",): 3, (): 40})
    assert fleet.others_of(["a"]) == 8
    assert fleet.others_of(["a", "b"]) == 5
    assert fleet.others_of(["a", "c"]) == 0
    assert fleet.others_of([]) == 0


# In a worker.


@pytest.fixture
def worker(app: App) -> Worker:
    app.action("work")(lambda: None)
    return Worker(app)


@pytest.mark.anyio
async def test_a_worker_that_holds_back_looks_when_its_rest_is_over(
    app: App, worker: Worker, clock: ManualClock
) -> None:
    hold_back(worker.intake.restraint)
    await schedule_elsewhere(app, "a")
    rest_s = await worker.intake.step()
    assert rest_s == worker.intake.restraint.rest_s
    assert not worker.runner.has_waiting
    clock.advance(timedelta(seconds=rest_s, microseconds=1))
    await worker.intake.step()
    assert worker.runner.has_waiting


@pytest.mark.anyio
async def test_it_holds_back_after_a_look_that_found_nothing(worker: Worker) -> None:
    worker.intake.restraint.learn(others=100_000, shards=SHARDS)
    await worker.intake.step()
    assert worker.intake.restraint.rest_s == 0
    assert await worker.intake.step() >= worker.intake.restraint.rest_s > 0


@pytest.mark.anyio
async def test_a_shard_that_somebody_else_took_tells_nothing(app: App, worker: Worker) -> None:
    worker.intake.restraint.learn(others=100_000, shards=SHARDS)
    await worker.intake.step()
    worker._hear(News.ACTIONS, 0)
    assert await worker.intake.step() == 0  # nothing is there to be moved
    assert worker.intake.restraint.rest_s == 0


@pytest.mark.anyio
async def test_what_it_finds_after_all_lifts_it(app: App, worker: Worker) -> None:
    worker.intake.restraint.learn(others=100_000, shards=SHARDS)
    await worker.intake.step()
    await schedule_elsewhere(app, "a")
    assert await worker.intake.step() == 0
    await worker.intake.step()
    assert worker.intake.restraint.rest_s == 0


async def ends_with_more_to_do(app: App, worker: Worker, clock: ManualClock) -> None:
    await worker.intake.step()
    await worker.runner.run_next()
    hold_back(worker.intake.restraint)
    await worker.recorder.step()
    async with anyio.create_task_group() as group:
        group.start_soon(worker._forward_room)
        for _ in range(10):
            await anyio.lowlevel.checkpoint()
        group.cancel_scope.cancel()


@pytest.mark.anyio
async def test_what_its_own_outcome_has_opened_is_not_waited_for(app: App, clock: ManualClock) -> None:
    app.action("again")(lambda: RetryAt(clock.now()))
    worker = Worker(app)
    await app.schedule("again", id="a")
    await ends_with_more_to_do(app, worker, clock)
    assert worker.intake.restraint.rest_s == 0


@pytest.mark.anyio
async def test_an_outcome_that_opens_nothing_does_not_lift_it(app: App, worker: Worker, clock: ManualClock) -> None:
    await app.schedule("work", id="a")
    await ends_with_more_to_do(app, worker, clock)
    assert worker.intake.restraint.rest_s > 0


@pytest.mark.anyio
@pytest.mark.parametrize(
    "knows", [Worker._look_at_once, lambda worker: worker._app._wake()], ids=["found lanes", "scheduled here"]
)
async def test_what_others_are_not_told_of_lifts_it(worker: Worker, knows: Callable[[Worker], object]) -> None:
    hold_back(worker.intake.restraint)
    knows(worker)
    assert worker.intake.restraint.rest_s == 0


@pytest.mark.anyio
async def test_news_from_elsewhere_do_not(worker: Worker) -> None:
    hold_back(worker.intake.restraint)
    worker._hear(News.ACTIONS, 3)
    assert worker.intake.restraint.rest_s > 0


@pytest.mark.anyio
async def test_workers_count_who_is_there_and_knows_the_same(app: App, clock: ManualClock) -> None:
    app.action("work")(lambda: None)
    app.queues.use(CONTRACT)
    app.queues.handler(NAMES[0])(lambda tasks: None)
    first, second, third = [Worker(app, name=name) for name in ("first", "second", "third")]
    other = Worker(app, name="other", only_queues=True)
    told: list[int] = []
    for worker in (first, second, third):
        worker.minutes._learn = lambda *, others, shards: told.append(others)
    assert await first.minutes.step() == SECOND_REPORT_S
    for worker in (second, third, other):
        await worker.minutes.step()
    assert told == [0, 1, 2]
    assert await first.minutes.step() == REPORT_EVERY_S
    await second.minutes.leave()
    await first.minutes.step()
    clock.advance(SEEN_WITHIN)
    await first.minutes.step()
    assert told[3:6] == [2, 2, 1]
    assert told[-1] == 0


# In a fleet.


@pytest.mark.slow
def test_a_fleet_looks_seldom_in_vain_is_on_time_and_shares_the_work() -> None:
    found = QuietFleet(1, workers=32, shards=SHARDS, statement_s=STATEMENT_S).live(6, rate=100.0)
    # Without restraint more than two thousand.
    assert found.fruitless / found.seconds < 700
    assert (found.late_s(0.5), found.late_s(0.99)) < (0.010, 0.040)
    assert len(found.done_by) == 32
    assert min(found.done_by.values()) >= 0.25 * found.came_due / 32


@pytest.mark.slow
def test_where_little_is_to_be_done_all_look_for_it_at_once() -> None:
    found = QuietFleet(1, workers=20, shards=SHARDS, statement_s=STATEMENT_S).live(10, rate=1.0)
    assert found.late_s(1.0) < 0.015


@pytest.mark.slow
def test_who_alone_knows_a_handler_does_not_sleep_through_what_others_park_for_it() -> None:
    fleet = QuietFleet(2, workers=32, specialists=1, shards=SHARDS, statement_s=STATEMENT_S)
    found = fleet.live(10, told=[(0.3 * number, "rare") for number in range(30)])
    assert found.late_s(1.0, "rare") < 0.06


@pytest.mark.slow
def test_who_has_room_comes_soon_when_those_who_were_first_have_none_left() -> None:
    one_by_one = WorkerPolicy(concurrency=1)
    fleet = QuietFleet(3, workers=32, shards=SHARDS, statement_s=STATEMENT_S, policy=one_by_one)
    found = fleet.live(4, told=[(0.03 * number, WORK) for number in range(100)])
    assert (found.late_s(0.5), found.late_s(1.0)) < (0.010, 0.150)
