"""Claims on SQLite, those before gates among them; the text is in sql/sqlite/."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from itertools import groupby
from uuid import UUID

from matrixsched.rules.action import UNGATED, Attempt, parked_lane, suspect_lane
from matrixsched.rules.gates import LOOK_AGAIN
from matrixsched.rules.lanes import is_gated
from matrixsched.rules.retry import INTERRUPTIONS_BEFORE_SUSPICION, is_suspect
from matrixsched.rules.templates import Template
from matrixsched.store.gating import GatedClaims, Spent, StoredGates, StoredGrant, StoredQuota
from matrixsched.store.sqlite.asking import SqliteAsking
from matrixsched.store.sqlite.limits import limit_of
from matrixsched.store.sqlite.rows import (
    KEY,
    REMEMBERED,
    as_json,
    attempt_of,
    in_microseconds,
    in_microseconds_or_none,
    interruption_of,
    moment_of,
    moment_or_none,
    row_key,
    span,
)
from matrixsched.store.transition import Conversation, Row, transition
from matrixsched.store.values import Claimed

_SETTLED = (
    *(*KEY, "scheduled_at", "lane", "interrupted"),
    *("attempt", "claimed_by", "claimed_at", "sync_guid", "now"),
)
_NOTE = ("lane", "priority", "handler", "ready_at")
_GRANT = ("begins_at", "template", "priority", "inside", "used")


class SqliteGating(SqliteAsking, GatedClaims):
    def _claim(
        self,
        shard: int,
        sync_guid: UUID,
        lane: str,
        limit: int,
        claim_limit: int,
        *,
        handlers: Sequence[str] = (),
        gated: bool = False,
        suspect_room: int = 0,
        attempt_lease: timedelta,
    ) -> Conversation[Claimed]:
        """Claim from one lane, and settle what cannot run."""
        now, guid = self._now(), str(sync_guid)
        rows = yield self._ask(
            "claim.judge",
            shard_id=shard,
            sync_guid=guid,
            lane=lane,
            handlers=as_json(handlers),
            limit=limit,
            gated=int(gated),
            suspect_from=INTERRUPTIONS_BEFORE_SUSPICION,
            now=now,
        )
        if gated:
            rows = _with_suspects(rows, suspect_room)
        seen, rows = len(rows), _without_waiting(rows, claim_limit)
        yield from self._end_late(shard, rows, now)
        if dead := [(shard, *row_key(row)) for row in rows if row["verdict"] == "dead"]:
            yield self._each("claim.drop", KEY, dead)
        if interrupted := [interruption_of(row, shard, now) for row in rows if row["claimed_by"] is not None]:
            yield self._each("claim.remember", REMEMBERED, interrupted)
        lease_end = now + span(attempt_lease)
        settled = [_settled(row, shard, lane, guid, lease_end, now) for row in rows if row["verdict"] != "dead"]
        if settled:
            yield self._each("claim.settle", _SETTLED, settled)
        attempts = [
            attempt_of(row, shard, sync_guid, row["attempt"] + 1, moment_of(now))
            for row in rows
            if row["verdict"] == "claimed"
        ]
        return Claimed(seen, attempts, gated_lanes_of(rows), has_parked(rows))

    def _end_late(self, shard: int, rows: Iterable[Row], now: int) -> Conversation[None]:
        """The live versions of these may run: earlier ones whose leases are over must not be prolonged beside them."""
        left = ("dead", "waiting")
        if late := [(shard, *row_key(row), now) for row in rows if row["has_late"] and row["verdict"] not in left]:
            yield self._each("claim.remember_late", (*KEY, "now"), late)
            yield self._each("claim.drop_late", (*KEY, "now"), late)

    # What the gated claim asks.

    def _count_held(self, shard: int, lanes: Sequence[str], count_max: int) -> Conversation[Mapping[str, int]]:
        rows = yield self._ask("count_held", shard_id=shard, lanes=as_json(lanes), count_max=count_max, now=self._now())
        return {row["lane"]: row["waiting"] for row in rows}

    def _lock_limits(self, names: Sequence[str]) -> Conversation[StoredGates]:
        now = self._now()
        yield self._ask("lock_limits.make", names=as_json(names), now=now)
        rows = yield self._ask("lock_limits.read", names=as_json(names))
        return StoredGates(now=moment_of(now), limits=[(limit_of(row), False) for row in rows])

    def _lock_grants(self, templates: Sequence[str]) -> Conversation[Sequence[StoredQuota]]:
        # With one writer what is read is as good as locked.
        rows = yield self._ask("read_grants", templates=as_json(templates), now=self._now())
        return quotas_of(rows)

    def _claim_admitted(
        self, shard: int, sync_guid: UUID, counts: Mapping[str, int], suspect_room: int, attempt_lease: timedelta
    ) -> Conversation[list[tuple[str, Attempt]]]:
        claimed: list[tuple[str, Attempt]] = []
        for lane, count in counts.items():
            found = yield from self._claim(
                shard,
                sync_guid,
                lane,
                count,
                count,
                gated=True,
                suspect_room=suspect_room,
                attempt_lease=attempt_lease,
            )
            suspect_room -= sum(is_suspect(attempt.interruptions) for attempt in found.attempts)
            claimed += [(lane, attempt) for attempt in found.attempts]
        return claimed

    def _spend(self, spent: Spent) -> Conversation[None]:
        if spent.next_slots:
            yield self._each("spend.slots", ("name", "next_slot_ns"), list(spent.next_slots.items()))
        begins_at = in_microseconds_or_none(spent.begins_at)
        grants = [(begins_at, one.template, one.priority, int(one.inside), one.used) for one in spent.allowances]
        if grants:
            yield self._each("spend.grants", _GRANT, grants)
        notes = [(note.lane, note.priority, note.handler, in_microseconds(note.ready_at)) for note in spent.notes]
        if notes:
            yield self._each("spend.note", _NOTE, notes)
        if spent.emptied:
            now = self._now()
            yield self._each("spend.unlist", ("lane", "now"), [(lane, now) for lane in spent.emptied])

    @transition
    def relist_lanes(self, *, every: timedelta, look_again: timedelta = LOOK_AGAIN) -> Conversation[int | None]:
        now = self._now()
        turn = yield self._ask("relist_lanes.turn", every=span(every), now=now)
        if not turn:
            return None
        # In this order: as on PostgreSQL, what is listed now is put off, if need be, the next time.
        yield self._ask("relist_lanes.put_off", look_again=span(look_again), now=now)
        listed = yield self._ask("relist_lanes.list", now=now)
        yield self._ask("relist_lanes.unlist")
        yield self._ask("relist_lanes.forget", now=now)
        yield self._ask("relist_lanes.done", now=now)
        return len(listed)


def gated_lanes_of(rows: Iterable[Row]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(row["gated_lane"] for row in rows if row["verdict"] == "gated"))


def has_parked(rows: Iterable[Row]) -> bool:
    return any(row["verdict"] == "foreign" for row in rows)


def quotas_of(rows: Sequence[Row]) -> list[StoredQuota]:
    by_template = groupby(rows, key=lambda row: str(row["template"]))
    return [_quota_of(list(found)) for _, found in by_template]


def _quota_of(rows: Sequence[Row]) -> StoredQuota:
    first = rows[0]
    return StoredQuota(
        Template(
            name=first["template"],
            paused_at=moment_or_none(first["paused_at"]),
            paused_until=moment_or_none(first["paused_until"]),
        ),
        None if first["begins_at"] is None else (moment_of(first["begins_at"]), moment_of(first["ends_at"])),
        [
            StoredGrant(
                row["priority"],
                bool(row["inside"]),
                frozenset(json.loads(row["zones"])),
                row["granted"],
                row["used"],
                busy=False,
            )
            for row in rows
            if row["priority"] is not None
        ],
    )


def _with_suspects(rows: Sequence[Row], room: int) -> list[Row]:
    """The first so many suspects are claimed as well; one of a gated lane needs no other lane for that."""
    suspects = [row for row in rows if row["verdict"] == "suspect"][: max(0, room)]
    return [dict(row) | {"verdict": "claimed"} if row in suspects else row for row in rows]


def _without_waiting(rows: Sequence[Row], claim_limit: int) -> list[Row]:
    """Without the rows that could be claimed if there were room for more."""
    if len(rows) <= claim_limit:
        return list(rows)
    claimable = sorted((row for row in rows if row["verdict"] == "claimed"), key=lambda row: int(row["due_at"]))
    waiting = {row["action_guid"] for row in claimable[claim_limit:]}
    return [row for row in rows if row["action_guid"] not in waiting]


def _settled(row: Row, shard: int, lane: str, sync_guid: str, lease_end: int, now: int) -> tuple[object, ...]:
    """A row of _SETTLED: where and when a due row waits from here on, and for whom."""
    scheduled_at, attempt, claimed_by, claimed_at = row["due_at"], row["attempt"], None, row["claimed_at"]
    match row["verdict"]:
        case "claimed":
            scheduled_at, attempt, claimed_by, claimed_at = lease_end, attempt + 1, sync_guid, now
        case "blocked":
            scheduled_at = min(row["blocked_until"], lease_end)
            lane = UNGATED if is_gated(lane) else lane
        case "foreign":
            lane = parked_lane(row["handler"])
        case "gated":
            lane = row["gated_lane"]
        case "suspect":
            lane = suspect_lane(row["handler"])
    written = (scheduled_at, lane, row["interrupted"], attempt, claimed_by, claimed_at)
    return shard, *row_key(row), *written, sync_guid, now
