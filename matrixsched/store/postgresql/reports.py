"""Reports on PostgreSQL; the text is in sql/postgresql/."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from matrixsched.rules.gate_report import Share
from matrixsched.rules.standing import QueueRow, ShardLock, Standing
from matrixsched.store.gating import StoredQuota
from matrixsched.store.postgresql.gating import quotas_of
from matrixsched.store.postgresql.rows import action_of
from matrixsched.store.postgresql.templates import PostgresTemplates
from matrixsched.store.reports import Reports
from matrixsched.store.transition import Conversation, Row


class PostgresReports(PostgresTemplates, Reports):
    def _stand(self, shard: int, action_id: str, count_max: int) -> Conversation[Standing | None]:
        rows = yield self._ask("standing", shard_id=shard, action_id=action_id, count_max=count_max)
        return _standing_of(rows[0]) if rows else None

    def _read_grants(self, templates: Sequence[str] | None) -> Conversation[list[StoredQuota]]:
        return quotas_of((yield self._ask("read_grants", templates=templates)))

    def _waiting(self, lanes_max: int, count_max: int) -> Conversation[tuple[datetime, dict[str, int]]]:
        rows = yield self._ask("gate_report.lanes", lanes_max=lanes_max, count_max=count_max)
        return rows[0]["now"], {row["lane"]: row["waiting"] for row in rows if row["lane"] is not None}

    def _shares(self) -> Conversation[list[Share]]:
        rows = yield self._ask("gate_report.shares")
        return [Share(row["template"], row["present"], row["granted"], row["used"]) for row in rows]


def _standing_of(row: Row) -> Standing:
    waiting = QueueRow(
        lane=row["row_lane"],
        due_at=row["row_due_at"],
        claimed_at=row["row_claimed_at"],
        is_claimed=row["row_claimed"],
        interrupted=row["interrupted_uncounted"],
        before=row["row_before"],
    )
    return Standing(
        now=row["now"],
        action=action_of(row),
        row=None if row["row_lane"] is None else waiting,
        is_new=row["is_new"],
        blocked_until=row["blocked_until"],
        shard=ShardLock(
            is_locked=row["locked"], locked_by=row["last_locked_by"], heartbeat_at=row["last_heartbeat_at"]
        ),
        worker_seen_at=row["worker_seen_at"],
    )
