"""What waits before gates, as far as it is counted."""

from __future__ import annotations

from datetime import timedelta

import pytest
from support.scene import Scene

from matrixsched.rules.gate_report import GateReport
from matrixsched.rules.gates import Gate
from matrixsched.rules.lanes import Lane
from matrixsched.rules.limits import in_nanoseconds
from matrixsched.rules.rates import parse_rate

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)
SLOW = parse_rate("1/h")


async def hold(scene: Scene, lane: Lane, count: int) -> None:
    """Rows that are due in a gated lane, spread over two shards, and the lane listed."""
    for number in range(count):
        await scene.sql(
            "insert into matrixsched.processing_queue (shard_id, action_id, action_guid, lane, scheduled_at, attempt, "
            "interrupted, added_at, moved_by, moved_at) "
            "values (:shard, :id, :guid, :lane, :at, 0, 0, :at, :guid, :at)",
            shard=number % 2,
            id=f"{lane.name}:{number}",
            guid=scene.guid(),
            lane=lane.name,
            at=scene.now,
        )
    await scene.sql(
        "insert into matrixsched.held_lanes (lane, priority, handler, ready_at) values (:lane, 0, 'greet', :at)",
        lane=lane.name,
        at=scene.now,
    )


async def report(scene: Scene, *, lanes_max: int = 100, count_max: int = 1000) -> GateReport:
    return await scene.run(scene.do.gate_report(lanes_max=lanes_max, count_max=count_max))


async def test_without_gates_there_is_nothing_to_tell(scene: Scene):
    await scene.schedule()
    assert await report(scene) == GateReport(shares=[])


async def test_every_lane_has_its_share_of_what_is_counted(scene: Scene):
    await scene.run(scene.do.set_limit("global", SLOW, pool=0))
    await hold(scene, Lane(handler="greet", key="long"), 30)
    await hold(scene, Lane(handler="greet", key="short"), 2)
    await hold(scene, Lane(handler="greet", template="gone"), 4)
    assert (await report(scene)).held == {(Gate.LIMIT, None): 32, (Gate.NO_TEMPLATE, "gone"): 4}
    assert (await report(scene, count_max=30)).held == {(Gate.LIMIT, None): 12, (Gate.NO_TEMPLATE, "gone"): 4}


async def test_of_too_many_lanes_those_of_templates_are_looked_at(scene: Scene):
    for number in range(5):
        await hold(scene, Lane(handler="greet", key=f"k{number}"), 1)
    await hold(scene, Lane(handler="greet", template="gone"), 1)
    assert (await report(scene, lanes_max=2)).held == {(Gate.NO_TEMPLATE, "gone"): 1, (None, None): 1}


async def test_a_key_is_held_by_its_own_limit_or_by_that_of_all(scene: Scene):
    await scene.run(scene.do.set_limit("key:*", SLOW, pool=0))
    await scene.run(scene.do.set_limit("key:own", SLOW, pool=0))
    await scene.sql(
        "insert into matrixsched.limits (name, next_slot_ns, updated_at) values ('key:used', :slot, :at)",
        slot=in_nanoseconds(scene.now + HOUR / 2),
        at=scene.now,
    )
    for key, count in (("own", 1), ("used", 2), ("fresh", 4)):
        await hold(scene, Lane(handler="greet", key=key), count)
    found = await report(scene)
    assert found.held == {(Gate.LIMIT, None): 3, (None, None): 4}
    assert found.slots_left == {}, "those of keys are not told"


async def test_looking_changes_nothing(scene: Scene):
    await scene.run(scene.do.set_limit("global", SLOW, pool=0))
    await hold(scene, Lane(handler="greet", key="k"), 1)
    before = await scene.contents(), await scene.table("limits"), await scene.table("held_lanes")
    await report(scene)
    assert (await scene.contents(), await scene.table("limits"), await scene.table("held_lanes")) == before
