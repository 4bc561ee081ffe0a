"""Recording outcomes: once, by the attempt that still holds the row, over the version it ran."""

from datetime import timedelta

import pytest
from support.scene import LEASE, Scene, done, ended, failed

from matrixsched import Outcome, State
from matrixsched.store.values import Answer

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)
TICK = timedelta(microseconds=1)
COUNTERS = ("succeeded", "failed", "interrupted", "missed", "deferred", "consecutive_failures")
REMEMBERED = {Outcome.FAILED, Outcome.TIMED_OUT, Outcome.INTERRUPTED}


def counters(status):
    return {name: getattr(status, name) for name in COUNTERS if getattr(status, name)}


@pytest.mark.parametrize(
    ("outcome", "state", "counted"),
    [
        (Outcome.SUCCEEDED, State.DONE, {"succeeded": 1}),
        (Outcome.FAILED, State.FAILED, {"failed": 1, "consecutive_failures": 1}),
        (Outcome.TIMED_OUT, State.FAILED, {"failed": 1, "consecutive_failures": 1}),
        (Outcome.CANCELLED, State.CANCELLED, {"deferred": 1}),
        (Outcome.EXPIRED, State.EXPIRED, {}),
        (Outcome.MISSED, State.EXPIRED, {"missed": 1}),
        (Outcome.QUARANTINED, State.QUARANTINED, {}),
        (Outcome.INTERRUPTED, State.EXPIRED, {"interrupted": 1}),
    ],
)
async def test_a_last_outcome_finishes_the_action_and_removes_its_row(scene: Scene, outcome, state, counted):
    attempt = await scene.start()
    due_at = scene.now
    scene.clock.advance(SECOND)
    assert await scene.record(ended(attempt, outcome, state, error="why")) == [Answer.RECORDED]
    status = (await scene.action()).status
    assert (status.state, status.finished_at, status.scheduled_at) == (state, scene.now, due_at)
    assert counters(status) == counted
    assert (status.last_outcome, status.last_error) == (outcome, "why")
    assert (status.last_started_at, status.last_ended_at) == (attempt.claimed_at, scene.now)
    assert not status.running
    assert await scene.table("processing_queue") == []
    remembered = [(past.outcome, past.error) for past in await scene.history()]
    assert remembered == ([(outcome, "why")] if outcome in REMEMBERED else [])


@pytest.mark.parametrize(
    ("outcome", "counted"),
    [
        (Outcome.SUCCEEDED, {"succeeded": 1}),
        (Outcome.FAILED, {"failed": 1, "consecutive_failures": 1}),
        (Outcome.TIMED_OUT, {"failed": 1, "consecutive_failures": 1}),
        (Outcome.RETRIED, {"deferred": 1}),
        (Outcome.MISSED, {"missed": 1}),
        (Outcome.INTERRUPTED, {"interrupted": 1}),
    ],
)
async def test_another_run_reschedules_the_row_and_frees_it(scene: Scene, outcome, counted):
    attempt = await scene.start()
    scene.clock.advance(SECOND)
    next_at = scene.now + HOUR
    verdict = {"tick": 3, "tick_at": next_at, "tick_failures": 2, "next_at": next_at}
    assert await scene.record(ended(attempt, outcome, State.LIVE, **verdict)) == [Answer.RECORDED]
    status = (await scene.action()).status
    assert (status.state, status.finished_at, status.scheduled_at) == (State.LIVE, None, next_at)
    assert (counters(status), status.tick, status.running) == (counted, 3, False)
    row = await scene.row()
    assert (row["scheduled_at"], row["claimed_by"], row["attempt"]) == (next_at, None, 1)
    remembered = [(past.attempt, past.tick, past.outcome) for past in await scene.history()]
    assert remembered == ([(1, 0, outcome)] if outcome in REMEMBERED else [])

    scene.clock.advance(HOUR)
    (again,) = await scene.sync()
    assert (again.claim.attempt, again.tick, again.tick_at, again.tick_failures) == (2, 3, next_at, 2)


@pytest.mark.parametrize("delay", [timedelta(0), timedelta(microseconds=1), timedelta(days=3000)])
async def test_a_delay_counts_from_the_databases_time_when_it_is_recorded(scene: Scene, delay):
    attempt = await scene.start()
    scene.clock.advance(SECOND)
    await scene.record(failed(attempt, delay=delay))
    assert (await scene.row())["scheduled_at"] == scene.now + delay
    assert (await scene.action()).status.scheduled_at == scene.now + delay


