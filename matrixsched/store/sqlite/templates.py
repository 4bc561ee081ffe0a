"""Templates on SQLite; the text is in sql/sqlite/."""

from __future__ import annotations

from collections.abc import Sequence

from matrixsched.rules.templates import Distribution, Template
from matrixsched.store.quota_codec import decode_windows, rate_of
from matrixsched.store.sqlite.asking import SqliteAsking
from matrixsched.store.sqlite.rows import as_json, moment_or_none
from matrixsched.store.transition import Conversation, Row, transition


class SqliteTemplates(SqliteAsking):
    @transition
    def existing_templates(self, names: Sequence[str]) -> Conversation[set[str]]:
        rows = yield self._ask("existing_templates", names=as_json(names))
        return {row["name"] for row in rows}

    @transition
    def templates(self) -> Conversation[list[Template]]:
        rows = yield self._ask("templates", template=None)
        return [_template(row) for row in rows]

    @transition
    def find_template(self, name: str) -> Conversation[Template | None]:
        rows = yield self._ask("templates", template=name)
        return _template(rows[0]) if rows else None


def _template(row: Row) -> Template:
    return Template(
        name=row["name"],
        distribution=Distribution(row["distribution"]),
        windows=decode_windows(row["windows"]),
        zone=row["zone"],
        max_speed=rate_of(row["requests"], row["per_us"]),
        weight=row["weight"],
        paused_at=moment_or_none(row["paused_at"]),
        paused_until=moment_or_none(row["paused_until"]),
        last_served_at=moment_or_none(row["last_served_at"]),
    )
