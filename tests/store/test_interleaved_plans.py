"""Plans and lists of lanes beside others who have in hand what they write: they leave it alone."""

from __future__ import annotations

from datetime import timedelta

import pytest
from support.gated_world import put_window
from support.interleaving import HANDLER, Session, World

from matrixsched.rules.lanes import Lane
from matrixsched.rules.templates import TemplateChange
from matrixsched.store.planning import KEEP
from matrixsched.store.transition import Transaction, Transition
from matrixsched.store.values import Planned

pytestmark = pytest.mark.anyio

MINUTE = timedelta(minutes=1)
WINDOWS = "select begins_at from matrixsched.quota_windows"
GRANTS = "select from matrixsched.quota_grants"
LANES = {name: Lane(handler=HANDLER, template=name) for name in ("news", "promo")}


async def messages(world: World) -> None:
    """One of each template, due before its gate."""
    for name, lane in LANES.items():
        await world.run(world.do.put_template(name, TemplateChange()))
        await world.run(world.scheduling(world.an_action(name)._replace(lane=lane.name, template=name)))
    guid = await world.acquire()
    moved = await world.run(world.moving(guid, claim_limit=0))
    assert set(moved.gated_lanes) == {lane.name for lane in LANES.values()}
    await world.release(guid)


async def list_lane(world: World, lane: Lane) -> None:
    await world.watcher.execute(LISTING, lane.name, lane.handler, world.now + MINUTE)


LISTING = "insert into matrixsched.held_lanes (lane, priority, handler, ready_at) values ($1, 0, $2, $3)"


async def in_hand(world: World, table: str) -> Session:
    session = await world.session()
    await session.begin()
    await session.connection.execute(f"select from matrixsched.{table} for update")
    return session


async def planned(world: World) -> Planned:
    """Without waiting."""
    return await (await world.start(planning(world))).answer()


def planning(world: World) -> Transition[Planned]:
    return world.do.plan_window("host:1")


@pytest.mark.parametrize("table", ["quota_windows", "quota_grants"])
async def test_old_windows_that_somebody_has_in_hand_are_forgotten_by_the_next_plan(world: World, table: str):
    await messages(world)
    await put_window(world, world.now - KEEP - MINUTE, {"promo": 9})
    user = await in_hand(world, table)
    assert await planned(world) is Planned.NOW
    old = f"select from matrixsched.{table} where begins_at < $1"
    assert len(await world.rows(old, world.now - KEEP)) == 1
    await user.commit()
    world.clock.advance(MINUTE)
    assert await planned(world) is Planned.NOW
    assert await world.rows(old, world.now - KEEP) == []


async def test_a_template_that_somebody_changes_is_served_all_the_same(world: World):
    await messages(world)
    user = await in_hand(world, "templates")
    assert await planned(world) is Planned.NOW
    await user.commit()
    rows = await world.rows("select granted from matrixsched.quota_grants")
    assert [row["granted"] for row in rows] == [1, 1]


async def test_a_lane_that_somebody_notes_is_left_to_him(world: World):
    await messages(world)
    await world.watcher.execute("delete from matrixsched.held_lanes")
    for lane in LANES.values():
        await list_lane(world, lane)
    user = await in_hand(world, "held_lanes")
    assert await planned(world) is Planned.NOW
    await user.commit()
    rows = await world.rows("select ready_at from matrixsched.held_lanes")
    assert {row["ready_at"] for row in rows} == {world.now + MINUTE}


@pytest.mark.parametrize("by", ["plan", "relist"])
async def test_a_lane_that_somebody_lists_at_this_moment_is_listed_once(world: World, by: str):
    await messages(world)
    await world.watcher.execute("delete from matrixsched.held_lanes")
    user = await world.session()
    await user.begin()
    lane = LANES["promo"]
    await user.connection.execute(LISTING, lane.name, lane.handler, world.now)
    listing = planning(world) if by == "plan" else world.do.relist_lanes(every=timedelta(0))
    other = await world.start(listing)
    await other.waits()
    await user.commit()
    assert await other.answer()
    rows = await world.rows("select lane from matrixsched.held_lanes")
    assert sorted(row["lane"] for row in rows) == sorted(lane.name for lane in LANES.values())


async def test_a_plan_that_is_ready_after_the_end_of_its_window_serves_nobody(world: World):
    await messages(world)
    transition = planning(world)
    assert isinstance(transition, Transaction)
    plan = await world.stepping(transition)
    await plan.past("plan_window.count")
    world.clock.advance(MINUTE)
    assert await plan.finish() is Planned.BUSY
    served = "select from matrixsched.templates where last_served_at is not null"
    assert [await world.rows(text) for text in (WINDOWS, GRANTS, served)] == [[], [], []]
    assert await planned(world) is Planned.NOW
    (window,) = await world.rows(WINDOWS)
    assert window["begins_at"] == world.now
    assert (len(await world.rows(GRANTS)), len(await world.rows(served))) == (2, 2)
