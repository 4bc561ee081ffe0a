"""Changes that are called off while a try of them is under way, and those of what was seen before."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest
from support.interleaving import Mutant, Session, Taken, World, cured

from matrixsched.rules.action import State
from matrixsched.store.transition import Transition
from matrixsched.store.values import Change, NewAction, Seen

pytestmark = pytest.mark.anyio

WRITTEN = "from written w where w.action_guid <> cast(:request_guid as uuid)"
FORGIVING = [Mutant(name, WRITTEN, f"{WRITTEN} on conflict do nothing") for name in ("reschedule", "cancel")]
UNFENCED = [
    Mutant(
        name,
        "where not exists (select from matrixsched.requests r where r.request_guid = cast(:action_guid as uuid))",
        "where true",
    )
    for name in ("reschedule", "cancel")
]
CHANGES = pytest.mark.parametrize("change", ["reschedule", "cancel"])
NAMES = pytest.mark.parametrize("is_named", [False, True], ids=["unnamed", "named"])


def changing(world: World, change: str, guid: UUID, *, is_named: bool) -> Transition[Any]:
    request = uuid4() if is_named else guid
    wanted = Change(shard=0, id="a", guid=guid, request_guid=request, expected_guid=None, delay=timedelta(hours=1))
    return world.do.cancel(wanted) if change == "cancel" else world.do.reschedule(wanted, revive=False, tell=False)


@CHANGES
@cured(a_guid_that_is_there_is_no_error=FORGIVING)
async def test_a_named_change_that_is_called_off_before_it_has_its_lock_fails_as_a_whole(
    world: World, change: str, taken_out: Sequence[Taken]
) -> None:
    await world.take_out(taken_out)
    (action,) = await world.schedule("a")
    late = await world.paused(changing(world, change, guid := uuid4(), is_named=True))
    await world.run(world.do.call_off(0, guid))
    await late.resume()
    if taken_out:
        assert await late.outcome() is not None
    else:
        with pytest.raises(asyncpg.UniqueViolationError):
            await late.outcome()
    assert await written(world) == (guid if taken_out else action.guid)
    assert await world.run(world.do.carried_out([guid])) == set()


@CHANGES
async def test_a_change_that_is_called_off_before_it_has_its_lock_writes_nothing(world: World, change: str) -> None:
    (action,) = await world.schedule("a")
    late = await world.paused(changing(world, change, guid := uuid4(), is_named=False))
    await world.run(world.do.call_off(0, guid))
    await late.resume()
    assert await late.outcome() is None
    assert await written(world) == action.guid
    assert await world.run(world.do.carried_out([guid])) == set()


@CHANGES
@cured(whatever_was_called_off=UNFENCED)
async def test_a_named_change_that_was_called_off_writes_nothing(
    world: World, change: str, taken_out: Sequence[Taken]
) -> None:
    await world.take_out(taken_out)
    (action,) = await world.schedule("a")
    await world.run(world.do.call_off(0, guid := uuid4()))
    sending = changing(world, change, guid, is_named=True)
    if taken_out:
        with pytest.raises(asyncpg.UniqueViolationError):
            await world.run(sending)
    else:
        assert await world.run(sending) is None
    assert await written(world) == action.guid


@NAMES
@CHANGES
@pytest.mark.parametrize("end", ["commit", "rollback"])
async def test_calling_off_waits_for_a_change_that_is_under_way(
    world: World, change: str, is_named: bool, end: str
) -> None:
    (action,) = await world.schedule("a")
    first, _ = await world.open(changing(world, change, guid := uuid4(), is_named=is_named))
    calling_off = await world.start(world.do.call_off(0, guid))
    await calling_off.waits()
    await getattr(first, end)()
    await calling_off.outcome()
    is_done = end == "commit"
    assert await written(world) == (guid if is_done else action.guid)
    assert await world.run(world.do.carried_out([guid])) == ({guid} if is_done else set())
    assert await world.run(changing(world, change, guid, is_named=is_named)) is None


@NAMES
@CHANGES
async def test_what_has_taken_effect_is_not_called_off_any_more(world: World, change: str, is_named: bool) -> None:
    await world.schedule("a")
    await world.run(changing(world, change, guid := uuid4(), is_named=is_named))
    for _ in range(2):
        await world.run(world.do.call_off(0, guid))
        assert await world.run(world.do.carried_out([guid])) == {guid}


async def written(world: World) -> UUID:
    (row,) = await world.rows("select action_guid from matrixsched.scheduled_actions")
    guid: UUID = row["action_guid"]
    return guid


# What is run now as it was seen.

ROW_KEPT = Mutant("reschedule", "where ctid = any (array(select ctid from waiting)) and", "where false and")
NEW_ROW_KEPT = Mutant("reschedule", "where ctid = any (array(select ctid from incoming)) and", "where false and")
ROW_UNLOCKED = Mutant(
    "reschedule", "and (p.claimed_by is null or p.scheduled_at <= {now}) for update of p skip locked", ""
)
NEW_ROW_UNLOCKED = Mutant("reschedule", "for update of i skip locked", "")
WHATEVER_BECAME_OF_IT = Mutant("reschedule", "and p.ctid = s.place", "")


def running_as_seen(world: World, action: NewAction) -> Transition[Any]:
    seen = Seen(State.LIVE, None)
    change = Change(shard=0, id="a", guid=(guid := uuid4()), request_guid=guid, expected_guid=action.guid, seen=seen)
    return world.do.reschedule(change, revive=True, tell=False)


async def check_that_it_is_refused_at_once(
    world: World, action: NewAction, holder: Session, *, is_locked: bool
) -> None:
    """While somebody has the row in hand; if that is not looked at, it waits, and runs the action once more."""
    run = await world.start(running_as_seen(world, action))
    if is_locked:
        assert await run.answer() is None
    else:
        await run.waits()
    await holder.commit()
    assert (await run.outcome() is None) == is_locked


@cured(the_row_is_not_locked=[ROW_UNLOCKED])
async def test_what_a_claim_has_in_hand_is_not_run_once_more(world: World, taken_out: Sequence[Taken]) -> None:
    await world.take_out(taken_out)
    (action,) = await world.schedule("a")
    holder = await world.acquire()
    await world.run(world.moving(holder, claim_limit=0))
    claiming, claimed = await world.open(world.claiming(holder))
    assert len(claimed.attempts) == 1
    await check_that_it_is_refused_at_once(world, action, claiming, is_locked=not taken_out)


@cured(the_row_is_not_locked=[NEW_ROW_UNLOCKED])
async def test_what_a_move_has_in_hand_is_not_run_once_more(world: World, taken_out: Sequence[Taken]) -> None:
    await world.take_out(taken_out)
    (action,) = await world.schedule("a")
    moving, moved = await world.open(world.moving(await world.acquire()))
    assert len(moved.attempts) == 1
    await check_that_it_is_refused_at_once(world, action, moving, is_locked=not taken_out)


@cured(its_row_is_left=[ROW_KEPT])
async def test_a_claim_with_an_older_snapshot_does_not_start_what_was_run_as_seen(
    world: World, taken_out: Sequence[Taken]
) -> None:
    await world.take_out(taken_out)
    (action,) = await world.schedule("a")
    holder = await world.acquire()
    await world.run(world.moving(holder, claim_limit=0))
    claim = await world.paused(world.claiming(holder))
    assert await world.run(running_as_seen(world, action)) is not None
    await claim.resume()
    assert len((await claim.answer()).attempts) == (1 if taken_out else 0)


@cured(its_row_is_left=[NEW_ROW_KEPT])
async def test_a_move_with_an_older_snapshot_does_not_start_what_was_run_as_seen(
    world: World, taken_out: Sequence[Taken]
) -> None:
    await world.take_out(taken_out)
    (action,) = await world.schedule("a")
    move = await world.paused(world.moving(await world.acquire()))
    assert await world.run(running_as_seen(world, action)) is not None
    await move.resume()
    assert len((await move.answer()).attempts) == (1 if taken_out else 0)


@cured(whatever_became_of_it=[WHATEVER_BECAME_OF_IT])
async def test_a_row_that_was_changed_since_the_snapshot_is_left_to_who_finds_it(
    world: World, taken_out: Sequence[Taken]
) -> None:
    """It could not be taken away: whoever sees it as it is now, and its action as it was, would start it as well."""
    await world.take_out(taken_out)
    (action,) = await world.schedule("a")
    holder = await world.acquire()
    await world.run(world.moving(holder, claim_limit=0))
    run = await world.paused(running_as_seen(world, action))
    await world.rows("update matrixsched.processing_queue set rescheduled_at = now()")
    await run.resume()
    assert (await run.answer() is None) == (not taken_out)
