"""What workers did in a minute, and what the minutes of a fleet add up to."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from operator import add
from typing import TypeVar

from matrixsched.rules.action import Outcome

LATE_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200)
"""Attempts are told apart by how late they began, up to these bounds; one more bucket is for those above all."""
MINUTE = timedelta(minutes=1)

N = TypeVar("N", int, float)

WENT_WRONG = frozenset({Outcome.FAILED, Outcome.TIMED_OUT, Outcome.INTERRUPTED, Outcome.QUARANTINED})


def minute_of(moment: datetime) -> datetime:
    return moment.replace(second=0, microsecond=0)


class MinuteTally:
    """Counts what a worker does in one minute; cheap, for it is called for every attempt."""

    __slots__ = ("late", "outcomes")

    def __init__(self) -> None:
        self.outcomes: dict[Outcome, int] = {}
        self.late = [0] * (len(LATE_BOUNDS_S) + 1)

    def add(self, outcome: Outcome, late_s: float) -> None:
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1
        self.late[bisect_left(LATE_BOUNDS_S, late_s)] += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerMinute:
    """What one worker says of one minute."""

    minute: datetime
    worker: str
    outcomes: Mapping[Outcome, int]
    late: Sequence[int]
    due: int | None = None
    """In the whole installation, counted up to a bound; None: it did not look."""
    oldest_due_s: float | None = None


SEEN_WITHIN = timedelta(seconds=75)
"""A worker says that it is there every half a minute: who has not for so long is gone, or cannot reach the database."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """Who is there beside a worker, when it last reported."""

    shards: int
    kinds: Mapping[tuple[str, ...], int]
    """How many workers have just these handlers."""

    def others_of(self, handlers: Collection[str]) -> int:
        """How many may do the same work, whichever of these handlers it is for."""
        knowing = [sum(count for kind, count in self.kinds.items() if name in kind) for name in handlers]
        return min(knowing, default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSeen:
    """A worker that did not leave, as it was when it was last heard of."""

    name: str
    started_at: datetime
    seen_at: datetime
    slots: int
    running: int
    handlers: Sequence[str]

    def is_there(self, now: datetime) -> bool:
        return now - self.seen_at <= SEEN_WITHIN

    @property
    def runs_actions(self) -> bool:
        """One that is there for queues alone has no handler of actions."""
        return len(self.handlers) > 0


@dataclass(slots=True)
class FleetMinute:
    """What all workers together did in one minute."""

    minute: datetime
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    late: list[int] = field(default_factory=lambda: [0] * (len(LATE_BOUNDS_S) + 1))
    due: int | None = None
    oldest_due_s: float | None = None

    @property
    def attempts(self) -> int:
        return self.outcomes.total()

    @property
    def went_wrong(self) -> int:
        return sum(self.outcomes[outcome] for outcome in WENT_WRONG)

    def late_s(self, share: float) -> float | None:
        return late_quantile(self.late, share)

    def add(self, told: WorkerMinute) -> None:
        self.outcomes.update(told.outcomes)
        self.late = list(map(add, self.late, told.late))
        # Each of them looked at all there is: the worst of it is told, not the sum.
        self.due = _larger(self.due, told.due)
        self.oldest_due_s = _larger(self.oldest_due_s, told.oldest_due_s)


def _larger(one: N | None, other: N | None) -> N | None:
    if one is None or other is None:
        return other if one is None else one
    return max(one, other)


def fleet_minutes(told: Iterable[WorkerMinute], *, now: datetime, count: int) -> list[FleetMinute]:
    """The last minutes up to now, oldest first, also those in which nobody did anything."""
    last = minute_of(now)
    minutes = {at: FleetMinute(at) for at in (last - MINUTE * back for back in range(count - 1, -1, -1))}
    for one in told:
        if one.minute in minutes:
            minutes[one.minute].add(one)
    return list(minutes.values())


def late_quantile(late: Sequence[int], share: float) -> float | None:
    """By which bound that share of attempts had begun; None if there were none, infinity if it is above all bounds."""
    total = sum(late)
    if not total:
        return None
    wanted, passed = share * total, 0
    for count, bound in zip(late, (*LATE_BOUNDS_S, float("inf")), strict=True):
        passed += count
        if passed >= wanted:
            return bound
    return float("inf")
