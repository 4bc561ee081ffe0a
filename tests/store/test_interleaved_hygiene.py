"""Expiry and chores against users, claims and their like."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

import pytest
from support.interleaving import LEASE, Mutant, StatementWaits, Taken, World, cured

from matrixsched.store.chores import TIDY
from matrixsched.store.transition import Transition
from matrixsched.store.values import Answer, Expiry, NewAction, TidyPosition

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)
NOTHING = Expiry(0, 0, 0)

EXPIRE_WAITS_FOR_USERS = Mutant("expire_waiting", "for no key update of a skip locked", "for no key update of a")
EXPIRE_BLIND = Mutant(
    "expire_waiting",
    "and p.expires_at <= {now} and (p.claimed_by is null or p.scheduled_at <= {now}) for update of p",
    "for update of p",
)
EXPIRE_BY_KEY = Mutant(
    "expire_waiting",
    "where ctid = any (array(select ctid from held))",
    "where action_guid in (select action_guid from late) and exists (select from held)",
)
TAKE_WITHOUT_LOCK = Mutant("take_chore", "for update skip locked", "")


async def waiting(world: World, *ids: str) -> list[NewAction]:
    """Actions that are due in an hour and expire before that; the clock stands at their expiry."""
    batch = [world.an_action(id, at=world.now + HOUR)._replace(expires_at=world.now + LEASE) for id in ids]
    await world.run(world.scheduling(*batch))
    guid = await world.acquire()
    await world.run(world.moving(guid))
    await world.release(guid)
    world.clock.advance(LEASE)
    return batch


def expiring(world: World) -> Transition[Expiry]:
    return world.do.expire_waiting(limit=100)


async def test_an_action_that_is_replaced_while_it_expires_stays(world: World) -> None:
    await waiting(world, "a", "b")
    held = await world.paused(expiring(world))
    await world.schedule("a", at=world.now + HOUR)
    await held.resume()
    assert await held.answer() == Expiry(2, 1, 1)
    assert (await world.state("a"), await world.state("b")) == ("live", "expired")
    assert await world.run(expiring(world)) == Expiry(1, 1, 0)


@cured(waits=[EXPIRE_WAITS_FOR_USERS])
async def test_expiry_does_not_wait_for_a_user_who_replaces(world: World, taken_out: Sequence[Taken]) -> None:
    await world.take_out(taken_out)
    await waiting(world, "a", "b")
    user, _ = await world.open(world.scheduling(world.an_action("a", at=world.now + HOUR)))
    if taken_out:
        with pytest.raises(StatementWaits):
            await world.run(expiring(world))
        await user.commit()
        return
    assert await world.run(expiring(world)) == Expiry(2, 1, 1)
    await user.rollback()
    assert await world.run(expiring(world)) == Expiry(1, 1, 1)
    assert await world.state("a") == "expired"


async def test_a_user_who_replaces_waits_for_expiry_no_longer_than_its_statement(world: World) -> None:
    await waiting(world, "a")
    worker, expired = await world.open(expiring(world))
    replacing = await world.start(world.scheduling(world.an_action("a", at=world.now + HOUR)))
    await replacing.waits()
    await worker.commit()
    assert (expired.expired, len(await replacing.outcome())) == (1, 1)
    assert await world.state("a") == "live"


@cured(row_not_looked_at_again=[EXPIRE_BLIND, EXPIRE_BY_KEY])
async def test_what_is_claimed_meanwhile_does_not_expire(world: World, taken_out: Sequence[Taken]) -> None:
    await world.take_out(taken_out)
    await waiting(world, "a")
    await world.rows("update matrixsched.processing_queue set scheduled_at = $1", world.now)
    held = await world.paused(expiring(world))
    attempt = (await world.take())["a"]
    await held.resume()
    assert (await held.answer()).expired == (1 if taken_out else 0)
    assert await world.state("a") == ("expired" if taken_out else "live")
    answer = (await world.run(world.recording(attempt)))[attempt.claim.guid]
    assert answer is (Answer.LOST if taken_out else Answer.RECORDED)


@cured(row_not_looked_at_again=[EXPIRE_BLIND, EXPIRE_BY_KEY])
async def test_an_attempt_whose_lease_is_prolonged_after_all_does_not_expire(
    world: World, taken_out: Sequence[Taken]
) -> None:
    await world.take_out(taken_out)
    await world.run(world.scheduling(world.an_action("a")._replace(expires_at=world.now + LEASE)))
    attempt = (await world.take())["a"]
    world.clock.advance(LEASE)
    held = await world.paused(expiring(world))
    await world.run(world.extending(attempt))
    await held.resume()
    assert (await held.answer()).expired == (1 if taken_out else 0)
    answer = (await world.run(world.recording(attempt)))[attempt.claim.guid]
    assert answer is (Answer.LOST if taken_out else Answer.RECORDED)


async def test_two_that_expire_the_same_do_it_once(world: World) -> None:
    await waiting(world, "a", "b")
    first = await world.paused(expiring(world))
    assert await world.run(expiring(world)) == Expiry(2, 2, 2)
    await first.resume()
    assert await first.answer() == Expiry(2, 0, 0)
    assert await world.run(expiring(world)) == NOTHING


# Chores.


def taking(world: World, holder: int) -> Transition[TidyPosition | None]:
    return world.do.take_chore(TIDY, UUID(int=holder), lease=LEASE, every=HOUR)


@cured(no_lock_clause=[TAKE_WITHOUT_LOCK])
async def test_a_chore_is_not_taken_by_two_at_once(world: World, taken_out: Sequence[Taken]) -> None:
    await world.take_out(taken_out)
    late = await world.paused(taking(world, 1))
    assert await world.run(taking(world, 2)) is not None
    await late.resume()
    assert (await late.answer() is not None) == bool(taken_out)


async def test_a_chore_that_is_being_taken_is_not_waited_for(world: World) -> None:
    session, position = await world.open(taking(world, 1))
    assert position is not None
    assert await world.run(taking(world, 2)) is None
    await session.commit()
