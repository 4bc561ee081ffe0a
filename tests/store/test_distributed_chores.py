"""Chores of an installation in distributed form: each goes over the shards in more steps than one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
from support.distributed import SHARDS, a_store, held, put
from support.interleaving import World, a_world, install
from support.scene import LEASE, Scene, done

from matrixsched import State
from matrixsched.clock import ManualClock
from matrixsched.rules.lanes import Lane
from matrixsched.store.transition import Transaction
from matrixsched.store.values import Extension, Holding

pytestmark = pytest.mark.anyio

LONG_AGO = timedelta(days=9)
WEEK = timedelta(days=7)


@pytest.fixture
async def scene(postgres_dsn: str, clock: ManualClock, anyio_backend: str) -> AsyncIterator[Scene]:
    async with a_store(postgres_dsn, clock) as store:
        yield Scene(store, clock)


@pytest.mark.parametrize("instants", [1, 3], ids=["at one instant", "two at an instant"])
@pytest.mark.parametrize(
    ("others", "pruned"), [("false", [5, 5, 3]), ("action_id = 'a02'", [5, 5, 2]), ("action_id < 'a07'", [5, 1])]
)
async def test_pruning_goes_past_what_somebody_holds(
    scene: Scene, postgres_dsn: str, others: str, pruned: list[int], instants: int
):
    """Also where all of a batch, or more, is held; of those that ended at one instant none is left out."""
    for number in range(13):
        await scene.schedule(f"a{number:02}", shard=number % SHARDS)
        await scene.cancel(f"a{number:02}", shard=number % SHARDS)
        scene.clock.advance(timedelta(microseconds=number % instants))
    scene.clock.advance(LONG_AGO)
    await scene.schedule("live")
    prune = scene.do.prune_actions
    async with held(postgres_dsn, f"select from matrixsched.scheduled_actions where {others} or action_id = 'live'"):
        gone = [await scene.run(prune(State.CANCELLED, keep=WEEK, limit=5)) for _ in pruned]
    assert gone == pruned
    left = 13 - sum(pruned)
    assert await scene.run(prune(State.CANCELLED, keep=WEEK, limit=99)) == left
    assert [row["action_id"] for row in await scene.table("scheduled_actions")] == ["live"]


async def test_requests_beside_some_that_somebody_holds_are_forgotten(scene: Scene, postgres_dsn: str):
    for shard in (0, 0, 0, 1, 1, 3, 3):
        await scene.schedule(shard=shard)
        scene.clock.advance(timedelta(microseconds=1))
    scene.clock.advance(LONG_AGO)
    await scene.schedule(shard=2)
    forget = scene.do.prune_requests
    async with held(postgres_dsn, "select from matrixsched.action_requests where shard_id = 0"):
        gone = [await scene.run(forget(keep=WEEK, limit=3)) for _ in range(2)]
    assert gone == [3, 1]
    assert await scene.run(forget(keep=WEEK, limit=2)) == 2
    assert await scene.run(forget(keep=WEEK, limit=2)) == 1
    assert [row["shard_id"] for row in await scene.table("action_requests")] == [2]


@pytest.fixture
async def world(postgres_dsn: str, anyio_backend: str) -> AsyncIterator[World]:
    """Sessions on an installation in distributed form."""
    await install(postgres_dsn, distributed=True)
    async with a_world(postgres_dsn, is_distributed=True) as world:
        yield world


async def list_lane(world: World, lane: str, *, ready_at: datetime) -> None:
    """As whoever puts rows into a lane says when to look at it."""
    await world.watcher.execute(
        "insert into matrixsched.held_lanes (lane, priority, handler, ready_at) values ($1, 0, 'greet', $2) "
        "on conflict (lane) do update set ready_at = excluded.ready_at",
        lane,
        ready_at,
    )


async def listed(world: World) -> set[str]:
    return {row["lane"] for row in await world.rows("select lane from matrixsched.held_lanes")}


@pytest.mark.direct("its sessions are held between two statements")
@pytest.mark.parametrize("was_listed", [True, False])
async def test_a_lane_that_somebody_lists_after_it_was_seen_to_be_empty_stays_listed(world: World, was_listed: bool):
    empty, filled = (Lane(handler="greet", key=key).name for key in ("empty", "filled"))
    for lane in [empty, filled] if was_listed else [empty]:
        await list_lane(world, lane, ready_at=world.now)
    relisting = world.do.relist_lanes(every=timedelta(0))
    assert isinstance(relisting, Transaction)
    steps = await world.stepping(relisting)
    await steps.past("relist_lanes.heads")
    await list_lane(world, filled, ready_at=world.now + timedelta(seconds=1))
    assert await steps.finish() == 0
    assert await listed(world) == {filled}
    assert await world.run(world.do.relist_lanes(every=timedelta(0))) == 0
    assert await listed(world) == set()


async def test_chores_go_by_the_time_of_the_database(postgres_dsn: str, clock: ManualClock, anyio_backend: str):
    async with a_store(postgres_dsn, None) as store:
        await do_all(Scene(store, clock))


async def do_all(scene: Scene) -> None:
    await put(scene, 0, 1, 2, 3)
    await scene.schedule("later", at=datetime(2100, 1, 1, tzinfo=UTC))
    while attempts := await scene.sync():
        (attempt, *_) = attempts
        assert await scene.run(scene.do.extend([Holding(attempt.claim, LEASE)], attempt_lease=LEASE)) == {
            attempt.claim.guid: Extension.EXTENDED
        }
        await scene.record(*(done(one) for one in attempts))
    at_once = timedelta(0)
    pruned = [await scene.run(scene.do.prune_actions(State.DONE, keep=at_once, limit=3)) for _ in range(3)]
    assert pruned == [3, 1, 0]
    assert (await scene.run(scene.do.expire_waiting(limit=9))).gone == 0
    assert await scene.run(scene.do.relist_lanes(every=timedelta(hours=1))) == 0
    assert await scene.run(scene.do.relist_lanes(every=timedelta(hours=1))) is None
    assert [row["action_id"] for row in await scene.table("scheduled_actions")] == ["later"]
    assert await scene.run(scene.do.prune_requests(keep=at_once, limit=99)) == 5
