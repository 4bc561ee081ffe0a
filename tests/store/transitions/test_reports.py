"""What can be asked about actions."""

from datetime import timedelta

import pytest
from support.scene import LEASE, SHARDS, Scene, failed

from matrixsched import Outcome, State
from matrixsched.store.values import ActionFilter

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)


async def listed(scene: Scene, **wanted) -> list[str]:
    page = await scene.run(scene.do.page(ActionFilter(**wanted), after=None, limit=100))
    return [action.id for action in page]


async def test_finding_answers_with_those_that_exist(scene: Scene):
    await scene.send([scene.new("a"), scene.new("b", shard=1)])
    found = await scene.run(scene.do.find([(0, "a"), (1, "b"), (0, "b"), (2, "nobody")]))
    assert {(action.meta.shard, action.id) for action in found} == {(0, "a"), (1, "b")}
    assert await scene.run(scene.do.find([])) == []


@pytest.mark.parametrize("id", ["ä" * 128, "'; drop table x; --", '["a"]', "1", "NULL", "a\u2028b", "🦊", "A", "%_"])
async def test_whatever_may_be_an_id_is_found_by_it(scene: Scene, id):
    written = await scene.schedule(id)
    await scene.schedule("a")
    assert (await scene.action(id)).meta.guid == written.guid
    attempts = await scene.sync()
    assert id in {attempt.claim.action_id for attempt in attempts}
    for attempt in attempts:
        assert await scene.extend(attempt) == "extended"
        assert await scene.finish(attempt) == "recorded"
    assert (await scene.action(id)).status.state is State.DONE


async def test_an_action_runs_while_its_lease_does(scene: Scene):
    await scene.schedule()
    assert not (await scene.action()).status.running
    await scene.sync()
    assert (await scene.action()).status.running
    scene.clock.advance(LEASE)
    assert not (await scene.action()).status.running


async def test_interruptions_show_before_an_outcome_is_recorded(scene: Scene):
    await scene.interrupt(await scene.start())
    (page,) = await scene.run(scene.do.page(ActionFilter(), after=None, limit=1))
    assert page.status.interrupted == (await scene.action()).status.interrupted == 1


async def test_pages_go_through_everything_once_in_key_order(scene: Scene):
    names = ["B", "a", "b", "aa", "ä", "Z", "a b", "10", "9"]
    await scene.send([scene.new(name, shard=shard) for shard in range(SHARDS) for name in names])
    seen, after = [], None
    while page := await scene.run(scene.do.page(ActionFilter(), after=after, limit=5)):
        assert len(page) <= 5
        seen += [(action.meta.shard, action.id) for action in page]
        after = seen[-1]
    assert seen == [(shard, name) for shard in range(SHARDS) for name in sorted(names, key=str.encode)]


async def test_pages_neither_skip_nor_repeat_when_something_is_written_between_them(scene: Scene):
    await scene.send([scene.new(name) for name in "bdf"])
    first = await scene.run(scene.do.page(ActionFilter(), after=None, limit=2))
    await scene.send([scene.new(name) for name in "ac"])
    await scene.cancel("b")
    second = await scene.run(scene.do.page(ActionFilter(), after=(0, first[-1].id), limit=2))
    assert [[action.id for action in page] for page in (first, second)] == [["b", "d"], ["f"]]


async def test_lists_show_only_what_is_wanted(scene: Scene):
    await scene.schedule("note:1", template="promo")
    await scene.schedule("note:2", handler="other", delay=HOUR)
    await scene.schedule("Note:3", delay=2 * HOUR)
    await scene.schedule("no%e")
    await scene.cancel("note:1")
    assert await listed(scene) == ["Note:3", "no%e", "note:1", "note:2"]
    assert await listed(scene, state=State.CANCELLED) == ["note:1"]
    assert await listed(scene, handler="other") == ["note:2"]
    assert await listed(scene, template="promo") == ["note:1"]
    assert await listed(scene, id_prefix="note:") == ["note:1", "note:2"]
    assert await listed(scene, id_prefix="no%") == ["no%e"]
    assert await listed(scene, due_before=scene.now + HOUR, state=State.LIVE) == ["no%e"]
    assert await listed(scene, due_before=scene.now + HOUR + timedelta(microseconds=1), handler="other") == ["note:2"]
    assert await listed(scene, state=State.LIVE, id_prefix="note:1") == []


async def test_the_history_is_that_of_one_action_newest_first(scene: Scene):
    other = await scene.start("b")
    await scene.record(failed(other))
    attempt = await scene.start("a")
    for _ in range(2):
        scene.clock.advance(timedelta(seconds=1))
        await scene.record(failed(attempt, delay=timedelta(0)))
        (attempt,) = [one for one in await scene.sync() if one.claim.action_id == "a"]
    past = await scene.history("a")
    assert [(one.attempt, one.outcome, one.error) for one in past] == [
        (2, Outcome.FAILED, "no luck"),
        (1, Outcome.FAILED, "no luck"),
    ]
    assert past[0].ended_at - past[1].ended_at == timedelta(seconds=1)
    assert {one.guid for one in past} == {attempt.claim.guid}
    assert await scene.history("nobody") == []


async def test_the_installation_knows_its_shards_and_the_time(scene: Scene):
    installation = await scene.run(scene.do.installation())
    assert (installation.shard_count, installation.now) == (SHARDS, scene.now)
    assert await scene.run(scene.do.now()) == scene.now


async def test_waking_workers_writes_nothing(scene: Scene):
    before = await scene.contents()
    await scene.run(scene.do.wake())
    assert await scene.contents() == before
