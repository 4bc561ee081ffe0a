"""Move and claim against takeovers, heartbeats, cancels and their own late twins."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID, uuid4

import pytest
from support.interleaving import LEASE, Ddl, Mutant, StatementGoesOn, StatementWaits, Taken, World, cured

from matrixsched.rules.action import UNGATED

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)

NO_UNIQUE = Ddl("alter table matrixsched.shard_locks drop constraint shard_locks_last_lock_guid_key")
PARTIAL_UNIQUE = Ddl("create unique index on matrixsched.shard_locks (last_lock_guid) where locked")
NO_KEY = Ddl("alter table matrixsched.processing_queue drop constraint processing_queue_pkey")
PLAIN_TAKEOVER = Mutant("acquire_shard", "for update of l skip locked", "")

MOVE_NO_FENCE_LOCK = Mutant("move", "for key share skip locked", "")
MOVE_FENCE_WAITS = Mutant("move", "for key share skip locked", "for key share")
MOVE_FENCE_SHARE = Mutant("move", "for key share skip locked", "for share skip locked")
MOVE_NO_ROW_LOCK = Mutant("move", "end for update skip locked", "end")
MOVE_NO_CONFLICT = Mutant("move", "on conflict (shard_id, action_id, action_guid) do nothing", "")
MOVE_WAITS_FOR_OUTDATED = Mutant("move", "for update of p skip locked", "for update of p")

TAKE_LOCK = "/* pause point: move_take */ for update skip locked"
TAKE_NO_LOCK = Mutant("move", TAKE_LOCK, "/* pause point: move_take */")
TAKE_WAITS = Mutant("move", TAKE_LOCK, "/* pause point: move_take */ for update")
TAKEN_UNSEEN = Mutant("close_fence", "or not locked", "")
TAKE_WHATEVER_HAPPENED = Mutant("move", "and l.last_lock_guid = (select last_lock_guid from seen)", "")

CLAIM_NO_FENCE_LOCK = Mutant("claim", "for key share skip locked", "")
CLAIM_FENCE_WAITS = Mutant("claim", "for key share skip locked", "for key share")
CLAIM_FENCE_SHARE = Mutant("claim", "for key share skip locked", "for share skip locked")
CLAIM_NO_ROW_LOCK = Mutant("claim", "for update skip locked", "")


async def moved_by(world: World) -> UUID | None:
    found = await world.rows("select moved_by from matrixsched.processing_queue")
    return found[0]["moved_by"] if found else None


async def waiting_in_processing(world: World, id: str = "a") -> UUID:
    """An action that has come due in processing, unclaimed; the guid under which the shard is held."""
    await world.schedule(id)
    holder = await world.acquire()
    await world.run(world.moving(holder, claim_limit=0))
    return holder


# The fence.


@cured(no_lock_clause=[MOVE_NO_FENCE_LOCK])
async def test_a_move_writes_nothing_after_a_takeover_that_its_snapshot_does_not_show(
    world: World, taken_out: Sequence[Taken]
) -> None:
    await world.take_out(taken_out)
    await world.schedule("a")
    zombie = await world.acquire()
    held = await world.paused(world.moving(zombie))
    world.clock.advance(LEASE * 2)
    await world.acquire()
    await held.resume()
    moved = await held.answer()
    assert moved.seen == (1 if taken_out else 0)
    assert await moved_by(world) == (zombie if taken_out else None)


@cured(no_lock_clause=[CLAIM_NO_FENCE_LOCK])
async def test_a_claim_writes_nothing_after_a_takeover_that_its_snapshot_does_not_show(
    world: World, taken_out: Sequence[Taken]
) -> None:
    await world.take_out(taken_out)
    zombie = await waiting_in_processing(world)
    held = await world.paused(world.claiming(zombie))
    world.clock.advance(LEASE * 2)
    await world.acquire()
    await held.resume()
    claimed = await held.answer()
    assert (claimed.seen, len(claimed.attempts)) == ((1, 1) if taken_out else (0, 0))


@cured(
    no_lock_clause=[MOVE_NO_FENCE_LOCK],
    no_unique_guid_and_plain_takeover=[NO_UNIQUE, PLAIN_TAKEOVER],
    partial_unique_guid_and_plain_takeover=[NO_UNIQUE, PARTIAL_UNIQUE, PLAIN_TAKEOVER],
)
async def test_a_shard_is_not_taken_over_while_its_holder_writes(world: World, taken_out: Sequence[Taken]) -> None:
    await world.take_out(taken_out)
    await world.schedule("a")
    holder = await world.acquire()
    writing, moved = await world.open(world.moving(holder))
    world.clock.advance(LEASE * 2)
    taken_over = await world.run(world.acquiring(UUID(int=1)))
    assert moved.seen == 1
    assert (taken_over.shard is not None) == bool(taken_out)
    await writing.commit()


@pytest.mark.undistributed("its walls are named as in sql/postgresql/ and in the migrations")
@pytest.mark.parametrize("wall", [[NO_UNIQUE], [NO_UNIQUE, PARTIAL_UNIQUE], [PLAIN_TAKEOVER]], ids=str)
async def test_either_wall_alone_keeps_a_takeover_out(world: World, wall: Sequence[Taken]) -> None:
    """The takeover's own row lock and the unique guid: with one of them a takeover does not pass a fence."""
    await world.take_out(wall)
    await world.schedule("a")
    writing, _ = await world.open(world.moving(await world.acquire()))
    world.clock.advance(LEASE * 2)
    takeover = await world.start(world.acquiring(UUID(int=1)))
    try:
        await takeover.waits()
    except StatementGoesOn:
        assert (await takeover.outcome()).shard is None
    await writing.commit()


