"""Changes that are called off while a try of them is under way."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest
from support.interleaving import Mutant, Taken, World, cured

from matrixsched.store.transition import Transition
from matrixsched.store.values import Change

pytestmark = pytest.mark.anyio

WRITTEN = "from written w where w.action_guid <> cast(:request_guid as uuid)"
FORGIVING = [Mutant(name, WRITTEN, f"{WRITTEN} on conflict do nothing") for name in ("reschedule", "cancel")]
UNFENCED = [
    Mutant(
        name,
        "where not exists (select from matrixsched.requests r where r.request_guid = cast(:action_guid as uuid))",
        "",
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