async def test_failures_in_a_row_are_counted_until_a_success(scene: Scene):
    attempt = await scene.start()
    for _ in range(3):
        await scene.record(failed(attempt, delay=timedelta(0)))
        (attempt,) = await scene.sync()
    retried = ended(attempt, Outcome.RETRIED, State.LIVE, delay=timedelta(0))
    await scene.record(retried)
    assert (await scene.action()).status.consecutive_failures == 3
    (attempt,) = await scene.sync()
    await scene.finish(attempt)
    status = (await scene.action()).status
    assert counters(status) == {"failed": 3, "succeeded": 1, "deferred": 1}


async def test_interruptions_of_the_row_are_counted_with_the_outcome(scene: Scene):
    attempt = await scene.interrupt(await scene.interrupt(await scene.start()))
    stopped = ended(attempt, Outcome.INTERRUPTED, State.LIVE, delay=timedelta(0))
    await scene.record(stopped)
    assert (await scene.action()).status.interrupted == 3
    assert [past.attempt for past in await scene.history()] == [3, 2, 1]
    (attempt,) = await scene.sync()
    await scene.finish(attempt)
    assert (await scene.action()).status.interrupted == 3


@pytest.mark.parametrize("make", [done, failed])
async def test_an_outcome_sent_twice_is_recorded_once(scene: Scene, make):
    attempt = await scene.start()
    assert await scene.record(make(attempt)) == [Answer.RECORDED]
    before = await scene.contents()
    scene.clock.advance(SECOND)
    assert await scene.record(make(attempt)) == [Answer.LOST]
    assert await scene.contents() == before


async def test_a_late_twin_does_not_end_the_next_tick(scene: Scene):
    attempt = await scene.start()
    again = ended(attempt, Outcome.SUCCEEDED, State.LIVE, tick=1, next_at=scene.now)
    await scene.record(again)
    (next_attempt,) = await scene.sync()
    before = await scene.contents()
    assert await scene.record(again) == [Answer.LOST]
    assert await scene.contents() == before
    assert await scene.finish(next_attempt) is Answer.RECORDED


async def test_an_attempt_that_was_taken_over_records_nothing(scene: Scene):
    old = await scene.start()
    new = await scene.interrupt(old)
    before = await scene.contents()
    assert await scene.record(done(old)) == [Answer.LOST]
    assert await scene.contents() == before
    assert await scene.finish(new) is Answer.RECORDED


async def test_an_attempt_whose_lease_ran_out_may_record_until_somebody_takes_over(scene: Scene):
    attempt = await scene.start()
    scene.clock.advance(2 * LEASE)
    assert await scene.finish(attempt) is Answer.RECORDED
    assert (await scene.action()).status.interrupted == 0


async def test_an_outcome_after_an_extension_is_recorded(scene: Scene):
    attempt = await scene.start()
    scene.clock.advance(SECOND)
    await scene.extend(attempt)
    assert await scene.finish(attempt) is Answer.RECORDED


@pytest.mark.parametrize("operation", ["schedule", "reschedule", "cancel"])
@pytest.mark.parametrize("make", [done, failed])
async def test_an_outcome_of_a_version_that_was_changed_goes_to_the_history_only(scene: Scene, operation, make):
    attempt = await scene.start()
    await getattr(scene, operation)()
    before = await scene.action()
    scene.clock.advance(SECOND)
    assert await scene.record(make(attempt)) == [Answer.SUPERSEDED]
    after = await scene.action()
    assert (after.meta, after.spec) == (before.meta, before.spec)
    assert counters(after.status) == {}
    assert (after.status.state, after.status.running) == (before.status.state, False)
    (past,) = await scene.history()
    assert (past.guid, past.attempt, past.outcome) == (attempt.claim.guid, 1, Outcome.SUPERSEDED)
    assert past.error == make(attempt).verdict.outcome
    assert (past.started_at, past.ended_at) == (attempt.claimed_at, scene.now)
    assert await scene.table("processing_queue") == []

    contents = await scene.contents()
    assert await scene.record(make(attempt)) == [Answer.SUPERSEDED]
    assert await scene.contents() == contents


async def test_a_late_twin_of_a_superseded_outcome_leaves_the_next_version_its_lease(scene: Scene):
    attempt = await scene.start()
    await scene.schedule()
    assert await scene.sync() == []
    assert await scene.record(done(attempt)) == [Answer.SUPERSEDED]
    (again,) = await scene.sync()
    before = await scene.contents()
    assert await scene.record(done(attempt)) == [Answer.SUPERSEDED]
    assert await scene.contents() == before
    assert await scene.finish(again) is Answer.RECORDED


