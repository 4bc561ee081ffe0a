"""Limits played forward, with counts instead of messages: how much room each has for a time, and who gets it.

A limit has a slot every period, and what nobody takes is kept only as far as its pool reaches. Those who wait for the
same slots take turns: each of the lanes in which they wait, as `rules/gates.py` lets them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from math import ceil

from matrixsched.rules.gates import AHEAD_MAX_NS, instant
from matrixsched.rules.limits import Limit, in_nanoseconds, period_ns_of, slower
from matrixsched.rules.rates import Rate
from matrixsched.rules.throughput import first_slot


@dataclass(slots=True, eq=False)
class Room:
    """How many may still go; None: any number."""

    left: int | None
    used: int = 0

    def take(self, count: int) -> None:
        self.used += count
        if self.left is not None:
            self.left -= count


@dataclass(frozen=True, slots=True)
class _Row:
    """Slots one after another; None of them: all at once."""

    first_ns: int
    period_ns: int
    count: int | None


class Pace(Room):
    """The room that a limit has for one time after another; `keys` of them, if it stands for as many that are alike."""

    __slots__ = ("_keys", "_limit", "_next_ns", "_rows", "_since")

    def __init__(self, limit: Limit, keys: int = 1) -> None:
        super().__init__(0)
        self._limit, self._keys, self._next_ns = limit, keys, limit.next_slot_ns
        self._rows: list[_Row] = []
        self._since: datetime | None = None

    def open(self, since: datetime, until: datetime) -> None:
        """Have the room of that time, once; what was taken before is gone."""
        if since == self._since:
            return
        if self.used:
            self._next_ns = self._slot(-(-self.used // self._keys))
        self._since, self.used = since, 0
        self._rows = list(self._slots(since, until))
        counts = [row.count for row in self._rows if row.count is not None]
        self.left = self._keys * sum(counts) if len(counts) == len(self._rows) else None

    def start_of(self, number: float) -> datetime:
        """When so many have started since it was opened."""
        assert self._since is not None
        if not self._rows or number <= 0:
            return self._since
        return max(self._since, instant(self._slot(-(-ceil(number) // self._keys) - 1)))

    def _slots(self, since: datetime, until: datetime) -> Iterator[_Row]:
        next_ns = self._next_ns
        for begins, ends, rate, pool in self._rates(since, until):
            begins_ns, ends_ns = in_nanoseconds(begins), in_nanoseconds(ends)
            if rate is None:
                yield _Row(begins_ns, 0, None)
                return
            if next_ns > begins_ns + AHEAD_MAX_NS + rate.period_ns:
                next_ns = begins_ns
            first_ns = first_slot(next_ns, begins_ns, rate.period_ns, pool)
            count = max(0, -(-(ends_ns - first_ns) // rate.period_ns))
            yield _Row(first_ns, rate.period_ns, count)
            # The next rate is that after a slow-down, at whose end the next slot is a period away at the most.
            next_ns = min(first_ns + count * rate.period_ns, ends_ns + period_ns_of(self._limit.rate))

    def _rates(self, since: datetime, until: datetime) -> Iterator[tuple[datetime, datetime, Rate | None, int]]:
        """Which rate holds from when to when, and how many slots are kept; not while the limit is closed."""
        limit, slow_ends = self._limit, since
        if limit.slow_until is not None and since < limit.slow_until:
            slow_ends = min(until, limit.slow_until)
            if limit.slow_rate is not None:
                yield since, slow_ends, slower(limit.rate, limit.slow_rate), 0
        if slow_ends < until:
            yield slow_ends, until, limit.rate, limit.pool

    def _slot(self, number: int) -> int:
        """That of those that were open, counted from none."""
        for row in self._rows[:-1]:
            if row.count is not None and number < row.count:
                return row.first_ns + number * row.period_ns
            number -= row.count or 0
        return self._rows[-1].first_ns + number * self._rows[-1].period_ns


@dataclass(slots=True, eq=False)
class Turn:
    """Those who want to go, and all that must have room for them."""

    wanted: int
    rooms: Sequence[Room]
    weight: float
    """How often it is their turn where there is not room for all."""
    given: int = 0
    got_odd: bool = field(init=False, default=False)
    """Whether they got one of what could not be divided."""

    @property
    def most(self) -> int:
        """How many more could go."""
        count = self.wanted - self.given
        for room in self.rooms:
            if room.left is not None and room.left < count:
                count = room.left
        return count

    def take(self, count: int) -> int:
        count = min(count, self.most)
        self.given += count
        for room in self.rooms:
            room.take(count)
        return count


def share_out(turns: Sequence[Turn]) -> None:
    """Let go as many as there is room for: all, or each in proportion to its weight; what cannot be divided goes to the
    first in order."""
    waiting = [turn for turn in turns if turn.most > 0]
    while waiting:
        parts = _parts(waiting)
        given = sum(turn.take(int(part)) for turn, part in zip(waiting, parts, strict=True))
        if not given:
            for turn in waiting:
                turn.got_odd |= turn.take(1) > 0
        waiting = [turn for turn in waiting if turn.most > 0]


def _parts(waiting: Sequence[Turn]) -> list[float]:
    """How many each may take of the rooms that are too small for all who wait for them."""
    most = [turn.most for turn in waiting]
    wanted: dict[Room, int] = {}
    weights: dict[Room, float] = {}
    for turn, count in zip(waiting, most, strict=True):
        for room in turn.rooms:
            wanted[room] = wanted.get(room, 0) + count
            weights[room] = weights.get(room, 0.0) + turn.weight
    levels = {
        room: room.left / weights[room]
        for room, all_of in wanted.items()
        if room.left is not None and room.left < all_of
    }
    return [
        min([count, *(levels[room] * turn.weight for room in turn.rooms if room in levels)])
        for turn, count in zip(waiting, most, strict=True)
    ]
