"""Before a gate rows wait, due and unattempted; those that may pass are claimed with their slots, and no others."""

from __future__ import annotations

from datetime import timedelta

import pytest
from support.gates import (
    acquire,
    claim_gated,
    gated,
    grant,
    lanes,
    listed,
    look,
    look_all,
    put_template,
    relist,
    set_limit,
    used,
)
from support.scene import HANDLER, LEASE, Scene, done, failed, ids

from matrixsched.rules.action import COMING, UNGATED, Slot, suspect_lane
from matrixsched.rules.gates import LOOK_AGAIN, Gate
from matrixsched.rules.lanes import Lane
from matrixsched.rules.rates import parse_rate
from matrixsched.store.values import GATED_LANES_MAX, Turn

pytestmark = pytest.mark.anyio

NOW = timedelta(0)
MS = timedelta(milliseconds=1)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
SENDING = Lane(handler=HANDLER).name
"""Where actions wait that have neither template nor key, for a limit of all."""
KEYED = Lane(handler=HANDLER, key="mx").name


async def send(scene: Scene, *ids: str, **options: object) -> None:
    await scene.send([scene.new(id, **options) for id in ids])


# Lanes.


async def test_what_has_to_pass_a_gate_waits_in_its_lane_once_it_is_due(scene: Scene):
    await set_limit(scene, "key:mx", "1/h")
    await send(scene, "due", **gated(key="mx"))
    await send(scene, "later", delay=HOUR, **gated(key="mx"))
    await send(scene, "free")
    seen = await look(scene)
    assert (seen.ids, seen.gates) == (["free"], {Gate.LIMIT})
    assert {id: lane for id, lane in (await lanes(scene)).items() if id != "free"} == {"due": KEYED, "later": COMING}
    row = await scene.row("due")
    assert (row["attempt"], row["claimed_by"], row["scheduled_at"]) == (0, None, scene.now)
    await scene.finish(seen.attempts[0])
    scene.clock.advance(HOUR)
    assert (await look(scene)).ids == ["due"]
    assert (await lanes(scene))["later"] == KEYED


async def test_an_action_without_gates_comes_under_a_limit_of_all_or_of_its_handler(scene: Scene):
    for name in ("global", f"handler:{HANDLER}"):
        await send(scene, name)
        await set_limit(scene, name, "1/h")
        assert (await look(scene)).ids == []
        assert (await lanes(scene))[name] == SENDING
        scene.clock.advance(HOUR)
        assert (await look(scene)).ids == [name]
        await scene.run(scene.do.remove_limit(name))
        await scene.clear()


async def test_the_limit_of_another_handler_does_not_matter(scene: Scene):
    await set_limit(scene, "handler:other", "1/h")
    await send(scene, "a")
    assert (await look(scene)).ids == ["a"]


async def test_a_key_without_a_limit_passes_without_a_slot(scene: Scene):
    await send(scene, "a", **gated(key="mx"))
    (attempt,) = (await look(scene)).attempts
    assert attempt.slot is None


@pytest.mark.parametrize("name", ["global", f"handler:{HANDLER}"])
async def test_rows_that_wait_already_come_under_a_new_limit(scene: Scene, name: str):
    await scene.put_in_processing("a", "b", delay=MINUTE)
    await set_limit(scene, name, "1/min")
    scene.clock.advance(MINUTE)
    assert (await look(scene)).ids == ["a"]
    scene.clock.advance(MINUTE)
    assert (await look(scene)).ids == ["b"]


async def test_when_the_limit_is_removed_what_waits_goes(scene: Scene):
    await set_limit(scene, "global", "1/day")
    await send(scene, "a", "b", "c")
    assert (await look_all(scene)) == []
    await scene.run(scene.do.remove_limit("global"))
    assert ids(await look_all(scene)) == ["a", "b", "c"]
    assert await listed(scene) == {}


async def test_a_faster_limit_counts_at_once(scene: Scene):
    await set_limit(scene, "global", "1/day")
    await send(scene, "a", "b")
    assert (await look_all(scene)) == []
    await set_limit(scene, "global", "1000/s")
    scene.clock.advance(2 * MS)
    assert len(await look_all(scene)) == 2


