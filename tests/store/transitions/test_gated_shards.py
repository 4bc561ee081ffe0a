"""Which shard a worker takes for rows that wait before a gate, when others hold the first ones."""

from datetime import timedelta

import pytest
from support.gates import acquire, claim_gated, gated, listed, look_all, set_limit
from support.gates import look as look_and_claim
from support.scene import HANDLER, LEASE, Scene, ids

from matrixsched.rules.lanes import Lane
from matrixsched.rules.rates import parse_rate
from matrixsched.store.values import Acquired

pytestmark = pytest.mark.anyio

LANE = Lane(handler=HANDLER, key="customer").name
SECOND = timedelta(seconds=1)
TICK = timedelta(microseconds=1)


async def put_before_the_gate(scene: Scene, *shards: int) -> None:
    for shard in shards:
        await scene.put_in_processing(f"a{shard}", shard=shard, lane=LANE)
        scene.clock.advance(SECOND)
    await scene.run(scene.do.relist_lanes(every=SECOND))


async def look(scene: Scene) -> Acquired:
    acquiring = scene.do.acquire_shard(
        sync_guid=scene.guid(), holder="host:1", lease=LEASE, lanes=[], gated_handlers=[HANDLER]
    )
    return await scene.run(acquiring)


async def test_the_shard_of_the_row_that_waits_longest_comes_first(scene: Scene):
    await put_before_the_gate(scene, 2, 0, 1)
    acquired = await look(scene)
    assert (acquired.shard, acquired.gated_lanes) == (2, (LANE,))


async def test_a_lane_is_not_held_up_by_whoever_holds_the_shard_of_its_first_row(scene: Scene):
    await put_before_the_gate(scene, 2, 0)
    assert [(await look(scene)).shard for _ in range(2)] == [2, 0]


async def test_a_global_limit_that_is_open_is_nothing_to_look_at_without_rows(scene: Scene):
    await scene.run(scene.do.set_limit("global", parse_rate("10/s"), pool=0))
    scene.clock.advance(SECOND)
    acquired = await look(scene)
    assert (acquired.shard, acquired.next_due_at) == (None, None)


async def test_a_slow_down_of_everything_that_ends_at_this_moment_hides_no_lane(scene: Scene):
    await put_before_the_gate(scene, 0)
    await set_limit(scene, "global", "1/min")
    await scene.run(scene.do.slow_down("global", SECOND, rate=parse_rate("1/min"), reason=None))
    await set_limit(scene, "global", None)  # what is left of it is when the next slot would have been
    scene.clock.advance(SECOND - TICK)
    assert (await look(scene)).shard is None
    scene.clock.advance(TICK)
    assert (await look(scene)).shard == 0


async def test_a_lane_that_is_listed_though_its_rows_are_gone_is_told_until_it_is_taken_off_the_list(scene: Scene):
    """Workers list lanes anew only as long as they are told so: otherwise they would look for its rows for ever."""
    await put_before_the_gate(scene, 1)
    await scene.cancel("a1", shard=1)
    await scene.sql("delete from matrixsched.processing_queue")  # as whoever meets a dead row does
    assert (await look(scene)).holds
    scene.clock.advance(SECOND)
    await scene.run(scene.do.relist_lanes(every=SECOND))
    assert not (await look(scene)).holds


async def test_who_released_the_shard_passes_no_gate(scene: Scene):
    await set_limit(scene, "global", "1/s", pool=5)
    await scene.send([scene.new(id, **gated(key="customer")) for id in "ab"])
    scene.clock.advance(5 * SECOND)
    hold, _ = await acquire(scene)
    filled = (await scene.move(hold)).gated_lanes
    assert await scene.release(hold)
    before = [await scene.table(name) for name in ("limits", "processing_queue")]
    assert (await claim_gated(scene, hold, filled=filled)).attempts == []
    assert [await scene.table(name) for name in ("limits", "processing_queue")] == before


async def test_an_emptied_lane_goes_from_the_list_alone(scene: Scene):
    slow = Lane(handler=HANDLER, key="slow").name
    await set_limit(scene, "key:customer", "1/s")
    await set_limit(scene, "key:slow", "1/day")
    for key in ("customer", "slow"):
        await scene.send([scene.new(key, **gated(key=key))])
    assert await look_all(scene) == []
    assert set(await listed(scene)) == {LANE, slow}
    scene.clock.advance(SECOND)
    assert ids(await look_all(scene)) == ["customer"]
    assert set(await listed(scene)) == {slow}


async def test_a_lane_stays_listed_for_a_row_that_is_due_at_this_very_moment_in_another_shard(scene: Scene):
    await set_limit(scene, "key:customer", "1/day")
    for shard in (0, 1):
        await scene.send([scene.new(f"{shard}", shard=shard, **gated(key="customer"))])
    assert await look_all(scene) == []
    await scene.run(scene.do.remove_limit("key:customer"))
    assert len((await look_and_claim(scene)).ids) == 1
    assert set(await listed(scene)) == {LANE}
    assert len((await look_and_claim(scene)).ids) == 1
    assert await listed(scene) == {}
