"""A window of the quota is planned once for the whole fleet, from what is due, and never again."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import anyio
import asyncpg
import pytest
from support.drivers import connect_asyncpg
from support.planning import MINUTE, change_settings, fill, grants, limit, plan, put, send_message
from support.scene import HANDLER, Scene

from matrixsched.clock import ManualClock
from matrixsched.rules.rates import parse_rate
from matrixsched.rules.templates import Distribution
from matrixsched.store.opening import open_store
from matrixsched.store.planning import KEEP
from matrixsched.store.values import Planned

pytestmark = pytest.mark.anyio

# The clock of tests stands at midnight in UTC: it is nine in the morning in Tokyo, and one at night in Berlin.
TOKYO, BERLIN = "Asia/Tokyo", "Europe/Berlin"


async def test_a_window_is_planned_by_the_formulas(scene: Scene):
    await limit(scene, "global", "100/min")
    await put(scene, "promo", distribution=Distribution.MORNING)
    await put(scene, "news")
    await fill(scene, "promo", 70, zone=TOKYO)
    await fill(scene, "promo", 30, zone=BERLIN)
    await fill(scene, "news", 10)
    assert await plan(scene) is Planned.NOW
    # Two templates: each may have half of the window; promo has 70 messages inside, so none outside.
    assert await grants(scene) == {("promo", 0, True): 50, ("promo", 0, False): 0, ("news", 0, False): 10}
    (window,) = await scene.table("quota_windows")
    assert window == {
        "begins_at": scene.now,
        "ends_at": scene.now + MINUTE,
        "planned_at": scene.now,
        "planned_by": "host:1",
        "max_to_send": 100,
        "templates": 2,
    }


async def test_a_grant_says_for_which_zones_it_is_the_right_time(scene: Scene):
    await put(scene, "promo", distribution=Distribution.MORNING, zone=TOKYO)
    for zone, priority in ((TOKYO, 0), (BERLIN, 0), (None, 1), ("Asia/Seoul", 2)):
        await fill(scene, "promo", 1, zone=zone, priority=priority)
    await plan(scene)
    zones = {(row["priority"], row["inside"]): json.loads(row["zones"]) for row in await scene.table("quota_grants")}
    inside = ["", "Asia/Seoul", TOKYO]
    assert zones == {(0, True): inside, (0, False): [], (1, True): inside, (2, True): inside}


async def test_a_zone_that_this_machine_does_not_know_is_never_the_right_one(scene: Scene):
    await put(scene, "promo", distribution=Distribution.MORNING)
    await fill(scene, "promo", 2, zone="Mars/Olympus")
    await fill(scene, "promo", 1, zone=TOKYO)
    await plan(scene)
    assert await grants(scene) == {("promo", 0, True): 1, ("promo", 0, False): 2}


@pytest.mark.parametrize("interval", [5 * MINUTE, timedelta(seconds=2)])
async def test_a_plan_waits_for_messages_on_the_way_to_their_gates_but_not_for_long(scene: Scene, interval: timedelta):
    await change_settings(scene, interval=interval)
    await put(scene, "promo")
    await fill(scene, "promo", 3)
    await send_message(scene, "new")
    assert await plan(scene) is Planned.BUSY
    scene.clock.advance(min(timedelta(seconds=1), interval / 10) - timedelta(milliseconds=1))
    assert await plan(scene) is Planned.BUSY
    scene.clock.advance(timedelta(milliseconds=1))
    assert await plan(scene) is Planned.NOW
    assert await grants(scene) == {("promo", 0, False): 3}


async def test_a_plan_that_follows_another_waits_for_them_a_little(scene: Scene):
    await change_settings(scene, interval=timedelta(seconds=10))
    await put(scene, "promo")
    await fill(scene, "promo", 3)
    await plan(scene)
    await send_message(scene, "new", at=scene.now + timedelta(seconds=10))
    scene.clock.advance(timedelta(seconds=10))
    assert await plan(scene) is Planned.BUSY
    scene.clock.advance(timedelta(milliseconds=199))
    assert await plan(scene) is Planned.BUSY
    scene.clock.advance(timedelta(milliseconds=1))
    assert await plan(scene) is Planned.NOW


async def test_a_plan_waits_for_nothing_else(scene: Scene):
    await put(scene, "promo")
    await fill(scene, "promo", 3)
    await scene.schedule("no message", shard=1)
    await scene.put_in_processing("nor this", shard=2)
    await send_message(scene, "later", at=scene.now + MINUTE)
    assert await plan(scene) is Planned.NOW


async def test_a_plan_is_made_at_once_when_all_that_is_due_is_before_its_gates(scene: Scene):
    await put(scene, "promo")
    await fill(scene, "promo", 3)
    await send_message(scene, "new")
    assert await plan(scene) is Planned.BUSY
    await scene.sync()
    assert await plan(scene) is Planned.NOW


async def test_a_window_once_planned_is_never_planned_again(scene: Scene):
    await put(scene, "promo")
    await fill(scene, "promo", 3)
    assert await plan(scene) is Planned.NOW
    before = await scene.table("quota_grants")
    await fill(scene, "promo", 5)
    await change_settings(scene, interval=timedelta(seconds=10))
    scene.clock.advance(MINUTE - timedelta(microseconds=1))
    assert await plan(scene) is Planned.BEFORE
    assert await scene.table("quota_grants") == before
    assert len(await scene.table("quota_windows")) == 1


async def test_the_next_window_begins_where_the_last_one_ended_whatever_the_interval_is_then(scene: Scene):
    await put(scene, "promo")
    await fill(scene, "promo", 3)
    begin = scene.now
    await plan(scene)
    await change_settings(scene, interval=timedelta(minutes=5))
    scene.clock.advance(MINUTE)
    assert await plan(scene) is Planned.NOW
    windows = [(row["begins_at"], row["ends_at"]) for row in await scene.table("quota_windows")]
    assert windows == [(begin, begin + MINUTE), (begin + MINUTE, begin + 5 * MINUTE)]


async def test_windows_do_not_overlap_when_the_clock_is_set_back(scene: Scene, clock: ManualClock):
    await put(scene, "promo")
    await fill(scene, "promo", 3)
    clock.advance(timedelta(seconds=90))
    begin = scene.now - timedelta(seconds=30)
    await plan(scene)
    await change_settings(scene, interval=timedelta(hours=1))
    clock.advance(timedelta(seconds=-60))
    assert await plan(scene) is Planned.NOW
    windows = sorted((row["begins_at"], row["ends_at"]) for row in await scene.table("quota_windows"))
    assert windows == [(begin - MINUTE, begin), (begin, begin + MINUTE)]


async def test_no_more_is_granted_than_fits_into_the_window(scene: Scene):
    await limit(scene, "global", "40/min")
    for number in range(30):
        await put(scene, f"t{number:02}", distribution=Distribution.MORNING)
        await fill(scene, f"t{number:02}", 3, zone=TOKYO, priority=number % 3)
    await plan(scene)
    assert sum((await grants(scene)).values()) == 40


async def test_a_template_is_granted_no_more_than_its_own_maximum(scene: Scene):
    await put(scene, "promo", max_speed=parse_rate("7/min"))
    for priority in (0, 1):
        await fill(scene, "promo", 5, priority=priority)
    await plan(scene)
    assert await grants(scene) == {("promo", 0, False): 5, ("promo", 1, False): 2}


async def test_a_limit_that_was_told_to_slow_down_leaves_less_room(scene: Scene):
    await limit(scene, "global", "60/min")
    await scene.run(scene.do.slow_down("global", timedelta(seconds=30), rate=None, reason=None))
    await put(scene, "promo")
    await fill(scene, "promo", 100)
    await plan(scene)
    assert sum((await grants(scene)).values()) == 30


async def test_what_is_not_due_or_expired_has_no_part_in_it(scene: Scene):
    await limit(scene, "global", "10/min")
    for name in ("due", "later", "late"):
        await put(scene, name)
    await fill(scene, "late", 20, expires_at=scene.now + timedelta(seconds=1))
    await fill(scene, "later", 20, delay=MINUTE)
    scene.clock.advance(timedelta(seconds=2))
    await fill(scene, "due", 20)
    await plan(scene)
    # A single template has messages, and fills everything, although the lane of another one looked as if it had some.
    assert await grants(scene) == {("due", 0, False): 10}
    (window,) = await scene.table("quota_windows")
    assert window["templates"] == 1


async def test_paused_and_removed_templates_have_no_part_in_it(scene: Scene):
    await limit(scene, "global", "10/min")
    for name in ("promo", "paused"):
        await put(scene, name)
        await fill(scene, name, 20)
    removed = await fill(scene, "removed", 20)
    await scene.run(scene.do.pause_template("paused", None))
    await plan(scene)
    assert await grants(scene) == {("promo", 0, False): 10}
    listed = {row["lane"]: row["ready_at"] for row in await scene.table("held_lanes")}
    assert listed[removed] == scene.now + MINUTE
    assert await scene.waiting("processing_queue") == {
        row["action_id"] for row in await scene.table("processing_queue")
    }


async def test_a_template_that_may_send_nothing_now_still_counts_as_one_with_messages(scene: Scene):
    await limit(scene, "global", "10/min")
    await put(scene, "slow", max_speed=parse_rate("1/day"))
    await put(scene, "promo")
    for name in ("slow", "promo"):
        await fill(scene, name, 20)
    await plan(scene)
    assert await grants(scene) == {("promo", 0, False): 5, ("slow", 0, False): 0}


async def test_with_nothing_due_no_window_is_used_up(scene: Scene):
    await put(scene, "promo")
    assert await plan(scene) is Planned.BEFORE
    assert await scene.table("quota_windows") == []
    await fill(scene, "promo", 1)
    assert await plan(scene) is Planned.NOW


async def test_lanes_with_a_grant_are_worth_a_look_now_and_the_others_when_the_window_ends(scene: Scene):
    await limit(scene, "global", "1/min")
    await put(scene, "a")
    await put(scene, "b")
    served, held = await fill(scene, "a", 2), await fill(scene, "b", 2)
    await scene.sql("delete from matrixsched.held_lanes where lane = :lane", lane=served)
    await scene.sql("update matrixsched.held_lanes set ready_at = :at", at=scene.now)
    await plan(scene)
    rows = {row["lane"]: row for row in await scene.table("held_lanes")}
    assert rows[served]["ready_at"] == scene.now
    assert rows[held]["ready_at"] == scene.now + MINUTE
    assert (rows[served]["priority"], rows[served]["handler"]) == (0, HANDLER)


async def test_who_was_not_served_goes_first_in_the_next_window(scene: Scene):
    await limit(scene, "global", "1/min")
    for name in ("a", "b", "c"):
        await put(scene, name)
        await fill(scene, name, 5)
    served = []
    for _ in range(6):
        await plan(scene)
        served += [name for (name, _, _), count in (await grants(scene, scene.now)).items() if count]
        scene.clock.advance(MINUTE)
    assert served == ["a", "b", "c", "a", "b", "c"]


async def test_turns_are_taken_in_each_priority_by_itself(scene: Scene):
    await limit(scene, "global", "2/min")
    for name in ("a", "b", "c"):
        await put(scene, name)
        await fill(scene, name, 5, priority=1)
    await fill(scene, "a", 6)
    served = []
    for _ in range(6):
        await plan(scene)
        given = {(name, priority) for (name, priority, _), count in (await grants(scene, scene.now)).items() if count}
        assert ("a", 0) in given
        served += [name for name, priority in given if priority == 1]
        scene.clock.advance(MINUTE)
    # That the first one is always served with its urgent messages costs its other ones nothing.
    assert served == ["a", "b", "c", "a", "b", "c"]


async def test_old_windows_and_their_grants_are_forgotten(scene: Scene):
    await put(scene, "promo")
    await fill(scene, "promo", 2)
    await plan(scene)
    scene.clock.advance(KEEP + MINUTE)
    await plan(scene)
    assert [row["begins_at"] for row in await scene.table("quota_windows")] == [scene.now]
    assert [row["begins_at"] for row in await scene.table("quota_grants")] == [scene.now]


# Two planners at once, on PostgreSQL; SQLite has one writer.


async def test_of_many_planners_at_once_exactly_one_plans(scene: Scene):
    await put(scene, "promo")
    await fill(scene, "promo", 50)
    answers: list[Planned] = []

    async def planner() -> None:
        answers.append(await plan(scene))

    async with anyio.create_task_group() as planners:
        for _ in range(8):
            planners.start_soon(planner)
    assert answers.count(Planned.NOW) == 1
    assert await grants(scene) == {("promo", 0, False): 50}


async def test_nobody_waits_for_a_planner_and_of_one_that_is_killed_nothing_remains(
    shared_postgres_dsn: str, clock: ManualClock
):
    store = open_store(shared_postgres_dsn, clock=clock)
    await store.open()
    try:
        await store.upgrade(4)
        scene = Scene(store, clock)
        await scene.clear()
        await put(scene, "promo")
        await fill(scene, "promo", 5)
        planner = await connect_asyncpg(shared_postgres_dsn)
        try:
            transaction = planner.transaction()
            await transaction.start()
            await _converse_up_to(planner, store.transitions.plan_window("frozen"), "plan_window.forget")
            assert await plan(scene) is Planned.BUSY
            assert await scene.table("quota_windows") == []
        finally:
            planner.terminate()
        while (answer := await plan(scene)) is Planned.BUSY:
            pass  # the server has yet to notice that the planner is gone
        assert answer is Planned.NOW
        (window,) = await scene.table("quota_windows")
        assert window["planned_by"] == "host:1"
        assert await grants(scene) == {("promo", 0, False): 5}
    finally:
        await store.close()


async def _converse_up_to(connection: asyncpg.Connection, transition: Any, name: str) -> None:
    """Carry out a transition on a connection of our own, and stop before the statement of that name."""
    conversation = transition.begin()
    ask = next(conversation)
    while ask.statement.name != name:
        statement = ask.statement
        rows = await connection.fetch(
            statement.positional, *[ask.parameters[parameter] for parameter in statement.parameters]
        )
        ask = conversation.send(rows)
