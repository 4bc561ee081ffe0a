"""What only queues in a database have: lost answers, looks, settings, workers and their assignments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID, uuid4

import pytest
from support.queues import storage_of

from matrixsched.clock import ManualClock
from matrixsched.errors import BadInput, DatabaseUnavailable, InvalidDuration, InvalidNumber, OutcomeUnknown
from matrixsched.queues.database import DatabaseStorage
from matrixsched.rules.queues import VISIBILITY_MAX, NewItem, QueueSettings
from matrixsched.store import queues as store_queues
from matrixsched.store.chores import QUEUES
from matrixsched.store.queues import Ready
from matrixsched.store.store import Store
from matrixsched.store.transition import Transition
from matrixsched.store.wrapper import StoreWrapper

pytestmark = pytest.mark.anyio

T = TypeVar("T")
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


class Unreliable(StoreWrapper):
    """A store whose next answers are lost, or whose next requests are, or are refused; then it does what `meanwhile`
    says."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.lost: list[str] = []
        self.meanwhile: Callable[[], Any] | None = None

    async def run(self, transition: Transition[T]) -> T:
        fault = self.lost.pop() if self.lost else None
        if fault == "refused":
            raise DatabaseUnavailable(f"{transition.name}: nothing was done")
        if fault != "request":
            answer = await self._inner.run(transition)
        if fault is None:
            return answer
        if self.meanwhile is not None:
            await self.meanwhile()
        raise OutcomeUnknown(f"{transition.name}: the {fault} was lost")

    def sibling(self) -> Store:
        raise NotImplementedError


LOST = ["answer", "request"]


@pytest.fixture
def unreliable(store: Store) -> Unreliable:
    return Unreliable(store)


@pytest.fixture
def shaky(unreliable: Unreliable) -> DatabaseStorage:
    return storage_of(unreliable, seed=2)


def items(*datas: bytes, **options: Any) -> list[NewItem]:
    return [NewItem(queue=1, data=data, **options) for data in datas]


# Where an answer is lost.


@pytest.mark.parametrize("lost", LOST)
async def test_what_is_put_again_is_there_once_under_the_ids_that_are_told(
    shaky: DatabaseStorage, unreliable: Unreliable, lost: str
):
    unreliable.lost = [lost]
    ids = await shaky.put_many(items(b"a", b"b"))
    tasks = await shaky.get(1, 9)
    assert [(task.id, task.data) for task in tasks] == list(zip(ids, (b"a", b"b"), strict=True))


@pytest.mark.parametrize("lost", LOST)
async def test_what_may_have_been_done_is_not_said_to_have_failed(
    shaky: DatabaseStorage, unreliable: Unreliable, lost: str
):
    """The second try is refused, but nobody knows of the first."""
    await shaky.put_many(items(b"a", b"b", b"c"))
    a, b, c = await shaky.get(1, 3)
    for call in (
        lambda: shaky.put_many(items(b"d")),
        lambda: shaky.done([a]),
        lambda: shaky.retry([(b, timedelta(0))]),
        lambda: shaky.set_aside([(c, "of no use")]),
    ):
        unreliable.lost = ["refused", lost]
        with pytest.raises(OutcomeUnknown):
            await call()


async def test_the_ids_are_told_also_of_tasks_that_were_done_meanwhile(
    shaky: DatabaseStorage, unreliable: Unreliable, database: DatabaseStorage
):
    done: list[int] = []

    async def work() -> None:
        done.extend((await database.done(await database.get(1, 9))).settled)

    unreliable.lost, unreliable.meanwhile = ["answer"], work
    ids = await shaky.put_many(items(b"a", b"b"))
    assert sorted(done) == ids
    assert await database.get(1, 9) == []


