"""Typed queues in a database: what is read and written of them, as far as it is the same for each (queueing.py).

Whoever takes tasks moves their due time to the end of the visibility timeout and leaves a receipt in them; whoever
settles them names it, and the row is written only if it still bears that receipt and the timeout is not over. So a task
that nobody settles is due again by itself, and a receipt is void from the very moment at which somebody else may take
the task. Putting and settling is safe to send again where no answer came: the ids are kept beside the request.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid5

from matrixsched.rules.processors import Assignment
from matrixsched.rules.queues import DeadTask, NewItem, Outlook, QueueSettings, QueueStat, Receipt, StoredTask
from matrixsched.store.transition import Ask, Conversation, Row, Transaction, Transition, transaction, transition
from matrixsched.store.values import Answer, Ended

PUT_TASKS_MAX = 5_000
PUT_BYTES_MAX = 16 * 1024 * 1024
"""How many tasks, or how much of them, go in one statement."""


@dataclass(frozen=True, slots=True)
class Retry:
    """When a task comes back: at a time, or after a delay."""

    receipt: Receipt
    when: datetime | timedelta


@dataclass(frozen=True, slots=True)
class Letter:
    """Why a task is to be set aside."""

    receipt: Receipt
    reason: str


@dataclass(frozen=True, slots=True)
class QueueCounts:
    now: datetime
    stats: Mapping[int, QueueStat]


@dataclass(frozen=True, slots=True)
class Ready:
    """What waits in a queue to be taken."""

    tasks: int
    oldest_s: float
    """How long the oldest has been ready; 0 if none is."""


@dataclass(frozen=True, slots=True)
class QueueLoads:
    ready: Mapping[int, Ready]
    settings: Mapping[int, QueueSettings]
    """Of those that have any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeekedTask:
    """A task as it lies in its queue; nobody took it by looking."""

    id: int
    queue: int
    data: bytes
    attempts: int
    created_at: datetime
    start_at: datetime
    previous_start_at: datetime | None
    due_at: datetime
    state: str
    """ready, taken or delayed."""


@dataclass(frozen=True, slots=True)
class Assigned:
    """What a worker was told, and when; both None if nobody told it anything yet."""

    assignment: Assignment | None
    assigned_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerReport:
    """What a worker said last."""

    worker: UUID
    name: str
    processors_max: int
    report: Mapping[str, Any]
    seen_at: datetime
    assigned: Assigned
    now: datetime
    """When this was read."""


@dataclass(frozen=True, slots=True)
class SweptTasks:
    position: int | None
    """The id behind which to go on; None when the round is complete."""
    shortened: int
    """Taken tasks that the database's clock had left behind."""


