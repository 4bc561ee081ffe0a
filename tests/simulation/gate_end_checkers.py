"""What must be true of the gates over a whole run, whatever its faults; a function each that yields its objections."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from simulation.commit_checkers import Objections, name_of
from simulation.database import microseconds, moment
from simulation.gate_checkers import LATE_US, SPREAD_US
from simulation.gate_notes import Epoch, GateNotes, notes_of
from simulation.history import ClaimNote, Run

if TYPE_CHECKING:
    from simulation.world import World

USABLE_US = 20_000
"""For so long a slot can be used at least, however vaguely a worker knows the database's time."""
ROUNDING_US = 2
FOREVER = float("inf")


@dataclass(frozen=True, slots=True)
class Start:
    """A handler that was called, under one limit."""

    at: int
    late_us: int
    """By how much its slot may have been earlier."""
    epoch: Epoch


def in_its_slot(world: World) -> Objections:
    """What passed a gate starts in its slot: never before, and not after it was void."""
    notes = notes_of(world)
    for claimed, run in _passed(world, notes):
        slot, vague_us = claimed.attempt.slot, notes.vague_us.get(_key(claimed), 0)
        if slot is None:
            continue
        started_at, starts_at = microseconds(run.started_at), microseconds(slot.starts_at)
        latest = max(microseconds(slot.void_at), starts_at + vague_us + USABLE_US)
        if not starts_at - ROUNDING_US <= started_at <= latest + ROUNDING_US:
            yield f"{name_of(claimed.attempt)} starts at {run.started_at}, its slot is {slot}"


def within_its_rate(world: World) -> Objections:
    """As long as a limit is not changed, no time t sees more starts than rate × (t + 50 ms) + max(1, pool)."""
    for name, starts in _starts_by_limit(world).items():
        by_epoch: defaultdict[Epoch, list[Start]] = defaultdict(list)
        for start in starts:
            by_epoch[start.epoch].append(start)
        for epoch, mine in by_epoch.items():
            pace = epoch.pace
            pool = 0 if pace.slow_until is not None and mine[-1].at < pace.slow_until else pace.pool
            for objection in _crowds(mine, _Allowed(_rates(epoch)), pool):
                yield f"{name} at {pace}: {objection}"


def within_its_rates(world: World) -> Objections:
    """Where a limit is changed, slots that were taken are not given out again: the starts are within its rates."""
    notes = notes_of(world)
    for name, starts in _starts_by_limit(world).items():
        for chain in _chains(notes.epochs[name]):
            mine = [start for start in starts if start.epoch in chain]
            if len(chain) > 1 and mine:
                pool = max(epoch.pace.pool for epoch in chain)
                for objection in _crowds(mine, _Allowed(_widest(chain, mine)), pool):
                    yield f"{name} at {[epoch.pace for epoch in chain]}: {objection}"


def _chains(epochs: Sequence[Epoch]) -> Iterator[list[Epoch]]:
    """Times that follow each other, as long as there is a limit."""
    chain: list[Epoch] = []
    for epoch in epochs:
        if not epoch.follows:
            if chain:
                yield chain
            chain = []
        if epoch.pace.at(epoch.begins_at) is not None:
            chain.append(epoch)
    if chain:
        yield chain


Rates = list[tuple[float, float]]
"""From when on how many starts a microsecond."""


def _rates(epoch: Epoch) -> Rates:
    pace = epoch.pace
    if not pace.is_slowed(epoch.begins_at):
        return [(-FOREVER, pace.rate or 0.0)]
    assert pace.slow_until is not None
    return [(-FOREVER, pace.at(epoch.begins_at) or 0.0), (pace.slow_until, pace.rate or 0.0)]


def _widest(chain: Sequence[Epoch], starts: Sequence[Start]) -> Rates:
    """The widest rate at every time: that of an earlier one holds until the last slot taken at it was used."""
    spans: list[tuple[float, float, float]] = []
    for number, epoch in enumerate(chain):
        ends = chain[number + 1].begins_at if number + 1 < len(chain) else FOREVER
        last = max((start.at for start in starts if start.epoch is epoch), default=ends)
        rate = epoch.pace.rate if epoch.pace.rate is not None else epoch.pace.at(epoch.begins_at)
        spans.append((epoch.begins_at if number else -FOREVER, max(ends, last), rate or 0.0))
    edges = sorted({edge for begins, ends, _ in spans for edge in (begins, ends) if edge < FOREVER})
    return [(edge, max((rate for begins, ends, rate in spans if begins <= edge < ends), default=0.0)) for edge in edges]


class _Allowed:
    """How many starts there may have been up to a time, counted from some time."""

    def __init__(self, rates: Rates) -> None:
        self._rates = rates
        self._origin = rates[1][0] if len(rates) > 1 else 0.0

    def until(self, at: float) -> float:
        """Negative before the first change."""
        if at < self._origin:
            return (at - self._origin) * self._rates[0][1]
        total = 0.0
        for (begins, rate), (ends, _) in pairwise([*(self._rates[1:] or self._rates), (FOREVER, 0.0)]):
            total += max(0.0, min(at, ends) - max(begins, self._origin)) * rate
        return total


def _crowds(starts: Sequence[Start], allowed: _Allowed, pool: int) -> Objections:
    """Stretches of time with more starts than allowed; the first of them."""
    room, first = FOREVER, None
    for number, start in enumerate(sorted(starts, key=lambda one: one.at)):
        left = number - allowed.until(start.at - start.late_us)
        if first is None or left < room:
            room, first = left, (number, start)
        count, most = number + 1 - room, allowed.until(start.at) + max(1, pool)
        if count - most > 1e-6 and first is not None:
            since, begun = number - first[0] + 1, first[1]
            yield f"{since} starts from {moment(begun.at)} to {moment(start.at)}, {count - most:.2f} too many"
            return


def _starts_by_limit(world: World) -> dict[str, list[Start]]:
    notes, found = notes_of(world), defaultdict[str, list[Start]](list)
    for claimed, run in _passed(world, notes):
        vague_us = notes.vague_us.get(_key(claimed), 0)
        late_us = max(LATE_US, SPREAD_US + USABLE_US + vague_us) + ROUNDING_US
        started_at = microseconds(run.started_at)
        for name, epoch in notes.passed[_key(claimed)].items():
            if epoch.pace.at(started_at) is not None:  # else its slot was that of the end of a slow-down
                found[name].append(Start(started_at, late_us, epoch))
    return found


def _passed(world: World, notes: GateNotes) -> Iterator[tuple[ClaimNote, Run]]:
    """What passed gates and was started, in the order of its starts."""
    started = [(claimed, claimed.run) for claimed in world.history.claims.values() if claimed.run is not None]
    for claimed, run in sorted(started, key=lambda one: one[1].started):
        if _key(claimed) in notes.passed:
            yield claimed, run


def _key(claimed: ClaimNote) -> tuple[object, int, object]:
    claim = claimed.claim
    return claim.guid, claim.attempt, claim.claimed_by


AT_THE_END: tuple[Callable[[World], Objections], ...] = (in_its_slot, within_its_rate, within_its_rates)
