"""Gated claims of real sessions, held in every order: never above a limit or a grant, and nobody waits for anybody."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from itertools import combinations
from uuid import UUID

import asyncpg
import pytest
from support.gated_world import open_shards, put_window
from support.interleaving import (
    DEADLINE_S,
    HANDLER,
    LEASE,
    POLL_EVERY_S,
    Mutant,
    StatementWaits,
    Steps,
    Taken,
    World,
    cured,
)

from matrixsched.rules.gates import Gate
from matrixsched.rules.lanes import Lane
from matrixsched.rules.limits import in_nanoseconds
from matrixsched.rules.rates import parse_rate
from matrixsched.rules.templates import TemplateChange
from matrixsched.store.postgresql.connection import BEGIN
from matrixsched.store.transition import Transaction
from matrixsched.store.values import GatedClaim, Planned

pytestmark = pytest.mark.anyio

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
PROMO = Lane(handler=HANDLER, template="promo")
KEYED = Lane(handler=HANDLER, key="mx")

UNLOCKED_GRANTS = (Mutant("lock_grants", "for no key update of g skip locked", ""),)
UNLOCKED_LIMITS = (Mutant("lock_limits", "order by l.name for no key update skip locked", ""),)


async def fill(world: World, guid: UUID, *ids: str, lane: Lane, shard: int = 0) -> None:
    """Actions that are due, before their gate."""
    batch = [
        world.an_action(id)._replace(shard=shard, lane=lane.name, template=lane.template, priority=lane.priority)
        for id in ids
    ]
    await world.run(world.scheduling(*batch))
    moved = await world.run(
        world.do.move(shard, guid, handlers=[HANDLER], move_limit=len(ids), claim_limit=0, attempt_lease=LEASE)
    )
    assert set(moved.gated_lanes) == {lane.name}
    await list_lane(world, lane)


async def list_lane(world: World, lane: Lane) -> None:
    await world.watcher.execute(
        "insert into matrixsched.held_lanes (lane, priority, handler, ready_at) values ($1, $2, $3, $4) "
        "on conflict do nothing",
        lane.name,
        lane.priority,
        lane.handler,
        world.now,
    )


async def grant(world: World, granted: int) -> None:
    await world.run(world.do.put_template("promo", TemplateChange()))
    await put_window(world, world.now, {"promo": granted})


async def set_limit(world: World, name: str, rate: str, pool: int) -> None:
    """With its pool full."""
    await world.run(world.do.set_limit(name, parse_rate(rate), pool=pool))
    await world.watcher.execute("update matrixsched.limits set next_slot_ns = 0 where name = $1", name)


def claiming(world: World, guid: UUID, *lanes: Lane, shard: int = 0, room: int = 50) -> Transaction[GatedClaim]:
    transition = world.do.claim_gated(
        shard,
        guid,
        listed=[lane.name for lane in lanes],
        filled=(),
        room=room,
        suspect_room=1,
        attempt_lease=LEASE,
        ahead=timedelta(0),
    )
    assert isinstance(transition, Transaction)
    return transition


async def used(world: World) -> int:
    (row,) = await world.rows("select sum(used)::int as used from matrixsched.quota_grants")
    spent: int = row["used"]
    return spent


async def claimed(world: World) -> int:
    rows = await world.rows("select from matrixsched.processing_queue where claimed_by is not null")
    return len(rows)


async def next_slot(world: World, name: str) -> int:
    (row,) = await world.rows("select next_slot_ns from matrixsched.limits where name = $1", name)
    slot: int = row["next_slot_ns"]
    return slot


# Two claims.

STEPS = 6
"""Of a gated claim under a limit and a quota: count, limits, grants, claim, spend, commit."""
ORDERS = [frozenset(first) for first in combinations(range(2 * STEPS), STEPS) if 0 in first]
"""At which of all steps the first of two claims goes on. The other way round it is the same case."""


async def two_claims(world: World, guids: Sequence[UUID], order: frozenset[int]) -> tuple[GatedClaim, GatedClaim]:
    one, other = [await world.stepping(claiming(world, guids[shard], PROMO, shard=shard)) for shard in (0, 1)]
    others = frozenset(range(2 * STEPS)) - order
    for number in range(2 * STEPS):
        mine: Steps[GatedClaim] = one if number in order else other
        if number in (max(order), max(others)):  # in distributed form it spends in more steps than one
            await mine.finish()
        elif not mine.done:  # a claim that finds its gate busy asks less
            await mine.step()
    return await one.finish(), await other.finish()


async def test_in_whichever_order_two_claims_go_on_the_grant_and_the_limit_hold(world: World):
    guids = await open_shards(world, 2)
    await grant(world, 5)
    await set_limit(world, "global", "1/s", 4)
    for shard, guid in enumerate(guids):
        await fill(world, guid, *(f"{shard} {n}" for n in range(5)), lane=PROMO, shard=shard)
    seen = set()
    for order in ORDERS:
        one, other = await two_claims(world, guids, order)
        counts = len(one.attempts), len(other.attempts)
        assert sum(counts) == 4 == await used(world) == await claimed(world)
        slots = [attempt.slot.starts_at for passed in (one, other) for attempt in passed.attempts if attempt.slot]
        assert slots == [world.now] * 4
        assert await next_slot(world, "global") == in_nanoseconds(world.now + SECOND)
        seen.add((counts, one.busy, other.busy))
        await world.watcher.execute(
            """
            update matrixsched.quota_grants set used = 0;
            update matrixsched.limits set next_slot_ns = 0;
            update matrixsched.processing_queue
               set claimed_by = null, attempt = 0, scheduled_at = rescheduled_at where claimed_by is not null
            """
        )
    # Each was first in some order; and the other then found the gate shut, or busy.
    first, second = (4, 0), (0, 4)
    assert seen == {(first, False, True), (first, False, False), (second, True, False), (second, False, False)}


@cured(without_a_lock=UNLOCKED_GRANTS)
async def test_a_grant_is_in_one_hand_at_a_time(world: World, taken_out: Sequence[Taken]):
    await world.take_out(taken_out)
    guids = await open_shards(world, 2)
    await grant(world, 5)
    for shard, guid in enumerate(guids):
        await fill(world, guid, *(f"{shard} {n}" for n in range(5)), lane=PROMO, shard=shard)
    one = await world.stepping(claiming(world, guids[0], PROMO))
    await one.past("lock_grants")
    other = await world.run(claiming(world, guids[1], PROMO, shard=1))
    assert len((await one.finish()).attempts) == 5
    if taken_out:
        assert (len(other.attempts), await used(world)) == (5, 5)  # ten were sent, and five are known
    else:
        assert (len(other.attempts), other.busy, await used(world)) == (0, True, 5)


@cured(without_a_lock=UNLOCKED_LIMITS)
async def test_a_limit_is_in_one_hand_at_a_time(world: World, taken_out: Sequence[Taken]):
    await world.take_out(taken_out)
    guids = await open_shards(world, 2)
    await set_limit(world, "key:mx", "1/s", 3)
    for shard, guid in enumerate(guids):
        await fill(world, guid, *(f"{shard} {n}" for n in range(5)), lane=KEYED, shard=shard)
    one = await world.stepping(claiming(world, guids[0], KEYED))
    await one.past("lock_limits")
    other = await world.run(claiming(world, guids[1], KEYED, shard=1))
    assert len((await one.finish()).attempts) == 3
    assert len(other.attempts) == (3 if taken_out else 0)


@pytest.mark.parametrize(
    "waiting",
    [
        Mutant("lock_limits", "order by l.name for no key update skip locked", "order by l.name for no key update"),
        Mutant("lock_grants", "for no key update of g skip locked", "for no key update of g"),
    ],
    ids=lambda mutant: str(mutant.statement),
)
async def test_a_claim_waits_for_no_other(world: World, waiting: Mutant):
    guids = await open_shards(world, 2)
    await grant(world, 5)
    if waiting.statement == "lock_limits":
        await set_limit(world, "global", "1/s", 3)
    for shard, guid in enumerate(guids):
        await fill(world, guid, *(f"{shard} {n}" for n in range(5)), lane=PROMO, shard=shard)
    one = await world.stepping(claiming(world, guids[0], PROMO))
    await one.past("claim")
    assert (await world.run(claiming(world, guids[1], PROMO, shard=1))).busy
    await world.take_out([waiting])
    with pytest.raises(StatementWaits):
        await world.run(claiming(world, guids[1], PROMO, shard=1))


WAITING_NOTES = (Mutant("spend", "order by h.lane for update skip locked", "order by h.lane for update"),)


@cured(waiting=WAITING_NOTES)
async def test_to_note_a_lane_nobody_waits(world: World, taken_out: Sequence[Taken]):
    """Two claims that wait for each other's notes, with limits in hand, would hold up everybody."""
    await world.take_out(taken_out)
    guids = await open_shards(world, 2)
    for shard, guid in enumerate(guids):
        await fill(world, guid, *(f"{shard} {n}" for n in range(5)), lane=KEYED, shard=shard)
    world.clock.advance(timedelta(milliseconds=1))
    one = await world.stepping(claiming(world, guids[0], KEYED, room=2))
    await one.past("spend")
    world.clock.advance(timedelta(milliseconds=1))
    other = claiming(world, guids[1], KEYED, shard=1, room=2)
    if taken_out:
        with pytest.raises(StatementWaits):
            await world.run(other)
    else:
        assert len((await world.run(other)).attempts) == 2
        assert len((await one.finish()).attempts) == 2