class QueueShared:
    """What is asked of every database in the same words."""

    @abstractmethod
    def _query(self, name: str, *, tell: bool = True, **parameters: object) -> Ask:
        """With lists, durations and guids as this database takes them; `tell` is for statements that wake workers."""

    @abstractmethod
    def _moment(self, stored: Any) -> datetime: ...

    @abstractmethod
    def _span(self, stored: Any) -> timedelta: ...

    @abstractmethod
    def _put(self, items: Sequence[NewItem], request_guid: UUID, tell: bool) -> Conversation[list[int]]:
        """One batch."""

    def put_tasks(self, items: Sequence[NewItem], request_guid: UUID, *, tell: bool) -> Transition[list[int]]:
        batches = list(_batches(items))
        kind: type[Transition[list[int]]] = Transition if len(batches) == 1 else Transaction
        return kind("put_tasks", lambda: self._put_all(batches, request_guid, tell))

    def _put_all(self, batches: Sequence[Sequence[NewItem]], request_guid: UUID, tell: bool) -> Conversation[list[int]]:
        ids: list[int] = []
        for number, batch in enumerate(batches):
            guid = uuid5(request_guid, str(number)) if number else request_guid
            ids += yield from self._put(batch, guid, tell and not number)
        return ids

    @abstractmethod
    def record(self, ended: Sequence[Ended], *, history_max: int) -> Transition[Mapping[UUID, Answer]]: ...

    @transaction
    def record_deliveries(self, ended: Sequence[Ended], *, history_max: int) -> Conversation[Mapping[UUID, Answer]]:
        answers = yield from self.record(ended, history_max=history_max).begin()
        delivered = [one for one in ended if one.delivery is not None and answers[one.claim.guid] is Answer.RECORDED]
        items = [one.delivery for one in delivered if one.delivery is not None]
        if items:
            # Recorded once is put once; the request has to be none of another attempt, and nothing else.
            first = delivered[0].claim
            request_guid = uuid5(first.claimed_by, f"{first.guid} {first.attempt}")
            yield from self.put_tasks(items, request_guid, tell=True).begin()
        return answers

    @transition
    def purge_tasks(self, queue: int, *, ids: Sequence[int] | None, limit: int) -> Conversation[int]:
        chosen = yield from self._chosen(ids, limit, self._query("queue_tasks.waiting", queue=queue, limit=limit))
        rows = (yield self._query("queue_tasks.purge", queue=queue, ids=chosen)) if chosen else []
        if rows:
            yield from self._know(queue)
        return len(rows)

    def _know(self, queue: int) -> Conversation[None]:
        """That it had tasks."""
        yield self._query("know_queue", queue=queue)

    @transition
    def purge_dead(
        self, queue: int, *, ids: Sequence[int] | None, limit: int, died_by: datetime | None = None
    ) -> Conversation[int]:
        chosen = yield from self._chosen_dead(queue, ids, limit, died_by)
        rows = (yield self._query("dead_letters.purge", queue=queue, ids=chosen)) if chosen else []
        return len(rows)

    def _chosen_dead(
        self, queue: int, ids: Sequence[int] | None, limit: int, died_by: datetime | None
    ) -> Conversation[list[int]]:
        if ids is not None or died_by is None:
            first = self._query("dead_letters.ids", queue=queue, limit=limit)
            return (yield from self._chosen(ids, limit, first))
        # Page by page: no index is in the order of ids and knows when they died, and all at once may be many.
        chosen: list[int] = []
        after: int | None = 0
        while after is not None and len(chosen) < limit:
            rows = yield self._query("dead_letters.times", queue=queue, after=after, limit=limit)
            chosen += [row["id"] for row in rows if self._moment(row["died_at"]) <= died_by]
            after = rows[-1]["id"] if len(rows) == limit else None
        return chosen[:limit]

    @transition
    def count_ready(self, queues: Sequence[int], *, count_max: int) -> Conversation[Mapping[int, Ready]]:
        rows = yield self._query("count_ready", queues=list(queues), count_max=count_max)
        return {row["queue"]: self._ready(row) for row in rows}

    @transaction
    def queue_loads(self, queues: Sequence[int], *, count_max: int) -> Conversation[QueueLoads]:
        ready = yield from self.count_ready(queues, count_max=count_max).begin()
        settings = yield from self.queue_settings().begin()
        return QueueLoads(ready, {one.queue: one for one in settings})

    @transition
    def look_queues(self, queues: Sequence[int], *, within: timedelta) -> Conversation[Mapping[int, Outlook]]:
        rows = yield self._query("look_queues", queues=list(queues), within=within)
        return {row["queue"]: self._outlook(row) for row in rows}

    @transition
    def peek_tasks(self, queue: int, *, limit: int) -> Conversation[list[PeekedTask]]:
        rows = yield self._query("queue_tasks.peek", queue=queue, limit=limit)
        return [self._peeked(row) for row in rows]

    @transition
    def retry_now(self, queue: int, *, ids: Sequence[int] | None, limit: int, tell: bool) -> Conversation[int]:
        chosen = yield from self._chosen(ids, limit, self._query("queue_tasks.delayed", queue=queue, limit=limit))
        rows = (yield self._query("queue_tasks.hasten", queue=queue, ids=chosen, tell=tell)) if chosen else []
        return len(rows)

    def _chosen(self, ids: Sequence[int] | None, limit: int, first: Ask) -> Conversation[list[int]]:
        """These, or the first ones that there are."""
        if ids is not None:
            return list(ids)[:limit]
        rows = yield first
        return [row["id"] for row in rows]

    @transition
    def dead_letters(self, queue: int, *, after: int, limit: int) -> Conversation[list[DeadTask]]:
        rows = yield self._query("dead_letters.page", queue=queue, after=after, limit=limit)
        return [self._dead(row) for row in rows]

    # Settings.

    @transition
    def queue_settings(self) -> Conversation[list[QueueSettings]]:
        rows = yield self._query("queue_settings.all")
        return [self._settings(row) for row in rows]

    @transaction
    def change_queue_settings(
        self, queue: int, change: Callable[[QueueSettings], QueueSettings]
    ) -> Conversation[QueueSettings]:
        yield self._query("queue_settings.make", queue=queue)
        (row,) = yield self._query("queue_settings.hold", queue=queue)
        wanted = change(self._settings(row))
        (row,) = yield self._query(
            "queue_settings.write",
            queue=queue,
            queue_name=wanted.name,
            paused=wanted.paused,
            batch_size=wanted.batch_size,
            visibility=wanted.visibility,
            processors_max=wanted.processors_max,
        )
        return self._settings(row)

    @transition
    def pause_queue(self, queue: int) -> Conversation[bool]:
        rows = yield self._query("queue_settings.pause", queue=queue)
        return bool(rows)

    @transition
    def resume_queue(self, queue: int) -> Conversation[bool]:
        rows = yield self._query("queue_settings.resume", queue=queue)
        return bool(rows)

    # Workers.

    @transition
    def report_processors(
        self, worker: UUID, *, name: str, processors_max: int, report: Mapping[str, Any]
    ) -> Conversation[Assigned]:
        (row,) = yield self._query(
            "queue_workers.report",
            worker=worker,
            worker_name=name,
            processors_max=processors_max,
            report=json.dumps(report),
        )
        return self._assigned(row)

    @transition
    def processor_reports(self, *, within: timedelta) -> Conversation[list[WorkerReport]]:
        rows = yield self._query("queue_workers.reports", within=within)
        return [self._report(row) for row in rows]

    @transition
    def leave_processors(self, worker: UUID) -> Conversation[bool]:
        rows = yield self._query("queue_workers.leave", worker=worker)
        return bool(rows)

    @transition
    def forget_processors(self, *, unseen_for: timedelta) -> Conversation[int]:
        rows = yield self._query("queue_workers.forget", unseen_for=unseen_for)
        return len(rows)

    # How rows are read.

    def _moment_or_none(self, stored: Any) -> datetime | None:
        return None if stored is None else self._moment(stored)

    def _stored(self, row: Row, guid: UUID) -> StoredTask:
        return StoredTask(
            id=row["id"],
            queue=row["queue"],
            data=row["data"],
            attempts=row["attempts"],
            created_at=self._moment(row["created_at"]),
            start_at=self._moment(row["start_at"]),
            previous_start_at=self._moment_or_none(row["previous_start_at"]),
            receipt=Receipt(row["id"], guid),
        )

    def _peeked(self, row: Row) -> PeekedTask:
        due_at = self._moment(row["due_at"])
        taken_or_delayed = "delayed" if row["receipt"] is None else "taken"
        return PeekedTask(
            id=row["id"],
            queue=row["queue"],
            data=row["data"],
            attempts=row["attempts"],
            created_at=self._moment(row["created_at"]),
            start_at=self._moment(row["start_at"]),
            previous_start_at=self._moment_or_none(row["previous_start_at"]),
            due_at=due_at,
            state="ready" if due_at <= self._moment(row["now"]) else taken_or_delayed,
        )

    def _dead(self, row: Row) -> DeadTask:
        return DeadTask(
            id=row["id"],
            queue=row["queue"],
            data=row["data"],
            attempts=row["attempts"],
            created_at=self._moment(row["created_at"]),
            start_at=self._moment(row["start_at"]),
            previous_start_at=self._moment_or_none(row["previous_start_at"]),
            died_at=self._moment(row["died_at"]),
            reason=row["reason"],
        )

    def _ready(self, row: Row) -> Ready:
        oldest_at, now = self._moment_or_none(row["oldest_ready_at"]), self._moment(row["now"])
        return Ready(row["ready"], 0.0 if oldest_at is None else (now - oldest_at).total_seconds())

    def _outlook(self, row: Row) -> Outlook:
        next_due_at, now = self._moment_or_none(row["next_due_at"]), self._moment(row["now"])
        return Outlook(
            bool(row["ready"]),
            None if next_due_at is None else (next_due_at - now).total_seconds(),
            self._moment_or_none(row["settings_at"]),
        )

    def _stat(self, queue: int, row: Row) -> QueueStat:
        return QueueStat(
            queue=queue,
            total=row["ready"] + row["taken"] + row["delayed"],
            ready=row["ready"],
            taken=row["taken"],
            delayed=row["delayed"],
            dead=row["dead"],
            oldest_ready_at=self._moment_or_none(row["oldest_ready_at"]),
        )

    def _settings(self, row: Row) -> QueueSettings:
        return QueueSettings(
            queue=row["queue"],
            name=row["name"],
            paused=bool(row["paused"]),
            batch_size=row["batch_size"],
            visibility=None if row["visibility"] is None else self._span(row["visibility"]),
            processors_max=row["processors_max"],
        )

    def _assigned(self, row: Row) -> Assigned:
        told = row["assignment"]
        assignment = None if told is None else {int(queue): count for queue, count in json.loads(told).items()}
        return Assigned(assignment, self._moment_or_none(row["assigned_at"]))

    def _report(self, row: Row) -> WorkerReport:
        return WorkerReport(
            worker=UUID(str(row["worker"])),
            name=row["name"],
            processors_max=row["processors_max"],
            report=json.loads(row["report"]),
            seen_at=self._moment(row["seen_at"]),
            assigned=self._assigned(row),
            now=self._moment(row["now"]),
        )


def encode_assignment(assignment: Assignment) -> str:
    return json.dumps({str(queue): count for queue, count in assignment.items()})


def _batches(items: Sequence[NewItem]) -> Iterator[Sequence[NewItem]]:
    """In the order given, none too large for one statement."""
    first, size = 0, 0
    for number, item in enumerate(items):
        if number > first and (number - first == PUT_TASKS_MAX or size + len(item.data) > PUT_BYTES_MAX):
            yield items[first:number]
            first, size = number, 0
        size += len(item.data)
    if items:
        yield items[first:]
