"""Events pass no gate and go first: nothing else that is due, nowhere, holds them up."""

from __future__ import annotations

from datetime import timedelta

import pytest
from support.gates import acquire, gated, grant, lanes, look, look_all, put_template, relist, set_limit
from support.scene import HANDLER, LEASE, Hold, Scene, done, failed, ids

from matrixsched.rules.action import COMING, EVENT, UNGATED, Attempt, parked_lane, suspect_lane
from matrixsched.store.values import Turn

pytestmark = pytest.mark.anyio

TICK = timedelta(microseconds=1)
SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)
THOUSANDS = 3000
SUSPECTS = suspect_lane(HANDLER)


async def put(scene: Scene, *ids: str, **options: object) -> None:
    """Events in processing, unclaimed: those that moved them had no room."""
    await scene.put_in_processing(*ids, lane=EVENT, **options)


async def started(scene: Scene, id: str = "event", **options: object) -> Attempt:
    await scene.schedule(id, lane=EVENT, **options)
    (attempt,) = (await look(scene)).attempts
    return attempt


async def close_all_gates(scene: Scene) -> None:
    """Neither the limit of everything nor that of the handler has a slot today."""
    await set_limit(scene, "global", "1/day")
    await set_limit(scene, f"handler:{HANDLER}", "1/day")


async def overdue(scene: Scene, shard: int, **options: object) -> None:
    """Thousands of rows that are due, in processing, before anything else was."""
    at = scene.now - HOUR
    await scene.send([scene.new(f"{shard} {n}", shard=shard, at=at, **options) for n in range(THOUSANDS)])
    hold = await scene.hold()
    assert hold.shard == shard
    await scene.move(hold, move_limit=THOUSANDS, claim_limit=0)
    await scene.release(hold)


# Gates.


async def test_an_event_passes_though_all_gates_are_closed(scene: Scene):
    await close_all_gates(scene)
    await scene.send([scene.new("event", lane=EVENT), scene.new("other")])
    seen = await look(scene)
    assert seen.ids == ["event"]
    assert seen.attempts[0].slot is None
    assert (await lanes(scene))["event"] == EVENT


async def test_an_event_that_waited_passes_though_all_gates_are_closed(scene: Scene):
    await put(scene, "no room")
    await put(scene, "later", delay=SECOND)
    await close_all_gates(scene)
    scene.clock.advance(SECOND)
    seen = await look(scene)
    assert (sorted(seen.ids), seen.held) == (["later", "no room"], {})
    assert seen.acquired.lanes == (EVENT,)


async def test_an_event_uses_no_slot_of_others(scene: Scene):
    await set_limit(scene, "global", "1/s")
    before = await scene.table("limits")
    await scene.send([scene.new(f"event {n}", lane=EVENT) for n in range(10)])
    assert len(await look_all(scene)) == 10
    assert await scene.table("limits") == before


async def test_a_forecast_counts_no_slots_for_events(scene: Scene):
    await scene.send([scene.new("event", lane=EVENT), scene.new("other", handler="elsewhere")])
    read = await scene.run(scene.do.others(0, until=scene.now + HOUR, keyed=True, limit=100))
    assert [(lot.handler, lot.count) for lot in read.lots] == [("elsewhere", 1)]


# First.


async def test_events_are_moved_and_claimed_before_others_where_room_is_short(scene: Scene):
    await scene.send([scene.new(f"other {n}", at=scene.now - HOUR) for n in range(5)])
    await scene.send([scene.new(f"event {n}", lane=EVENT) for n in range(3)])
    hold = await scene.hold()
    claimed = await scene.move(hold, claim_limit=2)
    assert claimed.seen == 8
    assert {id.split()[0] for id in ids(claimed.attempts)} == {"event"}
    assert len(claimed.attempts) == 2
    found = await lanes(scene)
    assert {id.split()[0]: lane for id, lane in found.items()} == {"event": EVENT, "other": UNGATED}


