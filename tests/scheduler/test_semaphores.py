"""Semaphores as users see them: tasks enqueue, are told that they have a place, step back, and are gone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any, TypeVar

import pytest

from matrixsched import Acquired, App, Retry, SemaphoreBalance, TryRelease
from matrixsched.clock import ManualClock, SeededChance
from matrixsched.errors import BadInput, DatabaseError, SemaphoreNotFound, TaskNotFound
from matrixsched.events import SemaphoreBalanced, StepFailed
from matrixsched.rules.semaphore import TaskState
from matrixsched.semaphores import TaskSemaphore
from matrixsched.store.store import Store
from matrixsched.store.transition import Transition
from matrixsched.store.wrapper import StoreWrapper
from matrixsched.worker import Worker

pytestmark = pytest.mark.anyio

T = TypeVar("T")

SECOND = timedelta(seconds=1)


class Told:
    """What handlers were told, in order."""

    def __init__(self) -> None:
        self.acquired: list[str] = []
        self.asked: list[str] = []


@pytest.fixture
async def app(database_url: str, clock: ManualClock, anyio_backend: str) -> AsyncIterator[App]:
    app = App(database_url, clock=clock, chance=SeededChance(1))
    await app.init(shards=4)
    async with app:
        yield app


@pytest.fixture
def told(app: App) -> Told:
    told = Told()

    @app.on_acquired("pool")
    async def hand_out(event: Acquired) -> None:
        told.acquired.append(event.task_id)

    @app.on_try_release("pool")
    def step_back(event: TryRelease) -> None:
        told.asked.append(event.task_id)

    return told


@pytest.fixture
async def pool(app: App, told: Told) -> TaskSemaphore:
    return await app.semaphores.get_or_create("pool", active=2, try_release=1)


def ids(tasks: list[Any]) -> list[str]:
    return [task.id for task in tasks]


async def test_the_most_important_are_told_that_they_have_a_place(app: App, pool: TaskSemaphore, told: Told):
    assert await pool.enqueue_many({"a": 1, "b": 3, "c": 2}) == 3
    await Worker(app).run_due()
    assert sorted(told.acquired) == ["b", "c"]
    assert ids(await pool.holders()) == ["b", "c"]
    assert ids(await pool.waiting()) == ["a"]


async def test_a_place_that_is_released_goes_to_the_next(app: App, pool: TaskSemaphore, told: Told):
    await pool.enqueue_many({"a": 1, "b": 3, "c": 2})
    await Worker(app).run_due()
    assert await pool.release("b")
    await Worker(app).run_due()
    assert told.acquired[2:] == ["a"]


async def test_the_last_are_asked_to_make_room_for_what_is_urgent(app: App, pool: TaskSemaphore, told: Told):
    await pool.enqueue_many({"a": 1, "b": 3})
    await Worker(app).run_due()
    await pool.enqueue("urgent", 9)
    await Worker(app).run_due()
    assert told.asked == ["a"]
    assert [(task.id, task.state) for task in await pool.holders()] == [
        ("b", TaskState.ACQUIRED),
        ("a", TaskState.ASKED),
    ]
    await pool.release("a")
    await Worker(app).run_due()
    assert told.acquired[2:] == ["urgent"]


async def test_nobody_is_told_of_a_task_that_was_released_meanwhile(app: App, pool: TaskSemaphore, told: Told):
    await pool.enqueue("a", 1)
    await Worker(app).balancing.step()
    await pool.release("a")
    await Worker(app).run_due()
    assert told.acquired == []


async def test_nobody_is_asked_who_need_not_go_after_all(app: App, pool: TaskSemaphore, told: Told):
    await pool.enqueue_many({"a": 1, "b": 3})
    await Worker(app).run_due()
    await pool.enqueue("urgent", 9)
    await Worker(app).balancing.step()
    await pool.enqueue("a", 10)
    await Worker(app).run_due()
    # b holds now the last place, and is asked instead.
    assert told.asked == ["b"]


async def test_a_task_that_was_released_and_is_enqueued_again_is_told_of_again(
    app: App, pool: TaskSemaphore, told: Told
):
    for _ in range(2):
        await pool.enqueue("a", 1)
        await Worker(app).run_due()
        await pool.release("a")
    assert told.acquired == ["a", "a"]


async def test_what_fails_is_told_again(app: App, clock: ManualClock):
    tries = 0

    @app.on_acquired("pool", retry=Retry(max_attempts=3, first_delay=SECOND, jitter=0))
    async def hand_out(event: Acquired) -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise RuntimeError

    pool = await app.semaphores.get_or_create("pool", active=1)
    await pool.enqueue("a", 1)
    await Worker(app).run_due()
    clock.advance(10 * SECOND)
    await Worker(app).run_due()
    assert tries == 2


async def test_a_worker_that_dies_between_balance_and_events_loses_none(
    app: App, pool: TaskSemaphore, told: Told, clock: ManualClock
):
    await pool.enqueue_many({"a": 1, "b": 2})
    dying = Worker(app)
    await dying.balancing.step()
    await dying.intake.step()  # it holds the events now, and is never heard of again
    clock.advance(30 * SECOND)
    await Worker(app).run_due()
    assert sorted(told.acquired) == ["a", "b"]


async def test_who_steps_back_waits_again_and_is_the_first_of_its_like(
    app: App, pool: TaskSemaphore, clock: ManualClock, told: Told
):
    await pool.enqueue_many({"a": 1, "b": 1})
    await Worker(app).run_due()
    clock.advance(SECOND)
    await pool.enqueue_many({"c": 1, "urgent": 9})
    await Worker(app).run_due()
    assert told.asked == ["b"]
    assert await pool.step_back("b")
    await Worker(app).run_due()
    assert {task.id for task in await pool.holders()} == {"a", "urgent"}
    assert [task.id for task in await pool.waiting()] == ["b", "c"]
    await pool.release("urgent")
    await Worker(app).run_due()
    assert told.acquired.count("b") == 2


async def test_who_steps_back_may_be_less_important_from_then_on(app: App, pool: TaskSemaphore, told: Told):
    await pool.enqueue_many({"a": 3, "b": 2, "c": 1})
    await Worker(app).run_due()
    assert await pool.step_back("a", priority=0)
    await Worker(app).run_due()
    assert [task.id for task in await pool.waiting()] == ["a"]


async def test_stepping_back_is_of_one_time_in_which_a_task_holds(app: App, pool: TaskSemaphore, told: Told):
    await pool.enqueue("a", 1)
    await Worker(app).run_due()
    hold = (await pool.get("a")).guid
    assert await pool.step_back("a", hold=hold)
    await Worker(app).run_due()
    assert not await pool.step_back("a", hold=hold)
    assert (await pool.get("a")).state is TaskState.ACQUIRED


async def test_stepping_back_of_what_holds_nothing(app: App, pool: TaskSemaphore):
    await pool.enqueue("a", 1)
    assert not await pool.step_back("a")
    with pytest.raises(TaskNotFound):
        await pool.step_back("nobody")
    with pytest.raises(BadInput, match="priority"):
        await pool.step_back("a", priority=float("inf"))
    with pytest.raises(SemaphoreNotFound):
        await TaskSemaphore(app.semaphores, "other").step_back("a")


async def test_a_worker_that_stops_in_a_balance_lets_another_go_on_at_once(app: App, pool: TaskSemaphore, told: Told):
    await pool.enqueue("a", 1)
    stopping = Worker(app)
    await stopping.balancing.chore.take()  # in the middle of it
    await Worker(app).run_due()
    assert told.acquired == []
    stopping.stop()
    await stopping.run()
    await Worker(app).run_due()
    assert told.acquired == ["a"]


async def test_fewer_places_ask_the_last_and_drop_nobody(app: App, told: Told):
    pool = await app.semaphores.get_or_create("pool", active=4)
    await pool.enqueue_many({"a": 1, "b": 2, "c": 3, "d": 4})
    await Worker(app).run_due()
    changed = await app.semaphores.update("pool", active=2)
    assert (changed.active, changed.try_release) == (2, 2)
    await Worker(app).run_due()
    assert sorted(told.asked) == ["a", "b"]
    assert len(await pool.holders()) == 4


async def test_a_place_that_is_not_renewed_is_lost(app: App, told: Told, clock: ManualClock):
    pool = await app.semaphores.get_or_create("pool", active=1, hold_for=10 * SECOND)
    await pool.enqueue("a", 1)
    clock.advance(SECOND)
    await pool.enqueue("b", 1)
    await Worker(app).run_due()
    clock.advance(9 * SECOND)
    assert await pool.renew("a")
    assert not await pool.renew("b")
    clock.advance(9 * SECOND)
    await Worker(app).run_due()
    assert told.acquired == ["a"]
    clock.advance(SECOND)
    await Worker(app).run_due()
    assert told.acquired == ["a", "b"]
    assert [task.id for task in await pool.waiting()] == ["a"]


async def test_what_an_earlier_holder_says_is_void(app: App, pool: TaskSemaphore, told: Told):
    await pool.enqueue("a", 1)
    earlier = (await pool.get("a")).guid
    await pool.release("a")
    await pool.enqueue("a", 1)
    with pytest.raises(TaskNotFound):
        await pool.release("a", hold=earlier)
    assert (await pool.get("a")).state is TaskState.WAITING


async def test_a_semaphore_tells_how_it_stands(app: App, pool: TaskSemaphore, told: Told, clock: ManualClock):
    await pool.enqueue_many({"a": 1, "b": 3})
    await Worker(app).run_due()
    since = clock.now()
    await pool.enqueue_many([("c", 9), ("d", 0)])
    await Worker(app).run_due()
    found = await pool.statistics()
    assert (found.active, found.held, found.asked, found.waiting) == (2, 2, 1, 2)
    assert found.oldest_waiting_at == since
    assert [await pool.position(id) for id in "abcd"] == [None, None, 0, 1]
    assert (await app.semaphores.settings("pool")).try_release == 1
    assert [one.key for one in await app.semaphores.list()] == ["pool"]


async def test_thousands_are_enqueued_and_released_together(app: App, told: Told):
    pool = await app.semaphores.get_or_create("pool", active=10)
    assert await pool.enqueue_many((f"{n}", n) for n in range(2_500)) == 2_500
    assert await pool.enqueue_many((f"{n}", n) for n in range(2_600)) == 100
    assert await pool.release_many(f"{n}" for n in range(2_000)) == 2_000
    assert (await pool.statistics()).waiting == 600


async def test_of_those_enqueued_together_the_first_of_its_like_is_the_first(pool: TaskSemaphore):
    await pool.enqueue_many([("task-9", 1), ("task-10", 1), ("task-8", 2), ("task-11", 1)])
    assert ids(await pool.waiting()) == ["task-8", "task-9", "task-10", "task-11"]


async def test_also_of_thousands(pool: TaskSemaphore, clock: ManualClock):
    given = [f"task-{n}" for n in range(2_500, 0, -1)]
    await pool.enqueue_many((id, 1) for id in given)
    clock.advance(SECOND)
    await pool.enqueue_many({"task-9": 1, "later": 1})
    assert ids(await pool.waiting(3_000)) == [*given, "later"]


async def test_thousands_are_renewed_together(app: App, told: Told, clock: ManualClock):
    pool = await app.semaphores.get_or_create("pool", active=1_200, hold_for=10 * SECOND)
    await pool.enqueue_many((f"{n}", 1) for n in range(1_300))
    assert await pool.balance() == SemaphoreBalance(acquired=1_200, asked=0)
    clock.advance(9 * SECOND)
    assert await pool.renew_many(f"{n}" for n in range(1_100)) == 1_100
    assert await pool.renew_many(["1250", "nobody", "7", "7"]) == 1
    clock.advance(9 * SECOND)
    await pool.balance()
    assert {task.id for task in await pool.holders()} == {f"{n}" for n in (*range(1_100), *range(1_200, 1_300))}


async def test_a_semaphore_is_balanced_when_somebody_asks_for_it(app: App, pool: TaskSemaphore, told: Told):
    await pool.enqueue_many({"a": 1, "b": 2})
    assert await pool.balance() == SemaphoreBalance(acquired=2, asked=0)
    assert await pool.balance() == SemaphoreBalance(acquired=0, asked=0)
    await pool.enqueue("urgent", 9)
    assert await pool.balance() == SemaphoreBalance(acquired=0, asked=1)
    assert ids(await pool.holders()) == ["b", "a"]
    await Worker(app).run_due()
    assert (sorted(told.acquired), told.asked) == (["a", "b"], ["a"])
    with pytest.raises(SemaphoreNotFound):
        await TaskSemaphore(app.semaphores, "other").balance()


def hear_of(app: App, *keys: str) -> None:
    for key in keys:

        @app.on_acquired(key)
        async def hand_out(event: Acquired) -> None: ...


async def with_a_task(app: App, key: str) -> TaskSemaphore:
    semaphore = await app.semaphores.get_or_create(key, active=1)
    await semaphore.enqueue("task", 1)
    return semaphore


async def test_several_semaphores_are_balanced_in_one_pass(app: App):
    hear_of(app, *"abc")
    semaphores = [await with_a_task(app, key) for key in "abc"]
    await Worker(app).balancing.step()
    assert [len(await semaphore.holders()) for semaphore in semaphores] == [1, 1, 1]


async def test_semaphores_of_which_only_others_are_told_are_left_to_them(app: App, told: Told):
    await with_a_task(app, "pool")
    other = await with_a_task(app, "other")
    await Worker(app).run_due()
    assert told.acquired == ["task"]
    assert await other.holders() == []


async def test_semaphores_have_their_turns_however_often_others_change(app: App, clock: ManualClock):
    hear_of(app, *"abc")
    semaphores = [await with_a_task(app, key) for key in "abc"]
    worker = Worker(app)
    app.events.subscribe(
        SemaphoreBalanced, lambda _: clock.advance(worker.policy.shard_lease)
    )  # one takes all the time
    for number in range(3):
        await worker.balancing.step()
        await semaphores[0].enqueue("task", number + 2)
    assert [len(await semaphore.holders()) for semaphore in semaphores] == [1, 1, 1]


class Failing(StoreWrapper):
    """The balance of one semaphore fails."""

    broken: str | None = None

    async def run(self, transition: Transition[T]) -> T:
        if transition.name == "balance" and self.broken is not None:
            conversation = transition.begin()
            if next(conversation).parameters["semaphore"] == self.broken:
                raise DatabaseError("balance: something is wrong with it")
        return await super().run(transition)

    def sibling(self) -> Store:
        return self._inner.sibling()


async def test_one_semaphore_that_cannot_be_balanced_does_not_hold_up_the_others(
    app: App, clock: ManualClock, told: Told
):
    hear_of(app, "a")
    failures: list[StepFailed] = []
    app.events.subscribe(StepFailed, failures.append)
    broken, pool = await with_a_task(app, "a"), await with_a_task(app, "pool")
    app.store = failing = Failing(app.store)
    failing.broken = "a"
    worker = Worker(app)
    assert await worker.balancing.step() == 0
    assert len(await pool.holders()) == 1
    assert [failure.step for failure in failures] == ["balance a"]
    assert await worker.balancing.step() == 0  # from the beginning, where nothing may be done yet
    assert 0 < await worker.balancing.step() <= 0.1
    failing.broken = None
    clock.advance(SECOND)
    await worker.run_due()
    assert len(await broken.holders()) == 1


async def test_a_pool_that_was_closed_is_as_it_was_when_it_is_opened_again(app: App):
    await app.semaphores.get_or_create("pool")
    assert (await app.semaphores.update("pool", active=0)).try_release == 0
    assert (await app.semaphores.update("pool", active=1000)).try_release == 900
    assert (await app.semaphores.update("pool", active=1200)).try_release == 900
    assert (await app.semaphores.update("pool", active=1200, try_release=1200)).try_release == 1200
    assert (await app.semaphores.update("pool", active=2000)).try_release == 1200


async def test_workers_that_know_no_events_leave_balancing_to_others(app: App):
    @app.action("other")
    async def other() -> None: ...

    pool = await app.semaphores.get_or_create("pool", active=1)
    await pool.enqueue("a", 1)
    await Worker(app).run_due()
    assert await pool.holders() == []


# Bad input changes nothing.


@pytest.mark.parametrize("priority", [float("nan"), float("inf"), float("-inf"), "high", None, True])
async def test_a_priority_that_is_no_number_is_refused(pool: TaskSemaphore, priority: Any):
    with pytest.raises(BadInput, match="priority"):
        await pool.enqueue("a", priority)
    assert await pool.waiting() == []


@pytest.mark.parametrize("priority", [2**53 + 1, -(2**60) - 1, 10**300 + 1])
async def test_a_priority_that_would_tie_with_its_neighbours_is_refused(pool: TaskSemaphore, priority: int):
    with pytest.raises(BadInput, match="tie with its neighbours"):
        await pool.enqueue_many({"a": 1, "b": priority})
    assert await pool.waiting() == []
    assert await pool.enqueue_many({"a": 2**53, "b": -(2**60)}) == 2


@pytest.mark.parametrize(
    "tasks", ["ab", b"ab", ["abc"], ["ab"], [("a",)], [("a", 1, 2)], [{"a", 1}], [{"a": 1, "b": 2}], 5, None, [None]]
)
async def test_what_is_no_list_of_tasks_is_refused(pool: TaskSemaphore, tasks: Any):
    with pytest.raises(BadInput, match="tasks must be a mapping of ids to priorities, or pairs"):
        await pool.enqueue_many(tasks)
    with pytest.raises(BadInput, match="tasks must be"):
        await pool.enqueue_many([("a", 1), *tasks] if isinstance(tasks, list) else tasks)
    assert await pool.waiting() == []


@pytest.mark.parametrize("task_ids", [5, None, b"ab", [None], [5], [("a", 1)]])
async def test_what_is_no_list_of_ids_is_refused(pool: TaskSemaphore, task_ids: Any):
    await pool.enqueue("a", 1)
    for asked in (pool.release_many(task_ids), pool.release_many(task_ids, missing_ok=True), pool.renew_many(task_ids)):
        with pytest.raises(BadInput, match=r"task_ids must be a list of ids|task id must be a string"):
            await asked
    assert ids(await pool.waiting()) == ["a"]


@pytest.mark.parametrize("hold", ["garbage", 5, "00000000-0000-0000-0000-000000000000", ""])
async def test_a_hold_that_no_event_can_say_is_refused(app: App, pool: TaskSemaphore, hold: Any):
    await pool.enqueue("a", 1)
    await Worker(app).run_due()
    for asked in (pool.release("a", hold=hold), pool.step_back("a", hold=hold), pool.renew("a", hold=hold)):
        with pytest.raises(BadInput, match=r"hold must be a UUID.*pass event\.hold"):
            await asked
    assert ids(await pool.holders()) == ["a"]


@pytest.mark.parametrize("after", [5, None, "\x00", "\ud800"])
async def test_a_page_begins_after_a_key(app: App, pool: TaskSemaphore, after: Any):
    with pytest.raises(BadInput, match="after"):
        await app.semaphores.list(after=after)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"active": -1}, "active"),
        ({"active": 1, "try_release": 2}, "try_release"),
        ({"try_release": -1}, "try_release"),
        ({"active": 1.5}, "active"),
        ({"hold_for": timedelta(0)}, "hold_for"),
    ],
)
async def test_what_a_semaphore_cannot_be_is_refused(app: App, pool: TaskSemaphore, wrong: dict[str, Any], says: str):
    with pytest.raises(BadInput, match=says):
        await app.semaphores.get_or_create("other", **wrong)
    with pytest.raises(BadInput, match=says):
        await app.semaphores.update("pool", **wrong)
    assert [one.key for one in await app.semaphores.list()] == ["pool"]
    assert (await app.semaphores.settings("pool")).active == 2


async def test_what_is_not_there_is_said_not_to_be(app: App, pool: TaskSemaphore):
    other = TaskSemaphore(app.semaphores, "other")
    for asking in (other.enqueue("a", 1), other.release("a"), other.holders(), other.statistics(), other.get("a")):
        with pytest.raises(SemaphoreNotFound, match="no semaphore 'other'"):
            await asking
    with pytest.raises(SemaphoreNotFound):
        await app.semaphores.update("other", active=3)
    for asking in (pool.release("a"), pool.get("a"), pool.position("a")):
        with pytest.raises(TaskNotFound, match="no task 'a'"):
            await asking
    assert not await pool.release("a", missing_ok=True)
    await pool.enqueue("a", 1)
    with pytest.raises(TaskNotFound, match="'b'"):
        await pool.release_many(["a", "b"])
    assert ids(await pool.waiting()) == ["a"]


async def test_names_are_checked(app: App, pool: TaskSemaphore):
    with pytest.raises(BadInput):
        await app.semaphores.get_or_create("")
    with pytest.raises(BadInput):
        await pool.enqueue("a\0", 1)
    with pytest.raises(BadInput, match=r"one text.*release\(\)"):
        await pool.release_many("abc")
    with pytest.raises(BadInput, match=r"one text.*renew\(\)"):
        await pool.renew_many("abc")