async def test_a_retry_passes_the_gate_again(scene: Scene):
    await set_limit(scene, "key:mx", "1/min")
    await send(scene, "a", **gated(key="mx"))
    await look_all(scene)
    scene.clock.advance(MINUTE)
    (attempt,) = await look_all(scene)
    await scene.record(failed(attempt, delay=SECOND))
    assert (await lanes(scene))["a"] == UNGATED
    scene.clock.advance(SECOND)
    assert await look_all(scene) == []
    assert (await lanes(scene))["a"] == KEYED
    scene.clock.advance(MINUTE)
    assert ids(await look_all(scene)) == ["a"]


# Limits.


async def test_every_attempt_has_its_slot(scene: Scene):
    await set_limit(scene, "global", "10/s", pool=3)
    scene.clock.advance(SECOND)
    await send(scene, "a", "b", "c", "d")
    seen = await look(scene)
    assert sorted(seen.ids) == ["a", "b", "c"]  # which are due at the same time
    assert [attempt.slot for attempt in seen.attempts] == [
        Slot(scene.now, scene.now + void * MS) for void in (25, 25, 50)
    ]
    assert await listed(scene) == {SENDING: 100 * MS}


async def test_a_limit_holds_over_all_shards(scene: Scene):
    await set_limit(scene, "global", "2/min", pool=2)
    scene.clock.advance(HOUR)
    for shard in range(4):
        await send(scene, *(f"{shard} {n}" for n in range(3)), shard=shard)
    assert len(await look_all(scene)) == 2
    for _ in range(10):
        scene.clock.advance(30 * SECOND)
        assert len(await look_all(scene)) == 1


async def test_each_key_goes_at_the_rate_of_all_keys_unless_it_has_its_own(scene: Scene):
    await set_limit(scene, "key:*", "1/min")
    await set_limit(scene, "key:slow", "1/h")
    for key in ("one", "other", "slow"):
        await send(scene, *(f"{key} {n}" for n in range(3)), **gated(key=key))
    # The first use of a key makes its bucket, full.
    assert ids(await look_all(scene)) == ["one 0", "other 0"]
    assert ids(await look_all(scene)) == []
    scene.clock.advance(MINUTE)
    assert ids(await look_all(scene)) == ["one 1", "other 1"]
    scene.clock.advance(59 * MINUTE)
    assert ids(await look_all(scene)) == ["one 2", "other 2", "slow 0"]


async def test_told_to_slow_down_nothing_goes_until_then(scene: Scene):
    await send(scene, "a", "b")
    await scene.run(scene.do.slow_down(f"handler:{HANDLER}", MINUTE, rate=None, reason="429"))
    seen = await look(scene)
    assert (seen.ids, seen.gates) == ([], {Gate.SLOWED})
    assert (await look(scene)).acquired.next_due_at == scene.now + MINUTE
    scene.clock.advance(MINUTE)
    assert ids(await look_all(scene)) == ["a", "b"]


async def test_resumed_early_everything_goes_on_at_once(scene: Scene):
    await send(scene, "a")
    await scene.run(scene.do.slow_down("global", HOUR, rate=None, reason="429"))
    assert await look_all(scene) == []
    await scene.run(scene.do.resume_limit("global"))
    assert ids(await look_all(scene)) == ["a"]


async def test_after_a_slow_down_the_global_limit_without_a_rate_shuts_nobody_out(scene: Scene):
    await scene.run(scene.do.slow_down("global", MINUTE, rate=parse_rate("1/day"), reason="429"))
    await send(scene, "a")
    assert await look_all(scene) == []
    scene.clock.advance(MINUTE)
    await send(scene, "b")
    assert ids(await look_all(scene)) == ["a", "b"]


async def test_a_clock_that_was_set_back_stops_nothing_for_long(scene: Scene):
    await set_limit(scene, "global", "1/s")
    await send(scene, "a", "b", "c", at=scene.now - 48 * HOUR)
    scene.clock.advance(SECOND)
    assert len(await look_all(scene)) == 1
    scene.clock.advance(-24 * HOUR)
    await relist(scene)
    assert len(await look_all(scene)) == 1
    scene.clock.advance(SECOND)
    assert len(await look_all(scene)) == 1


