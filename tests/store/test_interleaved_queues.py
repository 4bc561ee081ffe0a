"""Takes beside whoever settles, extends, puts and purges, in real sessions: nothing lost, nothing in two hands."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from support.interleaving import Mutant, StatementWaits, Taken, World, cured

from matrixsched.rules.queues import NewItem, Receipt, StoredTask
from matrixsched.store.queues import Letter, Retry
from matrixsched.store.transition import Transition

pytestmark = pytest.mark.anyio

SECOND = timedelta(seconds=1)
HOLD = 10 * SECOND
WITHOUT_RECEIPT = "and t.receipt = (cast(:guids as uuid[]))[width_bucket(t.id, cast(:ids as bigint[]))]"
WITHOUT_TIME = "and t.due_at > {now}"


@pytest.fixture
async def world(world: World) -> AsyncIterator[World]:
    """Whatever happened, each task is in one place at most."""
    yield world
    twice = "select id from matrixsched.queue_tasks intersect select id from matrixsched.queue_dead_letters"
    assert await world.rows(twice) == []


def putting(world: World, count: int = 1, **options: Any) -> Transition[list[int]]:
    return world.do.put_tasks([NewItem(queue=1, data=b"x", **options)] * count, uuid4(), tell=False)


def taking(world: World, count: int = 9) -> Transition[list[StoredTask]]:
    return world.do.take_tasks(1, count, uuid4(), visibility=HOLD)


def finishing(world: World, *tasks: StoredTask) -> Transition[set[int]]:
    return world.do.done_tasks([task.receipt for task in tasks])


def retrying(world: World, *tasks: StoredTask) -> Transition[set[int]]:
    return world.do.retry_tasks([Retry(task.receipt, SECOND) for task in tasks], uuid4())


def setting_aside(world: World, *tasks: StoredTask) -> Transition[set[int]]:
    return world.do.set_aside_tasks([Letter(task.receipt, "no use") for task in tasks], uuid4())


def extending(world: World, *tasks: StoredTask) -> Transition[set[int]]:
    return world.do.extend_tasks([task.receipt for task in tasks], visibility=HOLD)


SETTLING: dict[str, Callable[..., Transition[set[int]]]] = {
    "done_tasks.delete": finishing,
    "retry_tasks": retrying,
    "set_aside_tasks": setting_aside,
    "extend_tasks.extend": extending,
}
CONSUMING = ["done_tasks.delete", "retry_tasks", "set_aside_tasks"]


async def take(world: World, count: int = 9) -> list[StoredTask]:
    return await world.run(taking(world, count))


async def put_and_take(world: World, count: int = 1) -> list[StoredTask]:
    await world.run(putting(world, count))
    tasks = await take(world)
    assert len(tasks) == count
    return tasks


async def is_held(world: World, task: StoredTask) -> bool:
    """Whether nobody but the holder of this receipt can settle it."""
    rows = await world.rows(
        "select from matrixsched.queue_tasks where id = $1 and receipt = $2 and due_at > $3",
        task.id,
        task.receipt.guid,
        world.now,
    )
    return bool(rows)


# Two who take.


@cured(
    without_a_lock=(Mutant("take_tasks", "for update skip locked", ""),),
)
async def test_of_two_who_take_at_once_each_task_goes_to_one(world: World, taken_out: Sequence[Taken]):
    await world.take_out(taken_out)
    await world.run(putting(world, 3))
    one = await world.paused(taking(world, 2))
    other = await take(world, 2)
    await one.resume()
    late = await one.answer()
    both = {task.id for task in late} & {task.id for task in other}
    if taken_out:
        assert both
        return
    assert both == set()
    rest = await take(world)
    assert len({task.id for task in (*late, *other, *rest)}) == 3
    for task in (*late, *other, *rest):
        assert await world.run(finishing(world, task)) == {task.id}


@cured(waiting=(Mutant("take_tasks", "for update skip locked", "for update"),))
async def test_who_takes_waits_for_nobody_and_gets_the_next_ones(world: World, taken_out: Sequence[Taken]):
    await world.take_out(taken_out)
    await world.run(putting(world, 3))
    session, first = await world.open(taking(world, 2))
    if taken_out:
        with pytest.raises(StatementWaits):
            await take(world, 2)
        return
    (other,) = await take(world, 2)
    assert other.id not in {task.id for task in first}
    await session.rollback()
    assert [task.attempts for task in await take(world)] == [0, 0]


async def test_a_take_that_is_rolled_back_leaves_no_trace(world: World):
    await world.run(putting(world))
    session, (task,) = await world.open(taking(world))
    assert await take(world) == []
    await session.rollback()
    (again,) = await take(world)
    assert (again.id, again.attempts, again.previous_start_at) == (task.id, 0, None)


@pytest.mark.parametrize("other", ["takes for the first time", "changes settings", "pauses"])
async def test_the_first_take_waits_for_nobody(world: World, other: str):
    """What it took would be in nobody's hands meanwhile, and come back only when the timeout is over."""
    await world.run(putting(world, 2))
    openings: dict[str, Callable[[], Transition[Any]]] = {
        "takes for the first time": lambda: taking(world, 1),
        "changes settings": lambda: world.do.change_queue_settings(1, lambda one: replace(one, batch_size=7)),
        "pauses": lambda: world.do.pause_queue(1),
    }
    session, _ = await world.open(openings[other]())
    (task, *_) = await take(world)
    assert await world.run(finishing(world, task)) == {task.id}
    await session.commit()
    assert (await world.run(world.do.count_queues(count_max=9))).stats.keys() == {1}


