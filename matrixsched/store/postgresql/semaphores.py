"""Semaphores on PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from matrixsched.rules.semaphore import Semaphore, Task, TaskState
from matrixsched.store.postgresql.asking import PostgresAsking
from matrixsched.store.semaphores import Enqueued, NewTask, SemaphoreWrites, TaskCounts, TaskName, ToBalance, pages
from matrixsched.store.transition import Conversation, Row, transition


class PostgresSemaphores(PostgresAsking, SemaphoreWrites):
    _channel: str

    @transition
    def find_tasks(self, key: str, task_ids: Sequence[str]) -> Conversation[list[Task]]:
        rows = yield self._ask("semaphore_tasks.find_all", semaphore=key, task_ids=list(task_ids))
        return [self._task(row) for row in rows]

    @transition
    def make_semaphore(self, semaphore: Semaphore) -> Conversation[Semaphore]:
        found = yield self._ask("semaphores.find", semaphore=semaphore.key)
        if not found:
            yield self._ask("semaphores.libraries")
            yield self._ask("semaphores.create", **_columns(semaphore))
            found = yield self._ask("semaphores.find", semaphore=semaphore.key)
        return self._semaphore(found[0])

    def _write_semaphore(self, semaphore: Semaphore, change_guid: UUID) -> Conversation[Semaphore]:
        (row,) = yield self._ask(
            "semaphores.update", **_columns(semaphore), change_guid=change_guid, channel=self._channel
        )
        return self._semaphore(row)

    @transition
    def enqueue_tasks(
        self,
        key: str,
        tasks: Sequence[NewTask],
        request_guid: UUID,
        *,
        change_guid: UUID,
        since: datetime | None = None,
        tell: bool,
    ) -> Conversation[Enqueued | None]:
        (row,) = yield self._ask(
            "enqueue_tasks",
            semaphore=key,
            request_guid=request_guid,
            task_ids=[task.id for task in tasks],
            priorities=[task.priority for task in tasks],
            guids=[task.guid for task in tasks],
            positions=[task.position for task in tasks],
            since=since,
            change_guid=change_guid,
            channel=self._channel if tell else None,
        )
        if not row["there"]:
            return None
        if not row["new"]:
            return (yield from self._enqueued_before(key, tasks))
        return Enqueued(row["created"], row["written"] - row["created"])

    def _enqueued_before(self, key: str, tasks: Sequence[NewTask]) -> Conversation[Enqueued]:
        (row,) = yield self._ask(
            "semaphore_tasks.created",
            semaphore=key,
            task_ids=[task.id for task in tasks],
            guids=[task.guid for task in tasks],
        )
        return Enqueued(row["created"], 0)

    @transition
    def release_tasks(
        self,
        key: str,
        tasks: Sequence[TaskName],
        request_guid: UUID,
        *,
        change_guid: UUID,
        missing_ok: bool = False,
        tell: bool,
    ) -> Conversation[list[str] | None]:
        (row,) = yield self._ask(
            "release_tasks",
            semaphore=key,
            request_guid=request_guid,
            task_ids=[task.id for task in tasks],
            guids=[task.guid for task in tasks],
            missing_ok=missing_ok,
            change_guid=change_guid,
            channel=self._channel if tell else None,
        )
        if row["new"]:
            return list(row["there"])
        return None if (yield from self._carried_out(change_guid)) else []

    @transition
    def step_back(
        self,
        key: str,
        task: TaskName,
        request_guid: UUID,
        *,
        priority: float | None,
        guid: UUID,
        change_guid: UUID,
        tell: bool,
    ) -> Conversation[bool | None]:
        (row,) = yield self._ask(
            "step_back",
            semaphore=key,
            task_id=task.id,
            hold=task.guid,
            request_guid=request_guid,
            priority=priority,
            guid=guid,
            change_guid=change_guid,
            channel=self._channel if tell else None,
        )
        if row["new"]:
            return bool(row["stepped"])
        return None if (yield from self._carried_out(change_guid)) else False

    @transition
    def renew_tasks(self, key: str, tasks: Sequence[TaskName]) -> Conversation[list[str]]:
        rows = yield self._ask(
            "renew_tasks",
            semaphore=key,
            task_ids=[task.id for task in tasks],
            guids=[task.guid for task in tasks],
        )
        return [row["task_id"] for row in rows]

    @transition
    def count_tasks(self, key: str, *, count_max: int) -> Conversation[TaskCounts]:
        (row,) = yield self._ask("semaphore_tasks.count", semaphore=key, count_max=count_max)
        return TaskCounts(row["now"], row["held"], row["asked"], row["waiting"], row["oldest_at"], row["balanced_at"])

    @transition
    def changed_semaphores(self, *, after: str = "", told_of: Sequence[str] = ()) -> Conversation[ToBalance]:
        (found,) = yield self._ask("balance.changed", after=after)
        late: list[str] = []
        for keys in pages(told_of) if found["some_are_late"] else ():
            rows = yield self._ask("balance.late", keys=keys)
            late += [row["key"] for row in rows]
        return ToBalance(found["keys"], late)

    # What a balance asks.

    def _hold_semaphore(self, key: str) -> Conversation[tuple[Semaphore, datetime] | None]:
        rows = yield self._ask("balance.hold", semaphore=key)
        return (self._semaphore(rows[0]), rows[0]["now"]) if rows else None

    def _forget_changes(self, key: str) -> Conversation[None]:
        yield self._ask("balance.seen", semaphore=key)

    def _lapse(self, key: str, late: Sequence[Task], guids: Sequence[UUID]) -> Conversation[set[str]]:
        rows = yield self._ask(
            "balance.lapse",
            semaphore=key,
            task_ids=[task.id for task in late],
            guids=[task.guid for task in late],
            new_guids=list(guids),
        )
        return {row["task_id"] for row in rows}

    def _keep_for_good(self, key: str) -> Conversation[set[str]]:
        rows = yield self._ask("balance.keep", semaphore=key)
        return {row["task_id"] for row in rows}

    def _write_states(self, semaphore: Semaphore, tasks: Sequence[Task]) -> Conversation[set[UUID]]:
        rows = yield self._ask(
            "balance.write",
            semaphore=semaphore.key,
            task_ids=[task.id for task in tasks],
            guids=[task.guid for task in tasks],
            befores=[task.state.value for task in tasks],
            hold_for=semaphore.hold_for,
        )
        return {row["guid"] for row in rows}

    def _end_balance(self, key: str, again: UUID | None) -> Conversation[None]:
        yield self._ask("balance.done", semaphore=key, again=again)

    # How rows are read.

    def _semaphore(self, row: Row) -> Semaphore:
        return Semaphore(key=row["key"], active=row["active"], try_release=row["try_release"], hold_for=row["hold_for"])

    def _task(self, row: Row) -> Task:
        return Task(
            id=row["task_id"],
            priority=row["priority"],
            state=TaskState(row["state"]),
            guid=row["guid"],
            enqueued_at=row["enqueued_at"],
            acquired_at=row["acquired_at"],
            asked_at=row["asked_at"],
            hold_until=row["hold_until"],
        )


def _columns(semaphore: Semaphore) -> dict[str, object]:
    return {
        "semaphore": semaphore.key,
        "active": semaphore.active,
        "try_release": semaphore.try_release,
        "hold_for": semaphore.hold_for,
    }
