"""Semaphores on SQLite."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from matrixsched.rules.semaphore import Semaphore, Task, TaskState
from matrixsched.store.semaphores import Enqueued, NewTask, SemaphoreWrites, TaskCounts, TaskName, ToBalance, pages
from matrixsched.store.sqlite.asking import SqliteAsking
from matrixsched.store.sqlite.rows import as_json, in_microseconds_or_none, moment_of, moment_or_none, span
from matrixsched.store.transition import Conversation, Row, transition


class SqliteSemaphores(SqliteAsking, SemaphoreWrites):
    @transition
    def find_tasks(self, key: str, task_ids: Sequence[str]) -> Conversation[list[Task]]:
        rows = yield self._ask("semaphore_tasks.find_all", semaphore=key, task_ids=as_json(list(task_ids)))
        return [self._task(row) for row in rows]

    @transition
    def make_semaphore(self, semaphore: Semaphore) -> Conversation[Semaphore]:
        found = yield self._ask("semaphores.find", semaphore=semaphore.key)
        if not found:
            yield self._ask("semaphores.libraries")
            yield self._ask("semaphores.create", **_columns(semaphore), now=self._now())
            found = yield self._ask("semaphores.find", semaphore=semaphore.key)
        return self._semaphore(found[0])

    def _write_semaphore(self, semaphore: Semaphore, change_guid: UUID) -> Conversation[Semaphore]:
        (row,) = yield self._ask("semaphores.update", **_columns(semaphore), now=self._now())
        yield self._ask("semaphores.change", semaphore=semaphore.key, change_guid=str(change_guid))
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
        now = self._now()
        if not (yield self._ask("semaphores.find", semaphore=key)):
            return None
        if not (yield self._ask("enqueue_tasks.request", semaphore=key, request_guid=str(request_guid), now=now)):
            return (yield from self._enqueued_before(key, tasks))
        given = as_json([(task.id, task.priority, str(task.guid), task.position) for task in tasks])
        since_us = in_microseconds_or_none(since)
        rows = yield self._ask("enqueue_tasks.write", semaphore=key, tasks=given, since=since_us, now=now)
        if rows:
            yield self._ask("semaphores.change", semaphore=key, change_guid=str(change_guid))
        new = {str(task.guid) for task in tasks}
        created = sum(row["guid"] in new for row in rows)
        return Enqueued(created, len(rows) - created)

    def _enqueued_before(self, key: str, tasks: Sequence[NewTask]) -> Conversation[Enqueued]:
        given = [(task.id, str(task.guid)) for task in tasks]
        (row,) = yield self._ask("semaphore_tasks.created", semaphore=key, tasks=as_json(given))
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
        if not (yield self._ask("release_tasks.request", request_guid=str(request_guid), now=self._now())):
            return None if (yield from self._carried_out(change_guid)) else []
        rows = yield self._ask("release_tasks.there", semaphore=key, tasks=_names(tasks))
        there = [row["task_id"] for row in rows]
        if there and (missing_ok or len(there) == len(tasks)):
            yield self._ask("release_tasks.delete", semaphore=key, task_ids=as_json(there))
            yield from self._note_change(key, change_guid)
        return there

    def _note_change(self, key: str, change_guid: UUID) -> Conversation[None]:
        yield self._ask("semaphores.change", semaphore=key, change_guid=str(change_guid))
        yield self._note_changes([change_guid], self._now())

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
        if not (yield self._ask("release_tasks.request", request_guid=str(request_guid), now=self._now())):
            return None if (yield from self._carried_out(change_guid)) else False
        hold = None if task.guid is None else str(task.guid)
        rows = yield self._ask(
            "step_back", semaphore=key, task_id=task.id, hold=hold, priority=priority, guid=str(guid)
        )
        if rows:
            yield from self._note_change(key, change_guid)
        return bool(rows)

    @transition
    def renew_tasks(self, key: str, tasks: Sequence[TaskName]) -> Conversation[list[str]]:
        rows = yield self._ask("renew_tasks", semaphore=key, tasks=_names(tasks), now=self._now())
        return [row["task_id"] for row in rows]

    @transition
    def count_tasks(self, key: str, *, count_max: int) -> Conversation[TaskCounts]:
        (row,) = yield self._ask("semaphore_tasks.count", semaphore=key, count_max=count_max, now=self._now())
        oldest_at, balanced_at = moment_or_none(row["oldest_at"]), moment_or_none(row["balanced_at"])
        return TaskCounts(moment_of(row["now"]), row["held"], row["asked"], row["waiting"], oldest_at, balanced_at)

    @transition
    def changed_semaphores(self, *, after: str = "", told_of: Sequence[str] = ()) -> Conversation[ToBalance]:
        now = self._now()
        (found,) = yield self._ask("balance.changed", after=after, now=now)
        late: list[str] = []
        for keys in pages(told_of) if found["some_are_late"] else ():
            rows = yield self._ask("balance.late", keys=as_json(keys), now=now)
            late += [row["key"] for row in rows]
        return ToBalance(json.loads(found["keys"]), late)

    # What a balance asks.

    def _hold_semaphore(self, key: str) -> Conversation[tuple[Semaphore, datetime] | None]:
        rows = yield self._ask("balance.hold", semaphore=key, now=self._now())
        return (self._semaphore(rows[0]), moment_of(rows[0]["now"])) if rows else None

    def _forget_changes(self, key: str) -> Conversation[None]:
        yield self._ask("balance.seen", semaphore=key)

    def _lapse(self, key: str, late: Sequence[Task], guids: Sequence[UUID]) -> Conversation[set[str]]:
        given = [(task.id, str(task.guid), str(guid)) for task, guid in zip(late, guids, strict=True)]
        rows = yield self._ask("balance.lapse", semaphore=key, tasks=as_json(given), now=self._now())
        return {row["task_id"] for row in rows}

    def _keep_for_good(self, key: str) -> Conversation[set[str]]:
        rows = yield self._ask("balance.keep", semaphore=key)
        return {row["task_id"] for row in rows}

    def _write_states(self, semaphore: Semaphore, tasks: Sequence[Task]) -> Conversation[set[UUID]]:
        given = [(task.id, str(task.guid), task.state.value) for task in tasks]
        hold_for = None if semaphore.hold_for is None else span(semaphore.hold_for)
        rows = yield self._ask(
            "balance.write", semaphore=semaphore.key, tasks=as_json(given), hold_for=hold_for, now=self._now()
        )
        return {UUID(row["guid"]) for row in rows}

    def _end_balance(self, key: str, again: UUID | None) -> Conversation[None]:
        yield self._ask("balance.done", semaphore=key, now=self._now())
        if again is not None:
            yield self._ask("semaphores.change", semaphore=key, change_guid=str(again))

    # How rows are read.

    def _semaphore(self, row: Row) -> Semaphore:
        hold_for = None if row["hold_for"] is None else timedelta(microseconds=row["hold_for"])
        return Semaphore(key=row["key"], active=row["active"], try_release=row["try_release"], hold_for=hold_for)

    def _task(self, row: Row) -> Task:
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


def _names(tasks: Sequence[TaskName]) -> str:
    return as_json([(task.id, None if task.guid is None else str(task.guid)) for task in tasks])


def _columns(semaphore: Semaphore) -> dict[str, object]:
    return {
        "semaphore": semaphore.key,
        "active": semaphore.active,
        "try_release": semaphore.try_release,
        "hold_for": None if semaphore.hold_for is None else span(semaphore.hold_for),
    }
