"""The gated claim, for both databases: read and lock what decides, decide, claim, take what was used; one transaction.

Slots and grants are spent by the very transaction that claims: no lease of them, no refund, no window for a crash. What
the two databases do differently is asked of the class that this is a part of.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol
from uuid import UUID

from matrixsched.rules.action import Attempt
from matrixsched.rules.gates import (
    LOOK_AGAIN,
    Admission,
    Allowance,
    Bucket,
    Gate,
    Gates,
    Held,
    QuotaNow,
    admit,
    assign,
    drawn,
    hindrances,
)
from matrixsched.rules.lanes import ANY_KEY, Lane, escaped, key_limit, lane_of
from matrixsched.rules.limits import Limit
from matrixsched.rules.templates import Template
from matrixsched.store.transition import Conversation, Transition, transaction
from matrixsched.store.values import GatedClaim

LOT_MASK = 0xFFFF_FFFF
"""So much of a sync guid, which is drawn by chance, is the lot that decides about turns."""


class Gating(Protocol):
    """What workers ask of the gates."""

    def claim_gated(
        self,
        shard: int,
        sync_guid: UUID,
        *,
        listed: Sequence[str],
        filled: Sequence[str],
        room: int,
        suspect_room: int,
        attempt_lease: timedelta,
        ahead: timedelta,
        lead: timedelta = timedelta(0),
        look_again: timedelta = LOOK_AGAIN,
    ) -> Transition[GatedClaim]:
        """Claim what may pass the gates of these lanes now, `room` rows at the most, each with its slot.

        `listed` are lanes that held_lanes named; `filled` those that rows were just put into. Slots are taken up to
        `ahead` of their time, and none that begins sooner than `lead` from now. No lane is put off for longer than
        `look_again`.
        """
        ...

    def relist_lanes(self, *, every: timedelta, look_again: timedelta = LOOK_AGAIN) -> Transition[int | None]:
        """List every lane that has rows, and no other, if it was not done within `every`; how many had not been listed,
        or None if it was not done."""
        ...


@dataclass(frozen=True, slots=True)
class StoredGrant:
    priority: int
    inside: bool
    zones: frozenset[str]
    granted: int
    used: int
    busy: bool


@dataclass(frozen=True, slots=True)
class StoredQuota:
    """A template, and its grants in the present window if that is planned."""

    template: Template
    window: tuple[datetime, datetime] | None
    grants: Sequence[StoredGrant]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredGates:
    now: datetime
    limits: Sequence[tuple[Limit, bool]]
    """With whether somebody else takes slots from it now."""
    quotas: Sequence[StoredQuota] = ()

    def without_busy_limits(self, lanes: Iterable[Lane]) -> list[Lane]:
        busy = {limit.name for limit, is_busy in self.limits if is_busy}
        return [lane for lane in lanes if busy.isdisjoint(lane.limits)]

    def open(
        self, lanes: Iterable[Lane], ahead: timedelta, lead: timedelta, look_again: timedelta = LOOK_AGAIN
    ) -> Gates:
        """The gates as they stand: to be opened anew for every decision, for deciding uses them up."""
        lanes = list(lanes)
        buckets = {limit.name: Bucket(limit, self.now, busy, lead) for limit, busy in self.limits}
        if (any_key := buckets.pop(ANY_KEY, None)) is not None:
            for name in {key_limit(lane.key) for lane in lanes if lane.key is not None}:
                # Without a bucket: somebody else is making it at this moment.
                own = buckets.get(name) or Bucket(Limit(name=name, updated_at=self.now), self.now, busy=True)
                buckets[name] = Bucket(own.limit.under(any_key.limit), self.now, own.busy, lead)
        quotas = {lane.template: QuotaNow(exists=False) for lane in lanes if lane.template is not None}
        quotas |= {quota.template.name: quota_now(quota, self.now) for quota in self.quotas}
        return Gates(now=self.now, ahead=ahead, lead=lead, look_again=look_again, limits=buckets, quotas=quotas)


def quota_now(quota: StoredQuota, now: datetime) -> QuotaNow:
    template = quota.template
    allowances = {
        (grant.priority, grant.inside): Allowance(
            template.name, grant.priority, grant.inside, grant.granted, grant.used, grant.busy
        )
        for grant in quota.grants
    }
    return QuotaNow(
        is_paused=template.is_paused(now),
        paused_until=template.paused_until,
        window=quota.window,
        zones_inside=frozenset[str]().union(*(grant.zones for grant in quota.grants)),
        allowances=allowances,
    )


@dataclass(frozen=True, slots=True)
class LaneNote:
    """When a lane is worth another look."""

    lane: str
    priority: int
    handler: str
    """As it stands in the lane's name."""
    ready_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What a gated claim leaves behind."""

    next_slots: Mapping[str, int]
    allowances: Sequence[Allowance]
    begins_at: datetime | None
    notes: Sequence[LaneNote]
    emptied: Sequence[str]


class GatedClaims:
    """The transaction, in terms of what a database can be asked."""

    @abstractmethod
    def _count_held(self, shard: int, lanes: Sequence[str], count_max: int) -> Conversation[Mapping[str, int]]:
        """How many rows wait in each of these lanes; those without any are not named."""

    @abstractmethod
    def _lock_limits(self, names: Sequence[str]) -> Conversation[StoredGates]:
        """Lock those of these limits that exist, and say what time it is."""

    @abstractmethod
    def _lock_grants(self, templates: Sequence[str]) -> Conversation[Sequence[StoredQuota]]:
        """Lock what these templates may still send; those that do not exist are not named."""

    @abstractmethod
    def _claim_admitted(
        self, shard: int, sync_guid: UUID, counts: Mapping[str, int], suspect_room: int, attempt_lease: timedelta
    ) -> Conversation[list[tuple[str, Attempt]]]:
        """Claim at most so many rows of each lane; what was claimed, with its lane."""

    @abstractmethod
    def _spend(self, spent: Spent) -> Conversation[None]: ...

    @transaction
    def claim_gated(
        self,
        shard: int,
        sync_guid: UUID,
        *,
        listed: Sequence[str],
        filled: Sequence[str],
        room: int,
        suspect_room: int,
        attempt_lease: timedelta,
        ahead: timedelta,
        lead: timedelta = timedelta(0),
        look_again: timedelta = LOOK_AGAIN,
    ) -> Conversation[GatedClaim]:
        names = list(dict.fromkeys([*filled, *listed]))
        found = yield from self._count_held(shard, names, room)
        if not found:
            return GatedClaim()
        lanes = {name: lane_of(name) for name in found}
        urgent = _as_important_as(listed, lanes)
        waiting = _as_many_as_matter(found, drawn(urgent, lanes, sync_guid.int & LOT_MASK), room)
        chosen = [lanes[name] for name in waiting]
        stored = yield from self._lock_limits(_limits(chosen))
        # No grant is held that others could use meanwhile: two claims would keep each other from going.
        if templates := _templates(stored.without_busy_limits(chosen)):
            stored = replace(stored, quotas=(yield from self._lock_grants(templates)))
        admission = admit(waiting, lanes, stored.open(chosen, ahead, lead, look_again), room)
        claimed: list[tuple[str, Attempt]] = []
        if admission.counts:
            claimed = yield from self._claim_admitted(shard, sync_guid, admission.counts, suspect_room, attempt_lease)
        gates = stored.open(chosen, ahead, lead, look_again)
        claimed = _in_turn(claimed, admission)
        slots = assign([name for name, _ in claimed], lanes, gates)
        # Of rows that were dead, or somebody else's, slots and quota are left: for those that were to be held back.
        held = hindrances(admission.held, lanes, gates)
        yield from self._spend(_spent(gates, claimed, admission, held, found, lanes, filled, room))
        return GatedClaim(
            now=stored.now,
            attempts=[
                attempt._replace(limit=lanes[name].key, slot=slot)
                for (name, attempt), slot in zip(claimed, slots, strict=True)
            ],
            held=held,
        )


def _as_important_as(listed: Sequence[str], lanes: Mapping[str, Lane]) -> list[str]:
    """Those of the lanes that are as important as what is listed: rows that were just moved do not overtake it."""
    least = max((lane_of(name).priority for name in listed), default=None)
    return [name for name, lane in lanes.items() if least is None or lane.priority <= least]


def _as_many_as_matter(found: Mapping[str, int], order: Iterable[str], room: int) -> dict[str, int]:
    """The first lanes, for twice the room there is: each more would lock gates that others could pass."""
    chosen: dict[str, int] = {}
    for name in order:
        chosen[name] = found[name]
        if sum(chosen.values()) >= 2 * room:
            break
    return chosen


def _limits(lanes: Iterable[Lane]) -> list[str]:
    lanes = list(lanes)
    names = {name for lane in lanes for name in lane.limits}
    return sorted(names | {ANY_KEY} if any(lane.key is not None for lane in lanes) else names)


def _templates(lanes: Iterable[Lane]) -> list[str]:
    return sorted({lane.template for lane in lanes if lane.template is not None})


def _in_turn(claimed: Sequence[tuple[str, Attempt]], admission: Admission) -> list[tuple[str, Attempt]]:
    """Rows in the order in which their lanes were admitted; inside a lane by the time they were due, and expire."""
    rows: defaultdict[str, deque[Attempt]] = defaultdict(deque)
    for name, attempt in sorted(claimed, key=lambda one: _order(one[1])):
        rows[name].append(attempt)
    return [(name, rows[name].popleft()) for name in admission.turns if rows[name]]


def _order(attempt: Attempt) -> tuple[datetime, bool, datetime]:
    return attempt.due_at, attempt.expires_at is None, attempt.expires_at or attempt.due_at


def _spent(
    gates: Gates,
    claimed: Sequence[tuple[str, Attempt]],
    admission: Admission,
    held: Mapping[str, Held],
    found: Mapping[str, int],
    lanes: Mapping[str, Lane],
    filled: Collection[str],
    room: int,
) -> Spent:
    served = {name for name, _ in claimed}
    used = [bucket for name in served for bucket in gates.buckets(lanes[name])]
    allowances = {id(left): left for name in served if (left := gates.allowance(lanes[name])) is not None}
    windows = [quota.window for quota in gates.quotas.values() if quota.window is not None]
    # No more than there is room for were counted: as many as that may be all, or some of very many.
    emptied = [name for name in served if admission.counts[name] >= found[name] < room and name not in admission.held]
    # Served: behind the others. Just filled: listed. What was not looked at stays where it is, before them.
    ready = {name: gates.now for name in found if name in served or name in filled or name in admission.held}
    for name, held_back in held.items():
        if held_back.gate is not Gate.BUSY:
            ready[name] = held_back.ready_at
        elif name not in served and name not in filled:
            del ready[name]  # it stays as it is: another worker opens it at this moment
    latest = gates.now + gates.look_again
    return Spent(
        next_slots={bucket.limit.name: bucket.next_slot_ns for bucket in used if bucket.is_limiting},
        allowances=list(allowances.values()),
        begins_at=windows[0][0] if windows else None,
        notes=[
            LaneNote(name, lanes[name].priority, escaped(lanes[name].handler), min(ready_at, latest))
            for name, ready_at in sorted(ready.items())
            if name not in emptied
        ],
        emptied=emptied,
    )