async def test_a_purge_waits_for_nobody_who_changes_settings(world: World):
    ids = await world.run(putting(world, 2))
    session, _ = await world.open(world.do.pause_queue(1))
    assert await world.run(world.do.purge_tasks(1, ids=ids, limit=9)) == 2
    await session.rollback()
    assert (await world.run(world.do.count_queues(count_max=9))).stats[1].total == 0


# Who put it, and who takes it.


async def test_what_is_being_put_is_neither_seen_nor_waited_for(world: World):
    session, (first,) = await world.open(putting(world))
    (second,) = await world.run(putting(world))
    assert [task.id for task in await take(world)] == [second]
    await session.commit()
    assert [task.id for task in await take(world)] == [first]


async def test_a_request_that_is_sent_again_while_it_is_under_way_puts_once(world: World):
    request = uuid4()
    items = [NewItem(queue=1, data=b"x")] * 2
    session, ids = await world.open(world.do.put_tasks(items, request, tell=False))
    again = await world.start(world.do.put_tasks(items, request, tell=False))
    await again.waits()
    await session.commit()
    assert await again.outcome() == ids
    assert len(await take(world)) == 2


async def test_a_request_whose_first_try_was_rolled_back_is_carried_out(world: World):
    request = uuid4()
    items = [NewItem(queue=1, data=b"x")]
    session, ids = await world.open(world.do.put_tasks(items, request, tell=False))
    again = await world.start(world.do.put_tasks(items, request, tell=False))
    await again.waits()
    await session.rollback()
    assert await again.outcome() != ids
    assert len(await take(world)) == 1


# Who has it, and who takes it when the timeout is over.


def without(name: str, piece: str) -> tuple[Mutant, ...]:
    return (Mutant(name, piece, ""),)


@pytest.mark.parametrize(
    ("name", "taken_out"),
    [(name, out) for name in SETTLING for out in [(), without(name, WITHOUT_RECEIPT)]],
)
async def test_who_settles_just_before_another_takes_it_changes_nothing(
    world: World, name: str, taken_out: Sequence[Taken]
):
    await world.take_out(taken_out)
    (task,) = await put_and_take(world)
    world.clock.advance(HOLD - timedelta.resolution)
    late = await world.paused(SETTLING[name](world, task))
    world.clock.advance(timedelta.resolution)
    (theirs,) = await take(world)
    world.clock.advance(SECOND)
    await late.resume()
    answer = await late.answer()
    if taken_out:
        assert answer == {task.id}  # of the other one's
        return
    assert answer == set()
    assert await is_held(world, theirs)
    assert (await world.run(finishing(world, theirs))) == {theirs.id}


@pytest.mark.parametrize(
    ("name", "taken_out"),
    [
        *((name, ()) for name in SETTLING),
        *(
            pytest.param(
                name, without(name, WITHOUT_TIME), marks=pytest.mark.undistributed("the time is written otherwise")
            )
            for name in SETTLING
        ),
    ],
)
async def test_a_receipt_is_void_when_the_timeout_is_over_whether_or_not_another_took_it(
    world: World, name: str, taken_out: Sequence[Taken]
):
    await world.take_out(taken_out)
    (task,) = await put_and_take(world)
    world.clock.advance(HOLD)
    theirs = await world.paused(taking(world))  # it has seen the task, and locks it next
    answer = await world.run(SETTLING[name](world, task))
    await theirs.resume()
    got = await theirs.answer()
    if taken_out:
        assert answer == {task.id}
        assert got == []
        return
    assert answer == set()
    assert [(one.id, one.attempts) for one in got] == [(task.id, 1)]


