"""Reports on PostgreSQL; the text is in sql/postgresql/."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from matrixsched.rules.action import Action
from matrixsched.rules.gate_report import Share
from matrixsched.rules.standing import QueueRow, ShardLock, Standing
from matrixsched.store.gating import StoredQuota
from matrixsched.store.postgresql.gating import quotas_of
from matrixsched.store.postgresql.rows import action_of
from matrixsched.store.postgresql.templates import PostgresTemplates
from matrixsched.store.reports import Reports
from matrixsched.store.transition import Conversation, Row
from matrixsched.store.values import ActionFilter


class PostgresReports(PostgresTemplates, Reports):
    def _look_end(self, after: tuple[int, str], look_max: int) -> Conversation[tuple[int, str] | None]:
        rows = yield self._ask("look.end", after_shard=after[0], after_id=after[1], look_max=look_max)
        return (rows[0]["shard_id"], rows[0]["action_id"]) if rows else None

    def _look_page(
        self, wanted: ActionFilter, after: tuple[int, str], end: tuple[int, str], limit: int, look_max: int
    ) -> Conversation[list[Action]]:
        rows = yield self._ask(
            "look.page",
            after_shard=after[0],
            after_id=after[1],
            end_shard=end[0],
            end_id=end[1],
            state=wanted.state,
            handler=wanted.handler,
            template=wanted.template,
            id_prefix=wanted.id_prefix,
            due_before=wanted.due_before,
            limit=limit,
            look_max=look_max,
        )
        return [action_of(row) for row in rows]

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
        blocked_until=row["blocked_until"],
        shard=ShardLock(
            is_locked=row["locked"], locked_by=row["last_locked_by"], heartbeat_at=row["last_heartbeat_at"]
        ),
        worker_seen_at=row["worker_seen_at"],
    )
