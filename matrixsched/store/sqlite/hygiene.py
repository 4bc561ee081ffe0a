"""Hygiene on SQLite: each transition reads what there is to do and, only if there is any, writes it.

The text is in sql/sqlite/. Reading and writing are one transaction, so nothing changes in between.
"""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from matrixsched.rules.action import State
from matrixsched.store.sqlite.asking import SqliteAsking
from matrixsched.store.sqlite.rows import ACTION, KEY, row_key, span
from matrixsched.store.transition import Conversation, transition
from matrixsched.store.values import SweepPosition, Swept


class SqliteHygiene(SqliteAsking):
    @transition
    def prune_actions(self, state: State, *, keep: timedelta, limit: int) -> Conversation[int]:
        rows = yield self._ask("prune_actions.choose", state=state.value, keep=span(keep), limit=limit, now=self._now())
        if keys := [(row["shard_id"], *row_key(row)) for row in rows]:
            yield self._each("prune_actions.history", ACTION, [(shard, action_id) for shard, action_id, _ in keys])
            yield self._each("prune_actions.actions", KEY, keys)
        return len(rows)

    @transition
    def count_old(self, state: State, *, keep: timedelta, count_max: int) -> Conversation[int]:
        (row,) = yield self._ask("count_old", state=state.value, keep=span(keep), count_max=count_max, now=self._now())
        return int(row["old"])

    @transition
    def prune_requests(self, *, keep: timedelta, limit: int) -> Conversation[int]:
        rows = yield self._ask("prune_requests.choose", keep=span(keep), limit=limit, now=self._now())
        if rows:
            yield self._each("prune_requests.delete", ("request_guid",), [(row["request_guid"],) for row in rows])
        return len(rows)

    @transition
    def sweep_dead(self, position: SweepPosition, *, limit: int) -> Conversation[Swept]:
        rows = yield self._ask(
            "sweep_dead.look",
            after_shard=position.shard,
            after_id=position.action_id,
            after_guid=str(position.guid),
            limit=limit,
            now=self._now(),
        )
        if dead := [(row["shard_id"], *row_key(row)) for row in rows if row["dead"]]:
            yield self._each("sweep_dead.delete", KEY, dead)
        if len(rows) < limit:
            return Swept(len(dead), SweepPosition())
        last = rows[-1]
        return Swept(len(dead), SweepPosition(last["shard_id"], last["action_id"], UUID(last["action_guid"])))
