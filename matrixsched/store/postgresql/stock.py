"""What waits, counted on PostgreSQL."""

from __future__ import annotations

from datetime import datetime, timedelta

from matrixsched.rules.forecast import Lot
from matrixsched.store.postgresql.asking import PostgresAsking
from matrixsched.store.stock import StockPage, StockPosition, last_of
from matrixsched.store.transition import Conversation, transition


class PostgresStock(PostgresAsking):
    @transition
    def stock(
        self, after: StockPosition, *, now: datetime, until: datetime, grid: timedelta, limit: int
    ) -> Conversation[StockPage]:
        template, shard, action_id = after
        rows = yield self._ask(
            "stock",
            after_template=template,
            after_shard=shard,
            after_id=action_id,
            since=now,
            until=until,
            grid=grid,
            limit=limit,
        )
        lots = [
            Lot(
                template=row["template"],
                zone=row["zone"],
                priority=row["priority"],
                due_at=row["due_at"],
                expires_at=row["expires_at"],
                count=row["messages"],
            )
            for row in rows
        ]
        return StockPage(lots, last_of(list(rows), limit))
