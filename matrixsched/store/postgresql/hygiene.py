"""Hygiene on PostgreSQL: each transition is one statement; the text is in sql/postgresql/."""

from __future__ import annotations

from datetime import timedelta

from matrixsched.rules.action import State
from matrixsched.store.postgresql.asking import PostgresAsking
from matrixsched.store.transition import Conversation, transition
from matrixsched.store.values import SweepPosition, Swept


class PostgresHygiene(PostgresAsking):
    @transition
    def prune_actions(self, state: State, *, keep: timedelta, limit: int) -> Conversation[int]:
        (row,) = yield self._ask("prune_actions", state=state, keep=keep, limit=limit)
        return int(row["gone"])

    @transition
    def count_old(self, state: State, *, keep: timedelta, count_max: int) -> Conversation[int]:
        (row,) = yield self._ask("count_old", state=state, keep=keep, count_max=count_max)
        return int(row["old"])

    @transition
    def prune_requests(self, *, keep: timedelta, limit: int) -> Conversation[int]:
        (row,) = yield self._ask("prune_requests", keep=keep, limit=limit)
        return int(row["gone"])

    @transition
    def sweep_dead(self, position: SweepPosition, *, limit: int) -> Conversation[Swept]:
        (row,) = yield self._ask(
            "sweep_dead",
            after_shard=position.shard,
            after_id=position.action_id,
            after_guid=position.guid,
            limit=limit,
        )
        if row["looked"] < limit:
            return Swept(row["gone"], SweepPosition())
        return Swept(row["gone"], SweepPosition(row["shard_id"], row["action_id"], row["action_guid"]))