@cured(
    no_unique_guid_and_plain_takeover=[NO_UNIQUE, PLAIN_TAKEOVER],
    partial_unique_guid_and_plain_takeover=[NO_UNIQUE, PARTIAL_UNIQUE, PLAIN_TAKEOVER],
)
async def test_a_zombie_writes_nothing_while_a_takeover_is_under_way(world: World, taken_out: Sequence[Taken]) -> None:
    await world.take_out(taken_out)
    await world.schedule("a")
    zombie = await world.acquire()
    world.clock.advance(LEASE * 2)
    taking_over, _ = await world.open(world.acquiring(UUID(int=1)))
    moved = await world.run(world.moving(zombie))
    assert moved.seen == (1 if taken_out else 0)
    await taking_over.commit()


@cured(a_release_instead=[Mutant("close_fence", ", last_lock_guid = cast(:fresh_guid as uuid)", "")])
async def test_a_fence_is_closed_only_when_nothing_is_under_way_behind_it(
    world: World, taken_out: Sequence[Taken]
) -> None:
    """So that whoever looks for what was claimed without an answer finds all of it."""
    await world.take_out(taken_out)
    await world.schedule("a")
    holder = await world.acquire()
    writing, _ = await world.open(world.moving(holder))
    closing = await world.start(world.do.close_fence(0, holder, UUID(int=1)))
    if taken_out:
        with pytest.raises(StatementGoesOn):
            await closing.waits()
    else:
        await closing.waits()
    await writing.commit()
    assert await closing.outcome()
    claimed = await world.run(world.do.claimed_by(0, holder, lanes=[UNGATED], attempt_lease=LEASE))
    assert [attempt.claim.action_id for attempt in claimed] == ["a"]


@cured(no_lock_clause=[MOVE_NO_FENCE_LOCK])
async def test_nothing_is_moved_once_the_fence_is_closed_that_its_snapshot_shows_open(
    world: World, taken_out: Sequence[Taken]
) -> None:
    await world.take_out(taken_out)
    await world.schedule("a")
    holder = await world.acquire()
    held = await world.paused(world.moving(holder))
    assert await world.run(world.do.close_fence(0, holder, UUID(int=1)))
    await held.resume()
    assert (await held.answer()).seen == (1 if taken_out else 0)


async def test_a_fence_that_is_closed_twice_leaves_the_next_holder_alone(world: World) -> None:
    await world.schedule("a")
    holder = await world.acquire()
    assert await world.run(world.do.close_fence(0, holder, UUID(int=1)))
    heir = await world.acquire()
    assert not await world.run(world.do.close_fence(0, holder, UUID(int=1)))
    assert (await world.run(world.moving(heir))).seen == 1


@cured(fence_that_beats_conflict_with=[MOVE_FENCE_SHARE, CLAIM_FENCE_SHARE])
async def test_a_heartbeat_under_way_does_not_keep_the_holder_from_its_work(
    world: World, taken_out: Sequence[Taken]
) -> None:
    await world.take_out(taken_out)
    holder = await waiting_in_processing(world, "a")
    await world.schedule("b")
    beating, held = await world.open(world.do.beat_shard(0, holder))
    assert held
    seen = (await world.run(world.claiming(holder))).seen + (await world.run(world.moving(holder))).seen
    assert seen == (0 if taken_out else 2)
    await beating.commit()


async def test_heartbeats_pass_a_fence(world: World) -> None:
    await world.schedule("a")
    holder = await world.acquire()
    writing, _ = await world.open(world.moving(holder))
    assert await world.run(world.do.beat_shard(0, holder))
    await writing.commit()


