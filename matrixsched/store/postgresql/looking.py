"""Looking for actions among millions, on PostgreSQL; the text is in sql/postgresql/."""

from __future__ import annotations

from matrixsched.store.looking import (
    BEGINNING,
    LATEST,
    Found,
    Place,
    bounds_of,
    each_of,
    goes_on,
    in_order,
    is_by_end,
    is_of_template,
)
from matrixsched.store.postgresql.asking import PostgresAsking
from matrixsched.store.postgresql.rows import action_of
from matrixsched.store.transition import Ask, Conversation, Row, transition
from matrixsched.store.values import ActionFilter


class PostgresLooking(PostgresAsking):
    @transition
    def page_bounded(
        self, wanted: ActionFilter, *, after: Place | None, limit: int, look_max: int
    ) -> Conversation[Found]:
        (installation,) = yield self._ask("installation")
        keys = yield self._ask_keys(wanted, after, limit, look_max, installation["shard_count"])
        fitting = [row for row in keys if not row["is_last"]]
        rows = yield self._ask(
            "find",
            shard_ids=[row["shard_id"] for row in fitting],
            action_ids=[row["action_id"] for row in fitting],
        )
        return Found(in_order(keys, [action_of(row) for row in rows]), goes_on(keys, limit, _place))

    def _ask_keys(self, wanted: ActionFilter, after: Place | None, limit: int, look_max: int, shards: int) -> Ask:
        lowest, highest = bounds_of(wanted.id_prefix)
        common: dict[str, object] = {
            "handler": wanted.handler,
            "template": wanted.template,
            "lowest": lowest,
            "highest": highest,
            "due_before": wanted.due_before,
            "limit": limit,
        }
        if is_by_end(wanted):
            last = after or LATEST
            return self._ask(
                "page_bounded.finished",
                state=wanted.state,
                before_at=last.finished_at or LATEST.finished_at,
                before_shard=last.shard,
                before_id=last.id,
                look_max=look_max,
                **common,
            )
        common["after_id"] = (after or BEGINNING).id
        if is_of_template(wanted):
            return self._ask(
                "page_bounded.of_template",
                after_shard=(after or BEGINNING).shard,
                look_max=look_max,
                **common,
            )
        each = each_of(wanted, shards, limit, look_max)
        return self._ask("page_bounded.by_id", state=wanted.state, each=each, **common)


def _place(row: Row) -> Place:
    return Place(row["shard_id"], row["action_id"], row.get("finished_at"))
