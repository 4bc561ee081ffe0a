"""The attempt under way: its lease is kept, or the row goes back, only by whom the row says holds it."""

from datetime import timedelta

import pytest
from support.scene import HANDLER, LEASE, Scene, failed, ids

from matrixsched.rules.action import EVENT, Outcome, suspect_lane
from matrixsched.store.values import Answer, Extension, Holding

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)
TICK = timedelta(microseconds=1)


async def test_extending_moves_the_end_of_the_lease_from_now_on(scene: Scene):
    attempt = await scene.start()
    scene.clock.advance(3 * SECOND)
    before = await scene.row()
    assert await scene.extend(attempt) is Extension.EXTENDED
    assert await scene.row() == before | {"scheduled_at": scene.now + LEASE}


async def test_a_lease_never_outlasts_the_longest_time_of_its_attempt(scene: Scene):
    attempt = await scene.start()
    scene.clock.advance(9 * SECOND)
    assert await scene.extend(attempt, longest=12 * SECOND + TICK) is Extension.EXTENDED
    assert (await scene.row())["scheduled_at"] == attempt.claimed_at + 12 * SECOND + TICK


async def test_an_attempt_that_was_extended_is_not_interrupted(scene: Scene):
    attempt = await scene.start()
    for _ in range(5):
        scene.clock.advance(LEASE - TICK)
        assert await scene.sync() == []
        assert await scene.extend(attempt) is Extension.EXTENDED
    await scene.finish(attempt)
    assert (await scene.action()).status.interrupted == 0


async def test_an_attempt_nobody_took_over_can_be_extended_even_late(scene: Scene):
    attempt = await scene.start()
    scene.clock.advance(2 * LEASE)
    assert await scene.extend(attempt) is Extension.EXTENDED
    assert await scene.sync() == []


async def test_a_late_attempt_at_a_replaced_version_is_lost_for_the_next_one_may_run(scene: Scene):
    """Which is claimed in another lane than that of the late one's row."""
    old = await scene.start()
    new = await scene.schedule(lane=EVENT)
    await scene.move(await scene.hold())
    scene.clock.advance(2 * LEASE)
    claimed = await scene.claim(await scene.hold(), lane=EVENT)
    assert [attempt.claim.guid for attempt in claimed.attempts] == [new.guid]
    assert [(past.guid, past.outcome) for past in await scene.history()] == [(old.claim.guid, Outcome.SUPERSEDED)]
    before = await scene.contents()
    assert await scene.extend(old) is Extension.LOST
    assert await scene.contents() == before


async def test_an_attempt_that_was_taken_over_is_lost(scene: Scene):
    old = await scene.start()
    new = await scene.interrupt(old)
    before = await scene.contents()
    scene.clock.advance(SECOND)
    assert await scene.extend(old) is Extension.LOST
    assert await scene.contents() == before
    assert await scene.extend(new) is Extension.EXTENDED


async def test_an_attempt_that_was_recorded_is_lost(scene: Scene):
    done, again = await scene.start("a"), await scene.start("b")
    await scene.finish(done)
    await scene.record(failed(again, delay=HOUR))
    before = await scene.contents()
    assert await scene.extend(done) is Extension.LOST
    assert await scene.extend(again) is Extension.LOST
    assert await scene.contents() == before


async def test_an_attempt_at_a_replaced_version_keeps_its_lease(scene: Scene):
    attempt = await scene.start()
    await scene.schedule()
    scene.clock.advance(SECOND)
    assert await scene.extend(attempt) is Extension.EXTENDED


@pytest.mark.parametrize("part", ["shard", "action_id", "guid", "attempt", "claimed_by"])
async def test_every_part_of_a_claim_counts(scene: Scene, part):
    attempt = await scene.start()
    other = {"shard": 1, "action_id": "b", "guid": scene.guid(), "attempt": 2, "claimed_by": scene.guid()}[part]
    wrong = attempt._replace(claim=attempt.claim._replace(**{part: other}))
    before = await scene.contents()
    scene.clock.advance(SECOND)
    assert await scene.extend(wrong) is Extension.LOST
    assert await scene.give_back(wrong) == 0
    assert await scene.finish(wrong) is not Answer.RECORDED
    assert await scene.record(failed(wrong)) != [Answer.RECORDED]
    assert await scene.contents() == before


async def test_many_are_extended_at_once_each_with_its_own_answer_and_end(scene: Scene):
    lost = await scene.start("lost")
    await scene.finish(lost)
    short, long = await scene.start("short"), await scene.start("long")
    scene.clock.advance(SECOND)
    held = [Holding(short.claim, 2 * SECOND), Holding(lost.claim, HOUR), Holding(long.claim, HOUR)]
    answers = await scene.run(scene.do.extend(held, attempt_lease=LEASE))
    assert answers == {
        short.claim.guid: Extension.EXTENDED,
        lost.claim.guid: Extension.LOST,
        long.claim.guid: Extension.EXTENDED,
    }
    assert (await scene.row("short"))["scheduled_at"] == short.claimed_at + 2 * SECOND
    assert (await scene.row("long"))["scheduled_at"] == scene.now + LEASE
    assert await scene.run(scene.do.extend([], attempt_lease=LEASE)) == {}


async def test_what_was_given_back_is_due_at_once_in_its_old_order_and_unattempted(scene: Scene):
    begun = scene.now
    for seconds, id in enumerate("ba"):
        await scene.put_in_processing(id, at=scene.now - seconds * SECOND)
    await scene.put_in_processing("c", delay=SECOND)
    attempts = await scene.sync()
    scene.clock.advance(2 * SECOND)
    assert await scene.give_back(*attempts) == 2
    hold = await scene.hold()
    first = await scene.claim(hold, limit=1)
    second = await scene.claim(hold, limit=1)
    third = await scene.claim(hold, limit=1)
    assert [ids(one.attempts) for one in (first, second, third)] == [["a"], ["b"], ["c"]]
    (again,) = first.attempts
    assert (again.due_at, again.interruptions) == (begun - SECOND, 0)
    status = (await scene.action("a")).status
    assert (status.interrupted, status.failed, status.attempts_started) == (0, 0, 1)
    assert await scene.table("attempt_history") == []


async def test_a_suspect_that_was_given_back_stays_a_suspect(scene: Scene):
    attempt = await scene.interrupt(await scene.interrupt(await scene.start()))
    assert await scene.give_back(attempt) == 1
    assert (await scene.acquire()).shard is None
    (again,) = await scene.sync(lanes=[suspect_lane(HANDLER)])
    assert again.interruptions == 2


async def test_only_who_still_holds_an_attempt_gives_it_back(scene: Scene):
    old = await scene.start("a")
    new = await scene.interrupt(old)
    done = await scene.start("b")
    await scene.finish(done)
    before = await scene.contents()
    assert await scene.give_back(old, done) == 0
    assert await scene.contents() == before
    assert await scene.give_back(new) == 1
    assert await scene.give_back(new) == 0


async def test_what_was_given_back_can_no_longer_be_extended_or_recorded(scene: Scene):
    attempt = await scene.start()
    await scene.give_back(attempt)
    before = await scene.contents()
    assert await scene.extend(attempt) is Extension.LOST
    assert await scene.finish(attempt) is Answer.LOST
    assert await scene.contents() == before
