"""What a task goes through, in memory and in both databases alike."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from support.queues import Storage

from matrixsched.clock import ManualClock
from matrixsched.errors import BadInput, InvalidDuration, InvalidNumber, InvalidTime, TaskTooLarge
from matrixsched.rules.queues import DATA_BYTES_MAX, VISIBILITY_MAX, NewItem, Receipt

pytestmark = pytest.mark.anyio

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


# The table of attempts.


async def test_attempts_and_starts_are_as_the_table_says(storage: Storage, clock: ManualClock):
    put_at = clock.now()
    await storage.put(1, b"a")
    (first,) = await storage.get(1, 10)
    assert (first.attempts, first.start_at, first.previous_start_at) == (0, put_at, None)
    clock.advance(SECOND)
    assert (await storage.retry([(first, 5 * SECOND)])).settled == {first.id}
    assert await storage.get(1, 10) == []
    clock.advance(5 * SECOND)
    retried_at = clock.now()
    (second,) = await storage.get(1, 10, visibility=10 * SECOND)
    assert (second.attempts, second.start_at, second.previous_start_at) == (1, retried_at, put_at)
    clock.advance(10 * SECOND)
    assert (await storage.done([second])).stale == {second.id}
    (third,) = await storage.get(1, 10)
    assert (third.attempts, third.start_at, third.previous_start_at) == (2, clock.now(), retried_at)
    assert (await storage.done([second, third])).settled == {third.id}
    assert (await storage.stat())[1].total == 0


async def test_a_task_is_handed_out_as_it_was_put(storage: Storage, clock: ManualClock):
    data = bytes(range(256))
    id = await storage.put(2**31 - 1, data)
    (task,) = await storage.get(2**31 - 1, 1)
    assert (task.id, task.queue, task.data, task.created_at) == (id, 2**31 - 1, data, clock.now())
    assert task.receipt.task_id == id


async def test_a_task_may_hold_nothing(storage: Storage):
    await storage.put(1, b"")
    await storage.put_many([NewItem(queue=1, data=b""), NewItem(queue=1, data=b"a")])
    assert [task.data for task in await storage.get(1, 10)] == [b"", b"", b"a"]


async def test_a_task_that_timed_out_is_ready_since_the_timeout_was_over(storage: Storage, clock: ManualClock):
    await storage.put(1, b"late")
    await storage.get(1, 1, visibility=10 * SECOND)
    over_at = clock.now() + 10 * SECOND
    clock.advance(MINUTE)
    assert (await storage.stat())[1].oldest_ready_at == over_at
    (task,) = await storage.get(1, 1)
    assert (task.start_at, task.attempts) == (over_at, 1)


# Who looks before taking anything.


async def test_a_look_tells_what_is_ready_and_what_comes_due(storage: Storage, clock: ManualClock):
    for queue, delay_s in ((1, 0), (1, 0.25), (1, 9), (2, 5), (3, 0), (4, 0)):
        await storage.put(queue, b"x", delay=delay_s * SECOND)
    await storage.get(3, 1, visibility=10 * SECOND)
    await storage.pause(4)
    looked = {queue: (one.is_ready, one.next_due_s) for queue, one in (await storage.look([1, 2, 3, 4, 9])).items()}
    looked.pop(4, None)  # the databases tell of its settings
    assert looked == {1: (True, 0.25), 2: (False, 5.0), 3: (False, 10.0)}
    assert await storage.look([]) == await storage.look([9]) == {}
    assert (await storage.look([1], within=SECOND / 4))[1].next_due_s == 0.25
    assert (await storage.look([1], within=SECOND / 5))[1].next_due_s is None
    assert await storage.look([2], within=4 * SECOND) == {}
    clock.advance(10 * SECOND)
    looked = {queue: (one.is_ready, one.next_due_s) for queue, one in (await storage.look([3, 1, 2])).items()}
    assert looked == {1: (True, None), 2: (True, None), 3: (True, None)}
    assert (await storage.stat())[1].ready == 3


async def test_a_look_at_a_paused_queue_finds_nothing_until_it_is_resumed(storage: Storage):
    await storage.put(1, b"x")
    await storage.put(1, b"x", delay=SECOND)
    await storage.pause(1)
    assert [(one.is_ready, one.next_due_s) for one in (await storage.look([1])).values()] in ([], [(False, None)])
    await storage.resume(1)
    assert [(one.is_ready, one.next_due_s) for one in (await storage.look([1])).values()] == [(True, 1.0)]


# Who may have it.


async def test_what_is_held_for_longer_stays_so_if_that_is_asked_for(storage: Storage, clock: ManualClock):
    await storage.put(1, b"a")
    (task,) = await storage.get(1, 1, visibility=10 * SECOND)
    assert (await storage.extend([task], visibility=5 * SECOND, only_longer=True)).settled == {task.id}
    assert (await storage.look([1]))[1].next_due_s == 10.0
    assert (await storage.extend([task], visibility=20 * SECOND, only_longer=True)).settled == {task.id}
    assert (await storage.look([1]))[1].next_due_s == 20.0
    assert (await storage.extend([task], visibility=5 * SECOND)).settled == {task.id}
    assert (await storage.look([1]))[1].next_due_s == 5.0
    clock.advance(5 * SECOND)
    assert (await storage.extend([task], visibility=MINUTE, only_longer=True)).stale == {task.id}


async def test_nobody_else_gets_a_task_before_the_timeout_is_over(storage: Storage, clock: ManualClock):
    await storage.put(1, b"a")
    (task,) = await storage.get(1, 1, visibility=10 * SECOND)
    clock.advance(10 * SECOND - timedelta.resolution)
    assert await storage.get(1, 1) == []
    assert (await storage.extend([task], visibility=SECOND)).settled == {task.id}
    clock.advance(timedelta.resolution)
    assert await storage.get(1, 1) == []
    clock.advance(SECOND - timedelta.resolution)
    (again,) = await storage.get(1, 1)
    assert again.receipt != task.receipt


async def settle(storage: Storage, how: str, *tasks: Any) -> Any:
    match how:
        case "done":
            return await storage.done(tasks)
        case "retry":
            return await storage.retry([(task, SECOND) for task in tasks])
        case "set aside":
            return await storage.set_aside([(task, "no use") for task in tasks])
        case _:
            return await storage.extend(tasks)


HOW = ["done", "retry", "set aside", "extend"]


@pytest.mark.parametrize("how", HOW)
async def test_a_void_receipt_changes_nothing_and_is_told(storage: Storage, clock: ManualClock, how: str):
    await storage.put_many([NewItem(queue=1, data=b"a"), NewItem(queue=1, data=b"b")])
    first, second = await storage.get(1, 2, visibility=10 * SECOND)
    clock.advance(10 * SECOND)
    late = await settle(storage, how, first)  # nobody else has it yet, but may have it at any moment
    assert (late.settled, late.stale) == (set(), {first.id})
    anew = await storage.get(1, 2, visibility=10 * SECOND)
    stale = await settle(storage, how, first, second)
    assert (stale.settled, stale.stale) == (set(), {first.id, second.id})
    assert (await storage.stat())[1].taken == 2
    assert (await settle(storage, how, *anew)).settled == {first.id, second.id}


@pytest.mark.parametrize("how", HOW)
async def test_one_that_is_settled_is_so_no_second_time(storage: Storage, how: str):
    await storage.put(1, b"a")
    (task,) = await storage.get(1, 1)
    assert (await settle(storage, how, task, task)).settled == {task.id}
    again = await settle(storage, how, task)
    assert (again.settled, again.stale) == (({task.id}, set()) if how == "extend" else (set(), {task.id}))


@pytest.mark.parametrize("how", HOW)
async def test_of_those_taken_at_once_the_others_stay_taken(storage: Storage, clock: ManualClock, how: str):
    await storage.put_many([NewItem(queue=1, data=b"x")] * 3)
    first, second, third = await storage.get(1, 3, visibility=10 * SECOND)
    clock.advance(SECOND)
    assert (await settle(storage, how, first, third)).settled == {first.id, third.id}
    assert (await settle(storage, how, second)).settled == {second.id}


@pytest.mark.parametrize("how", HOW)
async def test_a_receipt_is_of_one_task(storage: Storage, how: str):
    await storage.put_many([NewItem(queue=1, data=b"a"), NewItem(queue=1, data=b"b")])
    (one,) = await storage.get(1, 1)
    (other,) = await storage.get(1, 1)
    swapped = Borne(Receipt(one.id, other.receipt.guid)), Borne(Receipt(other.id, one.receipt.guid))
    assert (await settle(storage, how, *swapped)).stale == {one.id, other.id}
    unknown = Borne(Receipt(10**12, uuid4()))
    mixed = await settle(storage, how, unknown, swapped[0], other)
    assert (mixed.settled, mixed.stale) == ({other.id}, {one.id, 10**12})
    assert (await settle(storage, how)).stale == set()


class Borne:
    def __init__(self, receipt: Receipt) -> None:
        self.receipt = receipt


async def test_of_two_receipts_of_a_task_the_good_one_counts_in_whichever_order(storage: Storage, clock: ManualClock):
    for turn in (1, -1):
        await storage.put(1, b"a")
        (old,) = await storage.get(1, 1, visibility=SECOND)
        clock.advance(SECOND)
        (new,) = await storage.get(1, 1)
        retries = [(old, 9 * SECOND), (new, 5 * SECOND)][::turn]
        assert (await storage.retry(retries)).settled == {new.id}
        clock.advance(5 * SECOND)
        (again,) = await storage.get(1, 1)
        assert (again.attempts, again.start_at) == (2, clock.now())
        assert (await storage.done([again])).settled == {again.id}


async def test_more_than_go_into_one_statement_are_settled(storage: Storage):
    ids = await storage.put_many([NewItem(queue=1, data=b"a")] * 2_500)
    assert ids == sorted(set(ids))
    tasks = await storage.get(1, 10_000)
    assert [task.id for task in tasks] == ids
    assert len((await storage.extend(tasks)).settled) == 2_500
    assert len((await storage.retry([(task, timedelta(0)) for task in tasks])).settled) == 2_500
    tasks = await storage.get(1, 10_000)
    assert len((await storage.set_aside([(task, f"number {task.id}") for task in tasks[:1_500]])).settled) == 1_500
    assert {dead.reason for dead in await storage.dead_letters(1, limit=2)} == {f"number {id}" for id in ids[:2]}
    assert len((await storage.done(tasks)).settled) == 1_000
    assert (await storage.stat())[1].dead == 1_500


# When.


async def test_the_longest_ready_comes_first(storage: Storage, clock: ManualClock):
    now = clock.now()
    await storage.put(1, b"later", delay=2 * SECOND)
    await storage.put(1, b"second", at=now - SECOND)
    await storage.put(1, b"first", at=now - MINUTE)
    await storage.put(1, b"third")
    await storage.put(1, b"fourth")
    await storage.put(2, b"of another queue")
    assert [task.data for task in await storage.get(1, 3)] == [b"first", b"second", b"third"]
    assert [task.data for task in await storage.get(1, 3)] == [b"fourth"]
    clock.advance(2 * SECOND)
    assert [task.data for task in await storage.get(1, 3)] == [b"later"]
    assert [task.data for task in await storage.get(2, 3)] == [b"of another queue"]


async def test_a_task_that_comes_back_stands_where_its_start_says(storage: Storage, clock: ManualClock):
    await storage.put(1, b"a")
    await storage.put(1, b"b", delay=3 * SECOND)
    (a,) = await storage.get(1, 1, visibility=2 * SECOND)
    clock.advance(5 * SECOND)
    assert [task.data for task in await storage.get(1, 2)] == [b"a", b"b"]
    assert (await storage.done([a])).stale == {a.id}


async def test_a_delayed_task_cannot_be_taken_before_its_time(storage: Storage, clock: ManualClock):
    in_a_minute = (clock.now() + MINUTE).astimezone(UTC)
    await storage.put(1, b"at", at=in_a_minute)
    await storage.put(1, b"after", delay=MINUTE)
    await storage.put(1, b"months", delay=timedelta(days=200))  # over a change of clocks, wherever the session is
    clock.advance(MINUTE - timedelta.resolution)
    assert await storage.get(1, 9) == []
    stat = (await storage.stat())[1]
    assert (stat.total, stat.ready, stat.taken, stat.delayed, stat.oldest_ready_at) == (3, 0, 0, 3, None)
    clock.advance(timedelta.resolution)
    assert [(task.data, task.start_at) for task in await storage.get(1, 9)] == [
        (b"at", in_a_minute),
        (b"after", in_a_minute),
    ]
    clock.advance(timedelta(days=200) - MINUTE - timedelta.resolution)
    assert len(await storage.get(1, 9, visibility=VISIBILITY_MAX)) == 2
    clock.advance(timedelta.resolution)
    assert [task.data for task in await storage.get(1, 9)] == [b"months"]


async def test_retry_at_a_time_and_after_a_delay(storage: Storage, clock: ManualClock):
    await storage.put_many([NewItem(queue=1, data=data) for data in (b"a", b"b", b"c")])
    a, b, c = await storage.get(1, 3)
    past = clock.now() - MINUTE
    await storage.retry([(a, clock.now() + MINUTE), (b, MINUTE), (c, past)])
    (back,) = await storage.get(1, 3)
    assert (back.data, back.start_at, back.attempts) == (b"c", past, 1)
    clock.advance(MINUTE)
    assert {task.data for task in await storage.get(1, 3)} == {b"a", b"b", b"c"}


async def test_a_clock_that_is_set_back_loses_nothing(storage: Storage, clock: ManualClock):
    await storage.put(1, b"taken")
    (task,) = await storage.get(1, 1)
    clock.time -= timedelta(hours=1)
    await storage.put(1, b"after")
    assert [one.data for one in await storage.get(1, 9)] == [b"after"]
    assert (await storage.extend([task], visibility=SECOND)).settled == {task.id}  # its holder is there, and goes on
    clock.advance(SECOND)
    (again,) = await storage.get(1, 1)
    assert (again.id, again.attempts) == (task.id, 1)
    assert (await storage.done([again])).settled == {task.id}


# Pauses.


async def test_of_a_paused_queue_nothing_is_handed_out_but_all_may_be_settled(storage: Storage, clock: ManualClock):
    await storage.put_many([NewItem(queue=1, data=b"a"), NewItem(queue=1, data=b"b"), NewItem(queue=2, data=b"c")])
    (task,) = await storage.get(1, 1)
    assert await storage.pause(1)
    assert not await storage.pause(1)
    assert await storage.get(1, 9) == []
    assert len(await storage.get(2, 9)) == 1
    assert (await storage.extend([task])).settled == {task.id}
    assert (await storage.done([task])).settled == {task.id}
    await storage.put(1, b"d")
    assert await storage.resume(1)
    assert not await storage.resume(1)
    assert [one.data for one in await storage.get(1, 9)] == [b"b", b"d"]


async def test_a_queue_that_has_or_had_tasks_or_was_paused_is_told_of(storage: Storage):
    assert await storage.stat() == {}
    assert not await storage.resume(9)
    assert await storage.stat() == {}
    assert await storage.pause(5)
    await storage.put(7, b"a")
    assert list(await storage.stat()) == [5, 7]
    await storage.done(await storage.get(7, 1))
    stat = await storage.stat()
    assert [(one.queue, one.total, one.dead) for one in stat.values()] == [(5, 0, 0), (7, 0, 0)]


# Counting.


async def test_stat_tells_the_ready_the_taken_the_delayed_and_the_dead(storage: Storage, clock: ManualClock):
    await storage.put_many([NewItem(queue=1, data=b"x")] * 5 + [NewItem(queue=3, data=b"y", delay=MINUTE)])
    first_at = clock.now()
    dead, late, *_ = await storage.get(1, 3, visibility=10 * SECOND)
    await storage.set_aside([(dead, "no use")])
    await storage.extend([late], visibility=SECOND)
    clock.advance(SECOND)
    stat = await storage.stat()
    one, three = stat[1], stat[3]
    assert (one.total, one.ready, one.taken, one.delayed, one.dead) == (4, 3, 1, 0, 1)
    assert one.oldest_ready_at == first_at
    assert (three.total, three.ready, three.taken, three.delayed, three.oldest_ready_at) == (1, 0, 0, 1, None)


# Dead letters.


async def test_a_dead_letter_keeps_all_until_it_is_redriven_as_if_it_were_new(storage: Storage, clock: ManualClock):
    put_at = clock.now()
    id = await storage.put(1, b"\x00\xff")
    (task,) = await storage.get(1, 1, visibility=SECOND)
    clock.advance(SECOND)
    (task,) = await storage.get(1, 1)
    clock.advance(SECOND)
    assert (await storage.set_aside([(task, "cannot be read")])).settled == {id}
    (dead,) = await storage.dead_letters(1)
    assert (dead.id, dead.queue, dead.data, dead.attempts) == (id, 1, b"\x00\xff", 1)
    assert (dead.created_at, dead.died_at, dead.reason) == (put_at, clock.now(), "cannot be read")
    assert (dead.start_at, dead.previous_start_at) == (put_at + SECOND, put_at)
    assert await storage.get(1, 1) == []
    clock.advance(MINUTE)
    assert await storage.redrive(1) == 1
    assert await storage.redrive(1) == 0
    assert await storage.dead_letters(1) == []
    (back,) = await storage.get(1, 1)
    assert (back.id, back.data, back.attempts, back.previous_start_at) == (id, b"\x00\xff", 0, None)
    assert (back.created_at, back.start_at) == (put_at, clock.now())
    assert await storage.put(1, b"next") > id


async def test_dead_letters_are_redriven_and_purged_by_id_or_the_first_ones(storage: Storage):
    other, *ids = await storage.put_many([NewItem(queue=2, data=b"y")] + [NewItem(queue=1, data=b"x")] * 6)
    tasks = [*await storage.get(1, 9), *await storage.get(2, 9)]
    await storage.set_aside([(task, "no use") for task in tasks])
    assert [dead.id for dead in await storage.dead_letters(1, limit=2)] == ids[:2]
    assert [dead.id for dead in await storage.dead_letters(1, after=ids[1], limit=2)] == ids[2:4]
    assert await storage.redrive(1, ids=[ids[5], ids[5], other, 10**9], limit=1) == 1
    assert await storage.redrive(1, limit=2) == 2
    assert [task.id for task in await storage.get(1, 9)] == [*ids[:2], ids[5]]
    assert await storage.purge_dead(1, ids=[ids[0], ids[3], other]) == 1
    assert await storage.purge_dead(1, ids=[]) == 0
    assert [dead.id for dead in await storage.dead_letters(1)] == [ids[2], ids[4]]
    assert await storage.purge_dead(1, limit=1) == 1
    assert await storage.purge_dead(1) == 1
    assert await storage.dead_letters(1) == []
    assert (await storage.stat())[2].dead == 1


async def test_a_reason_is_stored_as_every_database_takes_it(storage: Storage):
    await storage.put(1, b"a")
    await storage.set_aside([(task, "nul \x00, lone \ud800, " + "long" * 1000) for task in await storage.get(1, 1)])
    (dead,) = await storage.dead_letters(1)
    assert dead.reason.startswith("nul \ufffd, lone ?, long")
    assert len(dead.reason) == 2000


# What is refused changes nothing.

FAR = datetime(2300, 1, 1, tzinfo=UTC)
NAIVE = FAR.replace(year=2030, tzinfo=None)
REFUSED: dict[str, tuple[type[BadInput], Any]] = {
    "queue -1": (InvalidNumber, lambda storage, task: storage.put(-1, b"")),
    "queue too large": (InvalidNumber, lambda storage, task: storage.put(2**31, b"")),
    "queue a text": (InvalidNumber, lambda storage, task: storage.get("emails", 1)),
    "data a text": (BadInput, lambda storage, task: storage.put(1, "text")),
    "data too large": (TaskTooLarge, lambda storage, task: storage.put(1, b"x" * (DATA_BYTES_MAX + 1))),
    "at without zone": (InvalidTime, lambda storage, task: storage.put(1, b"", at=NAIVE)),
    "at too far": (InvalidTime, lambda storage, task: storage.put(1, b"", at=FAR)),
    "delay negative": (InvalidDuration, lambda storage, task: storage.put(1, b"", delay=-SECOND)),
    "delay a number": (InvalidDuration, lambda storage, task: storage.put(1, b"", delay=5)),
    "at and delay": (
        BadInput,
        lambda storage, task: storage.put(1, b"", at=datetime(2030, 1, 1, tzinfo=UTC), delay=SECOND),
    ),
    "one of many": (
        InvalidNumber,
        lambda storage, task: storage.put_many([NewItem(queue=1, data=b""), NewItem(queue=-1, data=b"")]),
    ),
    "not an item": (BadInput, lambda storage, task: storage.put_many([(1, b"")])),
    "count 0": (InvalidNumber, lambda storage, task: storage.get(1, 0)),
    "count too large": (InvalidNumber, lambda storage, task: storage.get(1, 10_001)),
    "visibility too short": (InvalidDuration, lambda storage, task: storage.get(1, 1, visibility=SECOND / 2)),
    "visibility too long": (InvalidDuration, lambda storage, task: storage.get(1, 1, visibility=timedelta(days=1))),
    "extended for too long": (
        InvalidDuration,
        lambda storage, task: storage.extend([task], visibility=13 * 60 * MINUTE),
    ),
    "done without a receipt": (BadInput, lambda storage, task: storage.done([task, 7])),
    "retry without a zone": (InvalidTime, lambda storage, task: storage.retry([(task, NAIVE)])),
    "retry in the past": (InvalidDuration, lambda storage, task: storage.retry([(task, -SECOND)])),
    "retry at a number": (InvalidTime, lambda storage, task: storage.retry([(task, 60)])),
    "no reason": (BadInput, lambda storage, task: storage.set_aside([(task, " ")])),
    "limit 0": (InvalidNumber, lambda storage, task: storage.redrive(1, limit=0)),
    "an id that is none": (InvalidNumber, lambda storage, task: storage.purge_dead(1, ids=["a"])),
    "after nothing": (InvalidNumber, lambda storage, task: storage.dead_letters(1, after=-1)),
    "pause of nothing": (InvalidNumber, lambda storage, task: storage.pause(None)),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_what_cannot_be_is_refused_and_changes_nothing(storage: Storage, name: str):
    await storage.put_many([NewItem(queue=1, data=b"a"), NewItem(queue=1, data=b"b")])
    (task,) = await storage.get(1, 1)
    before = await storage.stat()
    error, call = REFUSED[name]
    with pytest.raises(error):
        await call(storage, task)
    assert await storage.stat() == before
    assert (await storage.done([task])).settled == {task.id}
    assert await storage.put_many([]) == []