@cured(fence_that_waits=[CLAIM_FENCE_WAITS])
async def test_a_claim_never_hands_out_what_was_cancelled_while_its_fence_waited(
    world: World, taken_out: Sequence[Taken]
) -> None:
    await world.take_out(taken_out)
    holder = await waiting_in_processing(world)
    operator = await world.session()
    await operator.begin()
    await operator.connection.execute("select from matrixsched.shard_locks for update")
    claiming = await world.start(world.claiming(holder))
    if taken_out:
        await claiming.waits()
    else:
        await claiming.answer()
    assert await world.run(world.cancelling("a"))
    await operator.rollback()
    assert len((await claiming.outcome()).attempts) == (1 if taken_out else 0)


@cured(fence_that_waits=[MOVE_FENCE_WAITS])
async def test_a_move_never_hands_out_what_was_cancelled_while_its_fence_waited(
    world: World, taken_out: Sequence[Taken]
) -> None:
    await world.take_out(taken_out)
    await world.schedule("a")
    holder = await world.acquire()
    world.clock.advance(LEASE * 2)
    taking_over, _ = await world.open(world.acquiring(UUID(int=1)))
    moving = await world.start(world.moving(holder))
    if taken_out:
        await moving.waits()
    else:
        await moving.answer()
    assert await world.run(world.cancelling("a"))
    await taking_over.rollback()
    assert len((await moving.outcome()).attempts) == (1 if taken_out else 0)


# Moves that take their shards.


@cured(whatever_happened_since=[TAKE_WHATEVER_HAPPENED])
async def test_a_shard_is_not_taken_that_was_held_since_the_snapshot(world: World, taken_out: Sequence[Taken]) -> None:
    """Free when the move began, taken, and let go again: what was done under it is not in the snapshot."""
    await world.take_out(taken_out)
    await world.schedule("a")
    late = await world.paused(world.moving(uuid4(), taking=True))
    await world.release(await world.acquire())
    await late.resume()
    assert (await late.answer()).took_shard == bool(taken_out)


async def test_a_shard_is_not_taken_that_was_held_in_the_snapshot(world: World) -> None:
    await world.schedule("a")
    holder = await world.acquire()
    late = await world.paused(world.moving(uuid4(), taking=True))
    await world.release(holder)
    await late.resume()
    assert not (await late.answer()).took_shard


@cured(no_lock=[TAKE_NO_LOCK])
async def test_of_two_moves_that_take_a_shard_one_does(world: World, taken_out: Sequence[Taken]) -> None:
    await world.take_out(taken_out)
    await world.schedule("a")
    first, taken = await world.open(world.moving(uuid4(), taking=True))
    second = await world.start(world.moving(uuid4(), taking=True))
    if taken_out:
        await second.waits()
    else:
        assert not (await second.answer()).took_shard
    await first.commit()
    assert taken.took_shard
    await second.outcome()


@cured(waits=[TAKE_WAITS])
async def test_a_move_does_not_wait_for_who_takes_the_shard(world: World, taken_out: Sequence[Taken]) -> None:
    await world.take_out(taken_out)
    await world.schedule("a")
    other, _ = await world.open(world.acquiring(uuid4()))
    late = await world.start(world.moving(uuid4(), taking=True))
    if taken_out:
        await late.waits()
    else:
        assert not (await late.answer()).took_shard
    await other.rollback()
    await late.outcome()


@cured(only_under_its_guid=[TAKEN_UNSEEN])
async def test_a_fence_is_closed_only_when_no_move_is_under_way_that_takes_the_shard(
    world: World, taken_out: Sequence[Taken]
) -> None:
    await world.take_out(taken_out)
    await world.schedule("a")
    guid = uuid4()
    writing, moved = await world.open(world.moving(guid, taking=True))
    assert moved.took_shard
    closing = await world.start(world.do.close_fence(0, guid, uuid4()))
    if taken_out:
        with pytest.raises(StatementGoesOn):
            await closing.waits()
    else:
        await closing.waits()
    await writing.commit()
    assert await closing.outcome() == (not taken_out)


@cured(only_under_its_guid=[TAKEN_UNSEEN])
async def test_a_move_takes_no_shard_whose_fence_was_closed_since_its_snapshot(
    world: World, taken_out: Sequence[Taken]
) -> None:
    await world.take_out(taken_out)
    await world.schedule("a")
    guid = uuid4()
    late = await world.paused(world.moving(guid, taking=True))
    await world.run(world.do.close_fence(0, guid, uuid4()))
    await late.resume()
    assert (await late.answer()).took_shard == bool(taken_out)


# The holder's own late twin.


