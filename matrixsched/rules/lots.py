"""Lots: what waits, counted by what it has in common; and keys, taken together where there are too many of them."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import accumulate
from math import inf, log

from matrixsched.rules.lanes import ANY_KEY, key_limit
from matrixsched.rules.limits import Limit
from matrixsched.rules.times import TIME_MIN

TAKERS_MAX = 400
"""So many sets of messages that differ in template, priority, handler or key are told apart because of their keys."""
RATIOS = (1.25, 2, 8, inf)
"""Keys with up to so many times as many messages are taken together; the first that makes few enough of them."""


GRIDS = ((timedelta(hours=1), 1), (timedelta(hours=8), 5), (timedelta(hours=24), 15), (timedelta.max, 60))
"""Up to so far ahead: on how many minutes the times of messages are rounded up. Written alike in stock.sql."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lot:
    """Messages that are alike: under the same gates, due and expiring at about the same time."""

    template: str | None
    """None: actions without one, which only share the limits."""
    zone: str | None
    """None: that of the template."""
    priority: int
    handler: str
    key: str | None
    """The limit that the caller chose; None: none, or one that does not limit anything."""
    due_at: datetime
    """By then all of them are."""
    expires_at: datetime | None
    """By then all of them are, if they still wait; None: never, as far as is foreseen."""
    count: int


def on_grid(moment: datetime, now: datetime) -> datetime:
    """A time to come, rounded up: the further ahead, the coarser."""
    if moment <= now:
        return now
    grid = timedelta(minutes=next(minutes for reach, minutes in GRIDS if moment - now <= reach))
    return moment + (TIME_MIN - moment) % grid


@dataclass(frozen=True, slots=True)
class Together:
    """Keys of about the same size under limits that are alike."""

    limit: Limit
    keys: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    lots: list[Lot]
    alone: list[str]
    """Keys that are played each for itself."""
    together: Mapping[str, Together]
    """By what stands in the lots instead of the keys."""


def key_limited(key: str, limits: Mapping[str, Limit], now: datetime) -> Limit | None:
    """The limit that a key is under: its own, or its own bucket at the rate of key:*."""
    own, of_all = limits.get(key_limit(key)), limits.get(ANY_KEY)
    if own is None:
        return None if of_all is None else Limit(name=key_limit(key), updated_at=now).under(of_all)
    return own.under(of_all)


def gather(stock: Sequence[Lot], limits: Mapping[str, Limit], now: datetime) -> Gathered:
    """Take keys together, if there are too many to play each for itself: the largest stay alone.

    A set of keys goes at their rate times their number, as if all of them had the same number of messages.
    """
    keys = _Keys(stock, limits, now)
    alone = keys.alone()
    names = keys.sets(alone)
    counts: Counter[Lot] = Counter()
    for lot in stock:
        key = lot.key if lot.key in keys.under else None
        counts[replace(lot, key=names.get(key, key) if key else None, count=0)] += lot.count
    numbers = Counter(names.values())
    return Gathered(
        lots=[replace(lot, count=count) for lot, count in counts.items()],
        alone=alone,
        together={
            name: Together(replace(keys.under[key], next_slot_ns=0, slow_until=None), numbers[name])
            for key, name in names.items()
        },
    )


class _Keys:
    """The keys of a stock: what limit each is under, how many have it, and how many takers these are."""

    def __init__(self, stock: Iterable[Lot], limits: Mapping[str, Limit], now: datetime) -> None:
        self._now = now
        self._sizes: Counter[str] = Counter()
        self._takers: defaultdict[str, set[tuple[str | None, int, str]]] = defaultdict(set)
        for lot in stock:
            if lot.key is not None:
                self._sizes[lot.key] += lot.count
                self._takers[lot.key].add((lot.template, lot.priority, lot.handler))
        found = {key: key_limited(key, limits, now) for key in self._sizes}
        self.under = {key: limit for key, limit in found.items() if limit is not None}

    def alone(self) -> list[str]:
        """All, if they are few; otherwise those that go at a pace of their own, and the largest: they end last."""
        order = sorted(self.under, key=lambda key: (not self.under[key].is_slowed(self._now), -self._sizes[key], key))
        takers = list(accumulate(len(self._takers[key]) for key in order))
        if not takers or takers[-1] <= TAKERS_MAX:
            return order
        return order[: bisect_right(takers, TAKERS_MAX // 2)]

    def sets(self, alone: Iterable[str]) -> dict[str, str]:
        """For each of the others the name of the set it is taken into; no key has such a name."""
        others = self.under.keys() - set(alone)
        names: dict[str, str] = {}
        for ratio in RATIOS:
            names = {key: self._set(key, ratio) for key in sorted(others)}
            if len({(name, taker) for key, name in names.items() for taker in self._takers[key]}) <= TAKERS_MAX // 2:
                break
        return names

    def _set(self, key: str, ratio: float) -> str:
        limit = self.under[key]
        size = 0 if ratio == inf else int(log(max(1, self._sizes[key])) / log(ratio))
        return f"\n{limit.rate} {limit.pool} {size}"
