"""How the fleet fares, on SQLite; the text is in sql/sqlite/."""

from __future__ import annotations

from datetime import datetime

from matrixsched.rules.action import State, parked_lane
from matrixsched.store.fleet import ChoreReport, Pace, Parked
from matrixsched.store.sqlite.asking import SqliteAsking
from matrixsched.store.sqlite.rows import in_microseconds, moment_of, moment_or_none
from matrixsched.store.transition import Conversation, Row, transition


class SqliteFleet(SqliteAsking):
    @transition
    def parked(self, *, count_max: int) -> Conversation[list[Parked]]:
        rows = yield self._ask("parked", count_max=count_max, now=self._now())
        prefix = parked_lane("")
        return [
            Parked(row["lane"].removeprefix(prefix), row["waiting"], moment_of(row["oldest_due_at"])) for row in rows
        ]

    @transition
    def chores(self) -> Conversation[list[ChoreReport]]:
        rows = yield self._ask("chores")
        return [_chore_of(row) for row in rows]

    @transition
    def pace(self, since: datetime, *, count_max: int) -> Conversation[Pace]:
        now = self._now()
        rows = yield self._ask("pace", since=in_microseconds(since), count_max=count_max, now=now)
        return Pace(moment_of(now), {State(row["state"]): row["ended"] for row in rows})


def _chore_of(row: Row) -> ChoreReport:
    return ChoreReport(row["name"], bool(row["held"]), moment_of(row["held_until"]), moment_or_none(row["done_at"]))
