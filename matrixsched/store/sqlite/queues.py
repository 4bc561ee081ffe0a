"""Typed queues on SQLite: a batch is a few statements in one transaction; the text is in sql/sqlite/."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from matrixsched.rules.processors import ProcessorPlan
from matrixsched.rules.queues import NewItem, Receipt, StoredTask
from matrixsched.store.queues import (
    Letter,
    QueueCounts,
    QueueShared,
    Retry,
    SweptTasks,
    encode_assignment,
)
from matrixsched.store.sqlite.asking import SqliteAsking
from matrixsched.store.sqlite.rows import as_json, begins_at, moment_of, span
from matrixsched.store.transition import Ask, Conversation, transition


class SqliteQueues(SqliteAsking, QueueShared):
    def _query(self, name: str, *, tell: bool = True, **parameters: object) -> Ask:
        """At this moment, or at the one given as `now`, where several statements are to be of one."""
        plain = {key: _plain(value) for key, value in parameters.items()}
        return self._ask(name, **{"now": self._now(), **plain})

    def _moment(self, stored: Any) -> datetime:
        return moment_of(stored)

    def _span(self, stored: Any) -> timedelta:
        return timedelta(microseconds=stored)

    def _put(self, items: Sequence[NewItem], request_guid: UUID, tell: bool) -> Conversation[list[int]]:
        before = yield from self._before(request_guid)
        if before is not None:
            return sorted(before)
        now = self._now()
        tasks, position = [], 1
        for item in items:
            tasks.append((item.queue, begins_at(item.at, item.delay, now), position, len(item.data)))
            position += len(item.data)
        rows = yield self._query("put_tasks", tasks=tasks, data=b"".join(item.data for item in items), now=now)
        ids = sorted(row["id"] for row in rows)
        yield from self._note(request_guid, ids)
        return ids

    def _before(self, request_guid: UUID) -> Conversation[set[int] | None]:
        """The ids that a request answered with when it was sent before; None if it never was."""
        rows = yield self._query("request_ids.find", request_guid=request_guid)
        return set(json.loads(rows[0]["ids"])) if rows else None

    def _note(self, request_guid: UUID, ids: Iterable[int]) -> Conversation[None]:
        yield self._query("request_ids.note", request_guid=request_guid, ids=list(ids))

    @transition
    def take_tasks(
        self, queue: int, count: int, guid: UUID, *, visibility: timedelta
    ) -> Conversation[list[StoredTask]]:
        now = self._now()
        if not (yield self._query("take_tasks.look", queue=queue, now=now)):
            return []
        rows = yield self._query("take_tasks.take", queue=queue, count=count, guid=guid, visibility=visibility, now=now)
        if rows and not rows[0]["known"]:
            yield from self._know(queue)
        return [self._stored(row, guid) for row in sorted(rows, key=lambda row: (row["start_at"], row["id"]))]

    @transition
    def done_tasks(self, receipts: Collection[Receipt], *, again: bool = False) -> Conversation[set[int]]:
        rows = yield self._query("done_tasks.delete", receipts=_pairs(receipts))
        gone = {row["id"] for row in rows}
        if not again or len(gone) == len(receipts):
            return gone
        ids = {receipt.task_id for receipt in receipts}
        rows = yield self._query("done_tasks.there", ids=sorted(ids))
        return ids - {row["id"] for row in rows}

    @transition
    def retry_tasks(self, retries: Collection[Retry], request_guid: UUID) -> Conversation[set[int]]:
        before = yield from self._before(request_guid)
        if before is not None:
            return before
        now = self._now()
        given = [(*_pair(retry.receipt), _start(retry.when, now)) for retry in retries]
        rows = yield self._query("retry_tasks", receipts=given, now=now)
        back = {row["id"] for row in rows}
        yield from self._note(request_guid, back)
        return back

    @transition
    def set_aside_tasks(self, letters: Collection[Letter], request_guid: UUID) -> Conversation[set[int]]:
        before = yield from self._before(request_guid)
        if before is not None:
            return before
        given = [(*_pair(letter.receipt), letter.reason) for letter in letters]
        rows = yield self._query("set_aside_tasks.copy", receipts=given)
        dead = {row["id"] for row in rows}
        if dead:
            yield self._query("set_aside_tasks.delete", ids=list(dead))
        yield from self._note(request_guid, dead)
        return dead

    @transition
    def extend_tasks(
        self, receipts: Collection[Receipt], *, visibility: timedelta, only_longer: bool = False
    ) -> Conversation[set[int]]:
        rows = yield self._query(
            "extend_tasks", receipts=_pairs(receipts), visibility=visibility, only_longer=only_longer
        )
        return {row["id"] for row in rows}

    @transition
    def count_queues(self, *, count_max: int) -> Conversation[QueueCounts]:
        now = self._now()
        queues = [row["queue"] for row in (yield self._query("count_queues.queues"))]
        stats = {}
        for queue in queues:
            (row,) = yield self._query("count_queues.count", queue=queue, count_max=count_max, now=now)
            stats[queue] = self._stat(queue, row)
        return QueueCounts(moment_of(now), stats)

    @transition
    def redrive(
        self, queue: int, *, ids: Sequence[int] | None, limit: int, tell: bool, died_by: datetime | None = None
    ) -> Conversation[int]:
        chosen = yield from self._chosen_dead(queue, ids, limit, died_by)
        rows = (yield self._query("dead_letters.redrive", queue=queue, ids=chosen)) if chosen else []
        if rows:
            yield self._query("dead_letters.purge", queue=queue, ids=[row["id"] for row in rows])
        return len(rows)

    @transition
    def sweep_tasks(self, after: int, *, limit: int, reach: timedelta) -> Conversation[SweptTasks]:
        now = self._now()
        rows = yield self._query("queue_tasks.sweep", after=after, limit=limit, reach=reach, now=now)
        stranded = [row["id"] for row in rows if row["stranded"]]
        if stranded:
            yield self._query("queue_tasks.shorten", ids=stranded, reach=reach, now=now)
        return SweptTasks(rows[-1]["id"] if len(rows) == limit else None, len(stranded))

    @transition
    def assign_processors(self, plan: ProcessorPlan, holder: UUID) -> Conversation[set[UUID]]:
        given = [(str(worker), encode_assignment(assignment)) for worker, assignment in plan.items()]
        rows = yield self._query("queue_workers.assign", assignments=given, holder=holder)
        return {UUID(row["worker"]) for row in rows}


def _plain(value: object) -> object:
    """As SQLite takes it."""
    match value:
        case UUID():
            return str(value)
        case timedelta():
            return span(value)
        case list():
            return as_json(value)
    return value


def _pair(receipt: Receipt) -> tuple[int, str]:
    return receipt.task_id, str(receipt.guid)


def _pairs(receipts: Iterable[Receipt]) -> list[tuple[int, str]]:
    return [_pair(receipt) for receipt in receipts]


def _start(when: datetime | timedelta, now: int) -> int:
    return begins_at(None, when, now) if isinstance(when, timedelta) else begins_at(when, timedelta(0), now)
