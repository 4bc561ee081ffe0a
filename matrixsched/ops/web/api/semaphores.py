"""Semaphores: how many tasks may be active, who holds a place, who waits."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from pydantic import Field

from matrixsched.ops import changes, semaphores
from matrixsched.ops.semaphores import COUNT_MAX, Crowd, Standing
from matrixsched.ops.web.access import Role
from matrixsched.ops.web.api.cursors import cursor_of, text_in
from matrixsched.ops.web.api.endpoint import Asked, Endpoint
from matrixsched.ops.web.api.values import (
    PAGE_DEFAULT,
    PAGE_MAX,
    Cursor,
    Duration,
    Given,
    Limit,
    Moment,
    Name,
    Number,
    Told,
)
from matrixsched.rules.semaphore import (
    ACTIVE_DEFAULT,
    ACTIVE_MAX,
    Semaphore,
    Task,
    TaskState,
    check_hold_for,
    check_semaphore_key,
    usual_try_release,
)

BATCH_MAX = 1000
Places = Annotated[int, Field(ge=0, le=ACTIVE_MAX)]
_ACTIVE = "How many may hold a place."
_TRY_RELEASE = "How many of those that hold, the least important, may be asked to make room."
_HOLD_FOR = "How long a place is held unless it is renewed, a second or more; null: until it is released."


class SemaphoresQuery(Given):
    limit: Limit = PAGE_DEFAULT
    cursor: Cursor | None = None


class CrowdQuery(Given):
    holders: Number = Field(PAGE_DEFAULT, ge=1, le=PAGE_MAX, description="How many of those that hold a place.")
    waiting: Number = Field(PAGE_DEFAULT, ge=1, le=PAGE_MAX, description="How many of those that wait.")


class SemaphoreGiven(Given):
    active: Places = Field(ACTIVE_DEFAULT, description=_ACTIVE)
    try_release: Places | None = Field(None, description=f"{_TRY_RELEASE} null: 900, or all where there are fewer.")
    hold_for: Duration | None = Field(None, description=_HOLD_FOR)


class SemaphoreChange(Given):
    """What shall be different; what is not given stays as it is."""

    active: Places | None = Field(None, description=_ACTIVE)
    try_release: Places | None = Field(None, description=_TRY_RELEASE)
    hold_for: Duration | None = Field(None, description=_HOLD_FOR)


class SemaphoreTold(Told):
    key: str
    active: int = Field(description=_ACTIVE)
    try_release: int = Field(description=_TRY_RELEASE)
    hold_for: Duration | None = Field(description=_HOLD_FOR)


class SemaphoresTold(Told):
    items: list[SemaphoreTold]
    next_cursor: str | None = Field(description="For the next page; null: this is the last one.")


class CountedTold(SemaphoreTold):
    """A semaphore with how many hold and wait."""

    held: int
    asked: int = Field(description="Of those that hold: how many were asked to make room.")
    waiting: int = Field(description=f"Counted up to {COUNT_MAX:,}.")
    oldest_waiting_at: Moment | None
    balanced_at: Moment | None


class SemaphoreTaskTold(Told):
    id: str
    priority: float
    state: TaskState
    hold: UUID = Field(description="This time in which it waits and holds.")
    enqueued_at: Moment
    acquired_at: Moment | None
    asked_at: Moment | None
    hold_until: Moment | None


class CrowdTold(Told):
    """A semaphore with the most important of its tasks."""

    semaphore: CountedTold
    holders: list[SemaphoreTaskTold]
    waiting: list[SemaphoreTaskTold]


async def list_semaphores(asked: Asked, query: SemaphoresQuery) -> SemaphoresTold:
    """The semaphores by key, without who holds them."""
    found = await asked.app.semaphores.list(after=text_in("semaphores", query.cursor) or "", limit=query.limit)
    return SemaphoresTold(
        items=[SemaphoreTold(**_settings(one)) for one in found],
        next_cursor=cursor_of("semaphores", found[-1].key) if len(found) == query.limit else None,
    )


async def get_semaphore(asked: Asked, query: CrowdQuery) -> CrowdTold:
    """A semaphore, who holds a place and who waits, the most important first."""
    return _crowd(await semaphores.crowd(asked.app, asked.path["key"], holders=query.holders, waiting=query.waiting))


async def set_semaphore(asked: Asked, body: SemaphoreGiven) -> CountedTold:
    """Make a semaphore, or change it to be so; nobody who holds a place loses it. Sent again it is the same."""
    wanted = Semaphore(
        key=check_semaphore_key(asked.path["key"]),
        active=body.active,
        try_release=usual_try_release(body.active) if body.try_release is None else body.try_release,
        hold_for=None if body.hold_for is None else check_hold_for(body.hold_for),
    )
    return _counted(await changes.set_semaphore(asked.operator, wanted))


async def change_semaphore(asked: Asked, body: SemaphoreChange) -> CountedTold:
    """Change what is given of a semaphore; `hold_for: null` lets places be held for good."""
    standing = await changes.update_semaphore(
        asked.operator,
        asked.path["key"],
        active=body.active,
        try_release=body.try_release,
        hold_for=body.hold_for,
        holds_for_good=body.hold_for is None and "hold_for" in body.model_fields_set,
    )
    return _counted(standing)


# Tasks.


class SemaphoreTaskGiven(Given):
    id: Name
    priority: float = Field(0, description="A larger one is more important.")


class SemaphoreTasksGiven(Given):
    tasks: list[SemaphoreTaskGiven] = Field(min_length=1, max_length=BATCH_MAX)


class EnqueuedTold(Told):
    total: int
    created: int = Field(description="How many were neither waiting nor holding before.")


async def enqueue_tasks(asked: Asked, body: SemaphoreTasksGiven) -> EnqueuedTold:
    """Let up to 1,000 tasks wait for a place, all or none; one that waits or holds already has another priority.

    Among equals their order counts. Sent again it is the same. Who has a place is told to a handler of the action
    `acquired:KEY`, and can be seen by GET.
    """
    semaphore = await asked.app.semaphores.get(asked.path["key"])
    created = await semaphore.enqueue_many([(task.id, task.priority) for task in body.tasks])
    return EnqueuedTold(total=len({task.id for task in body.tasks}), created=created)


class TasksReleaseGiven(Given):
    ids: list[Name] = Field(min_length=1, max_length=BATCH_MAX)


class TasksReleasedTold(Told):
    released: int


async def release_tasks(asked: Asked, body: TasksReleaseGiven) -> TasksReleasedTold:
    """Let tasks go, whether they hold a place or wait; all, or none if one of them is not there.

    If the answer is lost and the same sent again, a 404 means that they are gone.
    """
    return TasksReleasedTold(released=await changes.release_tasks(asked.operator, asked.path["key"], body.ids))


# As they are told.


def _settings(semaphore: Semaphore) -> dict[str, Any]:
    return {
        "key": semaphore.key,
        "active": semaphore.active,
        "try_release": semaphore.try_release,
        "hold_for": semaphore.hold_for,
    }


def _counted(standing: Standing) -> CountedTold:
    counts = standing.counts
    return CountedTold(
        **_settings(standing.semaphore),
        held=counts.held,
        asked=counts.asked,
        waiting=counts.waiting,
        oldest_waiting_at=counts.oldest_at,
        balanced_at=counts.balanced_at,
    )


def _crowd(crowd: Crowd) -> CrowdTold:
    return CrowdTold(
        semaphore=_counted(crowd.standing),
        holders=[_task(task) for task in crowd.holders],
        waiting=[_task(task) for task in crowd.waiting],
    )


def _task(task: Task) -> SemaphoreTaskTold:
    return SemaphoreTaskTold(
        id=task.id,
        priority=task.priority,
        state=task.state,
        hold=task.guid,
        enqueued_at=task.enqueued_at,
        acquired_at=task.acquired_at,
        asked_at=task.asked_at,
        hold_until=task.hold_until,
    )


ENDPOINTS = (
    Endpoint("GET", "/semaphores", list_semaphores, Role.VIEWER),
    Endpoint("GET", "/semaphores/{key}", get_semaphore, Role.VIEWER),
    Endpoint("PUT", "/semaphores/{key}", set_semaphore),
    Endpoint("PATCH", "/semaphores/{key}", change_semaphore),
    Endpoint("POST", "/semaphores/{key}/tasks", enqueue_tasks),
    Endpoint("POST", "/semaphores/{key}/release", release_tasks),
)
