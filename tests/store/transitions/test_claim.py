"""The claim: before a handler is called, its row is rescheduled to the end of a lease."""

from datetime import timedelta

import pytest
from support.scene import HANDLER, LEASE, Hold, Scene, claims, ended, failed, ids

from matrixsched import Outcome, State
from matrixsched.rules.action import UNGATED, parked_lane, suspect_lane
from matrixsched.rules.lanes import Lane
from matrixsched.rules.rates import parse_rate
from matrixsched.store.values import Answer

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)
TICK = timedelta(microseconds=1)
SUSPECTS = suspect_lane(HANDLER)


async def test_what_is_due_is_handed_out_once_for_the_length_of_a_lease(scene: Scene):
    await scene.put_in_processing("a", delay=HOUR)
    due_at = scene.now + HOUR
    scene.clock.advance(HOUR + SECOND)
    hold = await scene.hold()
    claimed = await scene.claim(hold)
    (attempt,) = claimed.attempts
    assert (claimed.seen, claimed.gated_lanes) == (1, ())
    assert (attempt.claim.attempt, attempt.claim.claimed_by) == (1, hold.guid)
    assert (attempt.claimed_at, attempt.due_at) == (scene.now, due_at)
    row = await scene.row()
    assert (row["scheduled_at"], row["attempt"], row["interrupted"]) == (scene.now + LEASE, 1, 0)
    assert (row["claimed_by"], row["claimed_at"]) == (hold.guid, scene.now)
    assert (await scene.claim(hold)).seen == 0


async def test_what_is_not_due_is_not_claimed(scene: Scene):
    await scene.put_in_processing("a", delay=TICK)
    await scene.schedule("b", delay=HOUR)
    assert (await scene.claim(await scene.hold())).seen == 0


async def test_what_expired_and_waits_for_no_gate_is_claimed_so_that_its_worker_tells_of_it(scene: Scene):
    await scene.put_in_processing("a", delay=SECOND, expires_at=scene.now + SECOND)
    scene.clock.advance(SECOND)
    assert ids((await scene.claim(await scene.hold())).attempts) == ["a"]


async def test_the_longest_overdue_come_first(scene: Scene):
    for seconds, id in enumerate("dcba"):
        await scene.put_in_processing(id, at=scene.now - seconds * SECOND)
    hold = await scene.hold()
    claimed = await scene.claim(hold, limit=3)
    assert claimed.seen == 3
    assert ids(claimed.attempts) == ["a", "b", "c"]


async def test_rows_of_other_shards_take_no_place(scene: Scene):
    await scene.put_in_processing("a", delay=SECOND)
    await scene.put_in_processing("b", shard=1, delay=SECOND - TICK)
    scene.clock.advance(SECOND)
    holds = [await scene.hold(), await scene.hold()]
    claimed = {hold.shard: await scene.claim(hold, limit=1) for hold in holds}
    assert {shard: (one.seen, ids(one.attempts)) for shard, one in claimed.items()} == {0: (1, ["a"]), 1: (1, ["b"])}


async def test_attempts_rise_for_the_life_of_the_row(scene: Scene):
    attempt = await scene.start()
    for number in range(2, 5):
        await scene.record(failed(attempt, delay=timedelta(0)))
        (attempt,) = await scene.sync()
        assert attempt.claim.attempt == number
    await scene.record(ended(attempt, Outcome.SUCCEEDED, State.LIVE, tick=1, next_at=scene.now))
    (attempt,) = await scene.sync()
    assert (attempt.claim.attempt, attempt.tick, attempt.tick_failures) == (5, 1, 0)


async def test_dead_rows_are_deleted(scene: Scene):
    await scene.put_in_processing("replaced", "cancelled", "live")
    await scene.schedule("replaced", delay=HOUR)
    await scene.cancel("cancelled")
    hold = await scene.hold()
    claimed = await scene.claim(hold)
    assert claimed.seen == 3
    assert ids(claimed.attempts) == ["live"]
    assert await scene.waiting("processing_queue") == {"live"}
    assert await scene.table("attempt_history") == []


async def test_rows_of_finished_actions_are_deleted_also_at_their_own_guid(scene: Scene):
    await scene.put_in_processing("a")
    await scene.sql("update matrixsched.scheduled_actions set state = 'done', finished_at = :now", now=scene.now)
    claimed = await scene.claim(await scene.hold())
    assert (claimed.seen, claimed.attempts) == (1, [])
    assert await scene.table("processing_queue") == []


async def test_what_limits_others_gates_nothing(scene: Scene):
    for name in ("handler:other", "key:mx"):
        await scene.run(scene.do.set_limit(name, parse_rate("1/s"), pool=0))
    await scene.put_in_processing("waiting")
    await scene.schedule("new")
    hold = await scene.hold()
    assert ids((await scene.move(hold)).attempts) == ["new"]
    assert ids((await scene.claim(hold)).attempts) == ["waiting"]


