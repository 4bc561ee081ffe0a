"""Who goes next: how rows that wait before gates are shared out among the slots there are, and when each may start.

A row is under the limits that the name of its lane says, the widest first, and perhaps under a template's quota. Each
limit is a bucket of time slots, one after another at its rate. A row that goes takes a slot of each; it starts at the
latest of them. Decided over one batch, inside the transaction that claims it:

    1. `admit`: how many rows each lane may have claimed, lanes of one importance in turn
    2. the store claims them: perhaps fewer, because some are dead or somebody else's
    3. `assign`: the slots of those that were claimed; what is left in the buckets and of the quota
    4. `hindrances`: what the lanes that have more rows wait for now
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from zlib import crc32

from matrixsched.rules.action import Slot
from matrixsched.rules.lanes import Lane
from matrixsched.rules.limits import Closed, Limit, in_nanoseconds
from matrixsched.rules.rates import Rate
from matrixsched.rules.throughput import LATE_NS, first_slot

SPREAD_NS = LATE_NS // 2
"""How late a slot may be when it is taken, and how far apart the slots of one row may lie; it is void when it is used
later than LATE_NS, and the rest of that is for the way from the database to the handler."""
AHEAD_MAX_NS = 60_000_000_000
"""No slot is taken further ahead than that, and a period. What lies later is from a clock that was set back since."""
QUOTA_GRACE_NS = 1_000_000_000
"""How long after its claim a row that is under a quota alone may start."""
LOOK_AGAIN = timedelta(minutes=1)
"""When a lane is looked at again that somebody else has to open; they also say so. None is left alone for longer, so
that a gate that opens while it is looked at, or a clock that was set back, is a passing trouble."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Gate(StrEnum):
    """What holds a lane back."""

    LIMIT = "limit"
    SLOWED = "slowed"
    QUOTA = "quota"
    UNPLANNED = "unplanned"
    PAUSED = "paused"
    NO_TEMPLATE = "no_template"
    BUSY = "busy"


