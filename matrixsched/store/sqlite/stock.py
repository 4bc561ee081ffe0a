"""What waits, counted on SQLite."""

from __future__ import annotations

from datetime import datetime

from matrixsched.store.sqlite.asking import SqliteAsking
from matrixsched.store.sqlite.rows import in_microseconds, moment_of, moment_or_none
from matrixsched.store.stock import Others, StockPage, StockPosition, last_of, lot_of, other_of
from matrixsched.store.transition import Conversation, transition


class SqliteStock(SqliteAsking):
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
            since=in_microseconds(now),
            until=in_microseconds(until),
            keyed=int(keyed),
            limit=limit,
        )
        lots = [lot_of(row, moment_of(row["due_at"]), moment_or_none(row["expires_at"])) for row in rows]
        return StockPage(lots, last_of(list(rows), limit))

    @transition
    def others(self, shard: int, *, until: datetime, keyed: bool, limit: int) -> Conversation[Others]:
        rows = yield self._ask(
            "others", shard_id=shard, until=in_microseconds(until), keyed=int(keyed), limit=limit, now=self._now()
        )
        lots = [
            other_of(row, moment_of(row["due_at"]), moment_or_none(row["expires_at"]))
            for row in rows
            if row["messages"] is not None
        ]
        return Others(lots, moment_or_none(rows[0]["unseen_from"]))