async def test_the_end_of_an_attempt_at_a_dead_version_is_remembered_as_superseded(scene: Scene):
    attempt = await scene.start()
    await scene.schedule(delay=HOUR)
    scene.clock.advance(LEASE)
    assert await scene.sync() == []
    (past,) = await scene.history()
    assert (past.guid, past.attempt, past.outcome) == (attempt.claim.guid, 1, Outcome.SUPERSEDED)
    assert (past.started_at, past.ended_at) == (attempt.claimed_at, scene.now)


async def test_an_attempt_whose_lease_ran_out_was_interrupted_and_is_counted_once(scene: Scene):
    first = await scene.start()
    scene.clock.advance(LEASE - TICK)
    assert await scene.sync() == []
    scene.clock.advance(TICK)
    (second,) = await scene.sync()
    assert (second.claim.attempt, second.interruptions) == (2, 1)
    assert second.claim.claimed_by != first.claim.claimed_by
    (past,) = await scene.history()
    assert (past.attempt, past.outcome, past.tick) == (1, Outcome.INTERRUPTED, 0)
    assert (past.started_at, past.ended_at) == (first.claimed_at, scene.now)
    status = (await scene.action()).status
    assert (status.interrupted, status.failed, status.running) == (1, 0, True)

    await scene.record(failed(second))
    status = (await scene.action()).status
    assert (status.interrupted, status.failed) == (1, 1)
    assert (await scene.row())["interrupted"] == 0


async def test_an_interrupted_attempt_does_not_rob_others_of_their_place(scene: Scene):
    await scene.start("a")
    scene.clock.advance(LEASE)
    await scene.schedule("b")
    assert ids(await scene.sync()) == ["a", "b"]


async def test_what_there_is_no_room_for_is_left_as_it_is(scene: Scene):
    for id in "ab":
        await scene.start(id)
        scene.clock.advance(TICK)
    scene.clock.advance(LEASE)
    before = await scene.row("b")
    claimed = await scene.claim(await scene.hold(), claim_limit=1)
    assert (claimed.seen, ids(claimed.attempts)) == (2, ["a"])
    assert await scene.row("b") == before
    assert await scene.history("b") == []


async def test_what_cannot_run_needs_no_room(scene: Scene):
    await scene.put_in_processing("dead", "dead, too", "live")
    for id in ("dead", "dead, too"):
        await scene.cancel(id)
    assert ids((await scene.claim(await scene.hold(), claim_limit=1)).attempts) == ["live"]
    assert await scene.waiting("processing_queue") == {"live"}


async def test_after_the_second_interruption_an_action_goes_to_the_suspects(scene: Scene):
    second = await scene.interrupt(await scene.start())
    assert (await scene.row())["lane"] == UNGATED
    scene.clock.advance(LEASE)
    assert await scene.sync() == []
    row = await scene.row()
    assert (row["lane"], row["attempt"], row["interrupted"], row["claimed_by"]) == (SUSPECTS, 2, 2, None)
    assert len(await scene.history()) == 2

    assert await scene.sync() == []  # and is not counted once more
    hold = await scene.hold(lanes=[SUSPECTS])
    (third,) = (await scene.claim(hold, lane=SUSPECTS)).attempts
    assert (third.claim.attempt, third.interruptions) == (second.claim.attempt + 1, 2)
    await scene.release(hold)

    scene.clock.advance(LEASE)
    (fourth,) = await scene.sync(lanes=[SUSPECTS])
    assert (fourth.claim.attempt, fourth.interruptions) == (4, 3)
    assert (await scene.row())["lane"] == SUSPECTS


async def test_a_suspect_that_comes_to_an_end_goes_back_to_its_own_lane(scene: Scene):
    attempt = await scene.interrupt(await scene.interrupt(await scene.start()))
    assert (await scene.row())["lane"] == SUSPECTS
    await scene.record(failed(attempt, delay=timedelta(0)))
    row = await scene.row()
    assert (row["lane"], row["interrupted"]) == (UNGATED, 0)
    (attempt,) = await scene.sync()
    assert attempt.interruptions == 0
    assert (await scene.action()).status.interrupted == 2