async def test_the_more_important_pass_first_though_others_were_just_moved(scene: Scene):
    await set_limit(scene, "global", "1/min")
    await send(scene, "urgent", **gated(key="urgent"))
    assert await look_all(scene) == []
    scene.clock.advance(MINUTE)
    await send(scene, *(f"usual {n}" for n in range(20)), **gated(key="usual", priority=5))
    assert (await look(scene, room=5)).ids == ["urgent"]


async def test_what_is_less_important_waits_also_where_nothing_else_does(scene: Scene):
    await set_limit(scene, "global", "1/min", pool=1)
    scene.clock.advance(HOUR)
    await send(scene, "usual", shard=0, **gated(key="a", priority=1))
    await send(scene, "urgent", shard=1, **gated(key="b"))
    for _ in range(2):
        hold = await scene.hold()
        await scene.move(hold, claim_limit=0)
        await scene.release(hold)
    await relist(scene)
    hold, acquired = await acquire(scene)
    assert acquired.gated_lanes == (Lane(handler=HANDLER, key="b").name,)
    await scene.release(hold)
    assert ids(await look_all(scene)) == ["urgent"]


async def test_rows_on_the_way_to_their_gates_hide_nobody_who_has_none(scene: Scene):
    for shard, about in ((0, gated(key="mx")), (1, {}), (2, gated(key="mx"))):
        await scene.schedule(f"{shard}", shard=shard, at=scene.now + SECOND, **about)
        hold = await scene.hold()
        await scene.move(hold)
        await scene.release(hold)
    hold, acquired = await acquire(scene)
    assert (acquired.shard, acquired.next_due_at) == (None, scene.now + SECOND)
    scene.clock.advance(SECOND)
    taken = []
    for turn in (Turn.UNGATED, Turn.UNGATED, Turn.OLDEST):
        hold, acquired = await acquire(scene, turn=turn)
        taken.append((acquired.shard, acquired.lanes))
    assert taken == [(1, (UNGATED,)), (0, (COMING,)), (2, (COMING,))]


async def test_lanes_of_one_importance_take_turns(scene: Scene):
    await set_limit(scene, "global", "1/min", pool=4)
    scene.clock.advance(HOUR)
    await send(scene, *(f"big {n}" for n in range(50)), **gated(key="big"))
    await send(scene, *(f"small {n}" for n in range(2)), **gated(key="small"))
    ids = (await look(scene)).ids
    assert sorted(ids) == ["big 0", "big 1", "small 0", "small 1"]
    assert {id.split()[0] for id in ids[:2]} == {"big", "small"}


# Quota.


async def test_a_grant_is_spent_exactly_and_over_all_shards(scene: Scene):
    await put_template(scene, "promo")
    await grant(scene, "promo", 7)
    for shard in range(4):
        await send(scene, *(f"{shard} {n}" for n in range(5)), shard=shard, **gated(template="promo"))
    assert len(await look_all(scene)) == 7
    assert await used(scene) == {"promo": 7}
    assert (await look(scene)).acquired.next_due_at == scene.now + MINUTE
    waiting = [row for row in await scene.table("processing_queue") if row["claimed_by"] is None]
    assert {(row["attempt"], row["scheduled_at"]) for row in waiting} == {(0, scene.now)}


async def test_what_was_not_used_of_a_grant_dies_with_its_window(scene: Scene):
    await put_template(scene, "promo")
    await grant(scene, "promo", 7)
    scene.clock.advance(MINUTE)
    await send(scene, "a", **gated(template="promo"))
    assert (await look(scene)).gates == {Gate.UNPLANNED}