@pytest.mark.parametrize("name", SETTLING)
async def test_what_is_settled_in_time_is_not_taken_by_who_saw_it_before(world: World, name: str):
    (task,) = await put_and_take(world)
    world.clock.advance(HOLD - timedelta.resolution)
    settling = SETTLING[name](world, task)
    session, answer = await world.open(settling)
    world.clock.advance(timedelta.resolution)
    assert answer == {task.id}
    theirs = await world.paused(taking(world))
    await session.commit()
    await theirs.resume()
    assert await theirs.answer() == []
    assert await take(world) == []


@pytest.mark.parametrize("name", SETTLING)
async def test_who_takes_waits_for_nobody_who_settles(world: World, name: str):
    (task,) = await put_and_take(world)
    world.clock.advance(HOLD - timedelta.resolution)
    session, answer = await world.open(SETTLING[name](world, task))
    world.clock.advance(timedelta.resolution)
    assert answer == {task.id}
    assert await take(world) == []
    await session.rollback()
    assert [one.attempts for one in await take(world)] == [1]


@pytest.mark.parametrize("name", CONSUMING)
async def test_who_settles_late_waits_for_who_takes_and_changes_nothing(world: World, name: str):
    (task,) = await put_and_take(world)
    world.clock.advance(HOLD - timedelta.resolution)
    settling = SETTLING[name](world, task)
    statement = settling.begin()
    ask = next(statement)  # of that moment, but it arrives later
    world.clock.advance(timedelta.resolution)
    session, (theirs,) = await world.open(taking(world))
    late = await world.start(replace(settling, begin=lambda: _asked_before(ask, statement)))
    await late.waits()
    await session.commit()
    assert await late.outcome() == set()
    assert await is_held(world, theirs)


def _asked_before(ask: Any, rest: Any) -> Any:
    rows = yield ask
    try:
        while True:
            rows = yield rest.send(rows)
    except StopIteration as end:
        return end.value


# Two who settle the same.


@pytest.mark.parametrize("second", CONSUMING)
@pytest.mark.parametrize("first", CONSUMING)
async def test_of_two_who_settle_the_same_task_one_does(world: World, first: str, second: str):
    tasks = await put_and_take(world, 2)
    session, answer = await world.open(SETTLING[first](world, *tasks))
    other = await world.start(SETTLING[second](world, *tasks))
    await other.waits()
    await session.commit()
    assert (answer, await other.outcome()) == ({task.id for task in tasks}, set())


@pytest.mark.parametrize("name", CONSUMING)
async def test_who_settles_between_two_extensions_settles(world: World, name: str):
    """The row is another one than was seen; what is compared is the same."""
    tasks = await put_and_take(world, 2)
    settling = await world.paused(SETTLING[name](world, *tasks))
    assert await world.run(extending(world, *tasks)) == {task.id for task in tasks}
    await settling.resume()
    assert await settling.answer() == {task.id for task in tasks}
    assert await world.run(extending(world, *tasks)) == set()


@pytest.mark.parametrize("name", CONSUMING)
@cured(waiting=(Mutant("extend_tasks.extend", "for update skip locked", "for update"),))
async def test_who_extends_waits_for_nobody(world: World, name: str, taken_out: Sequence[Taken]):
    await world.take_out(taken_out)
    one, other = await put_and_take(world, 2)
    session, answer = await world.open(SETTLING[name](world, one))
    assert answer == {one.id}
    if taken_out:
        with pytest.raises(StatementWaits):
            await world.run(extending(world, one, other))
        return
    assert await world.run(extending(world, one, other)) == {one.id, other.id}  # that one has it does not make it void
    await session.commit()
    assert await world.run(extending(world, one, other)) == {other.id}


async def test_a_retry_that_is_sent_again_while_it_is_under_way_counts_once(world: World):
    (task,) = await put_and_take(world)
    retrying_once = world.do.retry_tasks([Retry(task.receipt, timedelta(0))], uuid4())
    session, answer = await world.open(retrying_once)
    again = await world.start(retrying_once)
    await again.waits()
    await session.commit()
    assert answer == await again.outcome() == {task.id}
    (back,) = await take(world)
    assert back.attempts == 1
    assert await world.run(retrying_once) == {task.id}  # and much later, too
    assert await is_held(world, back)


