"""What a worker that asks for a shard is to get, said without SQL: from all that waits, and from who holds what."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from matrixsched.rules.action import COMING, EVENT, UNGATED
from matrixsched.rules.lanes import is_gated
from matrixsched.store.values import Acquired, Turn
from support.waiting import TICK, Listed, Lock, Slots, Waiting

SOON = timedelta(milliseconds=50)
"""When to ask again for what is ready but with somebody else."""
FAR = timedelta(minutes=1)
"""A gate that opens later than that is looked at nevertheless: the clock may have been set back."""


@dataclass(frozen=True, slots=True)
class Question:
    lanes: Sequence[str]
    gated_handlers: Sequence[str]
    ahead: timedelta
    turn: Turn
    only_events: bool


@dataclass(slots=True)
class World:
    now: datetime
    lease: timedelta
    locks: dict[int, Lock]
    incoming: Sequence[Waiting]
    rows: Sequence[Waiting]
    listed: Sequence[Listed]
    limits: Sequence[Slots]

    def answer(self, question: Question) -> Acquired:
        """What it gets; the lock is taken here, too. When to ask again is not said (`ask_again`)."""
        shards = [shard for shard in self.locks if self._is_free(shard) and self._has_work(shard, question)]
        holds = bool(self.listed) or any(is_gated(row.lane) for row in self.rows)
        if not shards:
            return Acquired(now=self.now, shard=None, holds=holds)
        shard = min(shards, key=lambda shard: self._rank(shard, question))
        acquired = Acquired(
            now=self.now,
            shard=shard,
            incoming=bool(self._incoming(shard)),
            incoming_events=EVENT in self._incoming(shard),
            lanes=tuple(self._due_lanes(shard, question)),
            gated_lanes=tuple(sorted(one.lane for one in self._most_important(question))),
            holds=holds,
        )
        self.locks[shard] = Lock(True, self.now, self.now)
        return acquired

    def _is_free(self, shard: int) -> bool:
        lock = self.locks[shard]
        return not (lock.locked and abs(lock.heartbeat_at - self.now) <= self.lease)

    def _has_work(self, shard: int, question: Question) -> bool:
        if question.only_events:
            return self._has_events(shard)
        best = min(self._heads(question).values(), default=None)
        waits = best is not None and (shard, best) in {(row.shard, p) for row, p in self._heads(question).items()}
        return waits or bool(self._incoming(shard)) or bool(self._due_lanes(shard, question))

    def _has_events(self, shard: int) -> bool:
        return EVENT in self._incoming(shard) or self._is_due(shard, EVENT)

    def _rank(self, shard: int, question: Question) -> tuple[object, ...]:
        priorities = [priority for row, priority in self._heads(question).items() if row.shard == shard]
        turn: float = 0
        if question.turn is Turn.IMPORTANT:
            turn = min(priorities, default=float("inf"))
        elif question.turn is Turn.UNGATED:
            turn = not (self._incoming(shard) or self._is_due(shard, UNGATED))
        return not self._has_events(shard), turn, self.locks[shard].served_at, shard

    def _incoming(self, shard: int) -> list[str]:
        return [row.lane for row in self.incoming if row.shard == shard]

    def _is_due(self, shard: int, lane: str) -> bool:
        return any(row.shard == shard and row.lane == lane and row.at <= self.now for row in self.rows)

    def _due_lanes(self, shard: int, question: Question) -> list[str]:
        return [lane for lane in (EVENT, UNGATED, COMING, *question.lanes) if self._is_due(shard, lane)]

    # Gates.

    def _opens_at(self, question: Question) -> datetime | None:
        """Until then the global limit is used up; None: it is not."""
        for limit in self.limits:
            is_slow = limit.slow_until is not None and limit.slow_until > self.now
            if limit.name != "global" or not (is_slow or limit.has_rate):
                continue
            opens_at = limit.next_slot_at - question.ahead
            if is_slow and not limit.has_slow_rate and limit.slow_until is not None:
                opens_at = limit.slow_until
            if self.now < opens_at < self.now + FAR:
                return opens_at
        return None

    def _known(self, question: Question) -> list[Listed]:
        return [one for one in self.listed if one.handler in question.gated_handlers]

    def _ready(self, question: Question) -> list[Listed]:
        if self._opens_at(question) is not None:
            return []
        return [one for one in self._known(question) if one.ready_at <= self.now]

    def _heads(self, question: Question) -> dict[Waiting, int]:
        """Of each lane that is ready the first row that may go and that nobody holds, with its priority."""
        found = {}
        for one in self._ready(question):
            rows = [row for row in self.rows if row.lane == one.lane and self._may_go(row)]
            if rows:
                found[min(rows, key=lambda row: row.at)] = one.priority
        return found

    def _may_go(self, row: Waiting) -> bool:
        has_expired = row.expires_at is not None and row.expires_at <= self.now
        return row.at <= self.now and not has_expired and self._is_free(row.shard)

    def _most_important(self, question: Question) -> Iterator[Listed]:
        best = min(self._heads(question).values(), default=None)
        return (one for one in self._ready(question) if best is None or one.priority <= best)

    # When there is nothing to do.

    def ask_again(self, question: Question) -> tuple[datetime, datetime] | None:
        """Not before the first and not after the second; None: whenever something is new."""
        waits = [row.at for row in self.rows if row.lane in (UNGATED, EVENT, COMING) and row.at > self.now]
        lapses = [
            lock.heartbeat_at + self.lease + TICK for shard, lock in self.locks.items() if not self._is_free(shard)
        ]
        spans = [(at, at) for at in (*waits, *lapses)]
        if known := self._known(question):
            spans.append(self._gated_again(min(one.ready_at for one in known), self._opens_at(question)))
        if not spans:
            return None
        return min(first for first, _ in spans), min(last for _, last in spans)

    def _gated_again(self, ready_at: datetime, opens_at: datetime | None) -> tuple[datetime, datetime]:
        latest = ready_at if ready_at > self.now else self.now + SOON
        earliest = max(ready_at, self.now + TICK)
        return (earliest, latest) if opens_at is None else (max(earliest, opens_at), max(latest, opens_at))

    def copy(self) -> World:
        return replace(self, locks=dict(self.locks))
