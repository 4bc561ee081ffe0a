"""Old things go, in small batches; nothing that is still needed does."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from support.scene import LEASE, Scene, done, ended, failed

from matrixsched import Outcome, State
from matrixsched.rules.retention import FINISHED
from matrixsched.store.chores import TIDY
from matrixsched.store.values import Answer, Expiry, SweepPosition, Swept, TidyPosition

pytestmark = pytest.mark.anyio

DAY = timedelta(days=1)
WEEK = timedelta(days=7)
TICK = timedelta(microseconds=1)
REACH = timedelta(minutes=10)
BEGINNING = SweepPosition()
START = TidyPosition()
HALFWAY = TidyPosition(SweepPosition(3, 'a "quoted" \u00e4', UUID(int=7)), None)


async def prune(scene: Scene, *states: State, limit: int = 100) -> int:
    """Of all states unless some are named."""
    gone = [await scene.run(scene.do.prune_actions(one, keep=WEEK, limit=limit)) for one in states or FINISHED]
    return sum(gone)


async def stored(scene: Scene) -> set[str]:
    return await scene.waiting("scheduled_actions")


async def test_finished_actions_are_pruned_when_they_are_old(scene: Scene):
    await scene.finish(await scene.start("done"))
    await scene.schedule("cancelled")
    await scene.cancel("cancelled")
    scene.clock.advance(WEEK)
    assert await prune(scene) == 0
    scene.clock.advance(TICK)
    assert await prune(scene) == 2
    assert await stored(scene) == set()


@pytest.mark.parametrize("state", FINISHED)
async def test_each_state_is_pruned_for_itself(scene: Scene, state: State):
    for one in FINISHED:
        await scene.record(ended(await scene.start(one.value), Outcome.SUCCEEDED, one))
    scene.clock.advance(WEEK + TICK)
    assert await scene.run(scene.do.count_old(state, keep=WEEK, count_max=9)) == 1
    assert await prune(scene, state) == 1
    assert await stored(scene) == {one.value for one in FINISHED} - {state.value}
    assert await scene.run(scene.do.count_old(state, keep=WEEK, count_max=9)) == 0


async def test_counting_what_is_old_stops_where_it_is_told_and_deletes_nothing(scene: Scene):
    for id in "abc":
        await scene.finish(await scene.start(id))
    assert await scene.run(scene.do.count_old(State.DONE, keep=WEEK, count_max=9)) == 0
    scene.clock.advance(WEEK + TICK)
    assert await scene.run(scene.do.count_old(State.DONE, keep=WEEK, count_max=9)) == 3
    assert await scene.run(scene.do.count_old(State.DONE, keep=WEEK, count_max=2)) == 2
    assert len(await stored(scene)) == 3


async def test_live_actions_are_never_pruned_however_old(scene: Scene):
    await scene.schedule("waiting", delay=100 * WEEK)
    await scene.start("running")
    await scene.record(failed(await scene.start("retried")))
    scene.clock.advance(50 * WEEK)
    assert await prune(scene) == 0
    assert await stored(scene) == {"waiting", "running", "retried"}


@pytest.mark.parametrize("operation", ["schedule", "reschedule"])
async def test_what_was_finished_and_begins_anew_is_not_pruned(scene: Scene, operation):
    await scene.finish(await scene.start())
    scene.clock.advance(2 * WEEK)
    await (scene.schedule() if operation == "schedule" else scene.reschedule(revive=True))
    assert await prune(scene) == 0
    await scene.finish((await scene.sync())[0])
    assert await prune(scene) == 0


async def test_pruning_takes_the_oldest_first_and_no_more_than_allowed(scene: Scene):
    for id in "cab":
        await scene.finish(await scene.start(id))
        scene.clock.advance(DAY)
    scene.clock.advance(2 * WEEK)
    assert await prune(scene, limit=2) == 2
    assert await stored(scene) == {"b"}
    assert await prune(scene, limit=2) == 1
    assert await prune(scene, limit=2) == 0


async def test_the_history_of_a_pruned_action_goes_with_it(scene: Scene):
    for id in "ab":
        await scene.record(failed(await scene.start(id), delay=DAY))
    await scene.cancel("a")
    scene.clock.advance(2 * WEEK)
    assert await prune(scene) == 1
    assert await scene.history("a") == []
    assert len(await scene.history("b")) == 1


async def test_an_attempt_at_an_action_that_was_cancelled_and_pruned_ends_quietly(scene: Scene):
    attempt = await scene.start()
    await scene.cancel()
    scene.clock.advance(2 * WEEK)
    assert await prune(scene) == 1
    assert await scene.finish(attempt) is Answer.SUPERSEDED
    assert await scene.table("processing_queue") == []


async def test_requests_are_forgotten_when_they_are_old(scene: Scene):
    for id in "abc":
        await scene.schedule(id)
        scene.clock.advance(DAY)

    async def forget(limit: int) -> int:
        return await scene.run(scene.do.prune_requests(keep=2 * DAY, limit=limit))

    assert await forget(100) == 1
    scene.clock.advance(WEEK)
    assert await forget(1) == 1
    assert len(await scene.requests()) == 1
    assert await forget(100) == 1
    assert await forget(100) == 0
    assert await stored(scene) == set("abc")


async def test_a_request_is_known_exactly_as_long_as_it_is_kept(scene: Scene):
    request, new = scene.guid(), scene.new()
    await scene.send([new], request=request)
    scene.clock.advance(DAY)
    assert await scene.run(scene.do.prune_requests(keep=DAY, limit=100)) == 0
    assert await scene.send([scene.new()], request=request) == []


async def sweep(scene: Scene, position: SweepPosition = BEGINNING, *, limit: int = 100):
    return await scene.run(scene.do.sweep_dead(position, limit=limit, reach=REACH))


async def test_dead_rows_far_in_the_future_are_swept(scene: Scene):
    await scene.put_in_processing("replaced", "moved", "cancelled", "live", delay=100 * DAY)
    await scene.schedule("replaced", delay=200 * DAY)
    await scene.reschedule("moved", delay=200 * DAY)
    await scene.cancel("cancelled")
    swept = await sweep(scene)
    assert (swept.gone, swept.position) == (3, BEGINNING)
    assert await scene.waiting("processing_queue") == {"live"}
    assert await scene.waiting("incoming_queue") == {"replaced", "moved"}
    assert (await sweep(scene)).gone == 0


async def test_incoming_rows_are_left_to_the_move(scene: Scene):
    await scene.schedule()
    await scene.schedule()
    assert (await sweep(scene)).gone == 0
    assert len(await scene.table("incoming_queue")) == 2


async def test_an_attempt_under_way_is_never_swept(scene: Scene):
    attempt = await scene.start()
    await scene.schedule(delay=DAY)
    scene.clock.advance(LEASE - TICK)
    assert (await sweep(scene)).gone == 0
    assert await scene.finish(attempt) is Answer.SUPERSEDED


async def test_a_dead_attempt_whose_lease_ran_out_is_swept(scene: Scene):
    await scene.start()
    await scene.cancel()
    scene.clock.advance(LEASE)
    assert (await sweep(scene)).gone == 1
    assert (await scene.action()).status.state is State.CANCELLED


async def test_the_sweeper_goes_round_everything_a_few_rows_at_a_time(scene: Scene):
    for shard in (0, 2, 3):
        await scene.put_in_processing(*[f"a{n}" for n in range(3)], shard=shard, delay=DAY)
        for n in (0, 2):
            await scene.cancel(f"a{n}", shard=shard)
    position, gone, rounds = BEGINNING, [], 0
    while True:
        swept = await sweep(scene, position, limit=2)
        gone.append(swept.gone)
        position, rounds = swept.position, rounds + 1
        if position == BEGINNING:
            break
    assert (sum(gone), rounds) == (6, 5)
    assert len(await scene.table("processing_queue")) == 3


async def test_a_round_over_nothing_ends_where_it_began(scene: Scene):
    swept = await sweep(scene)
    assert (swept.gone, swept.position) == (0, BEGINNING)


# Leases that the clock left behind.


@pytest.mark.parametrize("back", [timedelta(hours=5), 400 * DAY])
async def test_after_the_clock_was_set_back_a_crashed_attempt_waits_no_longer_than_the_longest_lease(
    scene: Scene, back: timedelta
):
    await scene.start()
    scene.clock.advance(-back)
    swept = await sweep(scene)
    assert (swept.gone, swept.shortened) == (0, 1)
    assert (await scene.row())["scheduled_at"] == scene.now + REACH
    assert (await sweep(scene)).shortened == 0
    scene.clock.advance(REACH)
    (again,) = await scene.sync()
    assert again.interruptions == 1


async def test_a_lease_as_long_as_any_can_be_is_left_alone(scene: Scene):
    await scene.start()
    scene.clock.advance(LEASE - REACH)
    assert (await sweep(scene)).shortened == 0
    assert (await scene.row())["scheduled_at"] == scene.now + REACH


async def test_an_attempt_that_is_alive_keeps_its_cut_lease(scene: Scene):
    attempt = await scene.start()
    scene.clock.advance(-DAY)
    await sweep(scene)
    assert await scene.finish(attempt) is Answer.RECORDED


async def test_what_waits_for_the_far_future_is_no_lease(scene: Scene):
    await scene.put_in_processing("far", delay=1000 * DAY)
    assert (await sweep(scene)).shortened == 0
    assert (await scene.row("far"))["scheduled_at"] == scene.now + 1000 * DAY


# The history.


async def forget(scene: Scene, position: SweepPosition = BEGINNING, *, limit: int = 100, keep: int = 50) -> Swept:
    return await scene.run(scene.do.sweep_history(position, limit=limit, history_max=keep))


async def fail_often(scene: Scene, id: str, times: int, *, shard: int = 0) -> None:
    attempt = await scene.start(id, shard=shard)
    for _ in range(times - 1):
        await scene.record(failed(attempt))
        scene.clock.advance(DAY)
        (attempt,) = await scene.sync()
    await scene.record(failed(attempt, delay=100 * DAY))


async def test_what_is_remembered_of_an_action_that_is_gone_is_forgotten(scene: Scene):
    await fail_often(scene, "here", 2)
    attempt = await scene.start("gone")
    await scene.cancel("gone")
    scene.clock.advance(2 * WEEK)
    await prune(scene)
    assert await scene.finish(attempt) is Answer.SUPERSEDED
    assert len(await scene.history("gone")) == 1
    assert await forget(scene) == Swept(1, BEGINNING)
    assert await scene.history("gone") == []
    assert len(await scene.history("here")) == 2
    assert await forget(scene) == Swept(0, BEGINNING)


async def test_versions_that_were_replaced_while_their_workers_died_do_not_pile_up(scene: Scene):
    for _ in range(5):
        await scene.start()
        scene.clock.advance(LEASE + TICK)
        await scene.schedule(delay=DAY)
        await scene.sync()
    assert len(await scene.history()) == 5
    assert await forget(scene, keep=3) == Swept(2, BEGINNING)
    assert len(await scene.history()) == 3


async def test_only_the_last_attempts_stay(scene: Scene):
    await fail_often(scene, "a", 5)
    before = await scene.history("a")
    assert (await forget(scene, keep=2)).gone == 3
    assert await scene.history("a") == before[:2]


async def test_the_history_is_gone_through_a_few_rows_at_a_time(scene: Scene):
    for shard, id in [(0, "a"), (0, "b"), (2, "a"), (3, "c")]:
        await fail_often(scene, id, 3, shard=shard)
    position, gone = BEGINNING, []
    while True:
        swept = await forget(scene, position, limit=3, keep=1)
        gone.append(swept.gone)
        position = swept.position
        if position == BEGINNING:
            break
    assert gone == [2, 2, 2, 2, 0]
    assert len(await scene.table("attempt_history")) == 4


# Expiry without a handler.


async def expire(scene: Scene, *, limit: int = 100) -> Expiry:
    return await scene.run(scene.do.expire_waiting(limit=limit))


async def park(scene: Scene, id: str = "a", **options: Any) -> None:
    """Let an action wait for a worker that knows its handler."""
    await scene.schedule(id, handler="unheard of", **options)
    assert await scene.sync() == []


async def test_what_waits_for_a_handler_that_nobody_knows_expires(scene: Scene):
    await park(scene, expires_at=scene.now + DAY)
    scene.clock.advance(DAY - TICK)
    assert await expire(scene) == Expiry(0, 0, 0)
    scene.clock.advance(TICK)
    assert await expire(scene) == Expiry(1, 1, 1)
    status = (await scene.action()).status
    assert (status.state, status.finished_at, status.last_ended_at) == (State.EXPIRED, scene.now, scene.now)
    assert (status.last_outcome, status.last_error) == (Outcome.EXPIRED, "expired before it could be started")
    assert (status.last_started_at, status.attempts_started) == (None, 0)
    assert await scene.table("processing_queue") == []
    assert await expire(scene) == Expiry(0, 0, 0)


async def test_what_was_moved_past_its_expiry_expires(scene: Scene):
    await scene.put_in_processing("a", delay=DAY, expires_at=scene.now + 2 * DAY)
    await scene.reschedule("a", delay=100 * DAY)
    hold = await scene.hold()
    await scene.move(hold)
    scene.clock.advance(2 * DAY)
    assert (await expire(scene)).expired == 1
    assert (await scene.action()).status.state is State.EXPIRED


async def test_an_attempt_under_way_is_not_expired(scene: Scene):
    attempt = await scene.start(expires_at=scene.now + TICK)
    scene.clock.advance(LEASE - TICK)
    assert await expire(scene) == Expiry(0, 0, 0)
    assert await scene.record(done(attempt)) == [Answer.RECORDED]


async def test_an_attempt_whose_lease_is_over_expires_as_interrupted(scene: Scene):
    attempt = await scene.start(expires_at=scene.now + TICK)
    scene.clock.advance(LEASE)
    assert await expire(scene) == Expiry(1, 1, 1)
    status = (await scene.action()).status
    assert (status.state, status.interrupted) == (State.EXPIRED, 1)
    assert await scene.record(done(attempt)) == [Answer.LOST]


async def test_what_a_failed_attempt_left_waiting_expires_with_its_counters(scene: Scene):
    attempt = await scene.interrupt(await scene.start(expires_at=scene.now + DAY))
    scene.clock.advance(LEASE + TICK)
    assert await scene.sync(handlers=["another"]) == []
    scene.clock.advance(DAY)
    assert (await expire(scene)).expired == 1
    status = (await scene.action()).status
    assert (status.state, status.interrupted) == (State.EXPIRED, 2)
    assert await scene.finish(attempt) is Answer.LOST


async def test_an_action_that_expired_can_be_run_again(scene: Scene):
    await park(scene, expires_at=scene.now + DAY)
    scene.clock.advance(DAY)
    await expire(scene)
    assert await scene.reschedule(revive=True) is not None
    await scene.check_one_live_row()


async def test_a_version_that_was_replaced_does_not_take_the_new_one_with_it(scene: Scene):
    await scene.put_in_processing("a", delay=100 * DAY, expires_at=scene.now + DAY)
    await scene.schedule("a", delay=100 * DAY)
    scene.clock.advance(DAY)
    assert await expire(scene) == Expiry(1, 1, 0)
    assert (await scene.action()).status.state is State.LIVE


async def test_expired_rows_go_oldest_first_and_no_more_than_allowed(scene: Scene):
    for number, id in enumerate("cab"):
        await park(scene, id, expires_at=scene.now + DAY * (number + 1))
    scene.clock.advance(WEEK)
    assert await expire(scene, limit=2) == Expiry(2, 2, 2)
    assert await scene.waiting("processing_queue") == {"b"}
    assert await expire(scene, limit=2) == Expiry(1, 1, 1)


# Chores.


async def take(scene: Scene, holder: int) -> TidyPosition | None:
    return await scene.run(scene.do.take_chore(TIDY, UUID(int=holder), lease=LEASE, every=DAY))


async def keep(scene: Scene, holder: int, position: TidyPosition) -> bool:
    return await scene.run(scene.do.keep_chore(TIDY, UUID(int=holder), position, lease=LEASE))


async def end(scene: Scene, holder: int, position: TidyPosition = START) -> bool:
    return await scene.run(scene.do.end_chore(TIDY, UUID(int=holder), position))


async def test_a_chore_is_one_workers_until_its_lease_ends(scene: Scene):
    assert await take(scene, 1) == START
    assert await take(scene, 2) is None
    scene.clock.advance(LEASE - TICK)
    assert await take(scene, 2) is None
    scene.clock.advance(TICK)
    assert await take(scene, 2) == START
    assert await take(scene, 1) is None
    assert not await keep(scene, 1, HALFWAY)
    assert not await end(scene, 1)
    assert await keep(scene, 2, START)


async def test_whoever_takes_a_chore_over_goes_on_where_it_was_left(scene: Scene):
    await take(scene, 1)
    scene.clock.advance(LEASE - TICK)
    assert await keep(scene, 1, HALFWAY)
    scene.clock.advance(LEASE - TICK)
    assert await take(scene, 2) is None
    scene.clock.advance(TICK)
    assert await take(scene, 2) == HALFWAY


async def test_a_holder_keeps_its_chore_by_taking_it_again(scene: Scene):
    await take(scene, 1)
    for _ in range(3):
        scene.clock.advance(LEASE - TICK)
        assert await take(scene, 1) == START
        assert await take(scene, 2) is None


async def test_a_chore_that_is_left_undone_goes_on_with_anybody_at_once(scene: Scene):
    await take(scene, 1)
    await keep(scene, 1, HALFWAY)
    assert not await scene.run(scene.do.leave_chore(TIDY, UUID(int=2)))
    assert await take(scene, 2) is None
    assert await scene.run(scene.do.leave_chore(TIDY, UUID(int=1)))
    assert await take(scene, 2) == HALFWAY
    assert not await scene.run(scene.do.leave_chore(TIDY, UUID(int=1)))


async def test_a_chore_that_was_done_rests(scene: Scene):
    await take(scene, 1)
    assert await end(scene, 1)
    assert not await end(scene, 1)
    scene.clock.advance(DAY - TICK)
    assert (await take(scene, 1), await take(scene, 2)) == (None, None)
    scene.clock.advance(TICK)
    assert await take(scene, 2) == START


async def test_a_clock_that_was_set_back_holds_up_no_chore(scene: Scene):
    await take(scene, 1)
    scene.clock.advance(-WEEK)
    assert await take(scene, 2) == START
    await end(scene, 2)
    scene.clock.advance(-WEEK)
    assert await take(scene, 1) == START


async def test_a_position_that_another_version_wrote_is_begun_anew(scene: Scene):
    for stored in (
        "",
        "[]",
        "null",
        '{"rows": 7}',
        '{"rows": [1, 2, 3]}',
        '{"orbits": null}',
        '{"rows": [0, "a", "b"]}',
    ):
        await scene.sql("update matrixsched.chores set position = :stored", stored=stored)
        assert await take(scene, 1) == START, stored


async def test_a_chore_that_nobody_may_take_is_only_looked_at(scene: Scene):
    await take(scene, 1)
    before = await scene.table("chores")
    scene.clock.advance(TICK)
    assert await take(scene, 2) is None
    assert await scene.table("chores") == before