async def test_dead_and_expired_rows_spend_nothing(scene: Scene):
    await put_template(scene, "promo")
    await set_limit(scene, "global", "1000/s", pool=100)
    scene.clock.advance(SECOND)
    await send(scene, *(f"live {n}" for n in range(4)), **gated(template="promo"))
    await send(scene, "dead", **gated(template="promo"), at=scene.now - HOUR)
    await send(scene, "expired", **gated(template="promo"), at=scene.now - HOUR, expires_at=scene.now + SECOND)
    assert (await look(scene)).gates == {Gate.UNPLANNED}
    await scene.cancel("dead")
    scene.clock.advance(SECOND)
    await grant(scene, "promo", 4)
    await look_all(scene)
    assert await used(scene) == {"promo": 4}
    held = {row["action_id"] for row in await scene.table("processing_queue") if row["claimed_by"] is None}
    assert held == {"expired"}
    (limit,) = await scene.table("limits")
    # As many slots as rows that were claimed: of the hundred that the pool kept, four are gone.
    slots = (scene.now.timestamp() * 1000 - 99) * 1_000_000 + 4_000_000
    assert limit["next_slot_ns"] == pytest.approx(slots, abs=1_000)


async def test_a_window_that_nobody_planned_is_planned_once_somebody_asks(scene: Scene):
    await put_template(scene, "promo")
    await set_limit(scene, "global", "6/min", pool=6)
    await send(scene, *(f"{n}" for n in range(20)), **gated(template="promo"))
    assert (await look(scene)).gates == {Gate.UNPLANNED}
    await scene.run(scene.do.plan_window("host:1"))
    assert [row["granted"] for row in await scene.table("quota_grants")] == [6]
    scene.clock.advance(30 * SECOND)
    assert len(await look_all(scene)) == 3


async def test_a_paused_template_goes_on_when_it_is_resumed_or_its_pause_is_over(scene: Scene):
    await put_template(scene, "promo")
    await grant(scene, "promo", 10, minutes=60)
    await send(scene, "a", **gated(template="promo"))
    await scene.run(scene.do.pause_template("promo", None))
    seen = await look(scene)
    assert (seen.ids, seen.gates) == ([], {Gate.PAUSED})
    assert await look_all(scene) == []
    await scene.run(scene.do.resume_template("promo"))
    (attempt,) = await look_all(scene)
    await scene.finish(attempt)
    await send(scene, "b", **gated(template="promo"))
    await scene.run(scene.do.pause_template("promo", MINUTE))
    assert await look_all(scene) == []
    scene.clock.advance(MINUTE)
    assert ids(await look_all(scene)) == ["b"]


async def test_without_a_template_of_that_name_a_row_waits(scene: Scene):
    await send(scene, "a", **gated(template="gone"))
    seen = await look(scene)
    assert (seen.ids, seen.gates) == ([], {Gate.NO_TEMPLATE})
    assert await look_all(scene) == []


async def test_rows_go_by_the_time_they_are_due_and_then_by_their_expiry(scene: Scene):
    await put_template(scene, "promo")
    await grant(scene, "promo", 2)
    await send(scene, "late", **gated(template="promo"), at=scene.now)
    await send(scene, "lasting", **gated(template="promo"), at=scene.now - SECOND, expires_at=scene.now + HOUR)
    await send(scene, "pressing", **gated(template="promo"), at=scene.now - SECOND, expires_at=scene.now + MINUTE)
    assert (await look(scene)).ids == ["pressing", "lasting"]


# What a claim leaves behind.


async def test_what_a_worker_lost_its_shard_for_is_not_spent(scene: Scene):
    await put_template(scene, "promo")
    await grant(scene, "promo", 5)
    await set_limit(scene, "global", "1/s", pool=5)
    await send(scene, "a", "b", **gated(template="promo"))
    hold, _ = await acquire(scene)
    filled = (await scene.move(hold)).gated_lanes
    scene.clock.advance(LEASE + SECOND)
    await relist(scene)
    other, _ = await acquire(scene)
    before = await scene.table("limits")
    passed = await claim_gated(scene, hold, filled=filled)
    assert passed.attempts == []
    assert (await used(scene), await scene.table("limits")) == ({"promo": 0}, before)
    assert len((await claim_gated(scene, other, filled=filled)).attempts) == 2


async def test_an_emptied_lane_is_not_listed_any_more(scene: Scene):
    await set_limit(scene, "key:mx", "1/s", pool=10)
    await send(scene, "a", "b", **gated(key="mx"))
    await look_all(scene)
    assert await listed(scene) == {KEYED: SECOND}
    scene.clock.advance(SECOND)
    attempts = await look_all(scene)
    scene.clock.advance(SECOND)
    attempts += await look_all(scene)
    assert len(attempts) == 2
    assert await listed(scene) == {}