@pytest.mark.parametrize("turn", Turn)
async def test_an_event_is_claimed_first_though_thousands_are_overdue_there_and_elsewhere(scene: Scene, turn: Turn):
    for shard in range(3):
        scene.clock.advance(TICK)
        await overdue(scene, shard)
    await scene.schedule("before a gate", shard=3, **gated(key="mx"))
    hold = await scene.hold()
    await scene.move(hold)
    await scene.release(hold)
    await relist(scene)
    scene.clock.advance(TICK)
    # Whose turn it is: that of shard 0, or of shard 3, before whose gate somebody waits.
    guid = scene.guid()
    await scene.sql(
        "update matrixsched.shard_locks set locked = true, last_lock_guid = :guid, last_heartbeat_at = :now "
        "where shard_id = 2",
        guid=guid,
        now=scene.now,
    )
    await scene.schedule("event", shard=2, lane=EVENT)
    await scene.move(Hold(2, guid), claim_limit=0)
    await scene.release(Hold(2, guid))
    hold, acquired = await acquire(scene, turn=turn)
    assert (acquired.shard, acquired.lanes) == (2, (EVENT, UNGATED))
    (attempt,) = (await scene.claim(hold, lane=acquired.lanes[0], limit=10)).attempts
    assert attempt.claim.action_id == "event"
    await scene.release(hold)
    _, acquired = await acquire(scene, turn=Turn.OLDEST)
    assert (acquired.shard, acquired.lanes) == (0, (UNGATED,))  # what comes next is as ever


@pytest.mark.parametrize("turn", Turn)
async def test_a_shard_with_new_events_is_served_before_all_others(scene: Scene, turn: Turn):
    for shard in range(3):
        scene.clock.advance(TICK)
        await overdue(scene, shard)
    await scene.send([scene.new(f"new {shard}", shard=shard) for shard in range(4)])
    _, acquired = await acquire(scene, turn=Turn.OLDEST)
    assert (acquired.shard, acquired.incoming_events) == (3, False)
    await scene.schedule("event", shard=2, lane=EVENT)
    hold, acquired = await acquire(scene, turn=turn)
    assert (acquired.shard, acquired.incoming_events, acquired.lanes) == (2, True, (UNGATED,))
    await scene.move(hold)
    await scene.release(hold)
    _, acquired = await acquire(scene, turn=Turn.OLDEST)
    assert (acquired.shard, acquired.incoming_events) == (0, False)


async def test_who_has_room_for_events_alone_gets_no_other_shard(scene: Scene):
    async def shard_with_events() -> int | None:
        asking = scene.do.acquire_shard(
            sync_guid=scene.guid(), holder="host:1", lease=LEASE, lanes=(), only_events=True
        )
        return (await scene.run(asking)).shard

    await overdue(scene, 0)
    await scene.schedule("new", shard=1)
    before = await scene.contents()
    assert await shard_with_events() is None
    assert await scene.contents() == before
    await scene.schedule("new event", shard=2, lane=EVENT)
    assert await shard_with_events() == 2
    assert await shard_with_events() is None
    await scene.schedule("event", shard=3, lane=EVENT)
    hold, _ = await acquire(scene)
    await scene.move(hold, claim_limit=0)
    await scene.release(hold)
    assert (hold.shard, await shard_with_events()) == (3, 3)


async def test_new_events_are_moved_though_thousands_came_before(scene: Scene):
    await scene.send([scene.new(f"other {n}") for n in range(THOUSANDS)])
    scene.clock.advance(TICK)
    await scene.send([scene.new(f"event {n}", lane=EVENT) for n in range(3)])
    hold = await scene.hold()
    moved = await scene.move(hold, move_limit=5, claim_limit=2)
    assert (moved.seen, len(moved.attempts)) == (5, 2)
    assert {id.split()[0] for id in ids(moved.attempts)} == {"event"}
    assert sorted((await lanes(scene)).values()) == [UNGATED] * 2 + [EVENT] * 3


async def test_if_only_they_are_moved_the_others_stay(scene: Scene):
    await scene.schedule("other")
    hold = await scene.hold()
    assert (await scene.move(hold, only_events=True)).seen == 0
    await scene.send([scene.new(f"event {n}", lane=EVENT) for n in range(3)])
    moved = await scene.move(hold, only_events=True)
    assert (moved.seen, len(moved.attempts)) == (3, 3)
    assert await scene.waiting("incoming_queue") == {"other"}
    assert (await scene.move(hold)).seen == 1


