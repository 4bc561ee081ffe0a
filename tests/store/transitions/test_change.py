"""Moving and cancelling actions: once per request, over the version that is meant."""

from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from support.scene import LEASE, Scene, ended, failed

from matrixsched import Outcome, State, every
from matrixsched.rules.action import Terms, suspect_lane
from matrixsched.store.values import Answer, Seen

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)


async def test_rescheduling_moves_the_next_run_and_keeps_spec_and_counters(scene: Scene):
    terms = Terms(repeat=every(HOUR, anchor=scene.now))
    attempt = await scene.start(payload=b"1", terms=terms, priority=5, expires_at=scene.now + 9 * HOUR)
    await scene.record(failed(attempt, delay=SECOND))
    before = await scene.action()
    scene.clock.advance(SECOND)

    moved = await scene.reschedule(at=scene.now + HOUR)
    assert moved is not None
    assert (moved.created, moved.running) == (False, False)
    after = await scene.action()
    assert after.spec == before.spec
    assert (after.meta.guid, after.meta.revision) == (moved.guid, before.meta.revision + 1)
    assert (after.meta.created_at, after.meta.updated_at) == (before.meta.created_at, scene.now)
    assert after.meta.version > before.meta.version
    assert (after.status.scheduled_at, after.status.failed) == (scene.now + HOUR, 1)
    assert after.status.consecutive_failures == 1
    assert after.status.last_error == "no luck"
    (row,) = await scene.table("incoming_queue")
    assert (row["action_guid"], row["scheduled_at"]) == (moved.guid, scene.now + HOUR)
    assert row["expires_at"] == before.spec.expires_at


async def test_the_failures_of_a_tick_still_count_after_it_was_moved(scene: Scene):
    await scene.record(failed(await scene.start()))
    await scene.reschedule()
    (attempt,) = await scene.sync()
    assert (attempt.tick_failures, attempt.tick_at) == (1, scene.now)


async def test_rescheduling_by_a_delay_counts_from_the_databases_time(scene: Scene):
    await scene.schedule(delay=HOUR)
    scene.clock.advance(SECOND)
    await scene.reschedule(delay=timedelta(days=200, microseconds=1))
    assert (await scene.action()).status.scheduled_at == scene.now + timedelta(days=200, microseconds=1)


@pytest.mark.parametrize("state", [State.DONE, State.FAILED, State.CANCELLED, State.EXPIRED, State.QUARANTINED])
async def test_a_finished_action_is_moved_only_to_revive_it(scene: Scene, state):
    attempt = await scene.start(expires_at=scene.now + SECOND)
    await scene.record(ended(attempt, Outcome.FAILED, state, tick_failures=3))
    before = await scene.action()
    assert await scene.reschedule() is None
    assert await scene.action() == before

    scene.clock.advance(HOUR)
    revived = await scene.reschedule(revive=True)
    assert revived is not None
    after = await scene.action()
    assert (after.status.state, after.status.finished_at, after.status.failed) == (State.LIVE, None, 1)
    assert after.spec.expires_at is None  # or it would expire at once
    (attempt,) = await scene.sync()
    assert (attempt.claim.guid, attempt.claim.attempt, attempt.tick_failures) == (revived.guid, 1, 0)


async def test_reviving_a_live_action_just_moves_it(scene: Scene):
    await scene.schedule(delay=HOUR, expires_at=scene.now + 2 * HOUR)
    assert await scene.reschedule(revive=True) is not None
    action = await scene.action()
    assert (action.status.scheduled_at, action.spec.expires_at) == (scene.now, scene.now + 2 * HOUR)


@pytest.mark.parametrize("operation", ["reschedule", "cancel"])
async def test_a_change_is_made_over_the_expected_version_only(scene: Scene, operation):
    first = await scene.schedule()
    second = await scene.schedule()
    before = await scene.contents()
    assert await getattr(scene, operation)(expected_guid=first.guid) is None
    after = await scene.contents()
    assert after | {"requests": []} == before | {"requests": []}
    assert await getattr(scene, operation)(expected_guid=second.guid) is not None


@pytest.mark.parametrize("is_named", [False, True])
@pytest.mark.parametrize("operation", ["reschedule", "cancel"])
async def test_a_change_that_was_called_off_writes_nothing_and_was_not_carried_out(scene: Scene, operation, is_named):
    first = await scene.schedule()
    change = scene.change(delay=HOUR)
    if not is_named:
        change = replace(change, request_guid=change.guid)
    made = scene.do.cancel(change) if operation == "cancel" else scene.do.reschedule(change, revive=True, tell=False)
    await scene.run(scene.do.call_off(change.shard, change.guid))
    assert await scene.run(made) is None
    assert (await scene.action()).meta.guid == first.guid
    assert await scene.run(scene.do.carried_out([change.guid, change.request_guid])) == set()
    # Under the same name it can be asked for again.
    again = replace(change, guid=uuid4(), request_guid=change.request_guid if is_named else uuid4())
    assert await scene.run(scene.do.cancel(again)) is not None