async def test_a_key_whose_bucket_another_claim_makes_is_under_its_limit(world: World):
    guids = await open_shards(world, 2)
    await set_limit(world, "key:*", "1/s", 1)
    for shard, guid in enumerate(guids):
        await fill(world, guid, *(f"{shard} {n}" for n in range(5)), lane=KEYED, shard=shard)
    one = await world.stepping(claiming(world, guids[0], KEYED))
    await one.past("lock_limits")
    other = await world.start(claiming(world, guids[1], KEYED, shard=1))
    await other.waits()  # for the row of the key, which is made once
    assert len((await one.finish()).attempts) == 1
    passed = await other.outcome()
    assert (len(passed.attempts), passed.busy) == (0, True)
    again = await world.run(claiming(world, guids[1], KEYED, shard=1))
    assert (len(again.attempts), {held.gate for held in again.held.values()}) == (0, {Gate.LIMIT})


# Many claims.


async def claim_all(world: World, guid: UUID, shard: int) -> int:
    """As a worker would until its lane is empty or its grant used up; how many it had."""
    session = await world.session()
    count = 0
    async with asyncio.timeout(DEADLINE_S):
        while True:
            passed = await session.start(claiming(world, guid, PROMO, shard=shard, room=7)).outcome()
            count += len(passed.attempts)
            gates = {held.gate for held in passed.held.values()}
            if gates == {Gate.QUOTA} or not (passed.attempts or gates):
                return count
            await asyncio.sleep(POLL_EVERY_S if passed.busy else 0)


