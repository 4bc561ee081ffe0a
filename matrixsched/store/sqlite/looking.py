"""Looking for actions among millions, on SQLite; the text is in sql/sqlite/."""

from __future__ import annotations

from matrixsched.rules.action import State
from matrixsched.store.looking import BEGINNING, LATEST, Found, Place, bounds_of, goes_on, in_order, is_by_end
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
        elif wanted.template is not None and wanted.state is State.LIVE:
            keys = yield from self._of_template(wanted, after, limit, look_max)
        else:
            keys = yield from self._by_key(wanted, after, limit, look_max)
        wanted_keys = [(row["shard_id"], row["action_id"]) for row in keys if not row["is_last"]]
        rows = yield self._ask("find", keys=as_json(wanted_keys), now=self._now())
        return Found(in_order(keys, [action_of(row) for row in rows]), goes_on(keys, limit, _place))

    def _by_key(self, wanted: ActionFilter, after: Place | None, limit: int, look_max: int) -> Conversation[list[Row]]:
        (installation,) = yield self._ask("installation", now=self._now())
        lowest, highest = bounds_of(wanted.id_prefix)
        found: list[Row] = []
        begins = max(0, after.shard) if after else 0
        for shard in range(begins, installation["shard_count"]):
            rows = yield self._ask(
                "page_bounded.by_key",
                shard_id=shard,
                after_id=after.id if after and after.shard == shard else BEGINNING[1],
                lowest=lowest,
                highest=highest,
                state=None if wanted.state is None else wanted.state.value,
                handler=wanted.handler,
                template=wanted.template,
                due_before=in_microseconds_or_none(wanted.due_before),
                limit=limit - len(found),
                look_max=look_max,
            )
            look_max -= next(int(row["shard_id"]) for row in rows if row["is_last"] == 2)
            found += [row for row in rows if row["is_last"] != 2]
            if look_max <= 0 or len(found) >= limit:
                break
        return found

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
            after_shard=after.shard if after else BEGINNING[0],
            after_id=after.id if after else BEGINNING[1],
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
