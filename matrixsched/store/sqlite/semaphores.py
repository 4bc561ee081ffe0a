"""Semaphores on SQLite."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from matrixsched.rules.semaphore import Semaphore, Task, TaskState
from matrixsched.store.semaphores import Balances, Enqueued, NewTask, TaskCounts, TaskName
from matrixsched.store.sqlite.asking import SqliteAsking
from matrixsched.store.sqlite.rows import as_json, moment_of, moment_or_none, span
from matrixsched.store.transition import Conversation, Row, transition


class SqliteSemaphores(Balances, SqliteAsking):
    @transition
    def make_semaphore(self, semaphore: Semaphore) -> Conversation[Semaphore]:
        found = yield self._ask("semaphores.find", semaphore=semaphore.key)
        if not found:
            yield self._ask("semaphores.libraries")
            yield self._ask("semaphores.create", **_columns(semaphore), now=self._now())
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
        rows = yield self._ask("semaphores.update", **_columns(semaphore), now=self._now())
        if not rows:
            return None
        yield self._ask("semaphores.change", semaphore=semaphore.key, change_guid=str(change_guid))
        return _semaphore(rows[0])

    @transition
    def enqueue_tasks(
        self, key: str, tasks: Sequence[NewTask], request_guid: UUID, *, change_guid: UUID, tell: bool
    ) -> Conversation[Enqueued | None]:
        now = self._now()
        if not (yield self._ask("semaphores.find", semaphore=key)):
            return None
        if not (yield self._ask("enqueue_tasks.request", semaphore=key, request_guid=str(request_guid), now=now)):
            return Enqueued(0, 0)
        given = [(task.id, task.priority, str(task.guid)) for task in tasks]
        rows = yield self._ask("enqueue_tasks.write", semaphore=key, tasks=as_json(given), now=now)
        if rows:
            yield self._ask("semaphores.change", semaphore=key, change_guid=str(change_guid))
        new = {str(task.guid) for task in tasks}
        created = sum(row["guid"] in new for row in rows)
        return Enqueued(created, len(rows) - created)

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
        if not (yield self._ask("release_tasks.request", request_guid=str(request_guid), now=self._now())):
            return None
        rows = yield self._ask("release_tasks.there", semaphore=key, tasks=_names(tasks))
        there = [row["task_id"] for row in rows]
        if there and (missing_ok or len(there) == len(tasks)):
            yield self._ask("release_tasks.delete", semaphore=key, task_ids=as_json(there))
            yield self._ask("semaphores.change", semaphore=key, change_guid=str(change_guid))
        return there

    @transition
    def renew_tasks(self, key: str, tasks: Sequence[TaskName]) -> Conversation[list[str]]:
        rows = yield self._ask("renew_tasks", semaphore=key, tasks=_names(tasks), now=self._now())
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
        (row,) = yield self._ask("semaphore_tasks.count", semaphore=key, count_max=count_max, now=self._now())
        oldest_at = moment_or_none(row["oldest_at"])
        return TaskCounts(moment_of(row["now"]), row["held"], row["asked"], row["waiting"], oldest_at)

    @transition
    def changed_semaphores(self, *, limit: int) -> Conversation[list[str]]:
        rows = yield self._ask("balance.changed", limit=limit, now=self._now())
        return [row["key"] for row in rows]

    # What a balance asks.

    def _hold_semaphore(self, key: str) -> Conversation[Semaphore | None]:
        rows = yield self._ask("balance.hold", semaphore=key, now=self._now())
        return _semaphore(rows[0]) if rows else None

    def _forget_changes(self, key: str) -> Conversation[None]:
        yield self._ask("balance.seen", semaphore=key)

    def _lapse(self, key: str) -> Conversation[list[str]]:
        rows = yield self._ask("balance.lapse", semaphore=key, now=self._now())
        return [row["task_id"] for row in rows]

    def _write_states(self, semaphore: Semaphore, changes: Sequence[tuple[Task, TaskState]]) -> Conversation[set[str]]:
        given = [(task.id, str(task.guid), task.state.value) for task, _ in changes]
        hold_for = None if semaphore.hold_for is None else span(semaphore.hold_for)
        rows = yield self._ask(
            "balance.write", semaphore=semaphore.key, tasks=as_json(given), hold_for=hold_for, now=self._now()
        )
        return {row["task_id"] for row in rows}

    def _end_balance(self, key: str, again: UUID | None) -> Conversation[None]:
        yield self._ask("balance.done", semaphore=key, now=self._now())
        if again is not None:
            yield self._ask("semaphores.change", semaphore=key, change_guid=str(again))


def _names(tasks: Sequence[TaskName]) -> str:
    return as_json([(task.id, None if task.guid is None else str(task.guid)) for task in tasks])


def _columns(semaphore: Semaphore) -> dict[str, object]:
    return {
        "semaphore": semaphore.key,
        "active": semaphore.active,
        "try_release": semaphore.try_release,
        "hold_for": None if semaphore.hold_for is None else span(semaphore.hold_for),
    }


def _semaphore(row: Row) -> Semaphore:
    hold_for = None if row["hold_for"] is None else timedelta(microseconds=row["hold_for"])
    return Semaphore(key=row["key"], active=row["active"], try_release=row["try_release"], hold_for=hold_for)


def _task(row: Row) -> Task:
    return Task(
        id=row["task_id"],
        priority=row["priority"],
        state=TaskState(row["state"]),
        guid=UUID(row["guid"]),
        enqueued_at=moment_of(row["enqueued_at"]),
        acquired_at=moment_or_none(row["acquired_at"]),
        asked_at=moment_or_none(row["asked_at"]),
        hold_until=moment_or_none(row["hold_until"]),
    )
