"""How long what users write waits for others: as they say, else as their transaction says."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from support.interleaving import Mutant, Taken, World, an_action

from matrixsched.store.transition import Transition
from matrixsched.store.values import Change

pytestmark = pytest.mark.anyio

WRITES = ("schedule", "replace_expected", "reschedule", "cancel")


def writing(world: World, how: str, guid: Any, lock_timeout: timedelta | None) -> Transition[Any]:
    new, request = an_action(world.clock.now()), uuid4()
    change = Change(shard=0, id="a", guid=new.guid, request_guid=request, expected_guid=None, at=world.clock.now())
    match how:
        case "schedule":
            return world.do.schedule([new], request, replace=True, lock_timeout=lock_timeout, tell=False)
        case "replace_expected":
            return world.do.replace_expected(new, request, guid, lock_timeout=lock_timeout, tell=False)
        case "reschedule":
            return world.do.reschedule(change, revive=False, lock_timeout=lock_timeout, tell=False)
        case _:
            return world.do.cancel(change, lock_timeout=lock_timeout)


async def patience_after(world: World, how: str, lock_timeout: timedelta | None) -> str:
    """Of a user's transaction, once it has written."""
    old = an_action(world.clock.now())
    await world.run(world.do.schedule([old], uuid4(), replace=True, lock_timeout=None, tell=False))
    session = await world.session()
    await session.begin()
    await session.connection.execute("set local lock_timeout = '4321ms'")
    assert await session.run(writing(world, how, old.guid, lock_timeout))
    said: str = await session.connection.fetchval("show lock_timeout")
    await session.rollback()
    return said


def with_cure_and_without(old: str, new: str) -> pytest.MarkDecorator:
    of_a_text = pytest.mark.undistributed("how long to wait is said by a statement of its own")
    without = [pytest.param(how, (Mutant(how, old, new),), marks=of_a_text) for how in WRITES]
    return pytest.mark.parametrize(("how", "taken_out"), [*((how, ()) for how in WRITES), *without])


@with_cure_and_without("where cast(:lock_timeout as text) is not null", "where true")
async def test_who_says_nothing_waits_as_long_as_his_transaction_does(
    world: World, how: str, taken_out: Sequence[Taken]
):
    await world.take_out(taken_out)
    assert (await patience_after(world, how, None) == "4321ms") == (not taken_out)


@with_cure_and_without("(select count(*) from patience) >= 0", "true")
async def test_who_says_how_long_waits_that_long(world: World, how: str, taken_out: Sequence[Taken]):
    await world.take_out(taken_out)
    said = await patience_after(world, how, timedelta(milliseconds=1234))
    assert said == ("4321ms" if taken_out else "1234ms")
