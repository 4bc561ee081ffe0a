"""Looking for actions among millions, on SQLite; the text is in sql/sqlite/."""

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
from matrixsched.store.sqlite.asking import SqliteAsking
from matrixsched.store.sqlite.rows import action_of, as_json, in_microseconds, in_microseconds_or_none, moment_of
from matrixsched.store.transition import Conversation, Row, transition
from matrixsched.store.values import ActionFilter


class SqliteLooking(SqliteAsking):
    @transition
    def page_bounded(
        self, wanted: ActionFilter, *, after: Place | None, limit: int, look_max: int
    ) -> Conversation[Found]:
        if is_by_end(wanted):
            keys = yield from self._finished(wanted, after or LATEST, limit, look_max)
        elif is_of_template(wanted):
            keys = yield from self._of_template(wanted, after, limit, look_max)
        else:
            keys = yield from self._by_id(wanted, after, limit, look_max)
        wanted_keys = [(row["shard_id"], row["action_id"]) for row in keys if not row["is_last"]]
        rows = yield self._ask("find", keys=as_json(wanted_keys), now=self._now())
        return Found(in_order(keys, [action_of(row) for row in rows]), goes_on(keys, limit, _place))

    def _by_id(self, wanted: ActionFilter, after: Place | None, limit: int, look_max: int) -> Conversation[list[Row]]:
        """Each shard is read up to a number; what all of them were read up to is complete."""
        (installation,) = yield self._ask("installation", now=self._now())
        lowest, highest = bounds_of(wanted.id_prefix)
        each = each_of(wanted, installation["shard_count"], limit, look_max)
        found: list[Row] = []
        for shard in range(installation["shard_count"]):
            found += yield self._ask(
                "page_bounded.by_id",
                shard_id=shard,
                after_id=(after or BEGINNING).id,
                lowest=lowest,
                highest=highest,
                state=None if wanted.state is None else wanted.state.value,
                handler=wanted.handler,
                template=wanted.template,
                due_before=in_microseconds_or_none(wanted.due_before),
                limit=limit,
                each=each,
            )
        edge = min((row for row in found if row["is_last"]), key=_id, default=None)
        fitting = [
            row for row in found if not row["is_last"] and (edge is None or row["action_id"] <= edge["action_id"])
        ]
        return sorted(fitting, key=_id)[:limit] + ([] if edge is None else [edge])

    def _of_template(
        self, wanted: ActionFilter, after: Place | None, limit: int, look_max: int
    ) -> Conversation[list[Row]]:
        lowest, highest = bounds_of(wanted.id_prefix)
        rows = yield self._ask(
            "page_bounded.of_template",
            template=wanted.template,
            handler=wanted.handler,
            due_before=in_microseconds_or_none(wanted.due_before),
            lowest=lowest,
            highest=highest,
            after_shard=(after or BEGINNING).shard,
            after_id=(after or BEGINNING).id,
            limit=limit,
            look_max=look_max,
        )
        return list(rows)

    def _finished(self, wanted: ActionFilter, before: Place, limit: int, look_max: int) -> Conversation[list[Row]]:
        assert wanted.state is not None
        assert LATEST.finished_at is not None
        lowest, highest = bounds_of(wanted.id_prefix)
        rows = yield self._ask(
            "page_bounded.finished",
            state=wanted.state.value,
            handler=wanted.handler,
            template=wanted.template,
            due_before=in_microseconds_or_none(wanted.due_before),
            lowest=lowest,
            highest=highest,
            before_at=in_microseconds(before.finished_at or LATEST.finished_at),
            before_shard=before.shard,
            before_id=before.id,
            limit=limit,
            look_max=look_max,
        )
        return list(rows)


def _place(row: Row) -> Place:
    ended = row["finished_at"] if "finished_at" in row.keys() else None  # noqa: SIM118  (a row of sqlite3)
    return Place(row["shard_id"], row["action_id"], None if ended is None else moment_of(ended))


def _id(row: Row) -> str:
    """Texts have the same order here as in the database, by bytes."""
    return str(row["action_id"])
