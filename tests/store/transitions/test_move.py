"""From incoming to processing: every row taken is gone, every live action keeps exactly one."""

from datetime import timedelta
from uuid import UUID

import pytest
from support.scene import HANDLER, LEASE, Hold, Scene, ids

from matrixsched.rules.action import EVENT, UNGATED, parked_lane
from matrixsched.store.values import Answer, Taking

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)
TICK = timedelta(microseconds=1)


async def test_what_is_due_later_moves_and_waits(scene: Scene):
    written = await scene.schedule(delay=HOUR, expires_at=scene.now + 2 * HOUR)
    added_at = scene.now
    scene.clock.advance(SECOND)
    hold = await scene.hold()
    moved = await scene.move(hold)
    assert (moved.seen, moved.attempts) == (1, [])
    assert await scene.table("incoming_queue") == []
    row = await scene.row()
    assert (row["action_guid"], row["lane"]) == (written.guid, "")
    assert (row["scheduled_at"], row["expires_at"]) == (added_at + HOUR, added_at + 2 * HOUR)
    assert (row["attempt"], row["interrupted"], row["claimed_by"], row["claimed_at"]) == (0, 0, None, None)
    assert (row["rescheduled_by"], row["rescheduled_at"]) == (None, None)


async def test_what_is_due_is_claimed_in_passing(scene: Scene):
    written = await scene.schedule(
        payload=b"\x00", priority=4, template="promo", zone="UTC", expires_at=scene.now + HOUR, at=scene.now - SECOND
    )
    hold = await scene.hold()
    moved = await scene.move(hold)
    (attempt,) = moved.attempts
    assert moved.seen == 1
    claim = attempt.claim
    assert (claim.shard, claim.action_id, claim.guid, claim.attempt, claim.claimed_by) == (
        0,
        "a",
        written.guid,
        1,
        hold.guid,
    )
    assert (attempt.claimed_at, attempt.due_at, attempt.tick_at) == (scene.now, scene.now - SECOND, scene.now - SECOND)
    assert (attempt.handler, attempt.payload, attempt.priority) == (HANDLER, b"\x00", 4)
    assert (attempt.template, attempt.zone, attempt.expires_at) == ("promo", "UTC", scene.now + HOUR)
    assert (attempt.tick, attempt.tick_failures, attempt.interruptions) == (0, 0, 0)
    assert attempt.version == (await scene.action()).meta.version
    row = await scene.row()
    assert (row["scheduled_at"], row["attempt"]) == (scene.now + LEASE, 1)
    assert (row["claimed_by"], row["claimed_at"]) == (hold.guid, scene.now)
    assert (row["rescheduled_by"], row["rescheduled_at"]) == (hold.guid, scene.now)
    assert (await scene.action()).status.running


async def test_no_more_is_claimed_than_allowed_the_oldest_first(scene: Scene):
    for seconds, id in enumerate("dcba"):
        await scene.schedule(id, at=scene.now - seconds * SECOND)
    hold = await scene.hold()
    moved = await scene.move(hold, claim_limit=2)
    assert moved.seen == 4
    assert ids(moved.attempts) == ["a", "b"]
    assert await scene.waiting("processing_queue") == set("abcd")
    rest = await scene.claim(hold)
    assert ids(rest.attempts) == ["c", "d"]


async def test_no_more_is_moved_than_allowed_the_first_come_first(scene: Scene):
    for id in "cab":
        await scene.schedule(id, delay=HOUR)
        scene.clock.advance(TICK)
    hold = await scene.hold()
    assert (await scene.move(hold, move_limit=2)).seen == 2
    assert await scene.waiting("incoming_queue") == {"b"}
    assert (await scene.move(hold, move_limit=2)).seen == 1
    assert (await scene.move(hold, move_limit=2)).seen == 0


async def test_dead_rows_are_dropped(scene: Scene):
    await scene.schedule("replaced")
    await scene.schedule("cancelled")
    await scene.schedule("moved")
    new = await scene.schedule("replaced", delay=HOUR)
    await scene.cancel("cancelled")
    await scene.reschedule("moved", delay=HOUR)
    moved = await scene.move(await scene.hold())
    assert (moved.seen, moved.attempts) == (5, [])
    assert await scene.table("incoming_queue") == []
    assert await scene.waiting("processing_queue") == {"replaced", "moved"}
    assert (await scene.row("replaced"))["action_guid"] == new.guid


async def test_rows_of_finished_actions_are_dropped_also_at_their_own_guid(scene: Scene):
    await scene.schedule()
    await scene.sql("update matrixsched.scheduled_actions set state = 'done', finished_at = created_at")
    assert (await scene.move(await scene.hold())).attempts == []
    assert await scene.waiting("processing_queue") == set()


async def test_what_cannot_run_here_is_parked_for_who_can(scene: Scene):
    await scene.send([scene.new("a", handler="elsewhere"), scene.new("b"), scene.new("c", handler="later", delay=HOUR)])
    moved = await scene.move(await scene.hold())
    assert ids(moved.attempts) == ["b"]
    row = await scene.row("a")
    assert (row["lane"], row["scheduled_at"]) == (parked_lane("elsewhere"), scene.now)
    assert (row["attempt"], row["claimed_by"]) == (0, None)
    assert (await scene.row("c"))["lane"] == ""  # judged when it is due


