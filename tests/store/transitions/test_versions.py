"""Versions of one action side by side in processing: which row blocks, which goes, which stays."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest
from support.scene import LEASE, Scene, ids

from matrixsched import Outcome
from matrixsched.rules.action import EVENT, Attempt
from matrixsched.store.values import Claimed, Extension

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)
TICK = timedelta(microseconds=1)


async def claim_next(scene: Scene) -> Claimed:
    """In another lane than that of the first version's row."""
    return await scene.claim(await scene.hold(), lane=EVENT)


async def put_behind(scene: Scene, **options: object) -> tuple[Attempt, UUID]:
    """A version is run, the next one waits in processing, in a lane of its own."""
    old = await scene.start()
    new = await scene.schedule(lane=EVENT, **options)
    hold = await scene.hold()
    await scene.move(hold)
    await scene.release(hold)
    return old, new.guid


async def note_lapsed(scene: Scene, guid: UUID) -> None:
    """Somebody claimed it, and did not report back."""
    await scene.sql(
        "update matrixsched.processing_queue set claimed_by = :by, claimed_at = :at, attempt = 1 "
        "where action_guid = :guid",
        by=scene.guid(),
        at=scene.now,
        guid=guid,
    )


async def add_waiting(scene: Scene, *, due: timedelta) -> UUID:
    """A row of a version that nobody knows any more."""
    guid = scene.guid()
    await scene.sql(
        """
        insert into matrixsched.processing_queue
               (shard_id, action_id, action_guid, lane, scheduled_at, attempt, interrupted, added_at, moved_by,
                moved_at)
        values (0, 'a', :guid, 'handler:other', :due_at, 0, 0, :now, :guid, :now)
        """,
        guid=guid,
        due_at=scene.now + due,
        now=scene.now,
    )
    return guid


@pytest.mark.parametrize("late", [timedelta(0), TICK, HOUR])
async def test_a_claim_lets_the_late_attempt_at_an_older_version_go(scene: Scene, late: timedelta):
    old, new = await put_behind(scene)
    scene.clock.advance(LEASE + late)
    (attempt,) = (await claim_next(scene)).attempts
    assert attempt.claim.guid == new
    assert [row["action_guid"] for row in await scene.table("processing_queue")] == [new]
    assert [(past.guid, past.outcome) for past in await scene.history()] == [(old.claim.guid, Outcome.SUPERSEDED)]
    assert await scene.extend(old) is Extension.LOST


@pytest.mark.parametrize("late", [timedelta(0), TICK, HOUR])
async def test_a_move_lets_the_late_attempt_at_an_older_version_go(scene: Scene, late: timedelta):
    old = await scene.start()
    scene.clock.advance(LEASE + late)
    new = await scene.schedule()
    (attempt,) = (await scene.move(await scene.hold())).attempts
    assert attempt.claim.guid == new.guid
    assert [row["action_guid"] for row in await scene.table("processing_queue")] == [new.guid]
    assert [(past.guid, past.outcome) for past in await scene.history()] == [(old.claim.guid, Outcome.SUPERSEDED)]
    assert await scene.extend(old) is Extension.LOST


async def test_an_attempt_that_is_not_late_by_a_microsecond_blocks_and_stays(scene: Scene):
    old, new = await put_behind(scene, delay=LEASE - TICK)
    scene.clock.advance(LEASE - TICK)
    assert (await claim_next(scene)).attempts == []
    row = await scene.row(guid=new)
    assert (row["scheduled_at"], row["lane"]) == (scene.now + TICK, EVENT)
    assert await scene.extend(old) is Extension.EXTENDED
    assert await scene.history() == []


@pytest.mark.parametrize("by", ["claim", "move"])
async def test_who_is_blocked_holds_up_no_other_action(scene: Scene, by: str):
    if by == "claim":
        await put_behind(scene, delay=TICK)
        await scene.put_in_processing("b", lane=EVENT, delay=TICK)
        scene.clock.advance(TICK)
        claimed = await claim_next(scene)
    else:
        await scene.start()
        await scene.send([scene.new("a"), scene.new("b")])
        claimed = await scene.move(await scene.hold())
    assert (claimed.seen, ids(claimed.attempts)) == (2, ["b"])


