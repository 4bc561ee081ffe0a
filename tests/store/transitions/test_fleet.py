"""How the fleet fares, as operators ask it."""

from datetime import timedelta

import pytest
from support.scene import HANDLER, Scene

from matrixsched import State
from matrixsched.store.chores import BALANCE, QUEUES, TIDY
from matrixsched.store.values import TidyPosition

pytestmark = pytest.mark.anyio

MINUTE = timedelta(minutes=1)


async def park(scene: Scene, *ids: str, handler: str, **options) -> None:
    """A worker that knows no such handler meets them."""
    await scene.send([scene.new(id, handler=handler, **options) for id in ids])
    await scene.sync(handlers=[HANDLER])


async def test_what_no_worker_knows_is_told_by_handler_over_all_shards(scene: Scene):
    assert await scene.run(scene.do.parked(count_max=10)) == []
    await park(scene, "a", "b", handler="mail")
    scene.clock.advance(MINUTE)
    await park(scene, "c", handler="mail", shard=1)
    await park(scene, "d", handler="mail:late")
    await park(scene, "e", handler="later", at=scene.now + MINUTE)
    await scene.put_in_processing("known")
    mail, late = await scene.run(scene.do.parked(count_max=10))
    assert (mail.handler, mail.count, mail.oldest_due_at) == ("mail", 3, scene.now - MINUTE)
    assert (late.handler, late.count, late.oldest_due_at) == ("mail:late", 1, scene.now)
    assert [one.count for one in await scene.run(scene.do.parked(count_max=1))] == [2, 1], "one in each shard"


async def test_a_chore_is_told_with_its_holder_and_when_it_was_done(scene: Scene):
    before = {chore.name: chore for chore in await scene.run(scene.do.chores())}
    assert {TIDY, BALANCE, QUEUES, "lanes", "plan"} == set(before)
    assert (before[TIDY].is_held, before[TIDY].done_at) == (False, None)
    holder = scene.guid()
    assert await scene.run(scene.do.take_chore(TIDY, holder, lease=MINUTE, every=MINUTE)) is not None
    held = {chore.name: chore for chore in await scene.run(scene.do.chores())}[TIDY]
    assert (held.is_held, held.held_until, held.done_at) == (True, scene.now + MINUTE, None)
    assert await scene.run(scene.do.end_chore(TIDY, holder, TidyPosition()))
    done = {chore.name: chore for chore in await scene.run(scene.do.chores())}[TIDY]
    assert (done.is_held, done.done_at) == (False, scene.now)


async def test_what_ended_is_counted_from_a_moment_on_by_how_it_ended(scene: Scene):
    for id in ("a", "b"):
        await scene.finish(await scene.start(id))
    seen_at = scene.now
    assert (await scene.run(scene.do.pace(seen_at, count_max=10))).ended[State.DONE] == 0
    scene.clock.advance(MINUTE)
    for id in ("c", "d", "e"):
        await scene.finish(await scene.start(id))
    await scene.schedule("f", at=scene.now + MINUTE)
    await scene.cancel("f")
    pace = await scene.run(scene.do.pace(seen_at, count_max=10))
    assert pace.now == scene.now
    assert {state: count for state, count in pace.ended.items() if count} == {State.DONE: 3, State.CANCELLED: 1}
    assert (await scene.run(scene.do.pace(seen_at, count_max=2))).ended[State.DONE] == 2