async def test_each_lane_is_noted_beside_the_others_with_its_own_time(scene: Scene):
    slow, slower = (Lane(handler=HANDLER, key=key).name for key in ("slow", "slower"))
    await set_limit(scene, "key:slow", "6/min")
    await set_limit(scene, "key:slower", "2/min")
    scene.clock.advance(HOUR)
    await send(scene, "a", "b", "c", **gated(key="slow"))
    assert len((await look(scene)).ids) == 1
    assert await listed(scene) == {slow: 10 * SECOND}
    await send(scene, "d", "e", "f", **gated(key="slower"))
    assert len((await look(scene)).ids) == 1
    assert await listed(scene) == {slow: 10 * SECOND, slower: 30 * SECOND}
    scene.clock.advance(HOUR)
    assert len((await look(scene)).ids) == 2
    assert await listed(scene) == {slow: 10 * SECOND, slower: 30 * SECOND}


async def test_lanes_that_a_killed_worker_did_not_list_are_found(scene: Scene):
    await set_limit(scene, "key:mx", "1/s", pool=10)
    await set_limit(scene, "key:other", "1/s")
    scene.clock.advance(MINUTE)
    await send(scene, "a", **gated(key="mx", priority=3))
    hold, _ = await acquire(scene)
    await scene.move(hold)  # and then it is killed
    scene.clock.advance(LEASE + SECOND)
    assert (await look(scene)).acquired.shard is None
    assert await relist(scene)
    (row,) = await scene.table("held_lanes")
    assert (row["priority"], row["handler"], row["ready_at"]) == (3, HANDLER, scene.now)
    assert ids(await look_all(scene)) == ["a"]


async def test_lanes_are_relisted_by_one_worker_in_a_while(scene: Scene):
    do = scene.do.relist_lanes(every=SECOND)
    assert [await scene.run(do), await scene.run(do)] == [0, None]
    scene.clock.advance(SECOND)
    assert await scene.run(do) == 0


@pytest.mark.parametrize("back", [5 * MINUTE, 3 * HOUR])
async def test_a_clock_that_was_set_back_holds_up_no_lane(scene: Scene, back: timedelta):
    """When to look again was noted by the clock as it was."""
    await set_limit(scene, "key:mx", "1/s")
    await send(scene, *"abc", at=scene.now - timedelta(days=1), **gated(key="mx"))
    assert len(await look_all(scene)) == 0
    await relist(scene)
    scene.clock.advance(-back)
    await relist(scene)
    assert len(await look_all(scene)) == 1


async def test_an_attempt_whose_worker_was_killed_passes_the_gate_again_when_its_lease_ends(scene: Scene):
    await set_limit(scene, "key:mx", "1/s", pool=10)
    await send(scene, "a", **gated(key="mx"))
    scene.clock.advance(MINUTE)
    await look_all(scene)
    scene.clock.advance(LEASE - SECOND)
    await relist(scene)
    assert await listed(scene) == {KEYED: SECOND}
    assert await look_all(scene) == []
    scene.clock.advance(SECOND)
    (again,) = await look_all(scene)
    assert (again.claim.attempt, again.interruptions) == (2, 1)


async def test_lanes_of_attempts_that_outlive_their_leases_do_not_hide_others(scene: Scene):
    """Their lanes are listed as ready when the first lease ends, and nothing is due there: a list full of them."""
    await set_limit(scene, "key:*", "1/h")
    many = GATED_LANES_MAX + 1
    await scene.send([scene.new(f"{n}", **gated(key=f"{n}")) for n in range(many)])
    attempts = await look_all(scene, room=500)
    while len(attempts) < many:
        attempts += await look_all(scene, room=500)
    await relist(scene)
    scene.clock.advance(LEASE / 2)
    for attempt in attempts:
        await scene.extend(attempt)
    scene.clock.advance(LEASE / 2 + SECOND)
    await relist(scene)
    await send(scene, "late", **gated(key="late"))
    hold, _ = await acquire(scene)
    await scene.move(hold)
    await scene.release(hold)
    scene.clock.advance(MS)
    await relist(scene)
    assert ids(await look_all(scene)) == ["late"]


