"""Semaphores on PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from matrixsched.rules.semaphore import Semaphore, Task, TaskState
from matrixsched.store.postgresql.asking import PostgresAsking
from matrixsched.store.semaphores import Balances, Enqueued, NewTask, TaskCounts, TaskName
from matrixsched.store.transition import Conversation, Row, transition


class PostgresSemaphores(Balances, PostgresAsking):
    _channel: str

    @transition
    def make_semaphore(self, semaphore: Semaphore) -> Conversation[Semaphore]:
        found = yield self._ask("semaphores.find", semaphore=semaphore.key)
        if not found:
            yield self._ask("semaphores.libraries")
            yield self._ask("semaphores.create", **_columns(semaphore))
            found = yield self._ask("semaphores.find", semaphore=semaphore.key)
        return _semaphore(found[0])

    @transition
    def find_semaphore(self, key: str) -> Conversation[Semaphore | None]:
        rows = yield self._ask("semaphores.find", semaphore=key)
        return _semaphore(rows[0]) if rows else None

    @transition
    def semaphores(self, *, after: str, limit: int) -> Conversation[list[Semaphore]]:
        rows = yield self._ask("semaphores.page", after=after, limit=limit)
        return [_semaphore(row) for row in rows]

    @transition
    def update_semaphore(self, semaphore: Semaphore, change_guid: UUID) -> Conversation[Semaphore | None]:
        rows = yield self._ask("semaphores.update", **_columns(semaphore), change_guid=change_guid)
        return _semaphore(rows[0]) if rows else None

    @transition
    def enqueue_tasks(
        self, key: str, tasks: Sequence[NewTask], request_guid: UUID, *, change_guid: UUID, tell: bool
    ) -> Conversation[Enqueued | None]:
        (row,) = yield self._ask(
            "enqueue_tasks",
            semaphore=key,
            request_guid=request_guid,
            task_ids=[task.id for task in tasks],
            priorities=[task.priority for task in tasks],
            guids=[task.guid for task in tasks],
            change_guid=change_guid,
            channel=self._channel if tell else None,
        )
        return Enqueued(row["created"], row["written"] - row["created"]) if row["there"] else None

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
        return list(row["there"]) if row["requests"] else None

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
    def held_tasks(self, key: str, *, limit: int) -> Conversation[list[Task]]:
        rows = yield self._ask("semaphore_tasks.held", semaphore=key, limit=limit)
        return [_task(row) for row in rows]

    @transition
    def waiting_tasks(self, key: str, *, limit: int) -> Conversation[list[Task]]:
        rows = yield self._ask("semaphore_tasks.waiting", semaphore=key, limit=limit)
        return [_task(row) for row in rows]

    @transition
    def find_task(self, key: str, task_id: str) -> Conversation[Task | None]:
        rows = yield self._ask("semaphore_tasks.find", semaphore=key, task_id=task_id)
        return _task(rows[0]) if rows else None

    @transition
    def task_position(self, key: str, task_id: str, *, count_max: int) -> Conversation[int | None]:
        rows = yield self._ask("semaphore_tasks.position", semaphore=key, task_id=task_id, count_max=count_max)
        return int(rows[0]["before"]) if rows else None

    @transition
    def count_tasks(self, key: str, *, count_max: int) -> Conversation[TaskCounts]:
        (row,) = yield self._ask("semaphore_tasks.count", semaphore=key, count_max=count_max)
        return TaskCounts(row["now"], row["held"], row["asked"], row["waiting"], row["oldest_at"])

    @transition
    def changed_semaphores(self, *, limit: int) -> Conversation[list[str]]:
        rows = yield self._ask("balance.changed", limit=limit)
        return [row["key"] for row in rows]

    # What a balance asks.

    def _hold_semaphore(self, key: str) -> Conversation[Semaphore | None]:
        rows = yield self._ask("balance.hold", semaphore=key)
        return _semaphore(rows[0]) if rows else None

    def _forget_changes(self, key: str) -> Conversation[None]:
        yield self._ask("balance.seen", semaphore=key)

    def _lapse(self, key: str) -> Conversation[list[str]]:
        rows = yield self._ask("balance.lapse", semaphore=key)
        return [row["task_id"] for row in rows]

    def _write_states(self, semaphore: Semaphore, changes: Sequence[tuple[Task, TaskState]]) -> Conversation[set[str]]:
        rows = yield self._ask(
            "balance.write",
            semaphore=semaphore.key,
            task_ids=[task.id for task, _ in changes],
            guids=[task.guid for task, _ in changes],
            befores=[task.state.value for task, _ in changes],
            hold_for=semaphore.hold_for,
        )
        return {row["task_id"] for row in rows}

    def _end_balance(self, key: str, again: UUID | None) -> Conversation[None]:
        yield self._ask("balance.done", semaphore=key, again=again)


def _columns(semaphore: Semaphore) -> dict[str, object]:
    return {
        "semaphore": semaphore.key,
        "active": semaphore.active,
        "try_release": semaphore.try_release,
        "hold_for": semaphore.hold_for,
    }


def _semaphore(row: Row) -> Semaphore:
    return Semaphore(key=row["key"], active=row["active"], try_release=row["try_release"], hold_for=row["hold_for"])


def _task(row: Row) -> Task:
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