@cured(no_row_lock=[MOVE_NO_ROW_LOCK])
async def test_a_late_twin_of_a_move_hands_nothing_out_again(world: World, taken_out: Sequence[Taken]) -> None:
    """The row was moved, run and recorded between the twin's snapshot and its locks."""
    await world.take_out(taken_out)
    await world.schedule("a")
    holder = await world.acquire()
    twin = await world.paused(world.moving(holder))
    (attempt,) = (await world.run(world.moving(holder))).attempts
    await world.run(world.recording(attempt))
    await twin.resume()
    assert len((await twin.answer()).attempts) == (1 if taken_out else 0)


@cured(no_row_lock_and_no_key=[MOVE_NO_ROW_LOCK, MOVE_NO_CONFLICT, NO_KEY])
async def test_a_twin_of_a_move_that_is_still_running_moves_nothing(world: World, taken_out: Sequence[Taken]) -> None:
    await world.take_out(taken_out)
    await world.schedule("a")
    holder = await world.acquire()
    first, moved = await world.open(world.moving(holder))
    twin = await world.start(world.moving(holder))
    if taken_out:
        await twin.waits()
        world.wrong = {"a": 2}
    else:
        assert (await twin.answer()).seen == 0
    await first.commit()
    assert len(moved.attempts) + len((await twin.outcome()).attempts) == (2 if taken_out else 1)


async def test_the_key_alone_keeps_a_twin_of_a_move_from_a_second_row(world: World) -> None:
    await world.take_out([MOVE_NO_ROW_LOCK])
    await world.schedule("a")
    holder = await world.acquire()
    first, _ = await world.open(world.moving(holder))
    twin = await world.start(world.moving(holder))
    await twin.waits()
    await first.commit()
    assert (await twin.outcome()).attempts == []


@cured(no_row_lock=[CLAIM_NO_ROW_LOCK])
async def test_a_late_twin_of_a_claim_hands_nothing_out_again(world: World, taken_out: Sequence[Taken]) -> None:
    await world.take_out(taken_out)
    holder = await waiting_in_processing(world)
    twin = await world.paused(world.claiming(holder))
    assert len((await world.run(world.claiming(holder))).attempts) == 1
    await twin.resume()
    assert len((await twin.answer()).attempts) == (1 if taken_out else 0)


@cured(no_row_lock=[CLAIM_NO_ROW_LOCK])
async def test_a_twin_of_a_claim_that_is_still_running_hands_nothing_out(
    world: World, taken_out: Sequence[Taken]
) -> None:
    await world.take_out(taken_out)
    holder = await waiting_in_processing(world)
    first, claimed = await world.open(world.claiming(holder))
    twin = await world.start(world.claiming(holder))
    if taken_out:
        await twin.waits()
    else:
        assert (await twin.answer()).seen == 0
    await first.commit()
    attempts = [*claimed.attempts, *(await twin.outcome()).attempts]
    assert [attempt.claim.attempt for attempt in attempts] == ([1, 2] if taken_out else [1])


# Earlier versions.


async def two_versions(world: World) -> tuple[UUID, UUID, UUID]:
    """An action due in an hour whose first version waits in processing, and whose second is new.

    Under which guid the shard is held, and the guids of both.
    """
    (first,) = await world.schedule("a", at=world.now + HOUR)
    holder = await world.acquire()
    await world.run(world.moving(holder))
    (second,) = await world.schedule("a", at=world.now + HOUR)
    return holder, first.guid, second.guid


async def test_a_move_drops_what_is_outdated_although_a_user_replaces_the_action_meanwhile(world: World) -> None:
    holder, first, second = await two_versions(world)
    held = await world.paused(world.moving(holder))
    (third,) = await world.schedule("a", at=world.now + HOUR)
    await held.resume()
    assert (await held.answer()).seen == 1
    assert (await world.processing(first), await world.processing(third.guid)) == (None, None)
    assert (await world.run(world.moving(holder))).seen == 1
    assert await world.processing(second) is None
    assert await world.processing(third.guid) is not None


@cured(waits=[MOVE_WAITS_FOR_OUTDATED])
async def test_a_move_does_not_wait_for_who_writes_an_outdated_version(
    world: World, taken_out: Sequence[Taken]
) -> None:
    await world.take_out(taken_out)
    holder, first, second = await two_versions(world)
    other = await world.session()
    await other.begin()
    await other.connection.execute("select from matrixsched.processing_queue where action_guid = $1 for update", first)
    if taken_out:
        with pytest.raises(StatementWaits):
            await world.run(world.moving(holder))
        await other.commit()
        return
    assert (await world.run(world.moving(holder))).seen == 1
    await other.commit()
    assert await world.processing(first) is not None, "it is left to the sweep"
    assert await world.processing(second) is not None
