"""Templates on PostgreSQL: what a row says is read under its lock, the rule is applied, what follows is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from matrixsched.errors import TemplateInUse
from matrixsched.rules.lanes import template_limit
from matrixsched.rules.quota import QuotaSettings
from matrixsched.rules.templates import Distribution, Template, TemplateChange
from matrixsched.store.limits import rate_of
from matrixsched.store.postgresql.limits import PostgresLimits
from matrixsched.store.quota_codec import decode_settings, decode_windows, encode_settings, encode_windows, the_row
from matrixsched.store.transition import Conversation, Row, transaction, transition
from matrixsched.store.values import Stopped


class PostgresTemplates(PostgresLimits):
    @transition
    def existing_templates(self, names: Sequence[str]) -> Conversation[set[str]]:
        rows = yield self._ask("existing_templates", names=names)
        return {row["name"] for row in rows}

    @transition
    def templates(self) -> Conversation[list[Template]]:
        rows = yield self._ask("templates", template=None)
        return [_template(row) for row in rows]

    @transition
    def find_template(self, name: str) -> Conversation[Template | None]:
        rows = yield self._ask("templates", template=name)
        return _template(rows[0]) if rows else None

    @transaction
    def put_template(self, name: str, change: TemplateChange) -> Conversation[Template]:
        yield self._ask("put_template.create", template=name)
        (row,) = yield self._ask("templates", template=name)
        template = change.apply(_template(row))
        yield self._ask(
            "put_template.write",
            template=name,
            distribution=template.distribution,
            windows=encode_windows(template.windows),
            zone=template.zone,
            weight=template.weight,
        )
        yield from self._change_speed(name, change)
        yield from self._open_gates()
        (row,) = yield self._ask("templates", template=name)
        return _template(row)

    def _change_speed(self, name: str, change: TemplateChange) -> Conversation[None]:
        limit, speed = template_limit(name), change.max_speed
        if speed is not None:
            yield from self._change(limit, lambda there, now: there.set_to(speed, there.pool, now))
        elif change.lifts_max_speed:
            yield self._ask("remove_limit", limit_name=limit)

    @transaction
    def pause_template(self, name: str, until: datetime | timedelta | None) -> Conversation[bool]:
        at, delay = (until, None) if isinstance(until, datetime) else (None, until)
        rows = yield self._ask("pause_template", template=name, until=at, delay=delay)
        if rows:
            yield from self._open_gates()  # it may end earlier than the pause that lanes were put off for
        return bool(rows)

    @transaction
    def resume_template(self, name: str) -> Conversation[bool]:
        rows = yield self._ask("resume_template", template=name)
        if rows:
            yield from self._open_gates()
        return bool(rows)

    @transaction
    def remove_template(self, name: str) -> Conversation[bool]:
        if not (yield self._ask("remove_template.lock", template=name)):
            return False
        if (yield self._ask("count_template", template=name, count_max=1))[0]["live"]:
            raise TemplateInUse(name)
        yield self._ask("remove_template.delete", template=name)
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
        after_shard, after_id = after
        (row,) = yield self._ask(
            "cancel_template", template=name, guids=guids, after_shard=after_shard, after_id=after_id
        )
        is_last = row["looked"] < len(guids)
        return Stopped(row["cancelled"], None if is_last else (row["shard_id"], row["action_id"]))

    @transition
    def quota_settings(self) -> Conversation[QuotaSettings]:
        row = the_row((yield self._ask("quota_settings.read")))
        return decode_settings(row["settings"])

    @transaction
    def set_quota_settings(self, change: Callable[[QuotaSettings], QuotaSettings]) -> Conversation[QuotaSettings]:
        row = the_row((yield self._ask("quota_settings.lock")))
        settings = change(decode_settings(row["settings"]))
        yield self._ask("quota_settings.write", settings=encode_settings(settings))
        return settings


def _template(row: Row) -> Template:
    return Template(
        name=row["name"],
        distribution=Distribution(row["distribution"]),
        windows=decode_windows(row["windows"]),
        zone=row["zone"],
        max_speed=rate_of(row["requests"], row["per_us"]),
        weight=row["weight"],
        paused_at=row["paused_at"],
        paused_until=row["paused_until"],
        last_served_at=row["last_served_at"],
    )
