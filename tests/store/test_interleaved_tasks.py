"""Tasks of semaphores beside each other, in real sessions: nobody has in hand, or goes by, what is another's by now."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from support.interleaving import World

from matrixsched.rules.semaphore import Semaphore
from matrixsched.store.semaphores import Balanced, NewTask, TaskName
from matrixsched.store.transition import Transaction, Transition

pytestmark = pytest.mark.anyio

POOL, OTHER = "pool", "other"
SECOND = timedelta(seconds=1)


def balancing(world: World, key: str = POOL) -> Transaction[Balanced | None]:
    transition = world.do.balance(key, uuid4, shards=1)
    assert isinstance(transition, Transaction)
    return transition


def releasing(world: World, *ids: str) -> Transition[list[str] | None]:
    tasks = [TaskName(id) for id in ids]
    return world.do.release_tasks(POOL, tasks, uuid4(), change_guid=uuid4(), missing_ok=False, tell=False)


def enqueueing(world: World, *ids: str, priority: float = 1) -> Transition[Any]:
    tasks = [NewTask(id, priority, uuid4()) for id in ids]
    return world.do.enqueue_tasks(POOL, tasks, uuid4(), change_guid=uuid4(), tell=False)


async def make(world: World, key: str = POOL, *, hold_for: timedelta | None = None) -> None:
    await world.run(world.do.make_semaphore(Semaphore(key=key, active=2, try_release=0, hold_for=hold_for)))


async def tasks(world: World) -> dict[str, Any]:
    return {row["task_id"]: row for row in await world.rows("select * from matrixsched.semaphore_tasks")}


async def test_a_balance_has_no_marks_of_another_semaphore_in_hand(world: World):
    for key in (POOL, OTHER):
        await make(world, key)
        await world.run(world.do.update_semaphore(key, lambda one: one, uuid4()))
    steps = await world.stepping(balancing(world))
    await steps.past("balance.seen")
    assert await world.run(balancing(world, OTHER)) is not None
    left = await world.rows("select semaphore from matrixsched.semaphore_changes")
    assert [row["semaphore"] for row in left] == [POOL]  # until the first one has committed
    await steps.finish()
    assert await world.rows("select from matrixsched.semaphore_changes") == []


async def test_a_place_renewed_after_it_was_read_does_not_lapse(world: World):
    await make(world, hold_for=10 * SECOND)
    await world.run(enqueueing(world, "a"))
    await world.run(balancing(world))
    world.clock.advance(10 * SECOND)
    steps = await world.stepping(balancing(world))
    await steps.past("semaphore_tasks.held")
    assert await world.run(world.do.renew_tasks(POOL, [TaskName("a")])) == ["a"]
    balanced = await steps.finish()
    assert balanced is not None
    assert (balanced.lapsed, balanced.is_complete) == ((), False)
    task = (await tasks(world))["a"]
    assert (task["state"], task["hold_until"]) == ("acquired", world.now + 10 * SECOND)


async def test_a_place_in_a_users_hands_is_held_for_good_by_the_next_balance(world: World):
    await make(world, hold_for=10 * SECOND)
    await world.run(enqueueing(world, "a", "b"))
    await world.run(balancing(world))
    lasting = Semaphore(key=POOL, active=2, try_release=0)
    await world.run(world.do.update_semaphore(POOL, lambda _: lasting, uuid4()))
    user, _ = await world.open(enqueueing(world, "a", priority=7))
    first = await world.run(balancing(world))
    assert first is not None
    assert not first.is_complete
    assert {id: row["hold_until"] is None for id, row in (await tasks(world)).items()} == {"a": False, "b": True}
    await user.commit()
    second = await world.run(balancing(world))
    assert second is not None
    assert second.is_complete
    assert [row["hold_until"] for row in (await tasks(world)).values()] == [None, None]


async def test_who_releases_all_or_none_releases_none_when_another_has_released_one_meanwhile(world: World):
    await make(world)
    await world.run(enqueueing(world, "a", "b"))
    user, released = await world.open(releasing(world, "a"))
    assert released == ["a"]
    both = await world.start(releasing(world, "a", "b"))
    await both.waits()
    await user.commit()
    assert await both.outcome() == ["b"]  # was there
    assert (await tasks(world)).keys() == {"b"}
