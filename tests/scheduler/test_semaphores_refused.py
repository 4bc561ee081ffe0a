"""What semaphores refuse, and what they say of it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from math import nan
from typing import Any
from uuid import uuid4

import pytest

from matrixsched import App
from matrixsched.errors import BadInput, InvalidDuration, PartlyEnqueued, TaskNotFound, TaskNotReleased
from matrixsched.rules.semaphore import HOLD_FOR_MIN
from matrixsched.semaphores import TaskSemaphore

pytestmark = pytest.mark.anyio

SECOND = timedelta(seconds=1)
WRONG_AT = 1_200


@pytest.fixture
async def pool(app: App) -> TaskSemaphore:
    return await app.semaphores.get_or_create("pool", active=2)


def with_a_mistake(wrong: tuple[Any, Any] = ("wrong", nan)) -> list[tuple[Any, Any]]:
    return [(f"task-{number}", 1.0) if number != WRONG_AT else wrong for number in range(1_500)]


async def waiting(pool: TaskSemaphore) -> int:
    return (await pool.statistics()).waiting


@pytest.mark.parametrize("wrong", [("wrong", nan), ("", 1), ("wrong", None)])
@pytest.mark.parametrize("kind", [list, tuple, dict, lambda pairs: dict(pairs).items()])
async def test_a_mistake_among_many_is_found_before_any_is_enqueued(
    pool: TaskSemaphore, kind: Any, wrong: tuple[Any, Any]
):
    with pytest.raises(BadInput, match=r"nothing was written|Use 1 to") as refused:
        await pool.enqueue_many(kind(with_a_mistake(wrong)))
    assert not isinstance(refused.value, PartlyEnqueued)
    assert await waiting(pool) == 0


def drawn(pairs: Iterable[tuple[Any, Any]]) -> Iterable[tuple[Any, Any]]:
    yield from pairs


async def test_of_what_is_drawn_once_it_is_said_how_many_are_enqueued(pool: TaskSemaphore):
    with pytest.raises(PartlyEnqueued, match=r"^priority is nan: .*; 1,000 tasks before it are enqueued\.") as refused:
        await pool.enqueue_many(drawn(with_a_mistake()))
    assert "nothing was written" not in str(refused.value)
    assert (refused.value.enqueued, await waiting(pool)) == (1_000, 1_000)
    assert await pool.enqueue_many(drawn(pair for pair in with_a_mistake() if pair[0] != "wrong")) == 499


async def test_nothing_is_if_it_is_among_the_first_thousand(pool: TaskSemaphore):
    with pytest.raises(BadInput, match="nothing was written"):
        await pool.enqueue_many(drawn([("a", 1), ("b", nan)]))
    assert await waiting(pool) == 0


@pytest.mark.parametrize("hold_for", [timedelta(microseconds=1), SECOND - timedelta(microseconds=1)])
async def test_places_are_held_for_a_second_at_least(app: App, pool: TaskSemaphore, hold_for: timedelta):
    with pytest.raises(InvalidDuration, match=r"^hold_for is .* s, and a second is the least\."):
        await app.semaphores.get_or_create("other", hold_for=hold_for)
    with pytest.raises(InvalidDuration, match="a second is the least"):
        await app.semaphores.update("pool", hold_for=hold_for)
    assert [one.key for one in await app.semaphores.list()] == ["pool"]
    assert (await app.semaphores.update("pool", hold_for=HOLD_FOR_MIN)).hold_for == SECOND


async def test_only_who_releases_is_told_of_missing_ok(pool: TaskSemaphore):
    for asking in (pool.get("nobody"), pool.position("nobody"), pool.step_back("nobody")):
        with pytest.raises(TaskNotFound, match="^the semaphore 'pool' has no task 'nobody'") as refused:
            await asking
        assert "missing_ok" not in str(refused.value)
    with pytest.raises(TaskNotReleased, match="^the semaphore 'pool' has no task 'nobody'.* missing_ok=True"):
        await pool.release("nobody")


async def test_a_task_that_is_there_for_another_time_is_not_said_to_be_missing(pool: TaskSemaphore):
    await pool.enqueue("a", 1)
    with pytest.raises(TaskNotReleased, match="^the semaphore 'pool' has no task 'a' of that hold"):
        await pool.release("a", hold=uuid4())
    assert (await pool.get("a")).id == "a"
