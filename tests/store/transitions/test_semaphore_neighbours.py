"""A task is named by its semaphore and its id: what is done to one is done to none of the same id elsewhere.

Guids are drawn, but here a task elsewhere has even that of ours: a statement that forgets a part of the name shows it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from support.scene import Scene

from matrixsched.rules.semaphore import Semaphore
from matrixsched.store.semaphores import NewTask, TaskName

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)
TICK = timedelta(microseconds=1)
POOL, OTHER = "pool", "other"
GUID, STRANGE = UUID(int=1, version=4), UUID(int=2, version=4)
TASK = TaskName("t")

Life = Callable[[Scene], Awaitable[object]]


async def make(scene: Scene, key: str = POOL, **options: Any) -> None:
    usual = {"active": 1, "try_release": 1, "hold_for": 10 * SECOND}
    await scene.run(scene.do.make_semaphore(Semaphore(key=key, **(usual | options))))


async def enqueue(scene: Scene, id: str = "t", priority: float = 1) -> object:
    tasks = [NewTask(id, priority, GUID)]
    return await scene.run(scene.do.enqueue_tasks(POOL, tasks, scene.guid(), change_guid=scene.guid(), tell=False))


async def balance(scene: Scene) -> object:
    return await scene.run(scene.do.balance(POOL, scene.guid, shards=4))


async def release(scene: Scene, *tasks: TaskName, missing_ok: bool = False) -> object:
    asked = scene.do.release_tasks(
        POOL, tasks, scene.guid(), change_guid=scene.guid(), tell=False, missing_ok=missing_ok
    )
    return await scene.run(asked)


async def renew(scene: Scene, task: TaskName = TASK) -> object:
    return await scene.run(scene.do.renew_tasks(POOL, [task]))


async def step_back(scene: Scene, task: TaskName = TASK) -> object:
    asked = scene.do.step_back(
        POOL, task, scene.guid(), priority=None, guid=STRANGE, change_guid=scene.guid(), tell=False
    )
    return await scene.run(asked)


async def holds(scene: Scene, active: int = 1) -> list[object]:
    await make(scene, active=active)
    return [await enqueue(scene), await balance(scene)]


# What becomes of a task, and what was answered on the way.


async def waits_and_is_released(scene: Scene) -> object:
    await make(scene)
    return await enqueue(scene), await enqueue(scene, priority=2), await release(scene, TASK)


async def holds_and_is_released(scene: Scene) -> object:
    return await holds(scene), await release(scene, TaskName("t", GUID)), await balance(scene)


async def renews_its_place_and_loses_it(scene: Scene) -> object:
    answers = await holds(scene)
    scene.clock.advance(SECOND)
    answers.append(await renew(scene, TaskName("t", GUID)))
    scene.clock.advance(10 * SECOND)
    return answers, await balance(scene)


async def steps_back(scene: Scene) -> object:
    return await holds(scene), await step_back(scene, TaskName("t", GUID)), await renew(scene)


async def is_asked_and_kept(scene: Scene) -> object:
    answers = [*await holds(scene), await enqueue(scene, "urgent", 9), await balance(scene)]
    return answers, await enqueue(scene, priority=10), await balance(scene)


async def is_held_for_good(scene: Scene) -> object:
    answers = await holds(scene)
    lasting = Semaphore(key=POOL, active=1, try_release=1)
    await scene.run(scene.do.update_semaphore(POOL, lambda _: lasting, scene.guid()))
    return answers, await balance(scene), await renew(scene)


async def is_not_there(scene: Scene) -> object:
    await make(scene)
    answers = [await release(scene, TASK), await release(scene, TASK, missing_ok=True)]
    return answers, await renew(scene), await step_back(scene), await balance(scene)


async def has_no_semaphore(scene: Scene) -> object:
    return await enqueue(scene), await release(scene, TASK), await renew(scene), await balance(scene)


LIVES: list[Life] = [
    waits_and_is_released,
    holds_and_is_released,
    renews_its_place_and_loses_it,
    steps_back,
    is_asked_and_kept,
    is_held_for_good,
    is_not_there,
    has_no_semaphore,
]


# Who lives in another semaphore, which has something to be balanced.


async def move_in(scene: Scene, state: str, hold_for: timedelta) -> None:
    await make(scene, OTHER, hold_for=HOUR)
    await scene.sql(
        """
        insert into matrixsched.semaphore_tasks
               (semaphore, task_id, priority, state, guid, enqueued_at, acquired_at, asked_at, hold_until)
        values (:semaphore, 't', 5, :state, :guid, :now, :acquired_at, :asked_at, :hold_until)
        """,
        semaphore=OTHER,
        state=state,
        guid=GUID,
        now=scene.now,
        acquired_at=None if state == "waiting" else scene.now,
        asked_at=scene.now if state == "asked" else None,
        hold_until=None if state == "waiting" else scene.now + hold_for,
    )
    await scene.sql(
        "insert into matrixsched.semaphore_changes (semaphore, change_guid) values (:semaphore, :guid)",
        semaphore=OTHER,
        guid=GUID,
    )


async def rows_of(scene: Scene, semaphore: str) -> dict[str, list[dict[str, Any]]]:
    names = {"semaphores": "key", "semaphore_tasks": "semaphore", "semaphore_changes": "semaphore"}
    return {table: [row for row in await scene.table(table) if row[name] == semaphore] for table, name in names.items()}


def without_change_guids(rows: dict[str, list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    """Those are drawn, and so is the guid of a task that lost its place."""
    drawn = ("change_guid", "guid")
    return {
        table: [{name: value for name, value in row.items() if name not in drawn} for row in found]
        for table, found in rows.items()
    }


@pytest.mark.parametrize("life", LIVES, ids=lambda life: life.__name__.replace("_", " "))
@pytest.mark.parametrize(
    ("state", "hold_for"), [("acquired", HOUR), ("acquired", -TICK), ("asked", HOUR), ("waiting", HOUR)]
)
async def test_what_is_done_to_a_task_is_done_to_none_of_its_id_elsewhere(
    scene: Scene, life: Life, state: str, hold_for: timedelta
):
    begin = scene.now
    alone = (await life(scene), without_change_guids(await rows_of(scene, POOL)))
    await scene.clear()
    scene.clock.time = begin
    await move_in(scene, state, hold_for)
    before = await rows_of(scene, OTHER)
    assert (await life(scene), without_change_guids(await rows_of(scene, POOL))) == alone
    assert await rows_of(scene, OTHER) == before


@pytest.mark.parametrize("say", [release, renew, step_back])
async def test_what_is_said_of_a_place_under_another_guid_is_void(scene: Scene, say: Callable[..., Awaitable[object]]):
    await holds(scene)
    scene.clock.advance(SECOND)
    before = await rows_of(scene, POOL)
    assert not await say(scene, TaskName("t", STRANGE))
    assert await rows_of(scene, POOL) == before


@pytest.mark.parametrize("say", [release, renew, step_back])
async def test_what_is_said_of_a_place_under_its_own_guid_counts(scene: Scene, say: Callable[..., Awaitable[object]]):
    await holds(scene)
    scene.clock.advance(SECOND)
    before = await rows_of(scene, POOL)
    assert await say(scene, TaskName("t", GUID))
    assert await rows_of(scene, POOL) != before


@pytest.mark.parametrize("say", [release, renew, step_back])
async def test_what_is_said_of_a_place_is_said_of_no_other_in_its_semaphore(
    scene: Scene, say: Callable[..., Awaitable[object]]
):
    await holds(scene, active=3)
    for id in "su":
        await scene.run(
            scene.do.enqueue_tasks(
                POOL, [NewTask(id, 1, scene.guid())], scene.guid(), change_guid=scene.guid(), tell=False
            )
        )
    await balance(scene)
    scene.clock.advance(SECOND)

    async def others() -> list[dict[str, Any]]:
        return [row for row in (await rows_of(scene, POOL))["semaphore_tasks"] if row["task_id"] != "t"]

    before = await others()
    assert [row["state"] for row in before] == ["acquired", "acquired"]
    assert await say(scene, TASK) in (["t"], True)
    assert await others() == before
