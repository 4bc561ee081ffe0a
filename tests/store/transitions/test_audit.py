"""The audit columns of a processing row (SPEC A4): who moved and rescheduled it, and when."""

from datetime import timedelta

import pytest
from support.scene import HANDLER, LEASE, Scene, failed

from matrixsched.rules.action import parked_lane

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)


async def audit(scene: Scene) -> dict[str, object]:
    row = await scene.row()
    return {name: row[name] for name in ("added_at", "moved_by", "moved_at", "rescheduled_by", "rescheduled_at")}


async def test_a_row_says_when_it_was_added_and_who_moved_it_when(scene: Scene):
    added_at = scene.now
    await scene.schedule(delay=HOUR)
    scene.clock.advance(SECOND)
    hold = await scene.hold()
    scene.clock.advance(SECOND)
    await scene.move(hold)
    assert await audit(scene) == {
        "added_at": added_at,
        "moved_by": hold.guid,
        "moved_at": scene.now,
        "rescheduled_by": None,
        "rescheduled_at": None,
    }


async def test_a_row_claimed_in_passing_says_who_rescheduled_it_when(scene: Scene):
    added_at = scene.now
    await scene.schedule()
    scene.clock.advance(SECOND)
    hold = await scene.hold()
    await scene.move(hold)
    assert await audit(scene) == {
        "added_at": added_at,
        "moved_by": hold.guid,
        "moved_at": scene.now,
        "rescheduled_by": hold.guid,
        "rescheduled_at": scene.now,
    }


async def test_a_claim_reschedules_and_leaves_the_rest(scene: Scene):
    await scene.put_in_processing("a")
    before = await audit(scene)
    scene.clock.advance(SECOND)
    hold = await scene.hold()
    await scene.claim(hold)
    assert await audit(scene) == before | {"rescheduled_by": hold.guid, "rescheduled_at": scene.now}


async def test_parking_a_row_in_a_claim_is_a_reschedule_too(scene: Scene):
    await scene.put_in_processing("a", handler="elsewhere", delay=SECOND)
    before = await audit(scene)
    scene.clock.advance(SECOND)
    hold = await scene.hold()
    await scene.claim(hold)
    assert (await scene.row())["lane"] == parked_lane("elsewhere")
    assert await audit(scene) == before | {"rescheduled_by": hold.guid, "rescheduled_at": scene.now}


async def test_an_extension_is_no_reschedule(scene: Scene):
    attempt = await scene.start()
    before = await audit(scene)
    scene.clock.advance(SECOND)
    await scene.extend(attempt)
    assert await audit(scene) == before


async def test_an_outcome_reschedules_in_the_name_of_its_attempt(scene: Scene):
    attempt = await scene.start()
    before = await audit(scene)
    scene.clock.advance(SECOND)
    await scene.record(failed(attempt, delay=HOUR))
    expected = {"rescheduled_by": attempt.claim.claimed_by, "rescheduled_at": scene.now}
    assert await audit(scene) == before | expected


async def test_giving_back_reschedules_in_the_name_of_its_attempt(scene: Scene):
    attempt = await scene.start()
    before = await audit(scene)
    scene.clock.advance(SECOND)
    await scene.give_back(attempt)
    expected = {"rescheduled_by": attempt.claim.claimed_by, "rescheduled_at": scene.now}
    assert await audit(scene) == before | expected


async def test_a_takeover_reschedules_in_the_name_of_the_new_holder(scene: Scene):
    old = await scene.start()
    before = await audit(scene)
    scene.clock.advance(LEASE)
    (new,) = await scene.sync(handlers=[HANDLER])
    assert new.claim.claimed_by != old.claim.claimed_by
    expected = {"rescheduled_by": new.claim.claimed_by, "rescheduled_at": scene.now}
    assert await audit(scene) == before | expected