async def test_who_waits_behind_an_attempt_that_is_given_back_waits_no_longer(scene: Scene):
    written_at = scene.now
    old, new = await put_behind(scene)
    assert (await scene.row(guid=new))["scheduled_at"] == old.claimed_at + LEASE
    scene.clock.advance(TICK)
    assert await scene.give_back(old) == 1
    assert (await scene.row(guid=new))["scheduled_at"] == written_at
    (attempt,) = (await claim_next(scene)).attempts
    assert attempt.claim.guid == new


async def test_a_late_attempt_at_the_live_version_does_not_go_with_that_at_an_older_one(scene: Scene):
    old, new = await put_behind(scene)
    await note_lapsed(scene, new)
    scene.clock.advance(LEASE)
    (attempt,) = (await claim_next(scene)).attempts
    assert (attempt.claim.guid, attempt.claim.attempt, attempt.interruptions) == (new, 2, 1)
    assert [row["action_guid"] for row in await scene.table("processing_queue")] == [new]
    assert {(past.guid, past.outcome) for past in await scene.history()} == {
        (old.claim.guid, Outcome.SUPERSEDED),
        (new, Outcome.INTERRUPTED),
    }


async def test_a_late_attempt_stays_as_long_as_there_is_no_room_for_the_next_version(scene: Scene):
    old, new = await put_behind(scene)
    await scene.put_in_processing("b", lane=EVENT, delay=TICK)
    scene.clock.advance(LEASE)
    hold = await scene.hold()
    assert ids((await scene.claim(hold, lane=EVENT, claim_limit=1)).attempts) == ["b"]
    assert await scene.history() == []
    assert await scene.extend(old) is Extension.EXTENDED
    assert (await scene.claim(hold, lane=EVENT)).attempts == []
    assert (await scene.row(guid=new))["scheduled_at"] == scene.now + LEASE


async def test_a_late_attempt_at_the_live_version_does_not_go_with_a_row_of_a_dead_one(scene: Scene):
    live = await scene.start()
    dead = await add_waiting(scene, due=LEASE)
    await scene.sql(
        "update matrixsched.processing_queue set lane = :lane where action_guid = :dead", lane=EVENT, dead=dead
    )
    scene.clock.advance(LEASE)
    claimed = await claim_next(scene)
    assert (claimed.seen, claimed.attempts) == (1, [])
    assert [row["action_guid"] for row in await scene.table("processing_queue")] == [live.claim.guid]
    assert await scene.extend(live) is Extension.EXTENDED


async def test_a_late_attempt_at_the_live_version_does_not_go_when_a_dead_one_is_moved(scene: Scene):
    live = await scene.start()
    await scene.sql(
        "insert into matrixsched.incoming_queue (shard_id, created_at, action_id, action_guid, scheduled_at, lane) "
        "values (0, :now, 'a', :dead, :now, '')",
        now=scene.now,
        dead=scene.guid(),
    )
    scene.clock.advance(LEASE)
    moved = await scene.move(await scene.hold())
    assert (moved.seen, moved.attempts) == (1, [])
    assert await scene.extend(live) is Extension.EXTENDED


async def test_a_late_attempt_stays_as_long_as_the_next_version_is_not_due(scene: Scene):
    old = await scene.start()
    scene.clock.advance(LEASE)
    await scene.schedule(delay=HOUR)
    assert (await scene.move(await scene.hold())).seen == 1
    assert await scene.history() == []
    assert await scene.extend(old) is Extension.EXTENDED


async def test_a_move_lets_late_attempts_at_several_older_versions_go(scene: Scene):
    await scene.start()
    await note_lapsed(scene, await add_waiting(scene, due=LEASE))
    scene.clock.advance(LEASE)
    new = await scene.schedule()
    assert [one.claim.guid for one in (await scene.move(await scene.hold())).attempts] == [new.guid]
    assert [row["action_guid"] for row in await scene.table("processing_queue")] == [new.guid]
    assert len(await scene.history()) == 2