async def test_what_cannot_run_here_is_parked_for_who_can_and_comes_home_afterwards(scene: Scene):
    await scene.put_in_processing("a", handler="elsewhere", delay=SECOND)
    due_at = scene.now + SECOND
    scene.clock.advance(SECOND)
    hold = await scene.hold()
    claimed = await scene.claim(hold)
    assert (claimed.seen, claimed.attempts) == (1, [])
    await scene.release(hold)
    row = await scene.row()
    assert (row["lane"], row["scheduled_at"]) == (parked_lane("elsewhere"), due_at)
    assert (row["attempt"], row["claimed_by"]) == (0, None)

    lane = parked_lane("elsewhere")
    (attempt,) = await scene.sync(lanes=[lane], handlers=["elsewhere"])
    assert (attempt.claim.attempt, attempt.due_at) == (1, due_at)
    await scene.record(failed(attempt))
    assert (await scene.row())["lane"] == UNGATED


async def test_a_suspect_met_by_who_does_not_know_its_handler_stays_a_suspect_for_who_does(scene: Scene):
    await scene.interrupt(await scene.start())
    scene.clock.advance(LEASE)
    assert await scene.sync(handlers=["elsewhere"]) == []
    assert (await scene.row())["lane"] == parked_lane(HANDLER)
    assert await scene.sync(lanes=[parked_lane(HANDLER)]) == []
    assert (await scene.row())["lane"] == SUSPECTS
    (attempt,) = await scene.sync(lanes=[SUSPECTS])
    assert attempt.interruptions == 2


async def test_an_interrupted_attempt_met_by_who_cannot_run_it_is_counted_once(scene: Scene):
    await scene.start()
    scene.clock.advance(LEASE)
    assert await scene.sync(handlers=["elsewhere"]) == []
    (attempt,) = await scene.sync(lanes=[parked_lane(HANDLER)])
    assert attempt.interruptions == 1
    assert len(await scene.history()) == 1


async def test_a_version_that_comes_due_while_an_older_one_runs_waits_for_its_lease(scene: Scene):
    old = await scene.start()
    new = await scene.schedule(delay=SECOND)
    await scene.sync()
    scene.clock.advance(2 * SECOND)
    assert await scene.sync() == []
    row = await scene.row(guid=new.guid)
    assert (row["scheduled_at"], row["attempt"], row["claimed_by"]) == (old.claimed_at + LEASE, 0, None)
    assert (await scene.acquire()).shard is None
    assert await scene.finish(old) is Answer.SUPERSEDED
    assert (await scene.row())["scheduled_at"] == old.claimed_at + SECOND
    (attempt,) = await scene.sync()
    assert attempt.claim.guid == new.guid


async def test_a_version_is_pushed_again_when_the_older_ones_lease_was_extended(scene: Scene):
    old = await scene.start()
    new = await scene.schedule()
    await scene.sync()
    scene.clock.advance(LEASE - SECOND)
    await scene.extend(old)
    scene.clock.advance(SECOND)
    assert await scene.sync() == []
    assert (await scene.row(guid=new.guid))["scheduled_at"] == scene.now - SECOND + LEASE


async def test_who_does_not_hold_the_shard_claims_nothing(scene: Scene):
    await scene.put_in_processing("a")
    lost = await scene.hold()
    scene.clock.advance(2 * LEASE)
    mine = await scene.hold()
    before = await scene.contents()
    for guid in (lost.guid, scene.guid()):
        claimed = await scene.claim(Hold(0, guid))
        assert (claimed.seen, claimed.attempts) == (0, [])
    assert await scene.contents() == before
    assert len((await scene.claim(mine)).attempts) == 1


async def test_a_lane_is_claimed_apart_from_all_others(scene: Scene):
    lane = Lane(handler=HANDLER, key="promo").name
    await scene.put_in_processing("gated", lane=lane)
    await scene.put_in_processing("free")
    hold = await scene.hold()
    assert ids((await scene.claim(hold)).attempts) == ["free"]
    await scene.release(hold)
    assert (await scene.row("gated"))["lane"] == lane


async def test_a_claim_whose_answer_was_lost_is_read_again(scene: Scene):
    await scene.send([scene.new(id, payload=id.encode()) for id in "ab"])
    await scene.put_in_processing("later", delay=HOUR)
    hold = await scene.hold()
    claimed = (await scene.claim(hold)).attempts

    def held():
        return scene.do.claimed_by(hold.shard, hold.guid, lanes=[UNGATED], attempt_lease=LEASE)

    found = await scene.run(held())
    assert claims(found) == claims(claimed)
    assert {one.claim.action_id: one.payload for one in found} == {"a": b"a", "b": b"b"}
    assert {one.claimed_at for one in found} == {scene.now}
    assert await scene.run(scene.do.claimed_by(0, scene.guid(), lanes=[UNGATED], attempt_lease=LEASE)) == []
    assert await scene.run(scene.do.claimed_by(0, hold.guid, lanes=[SUSPECTS], attempt_lease=LEASE)) == []
    await scene.cancel("b")
    assert ids(await scene.run(held())) == ["a"]
    scene.clock.advance(LEASE)
    assert await scene.run(held()) == []
