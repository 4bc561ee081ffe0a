"""Shard locks: taken when there is work, kept by heartbeats, lost without a trace of harm."""

from datetime import timedelta

import pytest
from support.scene import HANDLER, LEASE, SHARDS, Scene

from matrixsched.rules.action import UNGATED, parked_lane, suspect_lane

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)
TICK = timedelta(microseconds=1)


async def test_without_work_nothing_is_locked_or_written(scene: Scene):
    before = await scene.contents()
    acquired = await scene.acquire()
    assert (acquired.shard, acquired.next_due_at, acquired.now) == (None, None, scene.now)
    assert await scene.contents() == before


async def test_without_work_the_answer_says_when_the_next_row_is_due(scene: Scene):
    for shard, hours in ((2, 3), (0, 2), (1, 4)):
        await scene.put_in_processing(f"a{shard}", shard=shard, delay=hours * HOUR)
    before = await scene.contents()
    acquired = await scene.acquire()
    assert (acquired.shard, acquired.next_due_at) == (None, scene.now + 2 * HOUR)
    assert await scene.contents() == before


async def test_while_others_hold_the_work_the_answer_says_when_it_is_free_should_they_be_dead(scene: Scene):
    await scene.schedule()
    assert (await scene.acquire()).shard == 0
    scene.clock.advance(LEASE / 2)
    free_at = scene.now + LEASE / 2 + TICK
    assert (await scene.acquire()).next_due_at == free_at
    scene.clock.advance(free_at - scene.now - TICK)
    assert (await scene.acquire()).shard is None
    scene.clock.advance(TICK)
    assert (await scene.acquire()).shard == 0


async def test_a_row_is_work_from_the_very_instant_it_is_due(scene: Scene):
    await scene.put_in_processing("a", delay=HOUR)
    scene.clock.advance(HOUR - TICK)
    assert (await scene.acquire()).shard is None
    scene.clock.advance(TICK)
    acquired = await scene.acquire()
    assert (acquired.shard, acquired.incoming, acquired.lanes) == (0, False, (UNGATED,))


async def test_incoming_rows_are_work_also_if_they_are_due_much_later(scene: Scene):
    await scene.schedule(shard=2, delay=HOUR)
    acquired = await scene.acquire()
    assert (acquired.shard, acquired.incoming, acquired.lanes) == (2, True, ())


async def test_a_lock_says_who_holds_it_and_since_when(scene: Scene):
    await scene.schedule(shard=1)
    guid = scene.guid()
    await scene.run(scene.do.acquire_shard(sync_guid=guid, holder="host:42 v1", lease=LEASE, lanes=[]))
    (lock,) = [lock for lock in await scene.table("shard_locks") if lock["locked"]]
    assert (lock["shard_id"], lock["last_lock_guid"], lock["last_locked_by"]) == (1, guid, "host:42 v1")
    assert (lock["last_processing_start_at"], lock["last_heartbeat_at"]) == (scene.now, scene.now)


async def test_the_shard_served_longest_ago_comes_first(scene: Scene):
    for shard in range(SHARDS):
        await scene.schedule(f"a{shard}", shard=shard, delay=HOUR)
    served = []
    for _ in range(2 * SHARDS):
        scene.clock.advance(TICK)
        hold = await scene.hold()
        served.append(hold.shard)
        await scene.release(hold)
    assert sorted(served[:SHARDS]) == list(range(SHARDS))
    assert served[SHARDS:] == served[:SHARDS]


async def test_held_shards_are_passed_over(scene: Scene):
    for shard in (0, 1):
        await scene.schedule(f"a{shard}", shard=shard)
    holds = {(await scene.hold()).shard for _ in range(2)}
    assert holds == {0, 1}
    assert (await scene.acquire()).shard is None


async def test_a_released_shard_is_free_at_once(scene: Scene):
    await scene.schedule()
    hold = await scene.hold()
    assert await scene.release(hold)
    assert (await scene.hold()).shard == hold.shard


async def test_a_holder_that_still_beats_is_never_robbed(scene: Scene):
    await scene.schedule()
    hold = await scene.hold()
    for _ in range(5):
        scene.clock.advance(LEASE)
        assert (await scene.acquire()).shard is None
        assert await scene.run(scene.do.beat_shard(hold.shard, hold.guid))


async def test_a_shard_whose_holder_fell_silent_is_free_after_the_lease(scene: Scene):
    await scene.schedule()
    first = await scene.hold()
    scene.clock.advance(LEASE)
    assert (await scene.acquire()).shard is None
    scene.clock.advance(TICK)
    second = await scene.hold()
    assert second.shard == first.shard
    assert second.guid != first.guid


async def test_a_heartbeat_from_the_far_future_does_not_hold_a_shard(scene: Scene):
    await scene.schedule()
    await scene.hold()
    scene.clock.time -= LEASE
    assert (await scene.acquire()).shard is None
    scene.clock.time -= TICK
    assert (await scene.acquire()).shard == 0


async def test_who_lost_a_shard_can_neither_beat_nor_release_it(scene: Scene):
    await scene.schedule()
    lost = await scene.hold()
    scene.clock.advance(2 * LEASE)
    mine = await scene.hold()
    before = await scene.table("shard_locks")
    scene.clock.advance(TICK)
    assert not await scene.run(scene.do.beat_shard(lost.shard, lost.guid))
    assert not await scene.release(lost)
    assert await scene.table("shard_locks") == before
    assert await scene.release(mine)


