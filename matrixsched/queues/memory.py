"""Queues in memory: for tests, development, and as the measure of what the databases do. Gone when the process ends."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import wraps
from itertools import count as counting
from typing import Any, Concatenate, ParamSpec, TypeVar
from uuid import UUID

from matrixsched.clock import Chance, Clock, SystemChance, SystemClock
from matrixsched.rules.arguments import check_flag
from matrixsched.rules.queues import (
    ID_MAX,
    LOOK_WITHIN,
    VISIBILITY_DEFAULT,
    DeadTask,
    NewItem,
    Outlook,
    QueueStat,
    Receipt,
    Settled,
    StoredTask,
    Taken,
    check_count,
    check_ids,
    check_items,
    check_letters,
    check_page,
    check_queue,
    check_queues,
    check_retries,
    check_visibility,
    receipts_of,
)
from matrixsched.rules.times import check_duration, check_integer

P = ParamSpec("P")
R = TypeVar("R")


def _alone(
    method: Callable[Concatenate[MemoryStorage, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[MemoryStorage, P], Coroutine[Any, Any, R]]:
    """One thread at a time: a worker prolongs what it has taken from another one, and so does synchronous code put."""

    @wraps(method)
    async def locked(self: MemoryStorage, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self._lock:  # nothing is ever waited for inside
            return await method(self, *args, **kwargs)

    return locked


@dataclass(slots=True)
class _Row:
    id: int
    queue: int
    data: bytes
    attempts: int
    created_at: datetime
    start_at: datetime
    previous_start_at: datetime | None
    due_at: datetime
    """When it can be taken: its start, or the end of the visibility timeout if somebody has it."""
    receipt: UUID | None = None

    @property
    def taken(self) -> Receipt:
        assert self.receipt is not None
        return Receipt(self.id, self.receipt)

    def come_back(self, start_at: datetime) -> None:
        self.attempts += 1
        self.previous_start_at = self.start_at
        self.start_at = self.due_at = start_at
        self.receipt = None


class MemoryStorage:
    def __init__(self, *, clock: Clock | None = None, chance: Chance | None = None) -> None:
        self._clock = clock or SystemClock()
        self._chance = chance or SystemChance()
        self._ids = counting(1)
        self._rows: dict[int, _Row] = {}
        self._dead: dict[int, DeadTask] = {}
        self._known: set[int] = set()
        self._paused: set[int] = set()
        self._lock = threading.RLock()

    @_alone
    async def get(self, queue: int, count: int, *, visibility: timedelta = VISIBILITY_DEFAULT) -> list[StoredTask]:
        check_queue(queue)
        check_count("count", count)
        check_visibility(visibility)
        now, guid = self._clock.now(), self._chance.guid()
        if queue in self._paused:
            return []
        due = [row for row in self._rows.values() if row.queue == queue and row.due_at <= now]
        due.sort(key=lambda row: (row.due_at, row.id))
        return [self._take(row, guid, now + visibility) for row in due[:count]]

    def _take(self, row: _Row, guid: UUID, until: datetime) -> StoredTask:
        if row.receipt is not None:
            row.come_back(row.due_at)  # that was when the timeout was over
        row.receipt, row.due_at = guid, until
        return StoredTask(
            id=row.id,
            queue=row.queue,
            data=row.data,
            attempts=row.attempts,
            created_at=row.created_at,
            start_at=row.start_at,
            previous_start_at=row.previous_start_at,
            receipt=Receipt(row.id, guid),
        )

    @_alone
    async def done(self, tasks: Iterable[Taken]) -> Settled:
        held, settled = self._held(receipts_of(tasks))
        for row in held:
            del self._rows[row.id]
        return settled

    @_alone
    async def retry(self, retries: Iterable[tuple[Taken, datetime | timedelta]]) -> Settled:
        whens = check_retries(retries)
        held, settled = self._held(whens)
        now = self._clock.now()
        for row in held:
            when = whens[row.taken]
            row.come_back(now + when if isinstance(when, timedelta) else when)
        return settled

    @_alone
    async def set_aside(self, letters: Iterable[tuple[Taken, str]]) -> Settled:
        reasons = check_letters(letters)
        held, settled = self._held(reasons)
        for row in held:
            del self._rows[row.id]
            self._dead[row.id] = DeadTask(
                id=row.id,
                queue=row.queue,
                data=row.data,
                attempts=row.attempts,
                created_at=row.created_at,
                start_at=row.start_at,
                previous_start_at=row.previous_start_at,
                died_at=self._clock.now(),
                reason=reasons[row.taken],
            )
        return settled

    @_alone
    async def extend(
        self, tasks: Iterable[Taken], *, visibility: timedelta = VISIBILITY_DEFAULT, only_longer: bool = False
    ) -> Settled:
        check_visibility(visibility)
        check_flag("only_longer", only_longer)
        held, settled = self._held(receipts_of(tasks))
        for row in held:
            until = self._clock.now() + visibility
            row.due_at = max(row.due_at, until) if only_longer else until
        return settled

    def _held(self, given: Iterable[Receipt]) -> tuple[list[_Row], Settled]:
        """The rows of good receipts, and which ones those are."""
        now = self._clock.now()
        receipts = dict.fromkeys(given)
        held = [
            row
            for receipt in receipts
            if (row := self._rows.get(receipt.task_id)) and row.receipt == receipt.guid and row.due_at > now
        ]
        settled = frozenset(row.id for row in held)
        return held, Settled(settled, frozenset(receipt.task_id for receipt in receipts) - settled)

    @_alone
    async def put(self, queue: int, data: bytes, *, at: datetime | None = None, delay: timedelta = timedelta(0)) -> int:
        (id,) = await self.put_many([NewItem(queue=queue, data=data, at=at, delay=delay)])
        return id

    @_alone
    async def put_many(self, items: Iterable[NewItem]) -> list[int]:
        now = self._clock.now()
        ids = []
        for item in check_items(items):
            start_at = now + item.delay if item.at is None else item.at
            id = next(self._ids)
            self._rows[id] = _Row(id, item.queue, item.data, 0, now, start_at, None, start_at)
            self._known.add(item.queue)
            ids.append(id)
        return ids

    @_alone
    async def look(self, queues: Collection[int], *, within: timedelta = LOOK_WITHIN) -> Mapping[int, Outlook]:
        within_s = check_duration("within", within).total_seconds()
        found = {queue: self._outlook(queue, within_s) for queue in check_queues(queues) if queue not in self._paused}
        return {queue: outlook for queue, outlook in found.items() if outlook != Outlook(False)}

    def _outlook(self, queue: int, within_s: float) -> Outlook:
        now = self._clock.now()
        dues = [(row.due_at - now).total_seconds() for row in self._rows.values() if row.queue == queue]
        next_due_s = min((due_s for due_s in dues if 0 < due_s <= within_s), default=None)
        return Outlook(any(due_s <= 0 for due_s in dues), next_due_s)

    @_alone
    async def stat(self) -> Mapping[int, QueueStat]:
        return {queue: self._stat(queue) for queue in sorted(self._known)}

    def _stat(self, queue: int) -> QueueStat:
        now = self._clock.now()
        rows = [row for row in self._rows.values() if row.queue == queue]
        ready = [row.due_at for row in rows if row.due_at <= now]
        taken = sum(row.receipt is not None and row.due_at > now for row in rows)
        return QueueStat(
            queue=queue,
            total=len(rows),
            ready=len(ready),
            taken=taken,
            delayed=len(rows) - len(ready) - taken,
            dead=sum(dead.queue == queue for dead in self._dead.values()),
            oldest_ready_at=min(ready, default=None),
        )

    @_alone
    async def dead_letters(self, queue: int, *, after: int = 0, limit: int = 100) -> list[DeadTask]:
        check_integer("after", after, least=0, most=ID_MAX)
        check_page(limit)
        found = [dead for dead in self._dead.values() if dead.queue == check_queue(queue) and dead.id > after]
        return sorted(found, key=lambda dead: dead.id)[:limit]

    @_alone
    async def redrive(self, queue: int, *, ids: Iterable[int] | None = None, limit: int = 1000) -> int:
        now = self._clock.now()
        gone = self._take_dead(queue, ids, limit)
        for dead in gone:
            self._rows[dead.id] = _Row(dead.id, queue, dead.data, 0, dead.created_at, now, None, now)
        return len(gone)

    @_alone
    async def purge_dead(self, queue: int, *, ids: Iterable[int] | None = None, limit: int = 1000) -> int:
        return len(self._take_dead(queue, ids, limit))

    def _take_dead(self, queue: int, ids: Iterable[int] | None, limit: int) -> list[DeadTask]:
        check_queue(queue)
        check_page(limit)
        chosen = check_ids(ids)
        found = sorted((dead for dead in self._dead.values() if dead.queue == queue), key=lambda dead: dead.id)
        found = found[:limit] if chosen is None else [dead for dead in found if dead.id in chosen]
        for dead in found:
            del self._dead[dead.id]
        return found

    @_alone
    async def pause(self, queue: int) -> bool:
        was_running = check_queue(queue) not in self._paused
        self._paused.add(queue)
        self._known.add(queue)
        return was_running

    @_alone
    async def resume(self, queue: int) -> bool:
        was_paused = check_queue(queue) in self._paused
        self._paused.discard(queue)
        return was_paused
