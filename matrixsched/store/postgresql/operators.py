"""What operators and workers did, on PostgreSQL; the text is in sql/postgresql/."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from uuid import UUID

from matrixsched.rules.audit import AuditEntry, AuditOutcome, Via
from matrixsched.rules.minutes import WorkerMinute
from matrixsched.store.operators import decode_late, decode_outcomes, encode_facts, encode_late, encode_outcomes
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
    def report_minute(self, told: WorkerMinute) -> Conversation[None]:
        yield self._ask(
            "worker_minutes.report",
            minute=told.minute,
            worker=told.worker,
            slots=told.slots,
            running=told.running,
            outcomes=encode_outcomes(told.outcomes),
            late=encode_late(told.late),
            due=told.due,
            oldest_due_s=told.oldest_due_s,
        )

    @transition
    def worker_minutes(self, *, since: timedelta) -> Conversation[list[WorkerMinute]]:
        rows = yield self._ask("worker_minutes.read", since=since)
        return [_minute(row) for row in rows]

    @transition
    def prune_minutes(self, *, keep: timedelta, limit: int) -> Conversation[int]:
        (row,) = yield self._ask("worker_minutes.prune", keep=keep, limit=limit)
        return int(row["gone"])


def _entry(row: Row) -> AuditEntry:
    return AuditEntry(
        guid=row["entry_guid"],
        who=row["who"],
        via=Via(row["via"]),
        verb=row["verb"],
        subject=row["subject"],
        before=json.loads(row["before"]),
        asked_at=row["asked_at"],
        outcome=AuditOutcome(row["outcome"]),
        after=json.loads(row["after"]),
        ended_at=row["ended_at"],
    )


def _minute(row: Row) -> WorkerMinute:
    return WorkerMinute(
        minute=row["minute"],
        worker=row["worker"],
        slots=row["slots"],
        running=row["running"],
        outcomes=decode_outcomes(row["outcomes"]),
        late=decode_late(row["late"]),
        due=row["due"],
        oldest_due_s=row["oldest_due_s"],
        reported_at=row["reported_at"],
    )
