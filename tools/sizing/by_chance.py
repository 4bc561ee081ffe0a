"""Workers and shards played out one event after the other, to hold against the formulae. Seeded: one seed, one run."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from heapq import heappop, heappush
from itertools import count
from random import Random

from sizing.formulae import Looking, Looks, overdue_rest_s

SETTLE_SHARE = 0.25
"""Of the run, that is not counted: all began at once."""


class _Shard:
    def __init__(self) -> None:
        self.due: deque[float] = deque()
        self.served_at = 0.0
        self.held = False


class Play:
    def __init__(self, one: Looking, *, seed: int, seconds: float) -> None:
        self._one = one
        self._chance = Random(seed)
        self._ends_at = seconds
        self._counts_from = seconds * SETTLE_SHARE
        self._shards = [_Shard() for _ in range(one.shards)]
        self._due: list[float] = []
        self._fill()
        self._ready: set[int] = set()
        self._overdue = [0] * one.workers
        self._in_vain = [False] * one.workers
        self._visits = self._fruitless = self._actions = 0
        self._waited_s = 0.0

    def _fill(self) -> None:
        at = 0.0
        self._coming: list[tuple[float, int]] = []
        while self._one.rate and (at := at + self._chance.expovariate(self._one.rate)) < self._ends_at:
            self._due.append(at)
            self._coming.append((at, self._chance.randrange(self._one.shards)))
        self._come = 0

    def run(self) -> Looks:
        order = count()
        events: list[tuple[float, int, int, int | None]] = []
        """When, in which order, who, and which shard is let go; the look of a worker that holds none."""
        for worker in range(self._one.workers):
            heappush(events, (self._chance.random() * self._one.rest_max, next(order), worker, None))
        while events and events[0][0] < self._ends_at:
            now, _, worker, shard = heappop(events)
            if shard is not None:
                self._let_go(shard)
                continue
            ends_at, taken = self._look(now, worker)
            if taken is not None:
                heappush(events, (ends_at, next(order), worker, taken))
            heappush(events, (ends_at + self._one.look_s - self._one.answer_s, next(order), worker, None))
        counted_s = self._ends_at - self._counts_from
        visits = max(1, self._visits)
        return Looks(
            self._visits / counted_s,
            self._fruitless / counted_s,
            self._actions / visits,
            self._waited_s / max(1, self._actions),
        )

    def _look(self, now: float, worker: int) -> tuple[float, int | None]:
        """At the instant at which the database is asked: when this worker asks again, and which shard it holds."""
        self._let_come(now)
        counts, answered_at = now >= self._counts_from, now + self._one.answer_s
        if self._ready:
            # By turns, as `acquire_shard` takes them: the one that was served longest ago.
            taken = min(self._ready, key=lambda number: (self._shards[number].served_at, number))
            self._ready.remove(taken)
            shard = self._shards[taken]
            shard.held, shard.served_at = True, now
            if counts:
                self._visits += 1
                self._actions += len(shard.due)
                self._waited_s += sum(answered_at - at for at in shard.due)
            shard.due.clear()
            self._overdue[worker], self._in_vain[worker] = 0, False
            return answered_at + self._one.visit_s, taken
        self._fruitless += counts
        rest_s = max(self._rest_s(now, answered_at, worker), self._held_back_s(worker))
        return answered_at + rest_s, None

    def _held_back_s(self, worker: int) -> float:
        self._in_vain[worker] = not self._in_vain[worker]
        return 0.0 if self._in_vain[worker] else 2 * self._one.hold_s * self._chance.random()

    def _rest_s(self, now: float, answered_at: float, worker: int) -> float:
        one, place = self._one, bisect_right(self._due, now)
        if place == len(self._due):
            return one.rest_max
        until_due_s = self._due[place] - one.early_s - answered_at
        if until_due_s > 0:
            self._overdue[worker] = 0
            return min(one.rest_max, until_due_s + 2 * one.jitter_s * self._chance.random())
        self._overdue[worker] += 1
        return overdue_rest_s(one, self._overdue[worker])

    def _let_come(self, now: float) -> None:
        while self._come < len(self._coming) and self._coming[self._come][0] <= now:
            at, number = self._coming[self._come]
            self._shards[number].due.append(at)
            if not self._shards[number].held:
                self._ready.add(number)
            self._come += 1

    def _let_go(self, number: int) -> None:
        self._shards[number].held = False
        if self._shards[number].due:
            self._ready.add(number)