@pytest.mark.parametrize("operation", ["reschedule", "cancel"])
async def test_a_change_is_made_once_by_the_name_of_its_request(scene: Scene, operation):
    await scene.schedule()
    first = scene.change(delay=HOUR)
    assert await scene.run(scene.do.reschedule(first, revive=False, tell=False)) is not None
    again = replace(first, guid=uuid4())
    made = scene.do.cancel(again) if operation == "cancel" else scene.do.reschedule(again, revive=True, tell=False)
    assert await scene.run(made) is None
    assert (await scene.action()).meta.guid == first.guid
    assert await scene.run(scene.do.carried_out([first.guid, again.guid])) == {first.guid}


async def test_what_has_taken_effect_is_not_called_off_any_more(scene: Scene):
    await scene.schedule()
    change = scene.change(delay=HOUR)
    assert await scene.run(scene.do.cancel(change)) is not None
    for _ in range(2):
        await scene.run(scene.do.call_off(change.shard, change.guid))
        assert await scene.run(scene.do.carried_out([change.guid])) == {change.guid}


@pytest.mark.parametrize("operation", ["reschedule", "cancel"])
async def test_a_change_is_made_once_per_request_also_late(scene: Scene, operation):
    await scene.schedule()
    change = scene.change(delay=HOUR)

    def sent_again():
        return (
            scene.do.cancel(change) if operation == "cancel" else scene.do.reschedule(change, revive=True, tell=False)
        )

    assert await scene.run(sent_again()) is not None
    before = await scene.contents()
    assert await scene.run(sent_again()) is None
    assert await scene.contents() == before
    newer = await scene.schedule()
    assert await scene.run(sent_again()) is None
    assert (await scene.action()).meta.guid == newer.guid


@pytest.mark.parametrize("operation", ["reschedule", "cancel"])
async def test_a_change_of_what_does_not_exist_changes_nothing(scene: Scene, operation):
    assert await getattr(scene, operation)("nobody") is None
    assert await scene.table("incoming_queue") == []


@pytest.mark.parametrize("operation", ["reschedule", "cancel"])
async def test_a_change_tells_whether_an_attempt_is_under_way(scene: Scene, operation):
    await scene.start("a")
    assert (await getattr(scene, operation)("a")).running
    await scene.start("b")
    scene.clock.advance(LEASE)
    assert not (await getattr(scene, operation)("b")).running


@pytest.mark.parametrize("operation", ["reschedule", "cancel"])
async def test_interruptions_counted_in_the_row_are_taken_over(scene: Scene, operation):
    attempt = await scene.interrupt(await scene.start())
    attempt = await scene.interrupt(attempt)
    assert (await scene.action()).status.interrupted == 2
    await getattr(scene, operation)()
    assert (await scene.action()).status.interrupted == 2
    assert await scene.finish(attempt) is Answer.SUPERSEDED
    assert (await scene.action()).status.interrupted == 2


async def test_a_moved_action_is_no_suspect_any_more(scene: Scene):
    await scene.interrupt(await scene.interrupt(await scene.start()))
    await scene.reschedule()
    scene.clock.advance(LEASE)
    (attempt,) = await scene.sync(lanes=[suspect_lane("greet")])
    assert (attempt.claim.attempt, attempt.interruptions) == (1, 0)
    assert (await scene.row())["lane"] == ""


async def test_cancelling_finishes_a_live_action_wherever_its_row_is(scene: Scene):
    await scene.put_in_processing("a", delay=HOUR)
    await scene.schedule("b", delay=HOUR)
    for id in "ab":
        before = await scene.action(id)
        cancelled = await scene.cancel(id)
        assert cancelled is not None
        action = await scene.action(id)
        assert (action.status.state, action.status.finished_at) == (State.CANCELLED, scene.now)
        assert (action.meta.guid, action.meta.revision) == (cancelled.guid, before.meta.revision + 1)
    scene.clock.advance(HOUR)
    assert await scene.sync() == []
    assert await scene.waiting("incoming_queue") == await scene.waiting("processing_queue") == set()


async def test_a_finished_action_is_not_cancelled(scene: Scene):
    await scene.finish(await scene.start())
    assert await scene.cancel() is None
    assert (await scene.action()).status.state is State.DONE


