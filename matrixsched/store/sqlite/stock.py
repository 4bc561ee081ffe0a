"""What waits, counted on SQLite."""

from __future__ import annotations

from datetime import datetime, timedelta

from matrixsched.rules.forecast import Lot
from matrixsched.store.sqlite.asking import SqliteAsking
from matrixsched.store.sqlite.rows import in_microseconds, moment_of, moment_or_none, span
from matrixsched.store.stock import StockPage, StockPosition, last_of
from matrixsched.store.transition import Conversation, transition


class SqliteStock(SqliteAsking):
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
            since=in_microseconds(now),
            until=in_microseconds(until),
            grid=span(grid),
            limit=limit,
        )
        lots = [
            Lot(
                template=row["template"],
                zone=row["zone"],
                priority=row["priority"],
                due_at=moment_of(row["due_at"]),
                expires_at=moment_or_none(row["expires_at"]),
                count=row["messages"],
            )
            for row in rows
        ]
        return StockPage(lots, last_of(list(rows), limit))