async def test_foreign_rows_use_up_no_claims(scene: Scene):
    await scene.send([scene.new(f"a{n}", handler="elsewhere", at=scene.now - HOUR) for n in range(3)])
    await scene.send([scene.new("b")])
    assert ids((await scene.move(await scene.hold(), claim_limit=1)).attempts) == ["b"]


@pytest.mark.parametrize("lane", [UNGATED, EVENT])
async def test_rows_of_other_shards_stay_where_they_are(scene: Scene, lane: str):
    await scene.send([scene.new("a", shard=0, lane=lane), scene.new("b", shard=1, lane=lane)])
    hold = await scene.hold()
    moved = await scene.move(hold)
    (attempt,) = moved.attempts
    assert (moved.seen, moved.gated_lanes) == (1, ())
    assert attempt.claim.shard == hold.shard
    assert await scene.waiting("incoming_queue") == {"a", "b"} - {attempt.claim.action_id}


async def test_a_row_of_a_special_lane_is_moved_but_never_claimed_in_passing(scene: Scene):
    await scene.schedule(lane="promo/UTC")
    assert (await scene.move(await scene.hold())).attempts == []
    row = await scene.row()
    assert (row["lane"], row["claimed_by"]) == ("promo/UTC", None)


@pytest.mark.parametrize("lane", [UNGATED, EVENT])
async def test_who_does_not_hold_the_shard_writes_nothing(scene: Scene, lane: str):
    await scene.schedule(lane=lane)
    lost = await scene.hold()
    scene.clock.advance(2 * LEASE)
    mine = await scene.hold()
    before = await scene.contents()
    for guid in (lost.guid, scene.guid()):
        moved = await scene.move(Hold(0, guid))
        assert (moved.seen, moved.attempts) == (0, [])
    assert await scene.contents() == before
    assert len((await scene.move(mine)).attempts) == 1


async def test_who_released_the_shard_writes_nothing(scene: Scene):
    await scene.schedule()
    hold = await scene.hold()
    await scene.release(hold)
    before = await scene.contents()
    assert (await scene.move(hold)).seen == 0
    assert await scene.contents() == before


async def test_a_new_version_waits_for_the_end_of_the_old_ones_lease(scene: Scene):
    old = await scene.start()
    scene.clock.advance(SECOND)
    new = await scene.schedule()
    assert await scene.sync() == []
    row = await scene.row(guid=new.guid)
    assert (row["scheduled_at"], row["attempt"], row["claimed_by"]) == (old.claimed_at + LEASE, 0, None)
    assert (await scene.acquire()).shard is None  # nobody spins on it meanwhile

    scene.clock.advance(LEASE)
    (attempt,) = await scene.sync()
    assert (attempt.claim.guid, attempt.claim.attempt) == (new.guid, 1)


async def test_a_new_version_that_is_to_pass_a_gate_waits_for_the_old_one_before_that(scene: Scene):
    await scene.start()
    new = await scene.schedule(lane="promo/UTC")
    assert await scene.sync() == []
    row = await scene.row(guid=new.guid)
    assert (row["lane"], row["scheduled_at"]) == (UNGATED, scene.now + LEASE)


async def test_a_new_version_runs_as_soon_as_the_old_attempt_is_recorded(scene: Scene):
    old = await scene.start()
    scene.clock.advance(SECOND)
    new = await scene.schedule()
    await scene.sync()
    assert await scene.finish(old) is Answer.SUPERSEDED
    assert (await scene.row())["scheduled_at"] == scene.now
    (attempt,) = await scene.sync()
    assert attempt.claim.guid == new.guid


async def test_a_new_version_in_the_future_keeps_its_own_time(scene: Scene):
    old = await scene.start()
    new = await scene.schedule(delay=HOUR)
    await scene.sync()
    assert (await scene.row(guid=new.guid))["scheduled_at"] == scene.now + HOUR
    await scene.finish(old)
    assert (await scene.row())["scheduled_at"] == scene.now + HOUR


@pytest.mark.parametrize("delay", [timedelta(0), HOUR])
@pytest.mark.parametrize("replaced", [False, True])
async def test_an_incoming_row_that_was_moved_before_is_dropped(scene: Scene, delay: timedelta, replaced: bool):
    if replaced:
        await scene.schedule(delay=HOUR)
    await scene.put_in_processing("a", delay=delay)
    before = await scene.row()
    await scene.sql(
        "insert into matrixsched.incoming_queue (shard_id, created_at, action_id, action_guid, scheduled_at, lane) "
        "select shard_id, added_at, action_id, action_guid, scheduled_at, lane from matrixsched.processing_queue"
    )
    hold = await scene.hold()
    scene.clock.advance(TICK)
    moved = await scene.move(hold)
    assert (moved.seen, moved.attempts) == (1, [])
    assert await scene.table("incoming_queue") == []
    assert await scene.row() == before


