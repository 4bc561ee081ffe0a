"""Semaphores as users see them: tasks enqueue, are told that they have a place, step back, and are gone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from matrixsched import Acquired, App, Retry, TryRelease
from matrixsched.clock import ManualClock, SeededChance
from matrixsched.errors import BadInput, SemaphoreNotFound, TaskNotFound
from matrixsched.rules.semaphore import TaskState
from matrixsched.semaphores import TaskSemaphore
from matrixsched.worker import Worker

pytestmark = pytest.mark.anyio

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
    await pool.enqueue_many({"a": 2, "b": 1})
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


async def test_several_semaphores_are_balanced_in_one_pass(app: App, told: Told):
    for key in ("pool", *"abc"):
        semaphore = await app.semaphores.get_or_create(key, active=1)
        await semaphore.enqueue("task", 1)
    await Worker(app).balancing.step()
    for key in ("pool", *"abc"):
        assert len(await (await app.semaphores.get(key)).holders()) == 1


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
    with pytest.raises(BadInput, match="one text"):
        await pool.release_many("abc")
