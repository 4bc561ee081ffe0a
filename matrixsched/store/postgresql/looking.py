"""Looking for actions among millions, on PostgreSQL; the text is in sql/postgresql/."""

from __future__ import annotations

from matrixsched.rules.action import State
from matrixsched.store.looking import LATEST, Found, Place, bounds_of, goes_on, in_order, is_by_end
from matrixsched.store.postgresql.asking import PostgresAsking
from matrixsched.store.postgresql.rows import action_of
from matrixsched.store.transition import Ask, Conversation, Row, transition
from matrixsched.store.values import ActionFilter


class PostgresLooking(PostgresAsking):
    @transition
    def page_bounded(
        self, wanted: ActionFilter, *, after: Place | None, limit: int, look_max: int
    ) -> Conversation[Found]:
        keys = yield self._ask_keys(wanted, after, limit, look_max)
        fitting = [row for row in keys if not row["is_last"]]
        rows = yield self._ask(
            "find",
            shard_ids=[row["shard_id"] for row in fitting],
            action_ids=[row["action_id"] for row in fitting],
        )
        return Found(in_order(keys, [action_of(row) for row in rows]), goes_on(keys, limit, _place))

    def _ask_keys(self, wanted: ActionFilter, after: Place | None, limit: int, look_max: int) -> Ask:
        lowest, highest = bounds_of(wanted.id_prefix)
        common: dict[str, object] = {
            "handler": wanted.handler,
            "template": wanted.template,
            "lowest": lowest,
            "highest": highest,
            "limit": limit,
            "look_max": look_max,
        }
        if is_by_end(wanted):
            last = after or LATEST
            return self._ask(
                "page_bounded.finished",
                state=wanted.state,
                before_at=last.finished_at or LATEST.finished_at,
                before_shard=last.shard,
                before_id=last.id,
                **common,
            )
        last = after or Place(-1, "")
        common |= {"after_shard": last.shard, "after_id": last.id, "due_before": wanted.due_before}
        if wanted.template is not None and wanted.state is State.LIVE:
            return self._ask("page_bounded.of_template", **common)
        return self._ask("page_bounded.by_key", state=wanted.state, **common)


def _place(row: Row) -> Place:
    return Place(row["shard_id"], row["action_id"], row.get("finished_at"))