def instant(ns: int) -> datetime:
    """The time of so many nanoseconds since 1970, never rounded to an earlier one."""
    return _EPOCH + timedelta(microseconds=-(-ns // 1000))


@dataclass(slots=True)
class Bucket:
    """A limit while slots are taken from it."""

    limit: Limit
    now: datetime
    busy: bool = False
    """Somebody else takes slots from it at this moment."""
    lead: timedelta = timedelta(0)
    """No slot is taken that begins sooner."""
    next_slot_ns: int = field(init=False)
    closed_until: datetime | None = field(init=False, default=None)
    _period_ns: int | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.next_slot_ns = self.limit.next_slot_ns
        match self.limit.effective(self.now):
            case Closed(until):
                self.closed_until = until
            case Rate() as rate:
                now_ns, self._period_ns = in_nanoseconds(self.now), rate.period_ns
                if self.next_slot_ns > now_ns + AHEAD_MAX_NS + rate.period_ns:
                    self.next_slot_ns = now_ns
                self.next_slot_ns = self.slot_for(in_nanoseconds(self.now + self.lead))

    @property
    def is_limiting(self) -> bool:
        return self._period_ns is not None

    def slot_for(self, start_ns: int) -> int:
        """The slot of a row that starts then: the next one, or a later one where the next would be too late by then."""
        if self._period_ns is None or start_ns - self.next_slot_ns <= SPREAD_NS:
            return self.next_slot_ns
        return first_slot(self.next_slot_ns, start_ns, self._period_ns, self.limit.pool_at(self.now))

    def take(self, start_ns: int) -> None:
        if self._period_ns is not None:
            self.next_slot_ns = self.limit.following(self.slot_for(start_ns), self.now)

    def waits_until(self, start_ns: int) -> int | None:
        """When slots of it must no longer pass unused for the sake of a row that starts then; None: none must."""
        if self.slot_for(start_ns) - self.next_slot_ns <= SPREAD_NS:
            return None
        # By then the next one is void, if nobody else takes it, and those that follow are near enough.
        return max(start_ns - SPREAD_NS, self.next_slot_ns + SPREAD_NS + 1000)


@dataclass(slots=True)
class Allowance:
    """What is left of a template's grant in the present window."""

    template: str
    priority: int
    inside: bool
    granted: int
    used: int
    busy: bool = False

    @property
    def left(self) -> int:
        return self.granted - self.used

    @property
    def share_used(self) -> float:
        return self.used / self.granted if self.granted else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaNow:
    """The quota of a template at this moment."""

    exists: bool = True
    paused_until: datetime | None = None
    is_paused: bool = False
    window: tuple[datetime, datetime] | None = None
    """None: not planned yet."""
    zones_inside: frozenset[str] = frozenset()
    """Zones as lanes have them: empty for recipients without one."""
    allowances: Mapping[tuple[int, bool], Allowance] = field(default_factory=dict)
    """By priority and whether it is for the zones inside."""

    def allowance(self, lane: Lane) -> Allowance | None:
        return self.allowances.get((lane.priority, (lane.zone or "") in self.zones_inside))


@dataclass(frozen=True, slots=True, kw_only=True)
class Gates:
    """Everything that decides about a batch: read, and locked, in the transaction that claims it."""

    now: datetime
    ahead: timedelta
    """How far ahead of their time slots are taken."""
    lead: timedelta = timedelta(0)
    """How long it takes until the worker hears of its claim, as far as it knows: no slot begins sooner."""
    look_again: timedelta = LOOK_AGAIN
    limits: Mapping[str, Bucket]
    quotas: Mapping[str, QuotaNow]

    def buckets(self, lane: Lane) -> list[Bucket]:
        return [self.limits[name] for name in lane.limits if name in self.limits]

    def allowance(self, lane: Lane) -> Allowance | None:
        if lane.template is None:
            return None
        quota = self.quotas.get(lane.template)
        return None if quota is None else quota.allowance(lane)


@dataclass(frozen=True, slots=True)
class Held:
    """A lane that must wait: for what, and when it is worth looking again."""

    gate: Gate
    ready_at: datetime


def drawn(names: Iterable[str], lanes: Mapping[str, Lane], lot: int) -> list[str]:
    """Lanes in the order in which they are looked at: the most important first, equals as the lot falls.

    With a lot of its own for every claim: where there is one slot at a time, any fixed order would be that of the only
    lane that ever goes.
    """
    return sorted(names, key=lambda name: (lanes[name].priority, crc32(name.encode(), lot)))


def admit(waiting: Mapping[str, int], lanes: Mapping[str, Lane], gates: Gates, room: int) -> Admission:
    """How many of the rows that wait in each lane may go now. Takes slots and quota from `gates` as if all did.

    Lanes of one priority take turns in the order of `waiting`.
    """
    turns: list[str] = []
    left = dict(waiting)
    held: dict[str, Held] = {}
    for lanes_alike in _by_importance(waiting, lanes, gates):
        open_lanes = lanes_alike
        while open_lanes and room > 0:
            going_on = []
            for name in open_lanes:
                if room <= 0:
                    break
                found = hindrance(lanes[name], gates)
                if found is not None:
                    held[name] = found
                    continue
                _take(lanes[name], gates)
                turns.append(name)
                left[name] -= 1
                room -= 1
                if left[name]:
                    going_on.append(name)
            open_lanes = going_on
    return Admission(turns, held)


@dataclass(frozen=True, slots=True)
class Admission:
    turns: Sequence[str]
    """Whose turn it is, one row after another: lanes by name."""
    held: Mapping[str, Held]
    """Lanes with more rows than that, and why."""

    @property
    def counts(self) -> Mapping[str, int]:
        """How many rows may be claimed from each lane."""
        return Counter(self.turns)


def assign(claimed: Sequence[str], lanes: Mapping[str, Lane], gates: Gates) -> list[Slot | None]:
    """The slots of rows that were claimed, given by their lanes; None for a row that is under no gate any more."""
    return [_take(lanes[name], gates) for name in claimed]


def hindrances(names: Iterable[str], lanes: Mapping[str, Lane], gates: Gates) -> dict[str, Held]:
    """What keeps the next row of each of these lanes from going now; those that nothing does are not named."""
    found = {name: hindrance(lanes[name], gates) for name in names}
    return {name: held for name, held in found.items() if held is not None}


def _by_importance(waiting: Mapping[str, int], lanes: Mapping[str, Lane], gates: Gates) -> Iterator[list[str]]:
    """Lanes of one priority together; the turns of templates go to those whose quota is used the least."""
    for priority in sorted({lanes[name].priority for name in waiting}):
        alike = [name for name in waiting if lanes[name].priority == priority]
        used = {name: _share_used(lanes[name], gates) for name in alike if lanes[name].template is not None}
        least_used = iter(sorted(used, key=used.__getitem__))
        yield [next(least_used) if name in used else name for name in alike]


def _share_used(lane: Lane, gates: Gates) -> float:
    allowance = gates.allowance(lane)
    return 0.0 if allowance is None else allowance.share_used


def hindrance(lane: Lane, gates: Gates) -> Held | None:
    """What keeps the next row of a lane from going now."""
    buckets = gates.buckets(lane)
    if any(bucket.busy for bucket in buckets):
        return Held(Gate.BUSY, gates.now)
    if lane.template is not None and (found := _quota_hindrance(lane, gates)) is not None:
        return found
    closed = [until for bucket in buckets if (until := bucket.closed_until) is not None]
    if closed:
        return Held(Gate.SLOWED, max(closed))
    start_ns, limiting = _start(buckets, gates)
    if start_ns > in_nanoseconds(gates.now + gates.lead + gates.ahead):
        # Half of what is taken ahead is used up by then: so that several slots are taken together.
        return Held(Gate.LIMIT, instant(start_ns) - gates.lead - gates.ahead / 2)
    if (waits_until := _strays_until(limiting, start_ns)) is not None:
        return Held(Gate.LIMIT, instant(waits_until) - gates.lead)
    if lane.template is not None and (window := gates.quotas[lane.template].window) and instant(start_ns) >= window[1]:
        return Held(Gate.QUOTA, window[1])  # it would start in the next one
    return None


def _quota_hindrance(lane: Lane, gates: Gates) -> Held | None:
    assert lane.template is not None
    quota = gates.quotas[lane.template]
    if not quota.exists:
        return Held(Gate.NO_TEMPLATE, gates.now + gates.look_again)
    if quota.is_paused:
        return Held(Gate.PAUSED, quota.paused_until or gates.now + gates.look_again)
    if quota.window is None:
        return Held(Gate.UNPLANNED, gates.now)
    allowance = quota.allowance(lane)
    if allowance is not None and allowance.busy:
        return Held(Gate.BUSY, gates.now)
    if allowance is None or allowance.left <= 0:
        return Held(Gate.QUOTA, quota.window[1])
    return None


def _start(buckets: Sequence[Bucket], gates: Gates) -> tuple[int, list[Bucket]]:
    """When a row under these limits would start, and those of them that have a say in it."""
    limiting = [bucket for bucket in buckets if bucket.is_limiting]
    return max([in_nanoseconds(gates.now + gates.lead), *(bucket.next_slot_ns for bucket in limiting)]), limiting


def _strays_until(limiting: Sequence[Bucket], start_ns: int) -> int | None:
    """Until when a wide limit would have to let many slots pass unused because of a narrow one; None: it would not.

    The other way round it does not matter: nobody else misses the slots of a narrow limit.
    """
    latest = [number for number, bucket in enumerate(limiting) if bucket.next_slot_ns == start_ns]
    wider = limiting[: latest[0]] if latest else ()
    return max((until for bucket in wider if (until := bucket.waits_until(start_ns)) is not None), default=None)


def _take(lane: Lane, gates: Gates) -> Slot | None:
    allowance = gates.allowance(lane)
    if allowance is not None:
        allowance.used += 1
    start_ns, limiting = _start(gates.buckets(lane), gates)
    if not limiting:
        return None if allowance is None else Slot(gates.now, instant(start_ns + QUOTA_GRACE_NS))
    earliest_ns = min(max(bucket.slot_for(start_ns), start_ns - SPREAD_NS) for bucket in limiting)
    for bucket in limiting:
        bucket.take(start_ns)
    return Slot(instant(start_ns), instant(earliest_ns + LATE_NS))