@cured(
    unlike=(
        Mutant(
            "done_tasks.delete",
            "(cast(:guids as uuid[]))[width_bucket(t.id, cast(:ids as bigint[]))]",
            "any (cast(:guids as uuid[]))",
        ),
    ),
)
async def test_each_receipt_is_compared_with_its_own_task(world: World, taken_out: Sequence[Taken]):
    await world.take_out(taken_out)
    one, other = await put_and_take(world, 2)
    world.clock.advance(HOLD)
    fresh = await take(world)
    old_and_new = [one.receipt, next(task.receipt for task in fresh if task.id == other.id)]
    done = await world.run(world.do.done_tasks(old_and_new))
    assert done == ({one.id, other.id} if taken_out else {other.id})


# Operators.


@cured(without_a_lock=(Mutant("queue_tasks.purge", "for update skip locked", ""),))
async def test_a_purge_leaves_what_is_taken_meanwhile(world: World, taken_out: Sequence[Taken]):
    await world.take_out(taken_out)
    ids = await world.run(putting(world, 2))
    purge = await world.paused(world.do.purge_tasks(1, ids=ids, limit=9))
    (task,) = await take(world, 1)
    await purge.resume()
    assert await purge.answer() == (2 if taken_out else 1)
    assert await is_held(world, task) is not bool(taken_out)


@cured(without_asking=(Mutant("queue_tasks.hasten", "and t.receipt is null", ""),))
async def test_what_came_due_and_was_taken_meanwhile_is_not_hastened(world: World, taken_out: Sequence[Taken]):
    await world.take_out(taken_out)
    ids = await world.run(putting(world, delay=SECOND))
    hasten = await world.paused(world.do.retry_now(1, ids=ids, limit=9, tell=False))
    world.clock.advance(SECOND)
    (task,) = await take(world)
    await hasten.resume()
    assert await hasten.answer() == (1 if taken_out else 0)
    assert await is_held(world, task) is not bool(taken_out)


async def test_of_two_who_redrive_the_same_letters_each_brings_its_own(world: World):
    await world.run(setting_aside(world, *await put_and_take(world, 3)))
    ids = [row["id"] for row in await world.rows("select id from matrixsched.queue_dead_letters order by id")]
    one = await world.paused(world.do.redrive(1, ids=ids, limit=9, tell=False))
    assert await world.run(world.do.redrive(1, ids=ids[:2], limit=9, tell=False)) == 2
    await one.resume()
    assert await one.answer() == 1
    assert [task.id for task in await take(world)] == ids


@pytest.mark.parametrize("other", ["redrive", "purge"])
async def test_who_redrives_waits_for_nobody(world: World, other: str):
    await world.run(setting_aside(world, *await put_and_take(world, 2)))
    do = world.do
    session, gone = await world.open(do.redrive(1, ids=None, limit=1, tell=False))
    assert gone == 1
    if other == "redrive":
        assert await world.run(do.redrive(1, ids=None, limit=1, tell=False)) == 0  # the very first is in other hands
        assert await world.run(do.redrive(1, ids=None, limit=2, tell=False)) == 1
    else:
        assert await world.run(do.purge_dead(1, ids=None, limit=2)) == 1
    await session.commit()


@cured(unheld=(Mutant("queue_settings.hold", "for no key update", ""),))
async def test_two_who_change_different_settings_change_both(world: World, taken_out: Sequence[Taken]):
    await world.take_out(taken_out)
    await world.run(world.do.pause_queue(1))
    steps = await world.stepping(world.do.change_queue_settings(1, lambda one: replace(one, batch_size=7)))  # type: ignore[arg-type]
    await steps.past("queue_settings.hold")
    other = await world.start(world.do.change_queue_settings(1, lambda one: replace(one, processors_max=3)))
    if taken_out:
        await other.answer()
    else:
        await other.waits()
    await steps.finish()
    await other.outcome()
    (found,) = await world.run(world.do.queue_settings())
    assert (found.batch_size, found.processors_max) == ((7, None) if taken_out else (7, 3))


def test_receipts_are_ordered_by_their_tasks():
    """Statements find the receipt of each task by halving."""
    guids = sorted(uuid4() for _ in range(2))
    assert sorted([Receipt(2, guids[0]), Receipt(1, guids[1])])[0].task_id == 1
