"""The gated claim on PostgreSQL: the statements of its transaction; the text is in sql/postgresql/."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from itertools import groupby
from uuid import UUID

from matrixsched.rules.action import Attempt
from matrixsched.rules.gates import LOOK_AGAIN
from matrixsched.rules.retry import INTERRUPTIONS_BEFORE_SUSPICION
from matrixsched.rules.templates import Template
from matrixsched.store.gating import GatedClaims, Spent, StoredGates, StoredGrant, StoredQuota
from matrixsched.store.postgresql.asking import PostgresAsking
from matrixsched.store.postgresql.limits import limit_of
from matrixsched.store.postgresql.rows import attempt_of
from matrixsched.store.transition import Conversation, Row, transition


class PostgresGating(PostgresAsking, GatedClaims):
    def _count_held(self, shard: int, lanes: Sequence[str], count_max: int) -> Conversation[Mapping[str, int]]:
        rows = yield self._ask("count_held", shard_id=shard, lanes=lanes, count_max=count_max)
        return {row["lane"]: row["waiting"] for row in rows}

    def _lock_limits(self, names: Sequence[str]) -> Conversation[StoredGates]:
        rows = yield self._ask("lock_limits", names=names)
        locked = [(limit_of(row), row["busy"]) for row in rows if row["name"] is not None]
        return StoredGates(now=rows[0]["now"], limits=locked)

    def _lock_grants(self, templates: Sequence[str]) -> Conversation[Sequence[StoredQuota]]:
        rows = yield self._ask("lock_grants", templates=templates)
        return quotas_of(rows)

    def _claim_admitted(
        self, shard: int, sync_guid: UUID, counts: Mapping[str, int], suspect_room: int, attempt_lease: timedelta
    ) -> Conversation[list[tuple[str, Attempt]]]:
        rows = yield self._ask(
            "claim",
            shard_id=shard,
            sync_guid=sync_guid,
            lanes=list(counts),
            takes=list(counts.values()),
            claim_limit=sum(counts.values()),
            gated=True,
            handlers=None,
            attempt_lease=attempt_lease,
            suspect_from=INTERRUPTIONS_BEFORE_SUSPICION,
            suspect_room=suspect_room,
        )
        return [(row["lane"], attempt_of(row, shard, sync_guid)) for row in rows if row["action_id"] is not None]

    def _spend(self, spent: Spent) -> Conversation[None]:
        yield self._ask(
            "spend",
            limits=list(spent.next_slots),
            next_slots=list(spent.next_slots.values()),
            begins_at=spent.begins_at,
            templates=[used.template for used in spent.allowances],
            priorities=[used.priority for used in spent.allowances],
            insides=[used.inside for used in spent.allowances],
            used=[used.used for used in spent.allowances],
            lanes=[note.lane for note in spent.notes],
            lane_priorities=[note.priority for note in spent.notes],
            handlers=[note.handler for note in spent.notes],
            ready_at=[note.ready_at for note in spent.notes],
            emptied=spent.emptied,
        )

    @transition
    def relist_lanes(self, *, every: timedelta, look_again: timedelta = LOOK_AGAIN) -> Conversation[int | None]:
        (row,) = yield self._ask("relist_lanes", every=every, look_again=look_again)
        return int(row["listed"]) if row["turns"] else None


def quotas_of(rows: Sequence[Row]) -> list[StoredQuota]:
    by_template = groupby(sorted(rows, key=_template), key=_template)
    return [_quota_of(list(found)) for _, found in by_template]


def _template(row: Row) -> str:
    return str(row["template"])


def _quota_of(rows: Sequence[Row]) -> StoredQuota:
    first = rows[0]
    return StoredQuota(
        Template(name=first["template"], paused_at=first["paused_at"], paused_until=first["paused_until"]),
        None if first["begins_at"] is None else (first["begins_at"], first["ends_at"]),
        [
            StoredGrant(
                row["priority"],
                row["inside"],
                frozenset(json.loads(row["zones"])),
                row["granted"],
                row["used"],
                row["busy"],
            )
            for row in rows
            if row["priority"] is not None
        ],
    )
