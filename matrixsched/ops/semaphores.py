"""Semaphores, for operators: how many may be active, who holds a place, who waits for one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from matrixsched.app import App
from matrixsched.errors import SemaphoreNotFound, TaskNotFound
from matrixsched.ops.render import Count, Facts
from matrixsched.rules.durations import duration_text
from matrixsched.rules.names import check_name
from matrixsched.rules.semaphore import Semaphore, Task
from matrixsched.semaphores import TaskSemaphore
from matrixsched.store.semaphores import TaskCounts

COUNT_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Standing:
    """A semaphore as it stood at a time of the database."""

    semaphore: Semaphore
    counts: TaskCounts

    @property
    def facts(self) -> Facts:
        counts = self.counts
        return {
            **settings_facts(self.semaphore),
            "held": counts.held,
            "asked": counts.asked,
            "waiting": Count(counts.waiting, COUNT_MAX),
            "oldest_wait_s": None if counts.oldest_at is None else _waited(counts.oldest_at, counts.now),
        }


@dataclass(frozen=True, slots=True)
class Crowd:
    """A semaphore with the most important of its tasks."""

    standing: Standing
    holders: list[Task]
    waiting: list[Task]

    @property
    def sections(self) -> dict[str, Facts | Sequence[Facts]]:
        now = self.standing.counts.now
        return {
            "semaphore": {**self.standing.facts, "balanced_at": self.standing.counts.balanced_at},
            "holders": [_holder(task, now) for task in self.holders],
            "waiting": [_waiter(task, now) for task in self.waiting],
        }


def settings_facts(semaphore: Semaphore) -> Facts:
    return {
        "semaphore": semaphore.key,
        "active": semaphore.active,
        "try_release": semaphore.try_release,
        "hold_for": None if semaphore.hold_for is None else duration_text(semaphore.hold_for),
    }


def task_facts(task: Task) -> Facts:
    return {
        "task": task.id,
        "state": task.state.value,
        "priority": task.priority,
        "enqueued_at": task.enqueued_at,
        "acquired_at": task.acquired_at,
        "asked_at": task.asked_at,
        "hold_until": task.hold_until,
    }


def _holder(task: Task, now: datetime) -> Facts:
    return {
        "task": task.id,
        "priority": task.priority,
        "held_s": None if task.acquired_at is None else now - task.acquired_at,
        "asked_at": task.asked_at,
        "hold_until": task.hold_until,
    }


def _waiter(task: Task, now: datetime) -> Facts:
    return {"task": task.id, "priority": task.priority, "waited_s": _waited(task.enqueued_at, now)}


def _waited(since: datetime, now: datetime) -> timedelta:
    """Those enqueued at once stand a microsecond apart: the last of them begin to wait in a moment."""
    return max(timedelta(0), now - since)


async def listed(app: App, *, after: str, limit: int) -> list[Semaphore]:
    async with app:
        return await app.semaphores.list(after=after, limit=limit)


async def counted(app: App, *, after: str, limit: int) -> list[Standing]:
    """The same with counts: a statement for each, which reads what it counts."""
    async with app:
        return [await _standing(app, one) for one in await app.semaphores.list(after=after, limit=limit)]


async def crowd(app: App, key: str, *, holders: int, waiting: int) -> Crowd:
    async with app:
        standing = await _standing(app, await app.semaphores.settings(key))
        semaphore = TaskSemaphore(app.semaphores, key)
        return Crowd(standing, await semaphore.holders(holders), await semaphore.waiting(waiting))


async def standing_or_none(app: App, key: str) -> Standing | None:
    try:
        async with app:
            return await _standing(app, await app.semaphores.settings(key))
    except SemaphoreNotFound:
        return None


async def created(app: App, wanted: Semaphore) -> Standing:
    """The semaphore as it is then: who was faster may have made it otherwise."""
    async with app:
        await app.semaphores.get_or_create(
            wanted.key, active=wanted.active, try_release=wanted.try_release, hold_for=wanted.hold_for
        )
        return await _standing(app, await app.semaphores.settings(wanted.key))


async def changed(
    app: App,
    key: str,
    active: int | None,
    try_release: int | None,
    *,
    hold_for: timedelta | None,
    holds_for_good: bool,
) -> Standing:
    """Only what is given: what somebody else has changed meanwhile stays so."""
    async with app:
        written = await app.semaphores.update(
            key, active, try_release, hold_for=hold_for, holds_for_good=holds_for_good
        )
        return await _standing(app, written)


async def tasks(app: App, key: str, ids: Sequence[str]) -> list[Task]:
    """All of these tasks; TaskNotFound, if one is neither holding nor waiting."""
    async with app:
        semaphore = await app.semaphores.get(key)
        asked = [check_name("task id", id) for id in dict.fromkeys(ids)]
        found = {task.id: task for task in await app.store.run(app.store.transitions.find_tasks(semaphore.key, asked))}
    if missing := [id for id in asked if id not in found]:
        raise TaskNotFound(key, missing)
    return [found[id] for id in asked]


async def released(app: App, key: str, ids: Sequence[str]) -> int:
    async with app:
        return await TaskSemaphore(app.semaphores, key).release_many(ids)


async def _standing(app: App, semaphore: Semaphore) -> Standing:
    counting = app.store.transitions.count_tasks(semaphore.key, count_max=COUNT_MAX)
    return Standing(semaphore, await app.store.run(counting))
