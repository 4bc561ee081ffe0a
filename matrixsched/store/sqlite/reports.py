"""Reports on SQLite; the text is in sql/sqlite/."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from matrixsched.rules.gate_report import Share
from matrixsched.rules.standing import QueueRow, ShardLock, Standing
from matrixsched.store.gating import StoredQuota
from matrixsched.store.reports import Reports
from matrixsched.store.sqlite.gating import quotas_of
from matrixsched.store.sqlite.rows import action_of, as_json, moment_of, moment_or_none
from matrixsched.store.sqlite.templates import SqliteTemplates
from matrixsched.store.transition import Conversation, Row


class SqliteReports(SqliteTemplates, Reports):
    def _stand(self, shard: int, action_id: str, count_max: int) -> Conversation[Standing | None]:
        rows = yield self._ask("standing", shard_id=shard, action_id=action_id, count_max=count_max, now=self._now())
        return _standing_of(rows[0]) if rows else None

    def _read_grants(self, templates: Sequence[str] | None) -> Conversation[list[StoredQuota]]:
        wanted = None if templates is None else as_json(templates)
        return quotas_of((yield self._ask("read_grants", templates=wanted, now=self._now())))

    def _waiting(self, lanes_max: int, count_max: int) -> Conversation[tuple[datetime, dict[str, int]]]:
        now = self._now()
        rows = yield self._ask("gate_report.lanes", lanes_max=lanes_max, count_max=count_max, now=now)
        return moment_of(now), {row["lane"]: row["waiting"] for row in rows}

    def _shares(self) -> Conversation[list[Share]]:
        rows = yield self._ask("gate_report.shares", now=self._now())
        return [Share(row["template"], bool(row["present"]), row["granted"], row["used"]) for row in rows]


def _standing_of(row: Row) -> Standing:
    return Standing(
        now=moment_of(row["now"]),
        action=action_of(row),
        row=None if row["row_lane"] is None else _queue_row_of(row),
        is_new=bool(row["is_new"]),
        blocked_until=moment_or_none(row["blocked_until"]),
        shard=ShardLock(
            is_locked=bool(row["locked"]),
            locked_by=row["last_locked_by"],
            heartbeat_at=moment_of(row["last_heartbeat_at"]),
        ),
        worker_seen_at=moment_or_none(row["worker_seen_at"]),
    )


def _queue_row_of(row: Row) -> QueueRow:
    return QueueRow(
        lane=row["row_lane"],
        due_at=moment_of(row["row_due_at"]),
        claimed_at=moment_or_none(row["row_claimed_at"]),
        is_claimed=bool(row["row_claimed"]),
        interrupted=row["interrupted_uncounted"],
        before=row["row_before"],
    )
