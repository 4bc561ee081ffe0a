"""Claims under gates of their own, beside each other and beside a plan: neither finds the other's in hand."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID, uuid4

import pytest
from support.gated_world import open_shards, put_window
from support.interleaving import HANDLER, LEASE, World

from matrixsched.rules.lanes import Lane
from matrixsched.rules.rates import parse_rate
from matrixsched.rules.templates import TemplateChange
from matrixsched.store.chores import TIDY
from matrixsched.store.transition import Transaction
from matrixsched.store.values import GatedClaim

pytestmark = pytest.mark.anyio

MINUTE = timedelta(minutes=1)
NAMES = ("news", "promo")


async def add_row(world: World, lane: str, shard: int) -> None:
    await world.watcher.execute(
        """
        insert into matrixsched.processing_queue
               (shard_id, action_id, action_guid, lane, scheduled_at, attempt, interrupted, added_at, moved_by,
                moved_at)
        values ($1, 'dead', $2, $3, $4, 0, 0, $4, $2, $4)
        """,
        shard,
        uuid4(),
        lane,
        world.now,
    )


def claiming(world: World, shard: int, guid: UUID, lane: str) -> Transaction[GatedClaim]:
    transition = world.do.claim_gated(
        shard, guid, listed=[lane], filled=(), room=9, suspect_room=1, attempt_lease=LEASE, ahead=timedelta(0)
    )
    assert isinstance(transition, Transaction)
    return transition


@pytest.mark.parametrize(("gate", "after"), [("key", "lock_limits"), ("template", "lock_grants")])
async def test_claims_that_pass_other_gates_do_not_meet(world: World, gate: str, after: str):
    guids = await open_shards(world, len(NAMES))
    lanes = [Lane(handler=HANDLER, **{gate: name}).name for name in NAMES]
    await put_window(world, world.now, dict.fromkeys(NAMES, 9))
    for shard, name in enumerate(NAMES):
        await world.run(world.do.set_limit(f"key:{name}", parse_rate("9/s"), pool=9))
        await world.run(world.do.put_template(name, TemplateChange()))
        await add_row(world, lanes[shard], shard)
    world.clock.advance(timedelta(seconds=1))
    one = await world.stepping(claiming(world, 0, guids[0], lanes[0]))
    await one.past(after)
    assert not (await world.run(claiming(world, 1, guids[1], lanes[1]))).busy
    await one.finish()


async def test_who_plans_has_no_other_chore_in_hand(world: World):
    transition = world.do.plan_window("host:1")
    assert isinstance(transition, Transaction)
    plan = await world.stepping(transition)
    await plan.past("plan_window.turn")
    taking = world.do.take_chore(TIDY, uuid4(), lease=LEASE, every=timedelta(0))
    assert await world.run(taking) is not None
    await plan.finish()