async def test_lanes_of_what_expired_do_not_hide_others(scene: Scene):
    await set_limit(scene, "key:*", "1/h")
    for number in range(2):
        await scene.send(
            [
                scene.new(f"{number} {n}", expires_at=scene.now + SECOND, **gated(key=f"{n}"))
                for n in range(GATED_LANES_MAX + 1)
            ]
        )
        await look_all(scene, room=500)
    scene.clock.advance(2 * SECOND)
    await scene.sql("update matrixsched.held_lanes set ready_at = :at", at=scene.now - SECOND)
    await send(scene, "late", **gated(key="late"))
    hold, _ = await acquire(scene)
    await scene.move(hold, move_limit=1000)
    await scene.release(hold)
    await relist(scene)
    assert ids(await look_all(scene)) == ["late"]


async def test_a_shard_that_a_killed_worker_holds_hides_no_other(scene: Scene):
    await set_limit(scene, "global", "1/day")
    await send(scene, "first", shard=1, at=scene.now - MINUTE)
    for shard in (1, 2, 3):
        await send(scene, f"in {shard}", shard=shard)
    assert await look_all(scene) == []
    await set_limit(scene, "global", "1000/s", pool=100)
    scene.clock.advance(SECOND)
    hold, acquired = await acquire(scene)
    while acquired.shard != 1:
        await scene.release(hold)
        hold, acquired = await acquire(scene)
    # The head of the lane is in the shard that this worker takes to its grave.
    attempts = await look_all(scene)
    assert ids(attempts) == ["in 2", "in 3"]
    await scene.record(*map(done, attempts))
    scene.clock.advance(LEASE + SECOND)
    assert ids(await look_all(scene)) == ["first", "in 1"]


async def test_what_is_given_back_passes_the_gate_again_at_once(scene: Scene):
    await set_limit(scene, "key:mx", "1000/s", pool=10)
    await send(scene, "a", **gated(key="mx"))
    scene.clock.advance(SECOND)
    (attempt,) = await look_all(scene)
    await relist(scene)
    assert await scene.give_back(attempt) == 1
    scene.clock.advance(MS)
    (again,) = await look_all(scene)
    assert (again.claim.action_id, again.interruptions) == ("a", 0)


async def test_a_version_that_waits_for_another_goes_when_that_has_ended(scene: Scene):
    await set_limit(scene, "key:mx", "1000/s", pool=10)
    await send(scene, "a", **gated(key="mx"))
    scene.clock.advance(SECOND)
    (running,) = await look_all(scene)
    await set_limit(scene, "key:mx", "1/s")
    await send(scene, "a", **gated(key="mx"))
    scene.clock.advance(2 * SECOND)
    assert await look_all(scene) == []
    await relist(scene)
    await scene.finish(running)
    scene.clock.advance(SECOND)
    (fresh,) = await look_all(scene)
    assert fresh.claim.guid != running.claim.guid


async def test_a_version_that_is_blocked_before_its_gate_spends_nothing(scene: Scene):
    await put_template(scene, "promo")
    await send(scene, "a", **gated(template="promo"))
    assert (await look(scene)).gates == {Gate.UNPLANNED}
    await send(scene, "b", **gated(template="promo"))
    await grant(scene, "promo", 10)
    attempts = {attempt.claim.action_id: attempt for attempt in await look_all(scene)}
    # Moved to its lane while nothing ran, and put behind an attempt that began since.
    await scene.reschedule("a", delay=NOW)
    hold, _ = await acquire(scene)
    await scene.move(hold)
    await scene.release(hold)
    fresh = [row for row in await scene.table("processing_queue") if row["claimed_by"] is None]
    await scene.sql(
        "update matrixsched.processing_queue set lane = :lane, scheduled_at = :now where action_guid = :guid",
        lane=gated(template="promo")["lane"],
        now=scene.now,
        guid=fresh[0]["action_guid"],
    )
    await relist(scene)
    assert await look_all(scene) == []
    assert await used(scene) == {"promo": 2}
    row = await scene.row("a", fresh[0]["action_guid"])
    assert (row["lane"], row["scheduled_at"]) == (UNGATED, scene.now + LEASE)
    await scene.finish(attempts["a"])
    assert ids(await look_all(scene)) == ["a"]