async def test_lanes_are_told_in_the_order_in_which_they_are_to_be_claimed(scene: Scene):
    await scene.schedule("parked", handler="elsewhere")
    assert (await look(scene)).ids == []
    await put(scene, "event")
    at = scene.now + SECOND
    await scene.send([scene.new("ungated", at=at), scene.new("coming", at=at, **gated(key="mx"))])
    hold = await scene.hold()
    await scene.move(hold, claim_limit=0)
    await scene.release(hold)
    scene.clock.advance(SECOND)
    _, acquired = await acquire(scene, handlers=[HANDLER, "elsewhere"])
    assert acquired.lanes == (EVENT, UNGATED, COMING, parked_lane("elsewhere"))


async def test_special_lanes_are_found_also_behind_events_and_what_is_coming(scene: Scene):
    await scene.schedule("parked", handler="elsewhere")
    await look(scene)
    for about in ({"lane": EVENT}, gated(key="mx")):
        await scene.schedule("a", delay=HOUR, **about)
        hold = await scene.hold()
        await scene.move(hold)
        await scene.release(hold)
        hold, acquired = await acquire(scene, handlers=["elsewhere"])
        assert acquired.lanes == (parked_lane("elsewhere"),)
        await scene.release(hold)


# When it cannot run at once.


async def test_an_event_that_is_not_due_waits_in_its_lane_and_is_named(scene: Scene):
    await put(scene, "event", shard=1, delay=HOUR)
    await scene.put_in_processing("other", delay=2 * HOUR)
    await scene.put_in_processing("gated", shard=1, delay=3 * HOUR, **gated(key="mx"))
    assert await lanes(scene) == {"event": EVENT, "other": UNGATED, "gated": COMING}
    before = await scene.contents()
    acquired = await scene.acquire()
    assert (acquired.shard, acquired.next_due_at) == (None, scene.now + HOUR)
    assert await scene.contents() == before
    scene.clock.advance(HOUR - TICK)
    assert (await scene.acquire()).shard is None
    scene.clock.advance(TICK)
    seen = await look(scene)
    assert (seen.acquired.lanes, seen.ids) == ((EVENT,), ["event"])


async def test_what_is_coming_is_named_before_what_is_later(scene: Scene):
    await put(scene, "event", delay=2 * HOUR)
    await scene.put_in_processing("ungated", delay=3 * HOUR)
    await scene.put_in_processing("gated", delay=HOUR, **gated(key="mx"))
    assert (await scene.acquire()).next_due_at == scene.now + HOUR


async def test_a_retry_returns_to_the_lane(scene: Scene):
    await close_all_gates(scene)
    attempt = await started(scene)
    await scene.record(failed(attempt, delay=SECOND))
    row = await scene.row("event")
    assert (row["lane"], row["scheduled_at"], row["claimed_by"]) == (EVENT, scene.now + SECOND, None)
    scene.clock.advance(SECOND)
    (again,) = (await look(scene)).attempts
    assert (again.claim.attempt, again.tick_failures) == (2, 1)
    await scene.finish(again)
    assert await scene.table("processing_queue") == []


async def test_recorded_together_each_returns_to_its_own_lane(scene: Scene):
    await scene.send([scene.new("event", lane=EVENT), scene.new("other"), scene.new("over", lane=EVENT)])
    attempts = {attempt.claim.action_id: attempt for attempt in (await look(scene)).attempts}
    await scene.record(failed(attempts["event"]), failed(attempts["other"]), done(attempts["over"]))
    assert await lanes(scene) == {"event": EVENT, "other": UNGATED}


async def test_an_event_waits_for_an_attempt_at_another_version_of_it(scene: Scene):
    running = await started(scene)
    await scene.schedule("event", lane=EVENT)
    assert (await look(scene)).ids == []
    (new,) = [row for row in await scene.table("processing_queue") if row["action_guid"] != running.claim.guid]
    assert (new["lane"], new["scheduled_at"]) == (EVENT, scene.now + LEASE)
    assert (await scene.acquire()).shard is None
    await scene.finish(running)
    assert (await look(scene)).ids == ["event"]


