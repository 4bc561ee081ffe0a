"""What a plan goes by, to the instant and to the row; and what it leaves alone."""

from __future__ import annotations

from datetime import timedelta

import pytest
from support.gates import gated, listed, look, relist
from support.planning import MINUTE, change_settings, fill, grants, limit, plan, put
from support.scene import Scene

from matrixsched.rules.action import COMING
from matrixsched.store.planning import KEEP
from matrixsched.store.values import Planned

pytestmark = pytest.mark.anyio

NOW = timedelta(0)
TICK = timedelta(microseconds=1)
SECOND = timedelta(seconds=1)


async def waiting(scene: Scene) -> dict[str, int]:
    """How many messages each template had in the present window."""
    return {
        row["template"]: row["waiting"] for row in await scene.table("quota_grants") if row["begins_at"] <= scene.now
    }


async def served(scene: Scene) -> list[str]:
    return [name for (name, _, _), count in (await grants(scene, scene.now)).items() if count]


# What is counted.


async def test_a_message_that_expires_at_this_moment_is_not_counted_and_one_that_expires_later_is(scene: Scene):
    await put(scene, "promo")
    for after in (SECOND, SECOND + TICK, MINUTE):
        await fill(scene, "promo", 1, expires_at=scene.now + after)
    scene.clock.advance(SECOND)
    await plan(scene)
    assert await waiting(scene) == {"promo": 2}


async def test_attempts_under_way_are_not_counted(scene: Scene):
    await change_settings(scene, interval=2 * SECOND)
    await put(scene, "promo")
    await fill(scene, "promo", 3)
    await plan(scene)
    assert len((await look(scene, room=1)).ids) == 1
    scene.clock.advance(2 * SECOND)
    await scene.sql("delete from matrixsched.quota_grants")
    assert await plan(scene) is Planned.NOW
    assert await waiting(scene) == {"promo": 2}


async def test_lanes_in_which_nothing_is_due_and_those_without_a_template_are_left_alone(scene: Scene):
    await change_settings(scene, interval=2 * SECOND)
    for name in ("promo", "running"):
        await put(scene, name)
    running = await fill(scene, "running", 1)
    await plan(scene)
    assert len((await look(scene)).ids) == 1
    scene.clock.advance(2 * SECOND)
    await fill(scene, "promo", 1)
    await scene.put_in_processing("keyed", **gated(key="mx"))
    await relist(scene)
    before = await listed(scene)
    assert await plan(scene) is Planned.NOW
    assert {lane: at for lane, at in (await listed(scene)).items() if "promo" not in lane} == {
        lane: at for lane, at in before.items() if "promo" not in lane
    }
    assert running in before


# Messages on the way to their gates.


async def put_on_its_way(scene: Scene, id: str, **options: object) -> None:
    """In processing, where it waits until it is due."""
    await scene.put_in_processing(id, shard=1, delay=SECOND, **options)
    assert (await scene.row(id))["lane"] == COMING


async def test_a_plan_waits_for_a_message_that_is_due_at_this_moment_and_was_known_before(scene: Scene):
    await put(scene, "promo")
    await fill(scene, "promo", 3)
    await put_on_its_way(scene, "message", **gated(template="promo"))
    scene.clock.advance(SECOND)
    assert await plan(scene) is Planned.BUSY
    done = {row["name"]: row["done_at"] for row in await scene.table("chores") if row["done_at"] is not None}
    assert done == {"plan": scene.now}


async def test_a_plan_waits_neither_for_who_has_no_template_nor_for_a_version_that_was_replaced(scene: Scene):
    await put(scene, "promo")
    await fill(scene, "promo", 3)
    await put_on_its_way(scene, "keyed", **gated(key="mx"))
    await put_on_its_way(scene, "replaced", **gated(template="promo"))
    await scene.reschedule("replaced", shard=1, at=scene.now + MINUTE)
    scene.clock.advance(SECOND)
    assert await plan(scene) is Planned.NOW


# Whose turn it is.


async def test_a_turn_is_remembered_from_the_window_before_and_no_other(scene: Scene):
    await limit(scene, "global", "1/min")
    for name in ("a", "b"):
        await put(scene, name)
    turns = []
    for waits in ({"a": 1, "b": 1}, {"b": 0}, {"a": 1, "b": 1}):
        for name, priority in waits.items():
            await fill(scene, name, 1, priority=priority, expires_at=scene.now + SECOND)
        await plan(scene)
        turns += await served(scene)
        await look(scene)
        scene.clock.advance(MINUTE)
    # That b was not served in the first window counts no more: it was in the second, as no group that waits now.
    assert turns == ["a", "b", "a"]


async def test_a_window_ahead_of_a_clock_that_was_set_back_says_nothing_of_turns(scene: Scene):
    await limit(scene, "global", "1/min")
    for name in ("a", "b"):
        await put(scene, name)
    await fill(scene, "a", 1, priority=1)
    scene.clock.advance(MINUTE)
    await fill(scene, "a", 1)
    await plan(scene)
    assert (await look(scene)).ids == ["a 1"]
    scene.clock.advance(-MINUTE)
    await fill(scene, "b", 1, priority=1)
    await plan(scene)
    assert await served(scene) == ["b"]  # in that window a was not served in this priority, but it was served


async def test_only_who_is_served_is_noted_as_served(scene: Scene):
    await limit(scene, "global", "1/min")
    for name in ("a", "b"):
        await put(scene, name)
        await fill(scene, name, 1)
    await plan(scene)
    noted = {row["name"] for row in await scene.table("templates") if row["last_served_at"] is not None}
    assert noted == {"a"}


async def test_each_template_is_noted_with_its_own_turn(scene: Scene):
    for name in ("a", "b", "c"):
        await put(scene, name)
        await fill(scene, name, 1)
    await plan(scene)
    turns = {row["template"]: row["last_served_at"] for row in await scene.table("quota_grants")}
    assert len(set(turns.values())) == 3
    assert {row["name"]: row["last_served_at"] for row in await scene.table("templates")} == turns


async def test_a_lane_that_is_not_listed_is_beside_others_that_are_each_for_its_own_time(scene: Scene):
    await limit(scene, "global", "1/min")
    lanes = {}
    for name in ("a", "b", "c"):
        await put(scene, name)
        lanes[name] = await fill(scene, name, 1)
    await relist(scene)
    await scene.sql(f"delete from matrixsched.held_lanes where lane = '{lanes['c']}'")
    await plan(scene)
    (window,) = await scene.table("quota_windows")
    rest = window["ends_at"] - scene.now
    assert await listed(scene) == {lanes["a"]: NOW, lanes["b"]: rest, lanes["c"]: rest}


async def test_a_window_that_begins_at_this_moment_is_planned_once(scene: Scene):
    await put(scene, "promo")
    await fill(scene, "promo", 1)
    scene.clock.advance(MINUTE - timedelta(microseconds=scene.now.microsecond, seconds=scene.now.second))
    assert [await plan(scene), await plan(scene)] == [Planned.NOW, Planned.BEFORE]
    (window,) = await scene.table("quota_windows")
    assert window["begins_at"] == scene.now


async def test_a_window_is_kept_to_the_instant(scene: Scene):
    await put(scene, "promo")
    await fill(scene, "promo", 2)
    await plan(scene)
    for passed, windows in ((KEEP, 2), (TICK + MINUTE, 2)):
        scene.clock.advance(passed)
        assert await plan(scene) is Planned.NOW
        for table in ("quota_windows", "quota_grants"):
            assert len(await scene.table(table)) == windows
