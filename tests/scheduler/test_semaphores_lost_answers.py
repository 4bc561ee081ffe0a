"""Where an answer of the database is lost, semaphores ask again, and tell what became of the first try."""

from __future__ import annotations

import pytest

from matrixsched import Acquired, TaskSemaphore
from matrixsched.errors import OutcomeUnknown, TaskNotFound
from matrixsched.rules.semaphore import TaskState
from matrixsched.testing import Stage

pytestmark = pytest.mark.anyio

LOST = ["lose_answer", "lose_request"]


@pytest.fixture
async def pool(stage: Stage, anyio_backend: str) -> TaskSemaphore:
    @stage.app.on_acquired("pool")
    async def hand_out(event: Acquired) -> None: ...

    return await stage.app.semaphores.get_or_create("pool", active=2, try_release=1)


def lose(stage: Stage, fault: str, transition: str) -> None:
    getattr(stage.faults, fault)(transition)


@pytest.mark.parametrize("fault", LOST)
async def test_a_task_that_was_enqueued_is_said_to_be_new(stage: Stage, pool: TaskSemaphore, fault: str):
    lose(stage, fault, "enqueue_tasks")
    assert await pool.enqueue("a", 1)
    lose(stage, fault, "enqueue_tasks")
    assert not await pool.enqueue("a", 2)
    lose(stage, fault, "enqueue_tasks")
    assert await pool.enqueue_many({"a": 3, "b": 1, "c": 1}) == 2
    assert stage.faults.struck["enqueue_tasks"] == 3
    assert [task.priority for task in await pool.waiting()] == [3, 1, 1]


@pytest.mark.parametrize("fault", LOST)
async def test_what_was_released_is_said_to_be(stage: Stage, pool: TaskSemaphore, fault: str):
    await pool.enqueue_many({"a": 1, "b": 1, "c": 1})
    lose(stage, fault, "release_tasks")
    assert await pool.release("a")
    lose(stage, fault, "release_tasks")
    assert await pool.release_many(["b", "c"]) == 2
    assert await pool.waiting() == []


@pytest.mark.parametrize("fault", LOST)
async def test_what_was_not_there_is_not_said_to_be_released(stage: Stage, pool: TaskSemaphore, fault: str):
    await pool.enqueue("a", 1)
    lose(stage, fault, "release_tasks")
    with pytest.raises(TaskNotFound, match="'nobody'"):
        await pool.release("nobody")
    lose(stage, fault, "release_tasks")
    assert not await pool.release("nobody", missing_ok=True)
    lose(stage, fault, "release_tasks")
    with pytest.raises(TaskNotFound, match="'nobody'"):
        await pool.release_many(["a", "nobody"])
    assert [task.id for task in await pool.waiting()] == ["a"]


@pytest.mark.parametrize("fault", LOST)
async def test_who_stepped_back_is_said_to_have(stage: Stage, pool: TaskSemaphore, fault: str):
    await pool.enqueue("a", 1)
    await stage.run_until_idle()
    lose(stage, fault, "step_back")
    assert await pool.step_back("a")
    assert (await pool.get("a")).state is TaskState.WAITING


@pytest.mark.parametrize("fault", LOST)
async def test_who_holds_nothing_is_not_said_to_have_stepped_back(stage: Stage, pool: TaskSemaphore, fault: str):
    await pool.enqueue("a", 1)
    lose(stage, fault, "step_back")
    assert not await pool.step_back("a")
    lose(stage, fault, "step_back")
    with pytest.raises(TaskNotFound):
        await pool.step_back("nobody")


async def test_what_may_have_been_done_is_not_said_to_have_failed(stage: Stage, pool: TaskSemaphore):
    """The second try is refused, but nobody knows of the first."""
    await pool.enqueue("a", 1)
    stage.faults.lose_answer("release_tasks")
    stage.faults.fail("release_tasks")
    with pytest.raises(OutcomeUnknown):
        await pool.release("a")
    assert await pool.waiting() == []