async def test_four_sessions_spend_a_grant_of_137_to_the_last_and_no_more(world: World):
    guids = await open_shards(world, 4)
    await grant(world, 137)
    for shard, guid in enumerate(guids):
        await fill(world, guid, *(f"{shard} {n}" for n in range(200)), lane=PROMO, shard=shard)
    # Dead ones, first in their lanes.
    await world.watcher.execute(
        "update matrixsched.processing_queue set scheduled_at = scheduled_at - interval '1 s' "
        "where action_id like '% 1_'"
    )
    dead = [f"{shard} 1{n}" for shard in range(4) for n in (1, 2)]
    await world.watcher.execute(
        "update matrixsched.scheduled_actions set state = 'cancelled', finished_at = $1 where action_id = any ($2)",
        world.now,
        dead,
    )
    counts = await asyncio.gather(*(claim_all(world, guid, shard) for shard, guid in enumerate(guids)))
    assert sum(counts) == 137 == await used(world) == await claimed(world)


# Beside changes.


async def test_a_change_of_a_limit_waits_for_the_claim_and_forgets_none_of_its_slots(world: World):
    (guid,) = await open_shards(world, 1)
    await set_limit(world, "key:mx", "1/s", 3)
    await fill(world, guid, *(f"{n}" for n in range(5)), lane=KEYED)
    claim = await world.stepping(claiming(world, guid, KEYED))
    await claim.past("claim")
    change = await world.start(world.do.set_limit("key:mx", parse_rate("2/s"), pool=3))
    await change.waits()
    assert len((await claim.finish()).attempts) == 3
    await change.outcome()
    assert await next_slot(world, "key:mx") == in_nanoseconds(world.now + SECOND / 2)
    assert (await world.run(claiming(world, guid, KEYED))).attempts == []


async def test_a_change_of_a_limit_holds_up_only_claims_that_are_under_it(world: World):
    (guid,) = await open_shards(world, 1)
    await set_limit(world, "key:mx", "1/s", 3)
    free = Lane(handler=HANDLER, key="free")
    await fill(world, guid, "held", lane=KEYED)
    await fill(world, guid, "free", lane=free)
    transition = world.do.set_limit("key:mx", parse_rate("2/s"), pool=3)
    assert isinstance(transition, Transaction)
    world.clock.advance(SECOND)
    change = await world.stepping(transition)
    await change.past("open_gates.lanes")
    passed = await world.run(claiming(world, guid, KEYED, free))
    assert ([one.claim.action_id for one in passed.attempts], passed.busy) == (["free"], True)
    await change.finish()
    assert len((await world.run(claiming(world, guid, KEYED))).attempts) == 1


