"""How the fleet fares, on PostgreSQL; the text is in sql/postgresql/."""

from __future__ import annotations

from datetime import datetime

from matrixsched.rules.action import State, parked_lane
from matrixsched.store.fleet import ChoreReport, Pace, Parked
from matrixsched.store.postgresql.asking import PostgresAsking
from matrixsched.store.transition import Conversation, transition


class PostgresFleet(PostgresAsking):
    @transition
    def parked(self, *, count_max: int) -> Conversation[list[Parked]]:
        rows = yield self._ask("parked", count_max=count_max)
        prefix = parked_lane("")
        return [Parked(row["lane"].removeprefix(prefix), row["waiting"], row["oldest_due_at"]) for row in rows]

    @transition
    def chores(self) -> Conversation[list[ChoreReport]]:
        rows = yield self._ask("chores")
        return [ChoreReport(row["name"], row["held"], row["held_until"], row["done_at"]) for row in rows]

    @transition
    def pace(self, since: datetime, *, count_max: int) -> Conversation[Pace]:
        rows = yield self._ask("pace", since=since, count_max=count_max)
        return Pace(rows[0]["now"], {State(row["state"]): row["ended"] for row in rows})
