"""What operators and workers did, on PostgreSQL; the text is in sql/postgresql/."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from uuid import UUID

from matrixsched.rules.audit import AuditEntry, AuditOutcome, Via, outcome_of
from matrixsched.rules.minutes import Fleet, WorkerMinute, WorkerSeen
from matrixsched.store.operators import (
    decode_fleet,
    decode_late,
    decode_names,
    decode_outcomes,
    encode_facts,
    encode_late,
    encode_names,
    encode_outcomes,
)
from matrixsched.store.postgresql.asking import PostgresAsking
from matrixsched.store.transition import Conversation, Row, transition


class PostgresOperators(PostgresAsking):
    @transition
    def begin_audit(
        self, guid: UUID, *, who: str, via: Via, verb: str, subject: str, before: Mapping[str, object]
    ) -> Conversation[None]:
        yield self._ask(
            "audit_log.begin",
            entry_guid=guid,
            who=who,
            via=via,
            verb=verb,
            subject=subject,
            before=encode_facts(before),
        )

    @transition
    def end_audit(self, guid: UUID, outcome: AuditOutcome, after: Mapping[str, object]) -> Conversation[bool]:
        rows = yield self._ask("audit_log.end", entry_guid=guid, outcome=outcome, after=encode_facts(after))
        return bool(rows)

    @transition
    def audit_page(self, before: AuditEntry | None, *, limit: int) -> Conversation[list[AuditEntry]]:
        rows = yield self._ask(
            "audit_log.page",
            before_at=None if before is None else before.asked_at,
            before_guid=None if before is None else before.guid,
            limit=limit,
        )
        return [_entry(row) for row in rows]

    @transition
    def prune_audit(self, *, keep: timedelta, limit: int) -> Conversation[int]:
        (row,) = yield self._ask("audit_log.prune", keep=keep, limit=limit)
        return int(row["gone"])

    @transition
    def report_worker(
        self, told: WorkerMinute, *, slots: int, running: int, handlers: Sequence[str], others_within: timedelta
    ) -> Conversation[Fleet]:
        (row,) = yield self._ask(
            "workers.report",
            minute=told.minute,
            worker=told.worker,
            outcomes=encode_outcomes(told.outcomes),
            late=encode_late(told.late),
            due=told.due,
            oldest_due_s=told.oldest_due_s,
            slots=slots,
            running=running,
            handlers=encode_names(handlers),
            others_within=others_within,
        )
        return decode_fleet(row["shards"], row["others"])

    @transition
    def leave_worker(self, name: str) -> Conversation[bool]:
        return bool((yield self._ask("workers.leave", worker=name)))

    @transition
    def workers_seen(self) -> Conversation[list[WorkerSeen]]:
        return [_seen(row) for row in (yield self._ask("workers.seen"))]

    @transition
    def worker_minutes(self, *, since: timedelta) -> Conversation[list[WorkerMinute]]:
        return [_minute(row) for row in (yield self._ask("workers.minutes", since=since))]

    @transition
    def prune_workers(self, *, keep: timedelta, limit: int) -> Conversation[int]:
        (row,) = yield self._ask("workers.prune", keep=keep, limit=limit)
        return int(row["gone"])


def _entry(row: Row) -> AuditEntry:
    after = json.loads(row["after"])
    return AuditEntry(
        guid=row["entry_guid"],
        who=row["who"],
        via=Via(row["via"]),
        verb=row["verb"],
        subject=row["subject"],
        before=json.loads(row["before"]),
        asked_at=row["asked_at"],
        outcome=outcome_of(row["outcome"], after),
        after=after,
        ended_at=row["ended_at"],
    )


def _seen(row: Row) -> WorkerSeen:
    return WorkerSeen(
        name=row["worker"],
        started_at=row["started_at"],
        seen_at=row["seen_at"],
        slots=row["slots"],
        running=row["running"],
        handlers=decode_names(row["handlers"]),
    )


def _minute(row: Row) -> WorkerMinute:
    return WorkerMinute(
        minute=row["minute"],
        worker=row["worker"],
        outcomes=decode_outcomes(row["outcomes"]),
        late=decode_late(row["late"]),
        due=row["due"],
        oldest_due_s=row["oldest_due_s"],
    )
