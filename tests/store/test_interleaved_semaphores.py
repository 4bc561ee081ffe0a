"""Balances beside whoever enqueues, releases, renews and changes, in real sessions: none too many, nothing lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest
from support.interleaving import (
    DEADLINE_S,
    POLL_EVERY_S,
    Mutant,
    StatementWaits,
    Steps,
    Taken,
    UnderWay,
    World,
    cured,
)

from matrixsched.rules.semaphore import Semaphore, acquired_handler, event_id
from matrixsched.store.postgresql.connection import BEGIN
from matrixsched.store.postgresql.transitions import PostgresTransitions
from matrixsched.store.semaphores import Balanced, Enqueued, NewTask, TaskName
from matrixsched.store.transition import Conversation, Transaction, Transition

pytestmark = pytest.mark.anyio

SECOND = timedelta(seconds=1)
POOL = "pool"
UNLOCKED = (Mutant("balance.hold", "for no key update skip locked", ""),)


@pytest.fixture
async def world(world: World) -> AsyncIterator[World]:
    """Whatever happened, in the end a semaphore comes to rest with the best tasks in its places."""
    yield world
    if not await world.rows("select from matrixsched.semaphores"):
        return
    await settle(world)
    (pool,) = await world.rows("select active from matrixsched.semaphores")
    assert await held(world) == (await best(world))[: pool["active"]]


def balancing(world: World, do: PostgresTransitions | None = None) -> Transaction[Balanced | None]:
    transition = (do or world.do).balance(POOL, uuid4, shards=1)
    assert isinstance(transition, Transaction)
    return transition


def enqueueing(world: World, **priorities: float) -> Transition[Any]:
    """In the order given."""
    tasks = [NewTask(id, priority, uuid4()) for id, priority in priorities.items()]
    return world.do.enqueue_tasks(POOL, tasks, uuid4(), change_guid=uuid4(), tell=False)


def releasing(world: World, *ids: str) -> Transition[list[str] | None]:
    tasks = [TaskName(id) for id in ids]
    return world.do.release_tasks(POOL, tasks, uuid4(), change_guid=uuid4(), missing_ok=True, tell=False)


def renewing(world: World, *ids: str) -> Transition[list[str]]:
    return world.do.renew_tasks(POOL, [TaskName(id) for id in ids])


def updating(world: World, active: int, try_release: int) -> Transition[Any]:
    return world.do.update_semaphore(POOL, lambda one: replace(one, active=active, try_release=try_release), uuid4())


def stepping_back(world: World, id: str) -> Transition[bool | None]:
    return world.do.step_back(POOL, TaskName(id), uuid4(), priority=None, guid=uuid4(), change_guid=uuid4(), tell=False)


async def make(world: World, active: int = 1, try_release: int = 1, **options: Any) -> None:
    await world.run(world.do.make_semaphore(Semaphore(key=POOL, active=active, try_release=try_release, **options)))


async def enqueue(world: World, **priorities: float) -> None:
    await world.run(enqueueing(world, **priorities))


async def balance(world: World) -> Balanced:
    balanced = await world.run(balancing(world))
    assert balanced is not None
    return balanced


async def states(world: World) -> dict[str, str]:
    return {row["task_id"]: row["state"] for row in await world.rows("select * from matrixsched.semaphore_tasks")}


async def held(world: World) -> list[str]:
    return [id for id in await best(world) if (await states(world))[id] != "waiting"]


async def best(world: World) -> list[str]:
    """All tasks, the most important first."""
    rows = await world.rows("select * from matrixsched.semaphore_tasks order by priority desc, enqueued_at, task_id")
    return [row["task_id"] for row in rows]


async def marks(world: World) -> int:
    return len(await world.rows("select from matrixsched.semaphore_changes"))


async def events(world: World) -> set[str]:
    rows = await world.rows("select action_id from matrixsched.scheduled_actions where state = 'live'")
    return {row["action_id"] for row in rows}


async def settle(world: World) -> None:
    """Balance as long as there is a mark; whoever is asked steps back at once."""
    for _ in range(20):
        asked = [id for id, state in (await states(world)).items() if state == "asked"]
        if asked:
            for id in asked:
                assert await world.run(stepping_back(world, id))
        if not await marks(world):
            return
        assert (await balance(world)).is_complete
    raise AssertionError("it does not come to rest")


# Two balances.


@cured(without_a_lock=UNLOCKED)
async def test_one_balance_at_a_time_gives_no_more_places_than_there_are(world: World, taken_out: Sequence[Taken]):
    await world.take_out(taken_out)
    await make(world, 1, 0)
    await enqueue(world, a=1)
    one = await world.stepping(balancing(world))
    await one.past("semaphore_tasks.waiting")
    await enqueue(world, b=2)
    other = await world.run(balancing(world))
    first = await one.finish()
    assert first is not None
    assert first.acquired == ("a",)
    if taken_out:
        assert other is not None
        assert (other.acquired, len(await held(world))) == (("b",), 2)
        await world.run(releasing(world, "a"))
    else:
        assert (other, await held(world)) == (None, ["a"])
        assert await marks(world) == 1  # of b, for the next one
        await world.run(releasing(world, "a"))


async def test_at_whichever_step_another_balance_comes_it_answers_none(world: World):
    await make(world, 1, 1)
    await enqueue(world, a=1)
    one = await world.stepping(balancing(world))
    await one.past("balance.hold")
    while one.ask is not None:
        assert await world.run(balancing(world)) is None
        await one.step()
    assert await world.run(balancing(world)) is None  # until it has committed
    await one.finish()
    assert await world.run(balancing(world)) is not None


@cured(waiting=(Mutant("balance.hold", "for no key update skip locked", "for no key update"),))
async def test_a_balance_waits_for_no_other_and_for_no_change_of_the_semaphore(
    world: World, taken_out: Sequence[Taken]
):
    await world.take_out(taken_out)
    await make(world, 1, 1)
    user, _ = await world.open(updating(world, 2, 1))
    if not taken_out:
        assert await world.run(balancing(world)) is None
        await user.commit()
        assert await marks(world) == 1
        return
    waiting = await world.start(balancing(world))
    await waiting.waits()
    await user.commit()
    assert await waiting.answer() is not None  # or whoever balances next would wait for it


# A balance, and at each of its steps something else.

OTHERS: dict[str, Callable[[World], Transition[Any]]] = {
    "a new task": lambda world: enqueueing(world, urgent=20),
    "a holder rises": lambda world: enqueueing(world, c=30),
    "a holder falls": lambda world: enqueueing(world, e=0),
    "one that waits rises": lambda world: enqueueing(world, a=30),
    "one that waits falls": lambda world: enqueueing(world, g=-1),
    "a holder is released": lambda world: releasing(world, "e"),
    "who was to be asked is released": lambda world: releasing(world, "c"),
    "one that waits is released": lambda world: releasing(world, "g"),
    "all are released": lambda world: releasing(world, *"gfedcba"),
    "a holder steps back": lambda world: stepping_back(world, "e"),
    "who was to be asked steps back": lambda world: stepping_back(world, "c"),
    "one that waits has nothing to step back from": lambda world: stepping_back(world, "g"),
    "more places": lambda world: updating(world, 4, 2),
    "fewer places": lambda world: updating(world, 1, 1),
    "renewed": lambda world: renewing(world, *"edc"),
}
"""Of four places c, d and e hold three; of a, b, f and g, which wait, g is to get the fourth, and c to go for f."""
STEPS = 7
"""Statements of such a balance."""


async def begin(world: World) -> None:
    await make(world, 3, 2)
    await enqueue(world, c=3, d=4, e=5)
    await balance(world)
    await world.run(updating(world, 4, 3))
    await enqueue(world, a=1, b=2, f=6, g=7)


@pytest.mark.parametrize("name", OTHERS)
async def test_whatever_is_done_at_whichever_step_of_a_balance_is_balanced_in_the_end(world: World, name: str):
    steps = STEPS + 2 * world.is_distributed  # how long to wait, and who is told, are asked apart from the events
    for number in range(steps + 1):
        await begin(world)
        step = await world.stepping(balancing(world))
        for _ in range(number):
            await step.step()
        assert (step.ask is None) == (number == steps)
        other = await world.start(OTHERS[name](world))
        done = await reaches_end_or_waits(other)
        await step.finish()
        if not done:
            await other.outcome()
        (pool,) = await world.rows("select active from matrixsched.semaphores")
        assert len(await held(world)) <= max(pool["active"], 4)
        await settle(world)
        assert await held(world) == (await best(world))[: pool["active"]]
        await world.watcher.execute("delete from matrixsched.semaphores; delete from matrixsched.semaphore_tasks")


async def reaches_end_or_waits(started: UnderWay[Any]) -> bool:
    try:
        await started.answer()
    except StatementWaits:
        return False
    return True


# Between what a balance reads and what it writes.


async def test_what_is_released_between_read_and_write_gets_no_place(world: World):
    await make(world, 1, 0)
    await enqueue(world, a=2, b=1)
    held_up = await world.paused(balancing(world))
    assert await world.run(releasing(world, "a")) == ["a"]
    await held_up.resume()
    balanced = await held_up.answer()
    assert balanced is not None
    assert (balanced.acquired, balanced.is_complete) == (("b",), False)  # the place goes to the next
    assert await events(world) == {event_id(acquired_handler(POOL), "b")}


@cured(without_comparing=(Mutant("balance.write", "and t.guid = g.guid", ""),))
async def test_what_is_enqueued_anew_between_read_and_write_is_another(world: World, taken_out: Sequence[Taken]):
    await world.take_out(taken_out)
    await make(world, 1, 0)
    await enqueue(world, a=2)
    steps = await world.stepping(balancing(world))
    await steps.past("semaphore_tasks.waiting")
    await world.run(releasing(world, "a"))
    await enqueue(world, a=2)
    balanced = await steps.finish()
    assert balanced is not None
    # Without it nobody would hear of the place: what is known of the task is of a time that is over.
    assert await held(world) == ["a"]
    assert (balanced.acquired, balanced.is_complete) == (() if taken_out else ("a",), False)


async def test_who_steps_back_between_read_and_write_is_not_asked_and_not_gone(world: World):
    await make(world, 1, 1)
    await enqueue(world, a=1)
    await balance(world)
    await enqueue(world, urgent=2)
    held_up = await world.paused(balancing(world))
    assert await world.run(stepping_back(world, "a"))
    await held_up.resume()
    balanced = await held_up.answer()
    assert balanced is not None
    assert (balanced.asked, balanced.is_complete) == ((), False)
    assert (await balance(world)).acquired == ("urgent",)
    assert await states(world) == {"urgent": "acquired", "a": "waiting"}


async def test_a_holder_released_before_it_is_asked_is_not_asked(world: World):
    await make(world, 1, 1)
    await enqueue(world, a=1)
    await balance(world)
    await enqueue(world, urgent=2)
    held_up = await world.paused(balancing(world))
    await world.run(releasing(world, "a"))
    await held_up.resume()
    balanced = await held_up.answer()
    assert balanced is not None
    assert (balanced.asked, balanced.is_complete) == ((), False)
    assert (await balance(world)).acquired == ("urgent",)


async def test_a_priority_changed_between_read_and_write_counts_for_the_next_balance(world: World):
    await make(world, 1, 1)
    await enqueue(world, a=2, b=1)
    held_up = await world.paused(balancing(world))
    await enqueue(world, a=0)
    await held_up.resume()
    balanced = await held_up.answer()
    assert balanced is not None
    assert (balanced.acquired, balanced.is_complete, await marks(world)) == (("a",), True, 1)
    assert await world.rows("select from matrixsched.semaphore_tasks where task_id = 'a' and priority = 0")
    assert (await balance(world)).asked == ("a",)


# Two changes.


@cured(unheld=(Mutant("semaphores.hold", " for no key update", ""),))
async def test_two_who_change_different_things_change_both(world: World, taken_out: Sequence[Taken]):
    await world.take_out(taken_out)
    await make(world, 1, 0)

    def widening() -> Transition[Any]:
        return world.do.update_semaphore(POOL, lambda one: replace(one, active=one.active + 1), uuid4())

    steps = await world.stepping(widening())
    await steps.past("semaphores.hold")
    other = await world.start(widening())
    waits = not await reaches_end_or_waits(other)
    await steps.finish()
    await other.outcome()
    (pool,) = await world.rows("select active from matrixsched.semaphores")
    assert (waits, pool["active"]) == ((False, 2) if taken_out else (True, 3))


# Marks.


class MarksTakenLast(PostgresTransitions):
    """What is wrong: marks are taken away after the tasks were read."""

    def _forget_changes(self, key: str) -> Conversation[None]:
        yield from ()

    def _end_balance(self, key: str, again: UUID | None) -> Conversation[None]:
        yield from super()._forget_changes(key)
        yield from super()._end_balance(key, again)


@pytest.mark.parametrize(
    "wrong",
    [False, pytest.param(True, marks=pytest.mark.undistributed("what is wrong on purpose is PostgreSQL's usual form"))],
    ids=["cure in place", "marks taken last"],
)
async def test_what_changes_after_the_tasks_were_read_is_left_for_the_next_balance(world: World, wrong: bool):
    await make(world, 2, 1)
    await enqueue(world, a=1)
    do = MarksTakenLast("default", clock=world.clock) if wrong else world.do
    steps = await world.stepping(balancing(world, do))
    await steps.past("semaphore_tasks.waiting")
    await enqueue(world, b=2)
    await steps.finish()
    assert await held(world) == ["a"]
    assert (await world.run(world.do.changed_semaphores())).changed == ([] if wrong else [POOL])
    if wrong:
        await world.run(updating(world, 2, 1))  # or b would wait for ever
    assert (await balance(world)).acquired == ("b",)


async def test_a_mark_of_a_transaction_that_has_not_committed_is_left_to_it(world: World):
    await make(world, 1, 1)
    user, _ = await world.open(enqueueing(world, a=1))
    assert (await balance(world)).acquired == ()
    assert await marks(world) == 0
    await user.commit()
    assert await marks(world) == 1
    assert (await balance(world)).acquired == ("a",)


# Beside transactions of users.

WAITING_WRITE = (Mutant("balance.write", "for no key update skip locked", "for no key update"),)


@pytest.mark.parametrize("end", ["commit", "rollback"])
@cured(waiting=WAITING_WRITE)
async def test_for_a_task_in_a_users_hands_a_balance_does_not_wait_but_comes_back(
    world: World, taken_out: Sequence[Taken], end: str
):
    await world.take_out(taken_out)
    await make(world, 2, 1)
    await enqueue(world, a=2, b=1)
    user, _ = await world.open(enqueueing(world, a=7))
    if taken_out:
        with pytest.raises(StatementWaits):
            await world.run(balancing(world))
        await user.rollback()
        await world.under_way[-1].outcome()
        return
    balanced = await balance(world)
    assert (balanced.acquired, balanced.is_complete) == (("b",), False)
    assert (await world.run(world.do.changed_semaphores())).changed == [POOL]
    assert (await balance(world)).is_complete is False
    await (user.commit() if end == "commit" else user.rollback())
    assert await marks(world) == (2 if end == "commit" else 1)
    assert (await balance(world)).acquired == ("a",)
    assert await marks(world) == 0


async def test_a_place_whose_next_task_is_in_a_users_hands_goes_to_another(world: World):
    await make(world, 2, 1)
    await enqueue(world, a=4, b=3, c=2, d=1)
    user, _ = await world.open(enqueueing(world, a=5, b=3.5))
    balanced = await balance(world)
    assert (balanced.acquired, balanced.is_complete) == (("c", "d"), False)
    await user.commit()
    assert (await balance(world)).asked == ("d",)


@pytest.mark.parametrize("end", ["commit", "rollback"])
async def test_a_place_is_free_when_its_release_has_committed(world: World, end: str):
    await make(world, 1, 0)
    await enqueue(world, a=1)
    await balance(world)
    await enqueue(world, b=2)
    user, released = await world.open(releasing(world, "a"))
    assert released == ["a"]
    assert (await balance(world)).acquired == ()
    await (user.commit() if end == "commit" else user.rollback())
    if end == "commit":
        assert (await balance(world)).acquired == ("b",)
    else:
        assert (await states(world), await marks(world)) == ({"a": "acquired", "b": "waiting"}, 0)
        await world.run(releasing(world, "a"))


@pytest.mark.parametrize("end", ["commit", "rollback"])
async def test_a_place_that_is_being_renewed_does_not_lapse_meanwhile(world: World, end: str):
    await make(world, 1, 0, hold_for=10 * SECOND)
    await enqueue(world, a=2, b=1)
    await balance(world)
    world.clock.advance(9 * SECOND)
    user, renewed = await world.open(renewing(world, "a"))
    assert renewed == ["a"]
    world.clock.advance(2 * SECOND)
    assert (await balance(world)).lapsed == ()
    await (user.commit() if end == "commit" else user.rollback())
    assert (await world.run(world.do.changed_semaphores())).changed == [POOL]  # it could not tell
    assert (await balance(world)).lapsed == (() if end == "commit" else ("a",))


async def test_who_renews_a_place_that_lapses_meanwhile_does_not_have_it(world: World):
    await make(world, 1, 0, hold_for=10 * SECOND)
    await enqueue(world, a=1, b=1)
    await balance(world)
    world.clock.advance(10 * SECOND)
    steps = await world.stepping(balancing(world))
    await steps.past("balance.lapse")
    renewal = await world.start(renewing(world, "a"))
    await renewal.waits()
    await steps.finish()
    assert await renewal.outcome() == []
    assert await states(world) == {"a": "waiting", "b": "acquired"}


async def test_a_user_who_changes_what_a_balance_wrote_waits_for_its_end_alone(world: World):
    await make(world, 1, 0)
    await enqueue(world, a=1, b=0)
    steps = await world.stepping(balancing(world))
    await steps.past("balance.write")
    await enqueue(world, b=5, c=6)  # other tasks: nobody waits
    release = await world.start(releasing(world, "a"))
    await release.waits()
    await steps.finish()
    assert await release.outcome() == ["a"]
    assert (await balance(world)).acquired == ("c",)


async def test_an_event_in_a_users_hands_undoes_the_balance_as_a_whole(world: World):
    await make(world, 1, 0)
    await enqueue(world, a=1)
    await balance(world)
    await world.run(releasing(world, "a"))
    await enqueue(world, a=1)
    id = event_id(acquired_handler(POOL), "a")
    user, _ = await world.open(world.cancelling(id))
    before = await marks(world)
    stopped = await world.start(balancing(world))
    with pytest.raises(asyncpg.LockNotAvailableError):
        await stopped.outcome()
    assert (await states(world), await marks(world)) == ({"a": "waiting"}, before)
    await user.commit()
    assert (await balance(world)).acquired == ("a",)
    assert await events(world) == {id}


# Many tasks at once.


@pytest.mark.parametrize("kinds", ["enqueue enqueue", "enqueue release", "release release", "renew release"])
async def test_in_whichever_order_tasks_are_given_they_are_taken_in_one(world: World, kinds: str):
    ids = [f"t{number:03}" for number in range(300)]
    await make(world, 300, 0, hold_for=SECOND)
    await enqueue(world, **dict.fromkeys(ids, 1.0))
    await balance(world)
    what: dict[str, Callable[[Sequence[str], float], Transition[Any]]] = {
        "enqueue": lambda given, priority: enqueueing(world, **dict.fromkeys(given, priority)),
        "release": lambda given, _: releasing(world, *given),
        "renew": lambda given, _: renewing(world, *given),
    }
    first, second = kinds.split()
    for number in range(5):
        started = [
            await world.start(what[first](ids, number + 2)),
            await world.start(what[second](ids[::-1], number + 20)),
        ]
        await asyncio.gather(*(each.outcome() for each in started))


async def from_both_ends(world: World, one: Transition[Any], other: Transition[Any]) -> list[Any]:
    """What becomes of two that meet at b, which somebody has in hand until both wait."""
    between, _ = await world.open(releasing(world, "b"))
    started = [await world.start(one)]
    await started[0].waits()
    started.append(await world.start(other))
    await started[1].waits()
    await between.rollback()
    ended = await asyncio.gather(*(each.outcome() for each in started), return_exceptions=True)
    return [one for one in ended if isinstance(one, BaseException)]


@cured(as_given=(Mutant("release_tasks", '(select * from given order by task_id collate "C") g', "given g"),))
async def test_two_that_release_the_same_tasks_do_not_deadlock(world: World, taken_out: Sequence[Taken]):
    await world.take_out(taken_out)
    await make(world, 3, 0)
    await enqueue(world, a=1, b=1, c=1)
    failed = await from_both_ends(world, releasing(world, "a", "b", "c"), releasing(world, "c", "b", "a"))
    assert [type(error) for error in failed] == ([asyncpg.DeadlockDetectedError] if taken_out else [])
    assert await states(world) == {}


@cured(as_given=(Mutant("enqueue_tasks", 'order by task_id collate "C"', ""),))
async def test_two_that_change_the_same_tasks_do_not_deadlock(world: World, taken_out: Sequence[Taken]):
    await world.take_out(taken_out)
    await make(world, 3, 0)
    await enqueue(world, a=1, b=1, c=1)
    failed = await from_both_ends(world, enqueueing(world, a=2, b=2, c=2), enqueueing(world, c=3, b=3, a=3))
    assert [type(error) for error in failed] == ([asyncpg.DeadlockDetectedError] if taken_out else [])


@pytest.mark.parametrize("end", ["commit", "rollback"])
async def test_a_request_sent_again_while_the_first_is_under_way_tells_what_became_of_it(world: World, end: str):
    await make(world, 1, 0)
    await enqueue(world, a=1)
    release, enqueueing_b = releasing(world, "a"), enqueueing(world, b=1)
    for asked, first, again in ((release, ["a"], None), (enqueueing_b, Enqueued(1, 0), Enqueued(1, 0))):
        session, answer = await world.open(asked)
        assert answer == first
        twin = await world.start(asked)
        await twin.waits()
        await (session.commit() if end == "commit" else session.rollback())
        assert await twin.outcome() == (again if end == "commit" else first)
    assert await states(world) == {"b": "waiting"}


# Sessions that end, or stand still.


@pytest.mark.parametrize(
    "after", ["balance.hold", "balance.seen", "balance.lapse", "balance.write", "schedule", "balance.done"]
)
async def test_a_balance_whose_session_dies_leaves_nothing(world: World, after: str):
    await make(world, 1, 1, hold_for=SECOND)
    await enqueue(world, late=2)
    await balance(world)
    await enqueue(world, a=2, b=1)
    world.clock.advance(SECOND)
    before = await states(world), await marks(world), await events(world)
    steps: Steps[Balanced | None] = await world.stepping(balancing(world))
    await steps.past(after)
    await world.watcher.fetchval("select pg_terminate_backend($1, 5000)", steps.session.pid)
    assert before == (await states(world), await marks(world), await events(world))
    balanced = await balance(world)
    assert (balanced.lapsed, balanced.acquired) == (("late",), ("a",))


async def test_a_balance_that_stands_still_holds_up_the_others_for_two_seconds(world: World):
    await make(world, 1, 0)
    await enqueue(world, a=1)
    frozen = await world.stepping(balancing(world), how=BEGIN)
    await frozen.past("balance.write")
    async with asyncio.timeout(DEADLINE_S):
        while True:
            balanced = await world.run(balancing(world))
            if balanced is not None:
                break
            await asyncio.sleep(10 * POLL_EVERY_S)
    assert balanced.acquired == ("a",)
    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError)):
        await frozen.finish()
