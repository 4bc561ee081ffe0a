"""The part of the protocol that counts what waits, for the forecast. It reads, and changes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from matrixsched.rules.forecast import Lot
from matrixsched.store.transition import Row, Transition

StockPosition = tuple[str, int, str]
"""Template, shard and id of the last message that was counted."""
BEGINNING: StockPosition = ("", -1, "")


@dataclass(frozen=True, slots=True)
class StockPage:
    lots: list[Lot]
    after: StockPosition | None
    """Where to go on; None: that was all."""


class Stock(Protocol):
    def stock(
        self, after: StockPosition, *, now: datetime, until: datetime, grid: timedelta, limit: int
    ) -> Transition[StockPage]:
        """Count the next live messages of templates in key order, at most `limit` of them, those that are alike
        together: due and expiring at about the same time, on a grid. What is due counts as due now; what happens after
        `until` is not told apart."""
        ...


def last_of(rows: list[Row], limit: int) -> StockPosition | None:
    """The key of the last message of a page, if more may follow."""
    if sum(row["messages"] for row in rows) < limit:
        return None
    return rows[0]["last_template"], rows[0]["last_shard"], rows[0]["last_id"]