async def test_of_two_late_attempts_in_one_lane_that_at_the_live_version_goes_on(scene: Scene):
    old = await scene.start()
    new = (await scene.schedule()).guid
    assert await scene.sync() == []
    await note_lapsed(scene, new)
    scene.clock.advance(LEASE)
    (attempt,) = (await scene.claim(await scene.hold())).attempts
    assert (attempt.claim.guid, attempt.claim.attempt, attempt.interruptions) == (new, 2, 1)
    assert [row["action_guid"] for row in await scene.table("processing_queue")] == [new]
    assert {(past.guid, past.outcome) for past in await scene.history()} == {
        (old.claim.guid, Outcome.SUPERSEDED),
        (new, Outcome.INTERRUPTED),
    }


@pytest.mark.parametrize("due", [-HOUR, HOUR])
async def test_a_version_that_only_waits_blocks_no_other(scene: Scene, due: timedelta):
    await scene.put_in_processing("a")
    await add_waiting(scene, due=due)
    (attempt,) = (await scene.claim(await scene.hold())).attempts
    assert attempt.claim.attempt == 1
    assert await scene.history() == []


@pytest.mark.parametrize("due", [-HOUR, HOUR])
async def test_a_version_that_only_waits_blocks_none_that_is_moved(scene: Scene, due: timedelta):
    await scene.schedule()
    await add_waiting(scene, due=due)
    (attempt,) = (await scene.move(await scene.hold())).attempts
    assert attempt.claim.attempt == 1
    assert await scene.history() == []


async def test_attempts_at_several_older_versions_block_until_the_last_of_them_is_over(scene: Scene):
    old, new = await put_behind(scene)
    older = await add_waiting(scene, due=LEASE / 2)
    await note_lapsed(scene, older)
    scene.clock.advance(LEASE / 2)
    await scene.sql(
        "update matrixsched.processing_queue set scheduled_at = :now where action_guid = :new", now=scene.now, new=new
    )
    assert (await claim_next(scene)).attempts == []
    assert (await scene.row(guid=new))["scheduled_at"] == old.claimed_at + LEASE
    assert {row["action_guid"] for row in await scene.table("processing_queue")} == {old.claim.guid, new}
    assert [past.guid for past in await scene.history()] == [older]


async def test_a_version_that_only_waits_is_no_attempt_that_ended(scene: Scene):
    old, new = await put_behind(scene)
    waiting = await add_waiting(scene, due=-HOUR)
    scene.clock.advance(LEASE)
    assert len((await claim_next(scene)).attempts) == 1
    assert {row["action_guid"] for row in await scene.table("processing_queue")} == {waiting, new}
    assert [past.guid for past in await scene.history()] == [old.claim.guid]


@pytest.mark.parametrize("by", ["claim", "move"])
async def test_the_end_of_an_attempt_that_was_remembered_before_is_so_once(scene: Scene, by: str):
    old = await scene.start()
    await scene.sql(
        """
        insert into matrixsched.attempt_history
               (shard_id, action_id, action_guid, attempt, tick, outcome, claimed_by, started_at, ended_at)
        values (0, 'a', :guid, 1, 0, 'interrupted', :guid, :now, :now)
        """,
        guid=old.claim.guid,
        now=scene.now,
    )
    if by == "claim":
        await scene.schedule(lane=EVENT)
        hold = await scene.hold()
        await scene.move(hold)
        await scene.release(hold)
        scene.clock.advance(LEASE)
        assert len((await claim_next(scene)).attempts) == 1
    else:
        scene.clock.advance(LEASE)
        await scene.schedule()
        assert len((await scene.move(await scene.hold())).attempts) == 1
    assert [(past.guid, past.outcome) for past in await scene.history()] == [(old.claim.guid, Outcome.INTERRUPTED)]