async def test_an_event_found_due_while_another_version_runs_stays_in_its_lane(scene: Scene):
    running = await started(scene)
    await scene.schedule("event", lane=EVENT, delay=SECOND)
    await look(scene)
    scene.clock.advance(SECOND)
    assert (await look(scene)).ids == []
    (new,) = [row for row in await scene.table("processing_queue") if row["action_guid"] != running.claim.guid]
    assert (new["lane"], new["scheduled_at"]) == (EVENT, running.claimed_at + LEASE)


async def test_who_does_not_know_its_handler_parks_it(scene: Scene):
    await close_all_gates(scene)
    await scene.schedule("new", lane=EVENT, handler="elsewhere")
    await look(scene)
    await put(scene, "waiting", handler="elsewhere", delay=SECOND)
    assert (await lanes(scene))["waiting"] == EVENT
    scene.clock.advance(SECOND)
    assert (await look(scene)).ids == []
    lane = parked_lane("elsewhere")
    assert await lanes(scene) == {"new": lane, "waiting": lane}

    attempts = await look_all(scene, handlers=["elsewhere"])
    assert ids(attempts) == ["new", "waiting"]
    await scene.record(*map(failed, attempts))
    assert await lanes(scene) == {"new": EVENT, "waiting": EVENT}


async def test_it_is_told_whether_something_was_parked(scene: Scene):
    await put(scene, "waiting", handler="elsewhere", delay=SECOND)
    await put(scene, "known", delay=SECOND)
    scene.clock.advance(SECOND)
    await scene.send([scene.new("new", lane=EVENT, handler="elsewhere"), scene.new("other")])
    hold = await scene.hold()
    assert (await scene.claim(hold, lane=EVENT)).parked
    assert not (await scene.claim(hold, lane=EVENT)).parked
    assert (await scene.move(hold)).parked
    await scene.schedule("again")
    assert not (await scene.move(hold)).parked


async def test_given_back_it_is_due_in_its_lane(scene: Scene):
    attempt = await started(scene)
    scene.clock.advance(SECOND)
    assert await scene.give_back(attempt) == 1
    row = await scene.row("event")
    assert (row["lane"], row["scheduled_at"], row["claimed_by"]) == (EVENT, attempt.due_at, None)
    assert (await look(scene)).ids == ["event"]


async def test_an_interrupted_event_is_claimed_again_and_then_is_a_suspect(scene: Scene):
    await close_all_gates(scene)
    await started(scene)
    scene.clock.advance(LEASE)
    (second,) = (await look(scene)).attempts
    assert (second.claim.attempt, second.interruptions) == (2, 1)
    scene.clock.advance(LEASE)
    assert (await look(scene, suspect_room=0)).ids == []
    assert (await lanes(scene))["event"] == SUSPECTS
    assert (await look(scene, suspect_room=0)).acquired.shard is None
    (third,) = (await look(scene)).attempts
    assert (third.claim.attempt, third.interruptions) == (3, 2)
    await scene.record(failed(third))
    assert (await lanes(scene))["event"] == EVENT


async def test_an_answer_that_was_lost_is_found(scene: Scene):
    await scene.schedule("event", lane=EVENT)
    hold = await scene.hold()
    await scene.move(hold)
    (found,) = await scene.run(scene.do.claimed_by(0, hold.guid, lanes=[UNGATED, EVENT], attempt_lease=LEASE))
    assert found.claim.action_id == "event"


async def test_a_cancelled_event_leaves_nothing(scene: Scene):
    await put(scene, "event")
    await scene.cancel("event")
    assert (await look(scene)).ids == []
    assert await scene.table("processing_queue") == []


# Others.


async def test_nobody_else_passes_a_gate_because_of_events(scene: Scene):
    await put_template(scene, "news")
    await grant(scene, "news", 5)
    await close_all_gates(scene)
    await scene.send(
        [
            scene.new("event", lane=EVENT),
            scene.new("ungated"),
            scene.new("keyed", **gated(key="mx")),
            scene.new("news", **gated(template="news")),
        ]
    )
    assert ids(await look_all(scene)) == ["event"]
