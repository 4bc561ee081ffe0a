"""Of a fleet at rest all know of the same action: most leave it to the others, and nothing is late for that."""

from __future__ import annotations

from datetime import timedelta

import anyio
import anyio.lowlevel
import pytest
from simulation.quiet_fleet import QuietFleet

from matrixsched import App, RetryAt
from matrixsched.clock import ManualClock, SeededChance
from matrixsched.rules.minutes import SEEN_WITHIN
from matrixsched.worker import Worker
from matrixsched.worker.reporting import REPORT_EVERY_S, SECOND_REPORT_S
from matrixsched.worker.restraint import VAIN_SHARE, Restraint

LONGEST_S = 1.0
TOOK_S = 0.003


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def restraint(clock: ManualClock) -> Restraint:
    restraint = Restraint(clock, SeededChance(1), longest_s=LONGEST_S)
    restraint.others = 9
    return restraint


# By itself.


def test_a_worker_without_others_is_never_held_back(restraint: Restraint) -> None:
    restraint.others = 0
    for _ in range(10):
        restraint.found_nothing(TOOK_S)
        assert restraint.rest_s == 0


def test_only_the_second_look_in_vain_holds_it_back(restraint: Restraint) -> None:
    restraint.found_nothing(TOOK_S)
    assert restraint.rest_s == 0
    restraint.found_nothing(TOOK_S)
    assert restraint.rest_s > 0


def test_who_finds_something_begins_anew(restraint: Restraint) -> None:
    for _ in range(5):
        restraint.found_nothing(TOOK_S)
        restraint.found()
    assert restraint.rest_s == 0


def test_all_looks_in_vain_of_a_fleet_take_their_share_of_a_processor_and_no_more(
    clock: ManualClock, restraint: Restraint
) -> None:
    looks = 0
    while clock.monotonic() < 1_000:
        restraint.found_nothing(TOOK_S)
        looks += 1
        clock.advance(timedelta(seconds=TOOK_S + restraint.rest_s))
    fleet = (restraint.others + 1) * looks * TOOK_S / clock.monotonic()
    # Between half of its rest and all of it, each.
    assert VAIN_SHARE <= fleet <= 1.5 * VAIN_SHARE


def test_it_looks_again_after_the_longest_rest_at_the_latest(restraint: Restraint) -> None:
    restraint.others = 10_000
    restraint.found_nothing(TOOK_S)
    restraint.found_nothing(TOOK_S)
    assert LONGEST_S / 2 <= restraint.rest_s <= LONGEST_S


def test_it_does_not_hold_back_when_it_alone_knows_of_something(restraint: Restraint) -> None:
    restraint.found_nothing(TOOK_S)
    restraint.found_nothing(TOOK_S)
    restraint.lift()
    assert restraint.rest_s == 0


# In a worker.


@pytest.mark.anyio
async def test_a_worker_that_holds_back_sends_nothing_until_its_rest_is_over(app: App, clock: ManualClock) -> None:
    ran = []

    @app.action("work")
    async def work() -> None:
        ran.append(clock.now())

    worker = Worker(app)
    worker.intake.restraint.others = 9
    worker.intake.restraint.found_nothing(TOOK_S)
    worker.intake.restraint.found_nothing(TOOK_S)
    await app.schedule("work", id="a")
    rest_s = await worker.intake.step()
    assert rest_s == pytest.approx(worker.intake.restraint.rest_s)
    assert not worker.runner.has_waiting
    clock.advance(timedelta(seconds=rest_s))
    await worker.run_due()
    assert ran == [clock.now()]


@pytest.mark.anyio
async def test_what_its_own_outcome_has_opened_is_not_waited_for(app: App, clock: ManualClock) -> None:
    app.action("again")(lambda: RetryAt(clock.now()))
    worker = Worker(app)
    await app.schedule("again", id="a")
    await worker.intake.step()
    await worker.runner.run_next()
    worker.intake.restraint.others = 9
    worker.intake.restraint.found_nothing(TOOK_S)
    worker.intake.restraint.found_nothing(TOOK_S)
    await worker.recorder.step()
    async with anyio.create_task_group() as group:
        group.start_soon(worker._forward_room)
        for _ in range(10):
            await anyio.lowlevel.checkpoint()
        group.cancel_scope.cancel()
    assert worker.intake.restraint.rest_s == 0


@pytest.mark.anyio
async def test_workers_count_who_is_there(app: App, clock: ManualClock) -> None:
    app.action("work")(lambda: None)
    first, second, third = [Worker(app, name=name) for name in ("first", "second", "third")]
    assert await first.minutes.step() == SECOND_REPORT_S
    for other in (second, third):
        await other.minutes.step()
    assert [one.intake.restraint.others for one in (first, second, third)] == [0, 1, 2]
    assert await first.minutes.step() == REPORT_EVERY_S
    assert first.intake.restraint.others == 2
    await second.minutes.leave()
    await first.minutes.step()
    assert first.intake.restraint.others == 1
    clock.advance(SEEN_WITHIN)
    await first.minutes.step()
    assert first.intake.restraint.others == 0


# In a fleet.


@pytest.mark.slow
def test_a_fleet_looks_seldom_in_vain_is_on_time_and_shares_the_work() -> None:
    found = QuietFleet(1, workers=32, shards=64, statement_s=TOOK_S).live(15, rate=100.0)
    # Unrestrained they make more than two thousand.
    assert found.fruitless / found.seconds < 250
    late_s = sorted(found.late_s)
    assert late_s[len(late_s) // 2] < 0.012
    assert late_s[len(late_s) * 99 // 100] < 0.1
    assert len(found.done_by) == 32
    assert min(found.done_by.values()) >= 0.3 * len(late_s) / 32


@pytest.mark.slow
def test_where_little_is_to_be_done_all_look_for_it_at_once() -> None:
    found = QuietFleet(1, workers=20, shards=64, statement_s=TOOK_S).live(10, rate=1.0)
    assert max(found.late_s) < 0.015
