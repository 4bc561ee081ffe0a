"""Typed queues on PostgreSQL: a batch is one statement; the text is in sql/postgresql/."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from matrixsched.rules.processors import ProcessorPlan
from matrixsched.rules.queues import NewItem, Receipt, StoredTask
from matrixsched.store.postgresql.asking import PostgresAsking
from matrixsched.store.queues import (
    Letter,
    QueueCounts,
    QueueShared,
    Retry,
    SweptTasks,
    encode_assignment,
)
from matrixsched.store.transition import Ask, Conversation, transition


class PostgresQueues(PostgresAsking, QueueShared):
    _channel: str

    def _query(self, name: str, *, tell: bool = True, **parameters: object) -> Ask:
        return self._ask(name, channel=self._channel if tell else None, **parameters)

    def _moment(self, stored: Any) -> datetime:
        moment: datetime = stored
        return moment

    def _span(self, stored: Any) -> timedelta:
        span: timedelta = stored
        return span

    def _put(self, items: Sequence[NewItem], request_guid: UUID, tell: bool) -> Conversation[list[int]]:
        (row,) = yield self._query(
            "put_tasks",
            tell=tell,
            request_guid=request_guid,
            queues=[item.queue for item in items],
            datas=[item.data for item in items],
            ats=[item.at for item in items],
            delays=[item.delay for item in items],
        )
        return sorted((yield from self._ids(row["ids"], request_guid)))

    def _ids(self, ids: Sequence[int] | None, request_guid: UUID) -> Conversation[set[int]]:
        """The ids that a request answers with, or answered with when it was sent before."""
        if ids is None:
            (row,) = yield self._query("request_ids.find", request_guid=request_guid)
            ids = row["ids"]
        return set(ids or ())

    @transition
    def take_tasks(
        self, queue: int, count: int, guid: UUID, *, visibility: timedelta
    ) -> Conversation[list[StoredTask]]:
        rows = yield self._query("take_tasks", queue=queue, count=count, guid=guid, visibility=visibility)
        if rows and not rows[0]["known"]:
            yield from self._know(queue)
        return [self._stored(row, guid) for row in rows]

    @transition
    def done_tasks(self, receipts: Collection[Receipt], *, again: bool = False) -> Conversation[set[int]]:
        ids, guids = _by_id(receipts)
        rows = yield self._query("done_tasks.delete", ids=ids, guids=guids)
        gone = {row["id"] for row in rows}
        if not again or len(gone) == len(ids):
            return gone
        rows = yield self._query("done_tasks.there", ids=ids)
        return set(ids) - {row["id"] for row in rows}

    @transition
    def retry_tasks(self, retries: Collection[Retry], request_guid: UUID) -> Conversation[set[int]]:
        ordered = sorted(retries, key=lambda retry: retry.receipt.task_id)
        ids, guids = _by_id(retry.receipt for retry in ordered)
        (row,) = yield self._query(
            "retry_tasks",
            ids=ids,
            guids=guids,
            ats=[retry.when if isinstance(retry.when, datetime) else None for retry in ordered],
            delays=[retry.when if isinstance(retry.when, timedelta) else None for retry in ordered],
            request_guid=request_guid,
        )
        return (yield from self._ids(row["ids"], request_guid))

    @transition
    def set_aside_tasks(self, letters: Collection[Letter], request_guid: UUID) -> Conversation[set[int]]:
        ordered = sorted(letters, key=lambda letter: letter.receipt.task_id)
        ids, guids = _by_id(letter.receipt for letter in ordered)
        (row,) = yield self._query(
            "set_aside_tasks",
            ids=ids,
            guids=guids,
            reasons=[letter.reason for letter in ordered],
            request_guid=request_guid,
        )
        return (yield from self._ids(row["ids"], request_guid))

    @transition
    def extend_tasks(
        self, receipts: Collection[Receipt], *, visibility: timedelta, only_longer: bool = False
    ) -> Conversation[set[int]]:
        ids, guids = _by_id(receipts)
        rows = yield self._query(
            "extend_tasks.extend", ids=ids, guids=guids, visibility=visibility, only_longer=only_longer
        )
        extended = {row["id"] for row in rows}
        if len(extended) == len(ids):
            return extended
        held = yield self._query("extend_tasks.held", ids=ids, guids=guids)
        return extended | {row["id"] for row in held}

    @transition
    def count_queues(self, *, count_max: int) -> Conversation[QueueCounts]:
        rows = yield self._query("count_queues", count_max=count_max)
        stats = {row["queue"]: self._stat(row["queue"], row) for row in rows if row["queue"] is not None}
        return QueueCounts(rows[0]["now"], stats)

    @transition
    def redrive(
        self, queue: int, *, ids: Sequence[int] | None, limit: int, tell: bool, died_by: datetime | None = None
    ) -> Conversation[int]:
        chosen = yield from self._chosen_dead(queue, ids, limit, died_by)
        rows = (yield self._query("dead_letters.redrive", queue=queue, ids=chosen, tell=tell)) if chosen else []
        return len(rows)

    @transition
    def sweep_tasks(self, after: int, *, limit: int, reach: timedelta) -> Conversation[SweptTasks]:
        (row,) = yield self._query("queue_tasks.sweep", after=after, limit=limit, reach=reach)
        return SweptTasks(row["last"] if row["looked"] == limit else None, row["shortened"])

    @transition
    def assign_processors(self, plan: ProcessorPlan, holder: UUID) -> Conversation[set[UUID]]:
        rows = yield self._query(
            "queue_workers.assign",
            workers=list(plan),
            assignments=[encode_assignment(assignment) for assignment in plan.values()],
            holder=holder,
        )
        return {row["worker"] for row in rows}


def _by_id(receipts: Iterable[Receipt]) -> tuple[list[int], list[UUID]]:
    """In two arrays, the ids rising: the guid of each is found by halving."""
    ordered = sorted(receipts)
    return [receipt.task_id for receipt in ordered], [receipt.guid for receipt in ordered]
