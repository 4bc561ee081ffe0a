"""How much is due, and since when."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from support.scene import HANDLER, LEASE, Scene

from matrixsched.rules.lanes import Lane
from matrixsched.store.values import Backlog

pytestmark = pytest.mark.anyio

MINUTE = timedelta(minutes=1)


async def backlog(scene: Scene, count_max: int = 100) -> Backlog:
    return await scene.run(scene.do.backlog(count_max=count_max))


def plain(now: datetime, due: int, oldest_at: datetime | None) -> Backlog:
    """One of which nothing is held back."""
    return Backlog(now=now, due=due, oldest_due_at=oldest_at, oldest_open_at=oldest_at, oldest_parked_at=None)


async def test_an_empty_installation_has_no_backlog(scene: Scene):
    assert await backlog(scene) == plain(scene.now, 0, None)


async def test_what_is_due_counts_wherever_it_waits_and_what_is_not_does_not(scene: Scene):
    begun = scene.now
    await scene.put_in_processing("b", at=begun + MINUTE)
    await scene.put_in_processing("c", at=begun + 3 * MINUTE)
    await scene.send([scene.new("a", shard=1, at=begun), scene.new("later", shard=1, at=begun + 3 * MINUTE)])
    assert await backlog(scene) == plain(begun, 1, begun)
    scene.clock.advance(2 * MINUTE)
    assert await backlog(scene) == plain(scene.now, 2, begun)
    (attempt,) = [one for one in await scene.sync() + await scene.sync() if one.claim.action_id == "a"]
    await scene.finish(attempt)
    scene.clock.advance(MINUTE)
    assert await backlog(scene) == plain(scene.now, 3, begun + 2 * MINUTE + LEASE)


async def test_rows_of_every_lane_count(scene: Scene):
    """Also those of handlers that nobody knows, and of what was interrupted: they are what an operator must hear of."""
    await scene.schedule("parked", handler="unknown")
    await scene.sync()
    assert {row["lane"] for row in await scene.table("processing_queue")} == {"handler:unknown"}
    await scene.put_in_processing("plain")
    assert (await backlog(scene)).due == 2


async def test_what_waits_for_a_gate_or_for_a_handler_is_told_apart(scene: Scene):
    begun = scene.now
    await scene.put_in_processing("gated", lane=Lane(handler=HANDLER, key="slow").name)
    await scene.put_in_processing("planned", lane=Lane(handler=HANDLER, template="news").name, template="news")
    scene.clock.advance(MINUTE)
    await scene.schedule("parked", handler="unknown")
    await scene.sync()
    parked_at = scene.now
    held = Backlog(now=scene.now, due=3, oldest_due_at=begun, oldest_open_at=None, oldest_parked_at=parked_at)
    assert await backlog(scene) == held
    scene.clock.advance(MINUTE)
    await scene.put_in_processing("plain")
    open_at = scene.now
    scene.clock.advance(MINUTE)
    assert await backlog(scene) == replace(held, now=scene.now, due=4, oldest_open_at=open_at)


async def test_an_attempt_under_way_is_not_due_until_its_lease_ends(scene: Scene):
    await scene.start("a")
    assert (await backlog(scene)).due == 0
    scene.clock.advance(LEASE)
    assert await backlog(scene) == plain(scene.now, 1, scene.now)


@pytest.mark.parametrize("moved", [True, False])
async def test_counting_stops_but_the_oldest_is_found(scene: Scene, moved: bool):
    for number in range(3):
        await scene.send(
            [scene.new(f"{number}:{shard}", shard=shard, at=scene.now - shard * MINUTE) for shard in (0, 1)]
        )
    if moved:
        for _ in range(2):
            hold = await scene.hold()
            await scene.move(hold, claim_limit=0, handlers=[HANDLER])
            await scene.release(hold)
    found = await backlog(scene, count_max=4)
    assert found.due == 4
    assert found.oldest_due_at == scene.now - MINUTE