async def test_suspects_beyond_the_room_for_them_hide_nobody(scene: Scene):
    await set_limit(scene, "key:mx", "1000/s", pool=10)
    await send(scene, "poison", "other poison", **gated(key="mx"))
    scene.clock.advance(SECOND)
    for _ in range(2):
        assert len(await look_all(scene)) == 2
        scene.clock.advance(LEASE + SECOND)
        await relist(scene)
    await send(scene, "harmless", **gated(key="mx"))
    await send(scene, "overdue", at=scene.now - HOUR, **gated(key="mx"))  # nor does it take their room
    seen = await look(scene, suspect_room=1)
    (left,) = {"poison", "other poison", "harmless", "overdue"} - set(seen.ids)
    assert left in ("poison", "other poison")
    assert (await lanes(scene))[left] == suspect_lane(HANDLER)
    # A worker that has room for it puts it before its gate again.
    assert await look_all(scene, suspect_room=0) == []
    scene.clock.advance(MS)
    (again,) = await look_all(scene, suspect_room=1)
    assert (again.claim.action_id, again.interruptions) == (left, 2)
    assert again.slot is not None


async def test_workers_that_do_not_know_the_handler_do_not_look(scene: Scene):
    await set_limit(scene, "key:mx", "1000/s", pool=10)
    await send(scene, "a", **gated(key="mx"))
    await look_all(scene)
    scene.clock.advance(SECOND)
    assert (await look(scene, handlers=["other"])).acquired.shard is None
    assert ids(await look_all(scene)) == ["a"]


async def test_idle_workers_do_not_ask_again_for_what_is_held(scene: Scene):
    await set_limit(scene, "global", "1/min")
    await send(scene, "a", "b", **gated(key="mx"))
    await look_all(scene)
    for _ in range(3):
        seen = await look(scene)
        assert (seen.acquired.shard, seen.acquired.next_due_at) == (None, scene.now + MINUTE)
    assert seen.acquired.holds


async def test_a_lane_is_looked_at_every_minute_at_least(scene: Scene):
    await set_limit(scene, "key:mx", "1/7d")
    await send(scene, "a", **gated(key="mx"))
    await look_all(scene)
    assert await listed(scene) == {KEYED: LOOK_AGAIN}
    await scene.sql("update matrixsched.held_lanes set ready_at = :at", at=scene.now + 2 * LOOK_AGAIN)
    await relist(scene)
    assert await listed(scene) == {KEYED: NOW}


async def test_a_lane_of_which_more_wait_than_there_is_room_for_stays_listed(scene: Scene):
    await set_limit(scene, "key:mx", "1000/s", pool=1000)
    scene.clock.advance(MINUTE)
    await send(scene, *"abc", **gated(key="mx"))
    assert len(ids((await look(scene, room=1)).attempts)) == 1
    assert list(await listed(scene)) == [KEYED]


async def test_a_bucket_is_not_forgotten_before_it_is_full_again(scene: Scene):
    await set_limit(scene, "key:*", "10/d", pool=10)
    await send(scene, *"0123456789", **gated(key="mx"))
    attempts = await look_all(scene)
    await scene.record(*map(done, attempts))
    assert len(attempts) == 10
    for passed, buckets in ((24 * HOUR, {"key:*", "key:mx"}), (5 * HOUR, {"key:*"})):
        scene.clock.advance(passed)
        await relist(scene)
        assert {row["name"] for row in await scene.table("limits")} == buckets


async def test_buckets_of_keys_that_nobody_uses_are_forgotten(scene: Scene):
    await set_limit(scene, "key:*", "1/s")
    await set_limit(scene, "key:own", "1/s")
    await send(scene, "a", **gated(key="mx"))
    (attempt,) = await look_all(scene)
    await scene.record(done(attempt))
    assert {row["name"] for row in await scene.table("limits")} == {"key:*", "key:own", "key:mx"}
    scene.clock.advance(2 * HOUR)
    await relist(scene)
    assert {row["name"] for row in await scene.table("limits")} == {"key:*", "key:own"}