async def test_told_to_slow_down_during_a_claim_the_next_one_gets_nothing(world: World):
    (guid,) = await open_shards(world, 1)
    await set_limit(world, "key:mx", "1000/s", 100)
    await fill(world, guid, *(f"{n}" for n in range(5)), lane=KEYED)
    claim = await world.stepping(claiming(world, guid, KEYED, room=2))
    await claim.past("lock_limits")
    told = await world.start(world.do.slow_down("key:mx", MINUTE, rate=None, reason="429"))
    await told.waits()
    assert len((await claim.finish()).attempts) == 2
    await told.outcome()
    passed = await world.run(claiming(world, guid, KEYED))
    assert (passed.attempts, {held.gate for held in passed.held.values()}) == ([], {Gate.SLOWED})


async def test_a_lane_that_somebody_notes_is_not_taken_off_the_list_by_who_empties_it(world: World):
    (guid,) = await open_shards(world, 1)
    await set_limit(world, "key:mx", "9/s", 9)
    await fill(world, guid, "a", lane=KEYED)
    noting = await world.session()
    await noting.begin()
    await noting.connection.execute("select from matrixsched.held_lanes for update")
    claim = await world.start(claiming(world, guid, KEYED))
    assert len((await claim.answer()).attempts) == 1
    await noting.commit()
    assert len(await world.rows("select from matrixsched.held_lanes")) == 1


async def test_a_template_is_paused_without_waiting_for_a_claim(world: World):
    (guid,) = await open_shards(world, 1)
    await grant(world, 10)
    await fill(world, guid, *(f"{n}" for n in range(5)), lane=PROMO)
    claim = await world.stepping(claiming(world, guid, PROMO, room=2))
    await claim.past("lock_grants")
    assert await world.run(world.do.pause_template("promo", None))
    assert len((await claim.finish()).attempts) == 2
    passed = await world.run(claiming(world, guid, PROMO))
    assert (passed.attempts, {held.gate for held in passed.held.values()}) == ([], {Gate.PAUSED})


async def test_a_claim_does_not_wait_for_the_plan_and_takes_nothing_before_it(world: World):
    (guid,) = await open_shards(world, 1)
    await world.run(world.do.put_template("promo", TemplateChange()))
    await fill(world, guid, *(f"{n}" for n in range(5)), lane=PROMO)
    transition = world.do.plan_window("host:1")
    assert isinstance(transition, Transaction)
    plan = await world.stepping(transition)
    await plan.past("plan_window.write")
    assert (await world.run(claiming(world, guid, PROMO))).unplanned
    assert await world.run(world.do.plan_window("host:2")) is Planned.BUSY
    assert await plan.finish() is Planned.NOW
    assert len((await world.run(claiming(world, guid, PROMO))).attempts) == 5


# Sessions that end, or stand still.


@pytest.mark.parametrize("after", ["lock_limits", "lock_grants", "claim", "spend"])
async def test_a_session_killed_in_the_middle_has_spent_and_claimed_nothing(world: World, after: str):
    guids = await open_shards(world, 2)
    await grant(world, 5)
    await set_limit(world, "global", "1/s", 3)
    for shard, guid in enumerate(guids):
        await fill(world, guid, *(f"{shard} {n}" for n in range(5)), lane=PROMO, shard=shard)
    killed = await world.stepping(claiming(world, guids[0], PROMO))
    await killed.past(after)
    await world.watcher.fetchval("select pg_terminate_backend($1, 5000)", killed.session.pid)
    assert (await used(world), await claimed(world), await next_slot(world, "global")) == (0, 0, 0)
    assert len((await world.run(claiming(world, guids[1], PROMO, shard=1))).attempts) == 3


async def test_a_session_that_stands_still_holds_up_the_others_for_two_seconds(world: World):
    guids = await open_shards(world, 2)
    await set_limit(world, "key:mx", "1/s", 3)
    for shard, guid in enumerate(guids):
        await fill(world, guid, *(f"{shard} {n}" for n in range(5)), lane=KEYED, shard=shard)
    frozen = await world.stepping(claiming(world, guids[0], KEYED), how=BEGIN)
    await frozen.past("claim")
    other = claiming(world, guids[1], KEYED, shard=1)
    assert (await world.run(other)).busy
    began_at = asyncio.get_running_loop().time()
    async with asyncio.timeout(DEADLINE_S):
        while True:
            passed = await world.run(other)
            if not passed.busy:
                break
            await asyncio.sleep(10 * POLL_EVERY_S)
    assert 1 < asyncio.get_running_loop().time() - began_at < 5
    assert len(passed.attempts) == 3
    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError)):
        await frozen.finish()
    assert await claimed(world) == 3
