"""What waits, counted on PostgreSQL."""

from __future__ import annotations

from datetime import datetime

from matrixsched.store.postgresql.asking import PostgresAsking
from matrixsched.store.stock import Others, StockPage, StockPosition, last_of, lot_of, other_of
from matrixsched.store.transition import Conversation, transition


class PostgresStock(PostgresAsking):
    @transition
    def stock(
        self, after: StockPosition, *, now: datetime, until: datetime, keyed: bool, limit: int
    ) -> Conversation[StockPage]:
        template, shard, action_id = after
        rows = yield self._ask(
            "stock",
            after_template=template,
            after_shard=shard,
            after_id=action_id,
            since=now,
            until=until,
            keyed=keyed,
            limit=limit,
        )
        lots = [lot_of(row, row["due_at"], row["expires_at"]) for row in rows]
        return StockPage(lots, last_of(list(rows), limit))

    @transition
    def others(self, shard: int, *, until: datetime, keyed: bool, limit: int) -> Conversation[Others]:
        rows = yield self._ask("others", shard_id=shard, until=until, keyed=keyed, limit=limit)
        lots = [other_of(row, row["due_at"], row["expires_at"]) for row in rows if row["messages"] is not None]
        return Others(lots, rows[0]["unseen_from"])