async def test_what_was_released_can_be_neither_beaten_nor_released_again(scene: Scene):
    await scene.schedule()
    hold = await scene.hold()
    assert await scene.release(hold)
    assert not await scene.run(scene.do.beat_shard(hold.shard, hold.guid))
    assert not await scene.release(hold)


async def test_nothing_is_moved_or_claimed_under_a_guid_whose_fence_is_closed(scene: Scene):
    await scene.schedule()
    hold = await scene.hold()
    assert await scene.run(scene.do.close_fence(hold.shard, hold.guid, scene.guid()))
    assert (await scene.move(hold)).seen == 0
    assert not await scene.run(scene.do.beat_shard(hold.shard, hold.guid))
    heir = await scene.hold()
    assert (await scene.move(heir)).seen == 1


async def test_a_fence_is_closed_also_before_the_shard_is_taken(scene: Scene):
    """By a move that is about to: it finds that somebody was there since it saw the shard free."""
    before = {lock["shard_id"]: lock["last_lock_guid"] for lock in await scene.table("shard_locks")}
    fresh = scene.guid()
    assert await scene.run(scene.do.close_fence(1, scene.guid(), fresh))
    after = {lock["shard_id"]: lock["last_lock_guid"] for lock in await scene.table("shard_locks")}
    assert after == before | {1: fresh}
    assert not any(lock["locked"] for lock in await scene.table("shard_locks"))


async def test_who_lost_a_shard_closes_no_fence_of_its_heir(scene: Scene):
    await scene.schedule()
    lost = await scene.hold()
    scene.clock.advance(2 * LEASE)
    heir = await scene.hold()
    assert not await scene.run(scene.do.close_fence(lost.shard, lost.guid, scene.guid()))
    assert (await scene.move(heir)).seen == 1


async def test_a_heartbeat_changes_nothing_but_its_time(scene: Scene):
    await scene.schedule()
    hold = await scene.hold()
    before = await scene.table("shard_locks")
    scene.clock.advance(timedelta(seconds=3))
    assert await scene.run(scene.do.beat_shard(hold.shard, hold.guid))
    after = await scene.table("shard_locks")
    assert after != before
    for row in before + after:
        del row["last_heartbeat_at"]
    assert after == before


async def test_rows_parked_for_others_are_no_work(scene: Scene):
    await scene.schedule(handler="elsewhere")
    assert await scene.sync(handlers=[HANDLER]) == []
    assert (await scene.acquire()).shard is None
    assert (await scene.acquire(lanes=[parked_lane(HANDLER), suspect_lane(HANDLER)])).shard is None
    acquired = await scene.acquire(lanes=[parked_lane("elsewhere"), parked_lane(HANDLER)])
    assert (acquired.shard, acquired.incoming, acquired.lanes) == (0, False, (parked_lane("elsewhere"),))


async def test_parked_rows_that_are_due_later_are_no_work_yet(scene: Scene):
    await scene.schedule(handler="elsewhere")
    await scene.sync(handlers=[HANDLER])
    lane = parked_lane("elsewhere")
    (attempt,) = await scene.sync(lanes=[lane], handlers=["elsewhere"])
    assert (await scene.row())["scheduled_at"] > scene.now
    assert (await scene.acquire(lanes=[lane])).shard is None
    scene.clock.advance(LEASE)
    assert (await scene.acquire(lanes=[lane])).lanes == (lane,)


async def test_suspects_are_work_only_for_who_asks_for_them(scene: Scene):
    attempt = await scene.interrupt(await scene.start())
    scene.clock.advance(LEASE)
    assert await scene.sync() == []  # it goes to the suspects
    assert (await scene.acquire()).shard is None
    acquired = await scene.acquire(lanes=[suspect_lane(attempt.handler)])
    assert (acquired.shard, acquired.lanes) == (0, (suspect_lane(attempt.handler),))


async def test_the_report_shows_every_lock_with_its_queues(scene: Scene):
    await scene.put_in_processing("a", "b", "c", shard=1)
    await scene.send([scene.new(id, shard=1) for id in "de"])
    scene.clock.advance(timedelta(seconds=1))
    hold = await scene.hold()
    scene.clock.advance(timedelta(seconds=4))
    reports = await scene.run(scene.do.shards(count_max=100))
    assert [report.shard for report in reports] == list(range(SHARDS))
    report = reports[1]
    assert (report.locked, report.lock_guid, report.locked_by) == (True, hold.guid, "host:1")
    assert report.locked_at == report.heartbeat_at == scene.now - timedelta(seconds=4)
    assert report.heartbeat_age == timedelta(seconds=4)
    assert (report.incoming, report.processing) == (2, 3)
    assert report.oldest_due_at == scene.now - timedelta(seconds=5)
    idle = reports[0]
    assert (idle.locked, idle.locked_by, idle.incoming, idle.processing, idle.oldest_due_at) == (
        False,
        None,
        0,
        0,
        None,
    )


async def test_the_report_counts_no_further_than_asked(scene: Scene):
    await scene.put_in_processing(*"abc")
    await scene.send([scene.new(id) for id in "defg"])
    report = (await scene.run(scene.do.shards(count_max=2)))[0]
    assert (report.incoming, report.processing) == (2, 2)
