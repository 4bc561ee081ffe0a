"""The part of the protocol that counts what waits, for the forecast. It reads, and changes nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

from matrixsched.rules.lanes import key_in
from matrixsched.rules.lots import Lot
from matrixsched.store.transition import Row, Transition

StockPosition = tuple[str, int, str]
"""Template, shard and id of the last message that was counted."""
BEGINNING: StockPosition = ("", -1, "")


@dataclass(frozen=True, slots=True)
class StockPage:
    lots: list[Lot]
    after: StockPosition | None
    """Where to go on; None: that was all."""


@dataclass(frozen=True, slots=True)
class Others:
    lots: list[Lot]
    unseen_from: datetime | None
    """From when on there may be more that are due; None: these are all."""


class Stock(Protocol):
    def stock(
        self, after: StockPosition, *, now: datetime, until: datetime, keyed: bool, limit: int
    ) -> Transition[StockPage]:
        """Count the next live messages of templates in key order, at most `limit` of them, those that are alike
        together: due and expiring at about the same time, on a grid that is the coarser the later that is. What is due
        counts as due now; what happens after `until` is not told apart. Keys are told apart if they are `keyed`."""
        ...

    def others(self, shard: int, *, until: datetime, keyed: bool, limit: int) -> Transition[Others]:
        """Count the live actions without a template of a shard that are due by then, those that are alike together.
        It looks at no more than `limit` of those before limits, of those not due yet, and of those that are new."""
        ...


def last_of(rows: list[Row], limit: int) -> StockPosition | None:
    """The key of the last message of a page, if more may follow."""
    if sum(row["messages"] for row in rows) < limit:
        return None
    return rows[0]["last_template"], rows[0]["last_shard"], rows[0]["last_id"]


def lot_of(row: Row, due_at: datetime, expires_at: datetime | None) -> Lot:
    """Messages of a template that are alike; the times as they are read from the database."""
    return replace(other_of(row, due_at, expires_at), template=row["template"], zone=row["zone"])


def other_of(row: Row, due_at: datetime, expires_at: datetime | None) -> Lot:
    """Actions without a template that are alike."""
    return Lot(
        template=None,
        zone=None,
        priority=row["priority"],
        handler=row["handler"],
        key=key_in(row["lane"]),
        due_at=due_at,
        expires_at=expires_at,
        count=row["messages"],
    )