async def test_versions_that_wait_go_when_a_newer_one_is_moved(scene: Scene):
    await scene.put_in_processing("a", "b", delay=HOUR)
    for _ in range(3):
        await scene.reschedule("a", delay=2 * HOUR)
        written = await scene.schedule("a", delay=HOUR)
        hold = await scene.hold()
        await scene.move(hold)
        await scene.release(hold)
    rows = await scene.table("processing_queue")
    assert sorted(row["action_id"] for row in rows) == ["a", "b"]
    assert (await scene.row("a"))["action_guid"] == written.guid


async def test_an_attempt_at_an_older_version_stays_when_a_newer_one_is_moved(scene: Scene):
    old = await scene.start()
    new = await scene.schedule(delay=HOUR)
    await scene.sync()
    assert {row["action_guid"] for row in await scene.table("processing_queue")} == {old.claim.guid, new.guid}
    assert await scene.finish(old) is Answer.SUPERSEDED


async def test_a_version_that_was_overtaken_drops_nothing(scene: Scene):
    await scene.put_in_processing("a", delay=HOUR)
    new = await scene.reschedule("a", delay=2 * HOUR)
    await scene.sql(
        "insert into matrixsched.incoming_queue (shard_id, created_at, action_id, action_guid, scheduled_at, lane) "
        "select shard_id, added_at, action_id, :guid, scheduled_at, lane from matrixsched.processing_queue",
        guid=scene.guid(),
    )
    assert new is not None
    hold = await scene.hold()
    assert (await scene.move(hold)).seen == 2
    assert (await scene.row("a"))["action_guid"] == new.guid


async def test_two_versions_of_one_moment_are_moved_one_by_one(scene: Scene):
    for number in (1, 2):
        await scene.schedule("a", guid=UUID(int=number))
    hold = await scene.hold()
    moved = [await scene.move(hold, move_limit=1) for _ in range(3)]
    assert [one.seen for one in moved] == [1, 1, 0]
    assert [attempt.claim.guid for one in moved for attempt in one.attempts] == [UUID(int=2)]


# A move that takes its shard.


def taking(scene: Scene, *, within: timedelta = SECOND) -> Taking:
    return Taking("host:2", scene.now + within)


async def test_a_shard_that_nobody_holds_is_taken_by_the_move(scene: Scene):
    await scene.schedule(shard=2)
    hold = Hold(2, scene.guid())
    moved = await scene.move(hold, taking=taking(scene))
    assert (moved.took_shard, ids(moved.attempts)) == (True, ["a"])
    lock = (await scene.table("shard_locks"))[2]
    assert (bool(lock["locked"]), lock["last_lock_guid"], lock["last_locked_by"]) == (True, hold.guid, "host:2")
    assert lock["last_processing_start_at"] == lock["last_heartbeat_at"] == scene.now
    await scene.schedule("b", shard=2)
    assert ids((await scene.move(hold)).attempts) == ["b"]
    assert await scene.release(hold)


async def test_it_may_be_one_that_was_held_before(scene: Scene):
    await scene.schedule()
    await scene.release(await scene.hold())
    assert (await scene.move(Hold(0, scene.guid()), taking=taking(scene))).took_shard


async def test_one_that_somebody_holds_is_not_taken_by_a_move(scene: Scene):
    await scene.schedule()
    hold = await scene.hold()
    moved = await scene.move(Hold(0, scene.guid()), taking=taking(scene))
    assert (moved.took_shard, moved.seen, moved.attempts) == (False, 0, [])
    assert ids((await scene.move(hold)).attempts) == ["a"]


async def test_not_even_when_its_lease_is_over(scene: Scene):
    """Its holder may be writing at this moment; there is `acquire_shard` for that."""
    await scene.schedule()
    await scene.hold()
    scene.clock.advance(2 * LEASE)
    assert not (await scene.move(Hold(0, scene.guid()), taking=taking(scene))).took_shard


async def test_one_in_which_nothing_is_new_is_not_taken(scene: Scene):
    await scene.put_in_processing("a")
    await scene.schedule("b", shard=1)
    assert not (await scene.move(Hold(0, scene.guid()), taking=taking(scene))).took_shard
    assert not any(lock["locked"] for lock in await scene.table("shard_locks"))


@pytest.mark.parametrize(("within", "takes"), [(TICK, True), (timedelta(0), False), (-SECOND, False)])
async def test_a_move_that_comes_too_late_takes_nothing(scene: Scene, within: timedelta, takes: bool):
    await scene.schedule()
    moved = await scene.move(Hold(0, scene.guid()), taking=taking(scene, within=within))
    assert (moved.took_shard, len(moved.attempts)) == (takes, takes)


async def test_the_same_move_sent_twice_takes_nothing_more(scene: Scene):
    await scene.schedule()
    hold, once = Hold(0, scene.guid()), taking(scene)
    assert (await scene.move(hold, taking=once)).took_shard
    await scene.schedule("b")
    for _ in range(2):
        again = await scene.move(hold, taking=once)
        assert (again.took_shard, again.seen) == (False, 0)
        await scene.release(hold)
