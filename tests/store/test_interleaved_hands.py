"""What is in other hands at this moment: chores pass it over, and users who wait for it look again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from support.interleaving import HANDLER, LEASE, World

from matrixsched.rules.action import EVENT
from matrixsched.rules.lanes import Lane
from matrixsched.store.transition import Transition
from matrixsched.store.values import Change, SweepPosition

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)
QUEUE = "processing_queue"

Case = tuple[str, Transition[Any]]
"""The table whose rows another has in hand, and what is done beside that."""


async def put_off(world: World, id: str = "a", **options: Any) -> None:
    """An action waits in processing."""
    action = world.an_action(id, at=world.now + HOUR)._replace(**options)
    await world.run(world.scheduling(action))
    holder = await world.acquire()
    await world.run(world.moving(holder))
    await world.release(holder)


async def a_sweep_of_dead_rows(world: World) -> Case:
    await put_off(world)
    await world.run(world.cancelling("a"))
    return QUEUE, world.do.sweep_dead(SweepPosition(), limit=9, reach=LEASE)


async def a_sweep_of_leases_that_are_too_long(world: World) -> Case:
    await world.start_attempts("a")
    return QUEUE, world.do.sweep_dead(SweepPosition(), limit=9, reach=LEASE / 2)


async def a_giving_back(world: World) -> Case:
    attempts = await world.start_attempts("a")
    return QUEUE, world.do.give_back(list(attempts.values()))


async def an_expiry(world: World) -> Case:
    await put_off(world, expires_at=world.now + LEASE)
    world.clock.advance(LEASE)
    return QUEUE, world.do.expire_waiting(limit=9)


async def a_pruning_of_requests(world: World) -> Case:
    await world.schedule("a")
    world.clock.advance(HOUR)
    return world.requests, world.do.prune_requests(keep=LEASE, limit=9)


async def a_relisting_without_a_turn(world: World) -> Case:
    return "chores", world.do.relist_lanes(every=timedelta(0))


async def a_relisting_of_an_emptied_lane(world: World) -> Case:
    await world.watcher.execute(
        "insert into matrixsched.held_lanes (lane, priority, handler, ready_at) values ($1, 0, $2, $3)",
        Lane(handler=HANDLER).name,
        HANDLER,
        world.now,
    )
    return "held_lanes", world.do.relist_lanes(every=timedelta(0))


async def a_relisting_of_a_lane_that_was_put_off_for_too_long(world: World) -> Case:
    case = await a_relisting_of_an_emptied_lane(world)
    await put_off(world)
    await world.watcher.execute(
        "update matrixsched.processing_queue set lane = (select lane from matrixsched.held_lanes)"
    )
    await world.watcher.execute("update matrixsched.held_lanes set ready_at = $1", world.now + HOUR)
    return case


async def a_forgetting_of_buckets(world: World) -> Case:
    await world.watcher.execute("insert into matrixsched.limits (name, updated_at) values ('key:mx', $1)", world.now)
    return "limits", world.do.relist_lanes(every=timedelta(0))


@pytest.mark.parametrize(
    "prepare",
    [
        a_relisting_without_a_turn,
        a_relisting_of_an_emptied_lane,
        a_relisting_of_a_lane_that_was_put_off_for_too_long,
        a_forgetting_of_buckets,
        a_sweep_of_dead_rows,
        a_sweep_of_leases_that_are_too_long,
        a_giving_back,
        an_expiry,
        a_pruning_of_requests,
    ],
    ids=lambda prepare: prepare.__name__.replace("_", " "),
)
async def test_what_is_in_other_hands_is_not_waited_for_and_stays(
    world: World, prepare: Callable[[World], Awaitable[Case]]
):
    table, transition = await prepare(world)
    before = await world.rows(f"select * from matrixsched.{table}")
    assert before
    other = await world.session()
    await other.begin()
    await other.connection.execute(f"select from matrixsched.{table} for update")
    await world.run(transition)
    await other.rollback()
    assert await world.rows(f"select * from matrixsched.{table}") == before


@pytest.mark.parametrize("how", ["reschedule", "cancel", "replace_expected"])
async def test_a_change_that_waited_for_another_looks_at_what_that_has_left(world: World, how: str):
    (old,) = await world.schedule("a")
    user, _ = await world.open(world.scheduling(world.an_action("a")))
    late = await world.start(changing(world, how, old.guid))
    await late.waits()
    await user.commit()
    assert await late.outcome() is None


def changing(world: World, how: str, expected: UUID) -> Transition[Any]:
    change = Change(shard=0, id="a", guid=uuid4(), request_guid=uuid4(), expected_guid=expected, at=world.now)
    match how:
        case "reschedule":
            return world.do.reschedule(change, revive=False, tell=False)
        case "cancel":
            return world.do.cancel(change)
        case _:
            return world.do.replace_expected(world.an_action("a"), uuid4(), expected, tell=False)


async def test_an_event_that_a_twin_of_the_move_has_in_hand_is_not_moved_again(world: World):
    await world.run(world.scheduling(world.an_action("a")._replace(lane=EVENT)))
    holder = await world.acquire()
    first, moved = await world.open(world.moving(holder))
    assert len(moved.attempts) == 1
    assert (await world.run(world.moving(holder))).seen == 0
    await first.commit()


async def test_an_event_that_was_moved_run_and_recorded_meanwhile_is_not_handed_out_again(world: World):
    await world.run(world.scheduling(world.an_action("a")._replace(lane=EVENT)))
    holder = await world.acquire()
    twin = await world.paused(world.moving(holder))
    (attempt,) = (await world.run(world.moving(holder))).attempts
    await world.run(world.recording(attempt))
    await twin.resume()
    assert (await twin.answer()).attempts == []