@pytest.mark.parametrize("is_there", [True, False])
async def test_what_may_be_changed_beside_an_action_lets_nobody_change_that(scene: Scene, is_there):
    """Under each other part of its name there is a live action, at the guid that is expected of this one."""
    guid = scene.guid()
    if is_there:
        await scene.finish(await scene.start("a"))
    for id, shard in (("b", 0), ("a", 1)):
        await scene.schedule(id, shard=shard, guid=guid, delay=HOUR)
    before = await scene.contents()
    for expected in (None, guid):
        assert await scene.reschedule("a", expected_guid=expected) is None
        assert await scene.cancel("a", expected_guid=expected) is None
    assert await scene.reschedule("a", expected_guid=guid, revive=True) is None
    assert await scene.run(scene.do.replace_expected(scene.new("a"), scene.guid(), guid, tell=False)) is None
    assert await scene.contents() == before


async def seen(scene: Scene) -> dict[str, Any]:
    """As an action is read of which no attempt is under way."""
    action = await scene.action()
    return {"expected_guid": action.meta.guid, "seen": Seen(action.status.state, action.status.last_ended_at)}


@pytest.mark.parametrize("is_moved", [False, True])
async def test_what_is_as_it_was_seen_is_run_once_and_leaves_no_row_behind(scene: Scene, is_moved: bool) -> None:
    await scene.schedule(delay=HOUR)
    if is_moved:
        await scene.sync()
    assert await scene.reschedule(revive=True, **await seen(scene)) is not None
    (attempt,) = await scene.sync()
    assert attempt.claim.guid == (await scene.action()).meta.guid
    await scene.finish(attempt)
    scene.clock.advance(2 * HOUR)
    assert await scene.sync() == []


async def test_what_lost_its_row_is_run_all_the_same(scene: Scene) -> None:
    await scene.schedule(delay=HOUR)
    await scene.sql("delete from matrixsched.incoming_queue")
    assert await scene.reschedule(revive=True, **await seen(scene)) is not None
    (attempt,) = await scene.sync()
    assert attempt.claim.guid == (await scene.action()).meta.guid


async def test_what_was_started_since_it_was_seen_is_not_run_once_more(scene: Scene) -> None:
    await scene.schedule()
    before = await seen(scene)
    (attempt,) = await scene.sync()
    tables = await scene.contents()
    assert await scene.reschedule(revive=True, **before) is None
    assert await scene.contents() == tables, "nothing is written"
    assert await scene.finish(attempt) is Answer.RECORDED
    assert await scene.reschedule(revive=True, **before) is None
    assert (await scene.action()).status.state is State.DONE


async def test_what_failed_since_it_was_seen_and_waits_for_its_next_try_is_left_to_it(scene: Scene) -> None:
    await scene.schedule()
    before = await seen(scene)
    (attempt,) = await scene.sync()
    await scene.record(failed(attempt, delay=HOUR))
    assert await scene.reschedule(revive=True, **before) is None
    assert await scene.reschedule(revive=True, **await seen(scene)) is not None


@pytest.mark.parametrize("is_moved", [False, True])
async def test_what_is_not_run_after_all_keeps_its_row(scene: Scene, is_moved: bool) -> None:
    await scene.schedule(delay=HOUR)
    if is_moved:
        await scene.sync()
    change = scene.change(**await seen(scene))
    await scene.run(scene.do.call_off(change.shard, change.guid))
    assert await scene.run(scene.do.reschedule(change, revive=True, tell=False)) is None
    await scene.check_one_live_row()


async def test_what_others_do_meanwhile_is_no_reason_to_leave_it(scene: Scene) -> None:
    await scene.schedule(delay=HOUR)
    before = await seen(scene)
    await scene.start("b")
    assert await scene.reschedule(revive=True, **before) is not None
    assert (await scene.row("b"))["claimed_by"] is not None


@pytest.mark.parametrize("since", [timedelta(0), SECOND])
async def test_whose_worker_is_gone_is_run_as_it_was_seen(scene: Scene, since: timedelta) -> None:
    await scene.start()
    scene.clock.advance(LEASE + since)
    assert await scene.reschedule(revive=True, **await seen(scene)) is not None
    (attempt,) = await scene.sync()
    assert (attempt.claim.attempt, (await scene.action()).status.interrupted) == (1, 0)


async def test_what_is_finished_is_run_once_more_as_it_was_seen(scene: Scene) -> None:
    await scene.finish(await scene.start())
    before = await seen(scene)
    assert await scene.reschedule(revive=True, **before) is not None
    assert await scene.reschedule(revive=True, **before) is None
    assert len(await scene.sync()) == 1
