"""Templates on SQLite: what a row says is read, the rule is applied and what follows is written, in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from matrixsched.errors import TemplateInUse
from matrixsched.rules.lanes import template_limit
from matrixsched.rules.quota import QuotaSettings
from matrixsched.rules.templates import Distribution, Template, TemplateChange
from matrixsched.store.limits import rate_of
from matrixsched.store.quota_codec import decode_settings, decode_windows, encode_settings, encode_windows, the_row
from matrixsched.store.sqlite.limits import SqliteLimits
from matrixsched.store.sqlite.rows import KEY, as_json, in_microseconds, moment_or_none, span
from matrixsched.store.transition import Conversation, Row, transition
from matrixsched.store.values import Stopped


class SqliteTemplates(SqliteLimits):
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

    @transition
    def put_template(self, name: str, change: TemplateChange) -> Conversation[Template]:
        now = self._now()
        yield self._ask("put_template.create", template=name, now=now)
        (row,) = yield self._ask("templates", template=name)
        template = change.apply(_template(row))
        yield self._ask(
            "put_template.write",
            template=name,
            distribution=template.distribution.value,
            windows=encode_windows(template.windows),
            zone=template.zone,
            weight=template.weight,
            now=now,
        )
        yield from self._change_speed(name, change, now)
        yield from self._open_gates(now)
        (row,) = yield self._ask("templates", template=name)
        return _template(row)

    def _change_speed(self, name: str, change: TemplateChange, now: int) -> Conversation[None]:
        limit, speed = template_limit(name), change.max_speed
        if speed is not None:
            yield from self._change(limit, lambda there, at: there.set_to(speed, there.pool, at), now)
        elif change.lifts_max_speed:
            yield self._ask("remove_limit", limit_name=limit)

    @transition
    def pause_template(self, name: str, until: datetime | timedelta | None) -> Conversation[bool]:
        now = self._now()
        end = in_microseconds(until) if isinstance(until, datetime) else None if until is None else now + span(until)
        rows = yield self._ask("pause_template", template=name, until=end, now=now)
        if rows:
            yield from self._open_gates(now)  # it may end earlier than the pause that lanes were put off for
        return bool(rows)

    @transition
    def resume_template(self, name: str) -> Conversation[bool]:
        now = self._now()
        rows = yield self._ask("resume_template", template=name, now=now)
        if rows:
            yield from self._open_gates(now)
        return bool(rows)

    @transition
    def remove_template(self, name: str) -> Conversation[bool]:
        if not (yield self._ask("remove_template.delete", template=name)):
            return False
        if (yield self._ask("count_template", template=name, count_max=1))[0]["live"]:
            raise TemplateInUse(name)
        yield self._ask("remove_limit", limit_name=template_limit(name))
        return True

    @transition
    def count_template(self, name: str, *, count_max: int) -> Conversation[int]:
        (row,) = yield self._ask("count_template", template=name, count_max=count_max)
        return int(row["live"])

    @transition
    def cancel_template_batch(
        self, name: str, *, guids: Sequence[UUID], after: tuple[int, str]
    ) -> Conversation[Stopped]:
        now = self._now()
        after_shard, after_id = after
        rows = yield self._ask(
            "cancel_template.choose",
            template=name,
            after_shard=after_shard,
            after_id=after_id,
            limit=len(guids),
            now=now,
        )
        if not rows:
            return Stopped(0, None)
        keys = [(row["shard_id"], row["action_id"], row["action_guid"]) for row in rows]
        new = [(*key, str(guid), now) for key, guid in zip(keys, guids, strict=False)]
        yield self._each("cancel_template.write", (*KEY, "new_guid", "now"), new)
        yield self._each("cancel_template.drop", KEY, keys)
        return Stopped(len(rows), None if len(rows) < len(guids) else keys[-1][:2])

    @transition
    def quota_settings(self) -> Conversation[QuotaSettings]:
        row = the_row((yield self._ask("quota_settings.read")))
        return decode_settings(row["settings"])

    @transition
    def set_quota_settings(self, change: Callable[[QuotaSettings], QuotaSettings]) -> Conversation[QuotaSettings]:
        row = the_row((yield self._ask("quota_settings.read")))
        settings = change(decode_settings(row["settings"]))
        yield self._ask("quota_settings.write", settings=encode_settings(settings), now=self._now())
        return settings


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