@pytest.mark.parametrize("lost", LOST)
async def test_thousands_are_put_once_and_all_in_order(
    shaky: DatabaseStorage, unreliable: Unreliable, lost: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(store_queues, "PUT_TASKS_MAX", 4)
    monkeypatch.setattr(store_queues, "PUT_BYTES_MAX", 10)
    datas = [b"%d" % number * (number % 7) for number in range(40)]
    unreliable.lost = [lost]
    ids = await shaky.put_many(items(*datas))
    assert [(task.id, task.data) for task in await shaky.get(1, 99)] == list(zip(ids, datas, strict=True))


@pytest.mark.parametrize("lost", LOST)
async def test_what_was_done_by_the_first_of_two_tries_is_not_called_stale(
    shaky: DatabaseStorage, unreliable: Unreliable, clock: ManualClock, lost: str
):
    await shaky.put(1, b"a")
    (late,) = await shaky.get(1, 1, visibility=SECOND)
    clock.advance(SECOND)
    await shaky.get(1, 1)  # somebody else has it now
    await shaky.put_many(items(b"b", b"c"))
    mine = await shaky.get(1, 9)
    unreliable.lost = [lost]
    answer = await shaky.done([late, *mine])
    assert (answer.settled, answer.stale) == ({task.id for task in mine}, {late.id})
    assert (await shaky.stat())[1].total == 1


@pytest.mark.parametrize("lost", LOST)
async def test_what_came_back_by_the_first_of_two_tries_comes_back_once(
    shaky: DatabaseStorage, unreliable: Unreliable, database: DatabaseStorage, lost: str
):
    await shaky.put_many(items(b"a", b"b"))
    a, b = await shaky.get(1, 9)
    taken: list[Any] = []

    async def take_at_once() -> None:
        taken.extend(await database.get(1, 9))

    unreliable.lost, unreliable.meanwhile = [lost], take_at_once
    assert (await shaky.retry([(a, timedelta(0)), (b, MINUTE)])).settled == {a.id, b.id}
    (again,) = taken or await database.get(1, 9)
    assert (again.id, again.attempts) == (a.id, 1)
    assert (await shaky.stat())[1].delayed == 1


@pytest.mark.parametrize("lost", LOST)
async def test_what_was_set_aside_by_the_first_of_two_tries_is_so_once(
    shaky: DatabaseStorage, unreliable: Unreliable, database: DatabaseStorage, lost: str
):
    await shaky.put(1, b"a")
    tasks = await shaky.get(1, 9)

    async def redrive() -> None:
        await database.redrive(1)

    unreliable.lost, unreliable.meanwhile = [lost], redrive
    assert (await shaky.set_aside([(task, "no use") for task in tasks])).stale == set()
    assert len(await shaky.dead_letters(1)) == (lost == "request")
    assert (await shaky.stat())[1].total == (lost == "answer")


@pytest.mark.parametrize("lost", LOST)
async def test_what_is_extended_again_is_held_as_long(
    shaky: DatabaseStorage, unreliable: Unreliable, clock: ManualClock, lost: str
):
    await shaky.put(1, b"a")
    tasks = await shaky.get(1, 1, visibility=SECOND)
    unreliable.lost = [lost]
    assert (await shaky.extend(tasks, visibility=MINUTE)).settled == {tasks[0].id}
    clock.advance(MINUTE - SECOND)
    assert (await shaky.done(tasks)).settled == {tasks[0].id}


async def test_what_was_taken_without_an_answer_comes_back(
    shaky: DatabaseStorage, unreliable: Unreliable, clock: ManualClock
):
    await shaky.put(1, b"a")
    unreliable.lost = ["answer"]
    with pytest.raises(OutcomeUnknown):
        await shaky.get(1, 1)
    assert await shaky.get(1, 1) == []
    clock.advance(MINUTE)
    assert [task.attempts for task in await shaky.get(1, 1)] == [1]


# Looking, hastening, purging.


async def test_a_look_shows_the_first_tasks_and_takes_none(database: DatabaseStorage, clock: ManualClock):
    await database.put_many([*items(b"a", b"b"), *items(b"later", delay=MINUTE)])
    (a,) = await database.get(1, 1, visibility=SECOND)
    (b,) = await database.get(1, 1, visibility=2 * MINUTE)
    clock.advance(SECOND)
    seen = await database.peek(1, limit=9)
    assert [(task.data, task.state, task.attempts) for task in seen] == [
        (b"a", "ready", 1),
        (b"later", "delayed", 0),
        (b"b", "taken", 0),
    ]
    assert [task.id for task in await database.peek(1, limit=1)] == [a.id]
    assert (await database.done([b])).settled == {b.id}


async def test_a_look_tells_what_getting_would_tell(database: DatabaseStorage, clock: ManualClock):
    """Also of a task that nobody settled in time: it came back when the timeout was over, with one attempt more."""
    first, _ = await database.put_many(items(b"again", b"once"))
    begin = clock.now()
    await database.get(1, 1, visibility=SECOND)
    clock.advance(MINUTE)
    seen = {task.id: task for task in await database.peek(1)}
    told = (seen[first].attempts, seen[first].start_at, seen[first].previous_start_at)
    assert told == (1, begin + SECOND, begin)
    for task in await database.get(1, 9):
        one = seen[task.id]
        assert (one.attempts, one.start_at, one.previous_start_at) == (
            task.attempts,
            task.start_at,
            task.previous_start_at,
        )
    assert [(one.state, one.attempts) for one in await database.peek(1)] == [("taken", 1), ("taken", 0)]


async def test_delayed_tasks_are_made_ready(database: DatabaseStorage, clock: ManualClock):
    soon, later, last = await database.put_many(
        [NewItem(queue=1, data=b"x", delay=minutes * MINUTE) for minutes in (1, 2, 3)]
    )
    await database.put(1, b"ready")
    await database.put(2, b"y", delay=MINUTE)
    (taken,) = await database.get(1, 1)
    assert await database.retry_now(1, ids=[last, taken.id, 10**9]) == 1
    assert [task.id for task in await database.get(1, 9)] == [last]
    assert await database.retry_now(1, limit=1) == 1
    assert [(task.id, task.start_at, task.attempts) for task in await database.get(1, 9)] == [(soon, clock.now(), 0)]
    assert await database.retry_now(1) == 1
    assert await database.retry_now(1) == 0
    assert [task.id for task in await database.get(1, 9)] == [later]
    assert (await database.stat())[2].delayed == 1


async def test_a_purge_leaves_what_somebody_has(database: DatabaseStorage, clock: ManualClock):
    ids = await database.put_many([*items(b"a", b"b", b"c"), *items(b"later", delay=timedelta(days=9))])
    await database.put(2, b"of another queue")
    (late,) = await database.get(1, 1, visibility=SECOND)
    (taken,) = await database.get(1, 1)
    clock.advance(SECOND)
    assert await database.purge(1, limit=2) == 2
    assert await database.purge(1) == 1
    assert await database.purge(1) == 0
    assert (await database.done([late, taken])).settled == {taken.id}
    assert await database.purge(2, ids=[ids[0], 10**9]) == 0
    stat = await database.stat()
    assert (stat[1].total, stat[2].total) == (0, 1)
    assert await database.purge(2) == 1
    assert list(await database.stat()) == [1, 2]


async def test_counting_stops_where_it_is_told(database: DatabaseStorage):
    await database.put_many([*items(*[b"x"] * 5), *items(*[b"y"] * 5, delay=MINUTE)])
    stat = (await database.stat(count_max=3))[1]
    assert (stat.ready, stat.delayed, stat.total) == (3, 3, 6)


# A clock that was set back.


async def test_a_task_is_locked_up_no_longer_than_anybody_may_ask_for(
    store: Store, database: DatabaseStorage, clock: ManualClock
):
    await database.put_many([*items(b"a", b"b", b"c"), *items(b"later", delay=timedelta(days=9))])
    await database.get(1, 2)
    clock.time -= timedelta(days=30)
    await database.put(1, b"new")
    (ours,) = await database.get(1, 1, visibility=VISIBILITY_MAX)
    after, shortened, rounds = 0, 0, 0
    while after is not None:
        swept = await store.run(store.transitions.sweep_tasks(after, limit=2, reach=VISIBILITY_MAX))
        after, shortened, rounds = swept.position, shortened + swept.shortened, rounds + 1
    assert (shortened, rounds) == (2, 3)
    assert (await database.stat())[1].taken == 3
    clock.advance(VISIBILITY_MAX)
    assert [(task.data, task.attempts) for task in await database.get(1, 9)] == [(b"a", 1), (b"b", 1), (b"new", 1)]
    assert (await database.done([ours])).stale == {ours.id}


async def test_what_is_ready_is_counted_for_those_who_ask(store: Store, database: DatabaseStorage, clock: ManualClock):
    for queue, delay in ((1, 0), (1, 5), (1, 9), (2, 3600), (3, 0), (4, 0)):
        await database.put(queue, b"x", delay=timedelta(seconds=delay))
    (dead,) = await database.get(3, 1)
    await database.set_aside([(dead, "no use")])
    await database.get(4, 1, visibility=MINUTE)
    clock.advance(timedelta(seconds=7))
    counting = store.transitions.count_ready([1, 2, 3, 4, 9], count_max=2)
    assert await store.run(counting) == {1: Ready(2, 7.0), **dict.fromkeys((2, 3, 4, 9), Ready(0, 0.0))}
    clock.advance(MINUTE)
    counting = store.transitions.count_ready([1, 4], count_max=2)
    assert await store.run(counting) == {1: Ready(2, 67.0), 4: Ready(1, 7.0)}
    assert await store.run(store.transitions.count_ready([], count_max=2)) == {}


async def test_a_look_tells_when_settings_were_changed_last(database: DatabaseStorage, clock: ManualClock):
    await database.put(1, b"x")
    assert (await database.look([1]))[1].settings_at is None
    await database.change_settings(1, lambda now: replace(now, batch_size=7))
    await database.pause(2)
    changed_at = clock.now()
    assert {queue: one.settings_at for queue, one in (await database.look([1, 2, 3])).items()} == {
        1: changed_at,
        2: changed_at,
    }


async def test_a_plan_is_made_of_what_is_ready_and_what_is_set(store: Store, database: DatabaseStorage):
    await database.put(1, b"x")
    await database.change_settings(2, lambda now: replace(now, processors_max=3))
    found = await store.run(store.transitions.queue_loads([1, 2], count_max=9))
    assert found.ready == {1: Ready(1, 0.0), 2: Ready(0, 0.0)}
    assert {queue: one.processors_max for queue, one in found.settings.items()} == {2: 3}


# Settings.


async def test_settings_are_changed_to_what_follows_from_what_they_are(database: DatabaseStorage):
    assert await database.settings() == []
    written = await database.change_settings(7, lambda one: replace(one, name="emails", batch_size=100))
    assert written == QueueSettings(queue=7, name="emails", batch_size=100)
    await database.pause(7)
    written = await database.change_settings(7, lambda one: replace(one, visibility=MINUTE, processors_max=3))
    assert await database.settings() == [written]
    assert written == QueueSettings(
        queue=7, name="emails", paused=True, batch_size=100, visibility=MINUTE, processors_max=3
    )
    with pytest.raises(InvalidNumber):
        await database.change_settings(7, lambda one: replace(one, batch_size=0))
    with pytest.raises(InvalidDuration):
        await database.change_settings(7, lambda one: replace(one, visibility=timedelta(days=2)))
    with pytest.raises(BadInput):
        await database.change_settings(7, lambda one: replace(one, name=""))
    assert await database.settings() == [written]


async def test_a_queue_of_which_tasks_were_taken_or_purged_is_told_of_when_it_is_empty(database: DatabaseStorage):
    for _ in range(2):
        await database.put(3, b"a")
        await database.done(await database.get(3, 1))
        await database.put(4, b"a")
        assert await database.purge(4) == 1
        assert {queue: one.total for queue, one in (await database.stat()).items()} == {3: 0, 4: 0}
    assert await database.settings() == [], "that changes nothing of what operators have set"


async def test_of_those_taken_together_only_those_asked_about_are_told_of(store: Store, database: DatabaseStorage):
    await database.put_many(items(b"a", b"b", b"c"))
    a, _, c = await database.get(1, 9)
    await database.done([a])
    extending = store.transitions.extend_tasks([a.receipt, c.receipt], visibility=MINUTE)
    assert await store.run(extending) == {c.id}


async def test_a_queue_is_told_of_though_another_one_was_known_before(database: DatabaseStorage):
    for queue in (3, 4):
        await database.put(queue, b"a")
        await database.done(await database.get(queue, 1))
    assert {queue: one.total for queue, one in (await database.stat()).items()} == {3: 0, 4: 0}


# Workers, and what they are told.

ONE, TWO, MANAGER = UUID(int=1), UUID(int=2), UUID(int=3)


def saying(store: Store, worker: UUID, **report: Any) -> Transition[Any]:
    return store.transitions.report_processors(worker, name=f"worker {worker.int}", processors_max=4, report=report)


async def manage(store: Store, holder: UUID, lease: timedelta = MINUTE) -> bool:
    taking = store.transitions.take_chore(QUEUES, holder, lease=lease, every=timedelta(0))
    return await store.run(taking) is not None


async def test_a_worker_hears_what_it_was_told_in_the_same_breath(store: Store, clock: ManualClock):
    assert await manage(store, MANAGER)
    heard = await store.run(saying(store, ONE, emails={"tasks": 7}))
    assert (heard.assignment, heard.assigned_at) == (None, None)
    await store.run(saying(store, TWO))
    told_at = clock.now()
    told = await store.run(store.transitions.assign_processors({ONE: {1: 3, 2: 1}, uuid4(): {1: 1}}, MANAGER))
    assert told == {ONE}
    clock.advance(SECOND)
    heard = await store.run(saying(store, ONE, emails={"tasks": 8}))
    assert (heard.assignment, heard.assigned_at) == ({1: 3, 2: 1}, told_at)
    assert (await store.run(saying(store, TWO))).assignment is None
    one, two = await store.run(store.transitions.processor_reports(within=MINUTE))
    assert (one.worker, one.name, one.processors_max, one.report) == (ONE, "worker 1", 4, {"emails": {"tasks": 8}})
    assert (one.seen_at, one.now, one.assigned) == (clock.now(), clock.now(), heard)
    assert two.worker == TWO
    assert await store.run(store.transitions.assign_processors({ONE: {}}, MANAGER)) == {ONE}
    assert (await store.run(saying(store, ONE))).assignment == {}


async def test_who_does_not_manage_any_more_tells_nobody_anything(store: Store, clock: ManualClock):
    await store.run(saying(store, ONE))
    assert await manage(store, MANAGER, lease=SECOND)
    clock.advance(SECOND)
    assert await store.run(store.transitions.assign_processors({ONE: {1: 1}}, MANAGER)) == set()
    assert await manage(store, TWO)
    assert await store.run(store.transitions.assign_processors({ONE: {1: 1}}, MANAGER)) == set()
    assert await store.run(store.transitions.assign_processors({ONE: {1: 2}}, TWO)) == {ONE}
    assert (await store.run(saying(store, ONE))).assignment == {1: 2}


async def test_workers_that_were_not_seen_are_not_counted_and_then_forgotten(store: Store, clock: ManualClock):
    do = store.transitions
    await store.run(saying(store, ONE))
    clock.advance(MINUTE)
    await store.run(saying(store, TWO))

    async def seen(within: timedelta) -> Sequence[UUID]:
        return [report.worker for report in await store.run(do.processor_reports(within=within))]

    assert await seen(MINUTE) == [ONE, TWO]
    assert await seen(SECOND) == [TWO]
    assert await store.run(do.forget_processors(unseen_for=SECOND)) == 1
    assert await seen(MINUTE) == [TWO]
    clock.time -= timedelta(days=1)  # it was seen tomorrow
    assert await seen(MINUTE) == []
    assert await store.run(do.forget_processors(unseen_for=MINUTE)) == 1
    await store.run(saying(store, ONE))
    assert await store.run(do.leave_processors(ONE))
    assert not await store.run(do.leave_processors(ONE))