@pytest.mark.parametrize("part", ["shard", "action_id", "guid", "attempt", "claimed_by"])
async def test_every_part_of_a_claim_on_a_superseded_version_counts(scene: Scene, part):
    attempt = await scene.start()
    await scene.schedule()
    other = {"shard": 1, "action_id": "b", "guid": scene.guid(), "attempt": 2, "claimed_by": scene.guid()}[part]
    before = await scene.contents()
    wrong = attempt._replace(claim=attempt.claim._replace(**{part: other}))
    assert await scene.finish(wrong) is Answer.SUPERSEDED
    assert await scene.contents() == before


async def test_an_outcome_of_an_action_that_is_gone_is_superseded(scene: Scene):
    attempt = await scene.start()
    await scene.sql("delete from matrixsched.scheduled_actions")
    assert await scene.finish(attempt) is Answer.SUPERSEDED
    assert await scene.table("processing_queue") == []


async def test_many_outcomes_are_recorded_at_once_each_with_its_own_answer(scene: Scene):
    lost = await scene.start("lost")
    await scene.finish(lost)
    replaced = await scene.start("replaced")
    await scene.schedule("replaced", delay=HOUR)
    fine, bad = await scene.start("fine"), await scene.start("bad", shard=2)
    answers = await scene.record(done(replaced), done(fine), failed(bad), done(lost))
    assert answers == [Answer.SUPERSEDED, Answer.RECORDED, Answer.RECORDED, Answer.LOST]
    assert (await scene.action("fine")).status.state is State.DONE
    assert (await scene.action("bad", shard=2)).status.failed == 1
    assert await scene.record() == []


async def test_the_history_keeps_the_newest_attempts_of_each_action(scene: Scene):
    other = await scene.start("b")
    await scene.record(failed(other, delay=HOUR))
    attempt = await scene.start("a")
    for number in range(1, 7):
        scene.clock.advance(SECOND)
        await scene.record(failed(attempt, delay=timedelta(0)), history_max=3)
        kept = [past.attempt for past in await scene.history()]
        assert kept == list(range(number, max(0, number - 3), -1))
        (attempt,) = await scene.sync()
    assert len(await scene.history("b")) == 1


@pytest.mark.parametrize("history_max", [1, 2])
async def test_the_history_of_an_action_is_not_counted_with_that_of_others(scene: Scene, history_max):
    keys = [("a", 0), ("b", 0), ("a", 1)]
    guid = scene.guid()  # one for all, lest it makes up for a part of their names
    attempts = {key: await scene.start(key[0], shard=key[1], guid=guid) for key in keys}
    kept = {key: [] for key in keys}
    for number in (1, 2, 3):
        for id, shard in keys:
            scene.clock.advance(TICK)
            await scene.record(failed(attempts[id, shard], delay=timedelta(0)), history_max=history_max)
            (attempts[id, shard],) = await scene.sync()
            kept[id, shard] = [number, *kept[id, shard]][:history_max]
            assert {key: [past.attempt for past in await scene.history(key[0], shard=key[1])] for key in keys} == kept


async def test_the_history_is_bounded_also_when_the_clock_stands_still(scene: Scene):
    attempt = await scene.start()
    for _ in range(5):
        await scene.record(failed(attempt, delay=timedelta(0)), history_max=2)
        (attempt,) = await scene.sync()
    assert [past.attempt for past in await scene.history()] == [5, 4]


async def test_interruptions_do_not_fill_the_history_of_an_action_that_always_succeeds_in_the_end(scene: Scene):
    attempt = await scene.start()
    for tick in range(1, 6):
        attempt = await scene.interrupt(attempt)
        succeeded = ended(attempt, Outcome.SUCCEEDED, State.LIVE, tick=tick, next_at=scene.now)
        await scene.record(succeeded, history_max=2)
        (attempt,) = await scene.sync()
    assert len(await scene.history()) <= 2


async def test_superseded_attempts_do_not_fill_the_history(scene: Scene):
    for _ in range(5):
        attempt = await scene.start()
        await scene.schedule()
        scene.clock.advance(SECOND)
        await scene.record(done(attempt), history_max=2)
    assert len(await scene.history()) <= 2


async def test_a_lost_outcome_forgets_nothing(scene: Scene):
    attempt = await scene.start()
    await scene.record(failed(attempt), history_max=1)
    assert await scene.record(failed(attempt), history_max=1) == [Answer.LOST]
    assert len(await scene.history()) == 1
