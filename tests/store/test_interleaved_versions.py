"""A replaced action whose earlier version is still being run: one attempt of an action at a time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

import pytest
from support.interleaving import LEASE, Mutant, Taken, World, cured

from matrixsched.rules.action import EVENT, UNGATED, Attempt
from matrixsched.store.values import Answer, Extension, Holding, SweepPosition

pytestmark = pytest.mark.anyio

CLAIM_BLIND = Mutant("claim", "when r.scheduled_at is not null then 'blocked'", "when false then 'blocked'")
CLAIM_NEVER_BUSY = Mutant("claim", "when r.is_written then 'busy'", "")
CLAIM_SIBLING_UNLOCKED = Mutant("claim", "for update of s skip locked", "")
CLAIM_PUSHES_NOT = Mutant(
    "claim", "when 'blocked' then least(j.blocked_until,", "when 'blocked' then least(p.scheduled_at,"
)
MOVE_BLIND = Mutant("move", "when r.scheduled_at is not null then 'blocked'", "when false then 'blocked'")
MOVE_NEVER_BUSY = Mutant("move", "when r.is_written then 'busy'", "")
MOVE_SIBLING_UNLOCKED = Mutant("move", "for update of s skip locked", "")
UNBLOCKS_NOT = Mutant("unblock", "set scheduled_at = w.scheduled_at", "set scheduled_at = p.scheduled_at")
RECORD_WAITS_FOR_ROWS = Mutant("record", "for update of p skip locked", "for update of p")
SWEEP_BLIND = Mutant("sweep_dead", "(p.claimed_by is null or p.scheduled_at <= {now})", "true")


async def replaced_in_incoming(world: World) -> tuple[Attempt, UUID]:
    """An attempt under way, and the guid of the version that replaced its action and is due, in incoming."""
    (running,) = (await world.start_attempts("a")).values()
    (new,) = await world.schedule("a")
    return running, new.guid


async def replaced_in_processing(world: World) -> tuple[Attempt, UUID]:
    """As above, but the new version was moved before it came due, and the lease was extended beyond that."""
    (running,) = (await world.start_attempts("a")).values()
    (new,) = await world.schedule("a", at=world.now + LEASE / 2)
    holder = await world.acquire()
    await world.run(world.moving(holder))
    await world.release(holder)
    world.clock.advance(LEASE / 2)
    await world.run(world.extending(running))
    return running, new.guid


async def time_of(world: World, guid: UUID) -> timedelta:
    """How long from now a row is due; and it was never attempted."""
    row = await world.processing(guid)
    assert row is not None
    assert (row["attempt"], row["claimed_by"]) == (0, None)
    return row["scheduled_at"] - world.now


@cured(sibling_not_seen=[MOVE_BLIND, MOVE_NEVER_BUSY])
async def test_a_new_version_is_moved_to_the_end_of_the_lease_of_the_running_one(
    world: World, taken_out: Sequence[Taken]
) -> None:
    await world.take_out(taken_out)
    _, new = await replaced_in_incoming(world)
    moved = await world.run(world.moving(await world.acquire()))
    if taken_out:
        assert [one.claim.guid for one in moved.attempts] == [new]
    else:
        assert moved.attempts == []
        assert await time_of(world, new) == LEASE


@cured(sibling_not_seen=[CLAIM_BLIND, CLAIM_NEVER_BUSY])
async def test_a_new_version_is_pushed_to_the_end_of_the_lease_of_the_running_one(
    world: World, taken_out: Sequence[Taken]
) -> None:
    await world.take_out(taken_out)
    _, new = await replaced_in_processing(world)
    claimed = await world.run(world.claiming(await world.acquire()))
    if taken_out:
        assert [one.claim.guid for one in claimed.attempts] == [new]
    else:
        assert (claimed.seen, claimed.attempts) == (1, [])
        assert await time_of(world, new) == LEASE


@cured(not_pushed=[CLAIM_PUSHES_NOT])
async def test_a_blocked_version_does_not_make_idle_workers_take_the_shard_again(
    world: World, taken_out: Sequence[Taken]
) -> None:
    await world.take_out(taken_out)
    await replaced_in_processing(world)
    holder = await world.acquire()
    await world.run(world.claiming(holder))
    await world.release(holder)
    acquired = await world.run(world.acquiring(UUID(int=1)))
    assert (acquired.shard is not None) == bool(taken_out)


@cured(not_unblocked=[UNBLOCKS_NOT])
async def test_a_blocked_version_is_due_at_once_when_the_running_one_ends(
    world: World, taken_out: Sequence[Taken]
) -> None:
    await world.take_out(taken_out)
    running, new = await replaced_in_incoming(world)
    await world.run(world.moving(await world.acquire()))
    assert await world.run(world.recording(running)) == {running.claim.guid: Answer.SUPERSEDED}
    assert await time_of(world, new) == (LEASE if taken_out else timedelta(0))


@cured(never_busy=[CLAIM_NEVER_BUSY])
async def test_a_version_is_left_as_it_is_while_the_lease_of_the_running_one_is_being_extended(
    world: World, taken_out: Sequence[Taken]
) -> None:
    await world.take_out(taken_out)
    running, new = await replaced_in_processing(world)
    holder = await world.acquire()
    extending, answers = await world.open(world.extending(running))
    assert answers == {running.claim.guid: Extension.EXTENDED}
    claimed = await world.run(world.claiming(holder))
    await extending.commit()
    assert claimed.seen == 1
    if taken_out:
        assert [one.claim.guid for one in claimed.attempts] == [new]
    else:
        assert claimed.attempts == []
        assert await time_of(world, new) == timedelta(0)
        await world.run(world.claiming(holder))
        assert await time_of(world, new) == LEASE


@cured(never_busy=[MOVE_NEVER_BUSY])
async def test_a_version_is_moved_unclaimed_while_the_lease_of_the_running_one_is_being_extended(
    world: World, taken_out: Sequence[Taken]
) -> None:
    await world.take_out(taken_out)
    running, new = await replaced_in_incoming(world)
    holder = await world.acquire()
    extending, _ = await world.open(world.extending(running))
    moved = await world.run(world.moving(holder))
    await extending.commit()
    if taken_out:
        assert [one.claim.guid for one in moved.attempts] == [new]
    else:
        assert moved.attempts == []
        assert await time_of(world, new) == timedelta(0)


@cured(sibling_not_locked=[CLAIM_SIBLING_UNLOCKED])
async def test_a_claim_does_not_push_a_version_because_of_an_attempt_that_ended_after_its_snapshot(
    world: World, taken_out: Sequence[Taken]
) -> None:
    await world.take_out(taken_out)
    running, new = await replaced_in_processing(world)
    holder = await world.acquire()
    claiming = await world.paused(world.claiming(holder))
    await world.run(world.recording(running))
    await claiming.resume()
    assert (await claiming.answer()).attempts == []
    assert await time_of(world, new) == (LEASE if taken_out else timedelta(0))
    if not taken_out:
        assert [one.claim.guid for one in (await world.run(world.claiming(holder))).attempts] == [new]


@cured(sibling_not_locked=[MOVE_SIBLING_UNLOCKED])
async def test_a_move_does_not_push_a_version_because_of_an_attempt_that_ended_after_its_snapshot(
    world: World, taken_out: Sequence[Taken]
) -> None:
    await world.take_out(taken_out)
    running, new = await replaced_in_incoming(world)
    moving = await world.paused(world.moving(await world.acquire()))
    await world.run(world.recording(running))
    await moving.resume()
    assert (await moving.answer()).attempts == []
    assert await time_of(world, new) == (LEASE if taken_out else timedelta(0))


@cured(record_that_waits=[RECORD_WAITS_FOR_ROWS])
async def test_an_outcome_does_not_wait_for_a_move_that_puts_the_next_version_behind_it(
    world: World, taken_out: Sequence[Taken]
) -> None:
    await world.take_out(taken_out)
    running, new = await replaced_in_incoming(world)
    moving, _ = await world.open(world.moving(await world.acquire()))
    recording = await world.start(world.recording(running))
    if taken_out:
        await recording.waits()
    else:
        assert await recording.answer() == {running.claim.guid: Answer.BUSY}
    await moving.commit()
    await recording.outcome()
    await world.run(world.recording(running))
    assert await time_of(world, new) == timedelta(0)


async def test_an_outcome_does_not_wait_for_the_row_of_the_version_behind_it(world: World) -> None:
    running, new = await replaced_in_incoming(world)
    await world.run(world.moving(await world.acquire()))
    other = await world.session()
    await other.begin()
    await other.connection.execute("select from matrixsched.processing_queue where action_guid = $1 for update", new)
    assert await world.run(world.recording(running)) == {running.claim.guid: Answer.SUPERSEDED}
    await other.rollback()
    assert await time_of(world, new) == LEASE  # who had it in hand leaves it as it was


@pytest.mark.parametrize("by", ["claim", "move"])
async def test_who_takes_an_action_has_no_attempt_of_another_in_hand(world: World, by: str) -> None:
    (running,) = (await world.start_attempts("running")).values()
    await world.schedule("a")
    holder = await world.acquire()
    if by == "claim":
        await world.run(world.moving(holder, claim_limit=0))
    taking, claimed = await world.open(world.claiming(holder) if by == "claim" else world.moving(holder))
    assert [one.claim.action_id for one in claimed.attempts] == ["a"]
    assert await world.run(world.extending(running)) == {running.claim.guid: Extension.EXTENDED}
    await taking.commit()


@cured(not_unblocked=[UNBLOCKS_NOT])
@pytest.mark.parametrize("moved_before", [True, False])
async def test_a_version_is_due_at_once_when_it_was_put_off_after_the_snapshot_of_the_outcome(
    world: World, taken_out: Sequence[Taken], moved_before: bool
) -> None:
    """Also where its very row was written after that, and is not in the snapshot."""
    await world.take_out(taken_out)
    running, new = await (replaced_in_processing(world) if moved_before else replaced_in_incoming(world))
    recording = await world.paused(world.recording(running))
    holder = await world.acquire()
    await world.run(world.claiming(holder) if moved_before else world.moving(holder))
    assert await time_of(world, new) == LEASE
    await recording.resume()
    assert await recording.answer() == {running.claim.guid: Answer.SUPERSEDED}
    assert await time_of(world, new) == (LEASE if taken_out else timedelta(0))


@cured(
    late_row_stays=[Mutant("move", "union all select ctid from over", "")],
    late_row_is_not_looked_at=[Mutant("move", "s.claimed_by is not null and t.scheduled_at <= {now}", "false")],
)
async def test_a_lease_that_is_prolonged_too_late_is_lost_to_the_version_that_is_moved_meanwhile(
    world: World, taken_out: Sequence[Taken]
) -> None:
    await world.take_out(taken_out)
    running, new = await replaced_in_incoming(world)
    world.clock.advance(LEASE - timedelta.resolution)
    extending = await world.paused(world.extending(running))
    world.clock.advance(timedelta.resolution)
    moved = await world.run(world.moving(await world.acquire()))
    assert [one.claim.guid for one in moved.attempts] == [new]
    await extending.resume()
    answer = Extension.EXTENDED if taken_out else Extension.BUSY
    assert await extending.answer() == {running.claim.guid: answer}
    if not taken_out:
        assert await world.run(world.extending(running)) == {running.claim.guid: Extension.LOST}


@pytest.mark.parametrize("by", ["claim", "move"])
async def test_a_version_is_not_run_beside_an_attempt_whose_row_was_written_after_the_snapshot(
    world: World, by: str
) -> None:
    """Though its lease is over all the same: it was prolonged to the attempt's own end."""
    running, new = await (replaced_in_processing(world) if by == "claim" else replaced_in_incoming(world))
    # In another lane than the attempt, whose own row would be claimed else.
    await world.watcher.execute("update matrixsched.processing_queue set lane = $2 where action_guid = $1", new, EVENT)
    world.clock.advance(LEASE)
    holder = await world.acquire()
    taking = world.claiming(holder, lane=EVENT) if by == "claim" else world.moving(holder)
    paused = await world.paused(taking)
    extending = world.do.extend([Holding(running.claim, timedelta.resolution)], attempt_lease=LEASE)
    assert await world.run(extending) == {running.claim.guid: Extension.EXTENDED}
    await paused.resume()
    assert (await paused.answer()).attempts == []
    assert await world.rows("select from matrixsched.attempt_history") == []
    assert await world.run(world.recording(running)) == {running.claim.guid: Answer.SUPERSEDED}
    again = world.claiming(holder, lane=EVENT if by == "claim" else UNGATED)
    assert [one.claim.guid for one in (await world.run(again)).attempts] == [new]


async def test_a_version_is_not_run_while_the_lease_before_it_is_prolonged_in_the_last_moment(world: World) -> None:
    running, new = await replaced_in_processing(world)
    world.clock.advance(LEASE - timedelta.resolution)
    extending, _ = await world.open(world.extending(running))
    world.clock.advance(timedelta.resolution)
    holder = await world.acquire()
    assert (await world.run(world.claiming(holder))).attempts == []
    await extending.commit()
    assert (await world.run(world.claiming(holder))).attempts == []
    assert await time_of(world, new) == LEASE - timedelta.resolution


@cured(running_rows_swept=[SWEEP_BLIND])
async def test_the_sweeper_leaves_a_superseded_attempt_that_is_still_running(
    world: World, taken_out: Sequence[Taken]
) -> None:
    await world.take_out(taken_out)
    running, new = await replaced_in_processing(world)
    swept = await world.run(world.do.sweep_dead(SweepPosition(), limit=100, reach=LEASE))
    assert swept.gone == (1 if taken_out else 0)
    claimed = await world.run(world.claiming(await world.acquire()))
    # Without its row nobody knows of the attempt under way, and a second one begins beside it.
    assert [one.claim.guid for one in claimed.attempts] == ([new] if taken_out else [])
