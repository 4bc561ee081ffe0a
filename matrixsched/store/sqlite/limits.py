"""Limits on SQLite: what a row says is read, the rule is applied and what follows is written, in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from difflib import get_close_matches

from matrixsched.errors import UnknownTemplate
from matrixsched.rules.lanes import ANY_KEY
from matrixsched.rules.limits import Limit, in_nanoseconds, template_of
from matrixsched.rules.rates import Rate
from matrixsched.store.limits import columns_of_rates, rate_of
from matrixsched.store.sqlite.asking import SqliteAsking
from matrixsched.store.sqlite.rows import as_json, in_microseconds_or_none, moment_of, moment_or_none
from matrixsched.store.transition import Ask, Conversation, Row, transition


class SqliteLimits(SqliteAsking):
    @transition
    def set_limit(self, name: str, rate: Rate | None, *, pool: int) -> Conversation[Limit]:
        now = self._now()
        yield from self._check_template(name)
        limit = yield from self._change(name, lambda limit, at: limit.set_to(rate, pool, at), now)
        if name == ANY_KEY and rate is not None:
            first_slot_ns = in_nanoseconds(moment_of(now)) + rate.period_ns
            yield self._ask("write_limit.keys", first_slot_ns=first_slot_ns, now=now)
        yield from self._open_gates(now)
        return limit

    @transition
    def remove_limit(self, name: str) -> Conversation[bool]:
        rows = yield self._ask("remove_limit", limit_name=name)
        if rows:
            yield from self._open_gates(self._now())
        return bool(rows)

    @transition
    def slow_down(
        self, name: str, until: datetime | timedelta, *, rate: Rate | None, reason: str | None
    ) -> Conversation[Limit | None]:
        now = self._now()
        end = until if isinstance(until, datetime) else moment_of(now) + until
        if end <= moment_of(now):
            return None

        def slowed(limit: Limit, at: datetime) -> Limit:
            return limit.slowed(end, rate, reason, at)

        yield from self._check_template(name)
        # A whole fleet may be told at once: nobody waits to write who has nothing to add.
        for row in (yield self._ask("find_limits", names=as_json([name]))):
            limit = limit_of(row)
            if slowed(limit, moment_of(now)) is limit:
                return limit
        limit = yield from self._change(name, slowed, now)
        yield self._ask("open_gates.libraries")
        return limit

    @transition
    def resume_limit(self, name: str) -> Conversation[bool]:
        now = self._now()
        rows = yield self._ask("write_limit.lock", limit_name=name)
        if not rows or not limit_of(rows[0]).is_slowed(moment_of(now)):
            return False
        yield self._write(limit_of(rows[0]).resumed(moment_of(now)), now)
        yield from self._open_gates(now)
        return True

    @transition
    def find_limits(self, names: Sequence[str]) -> Conversation[list[Limit]]:
        rows = yield self._ask("find_limits", names=as_json(names))
        return [limit_of(row) for row in rows]

    @transition
    def limits(self, *, after: str, limit: int, include_keys: bool) -> Conversation[list[Limit]]:
        rows = yield self._ask("limits", after=after, limit=limit, include_keys=include_keys, now=self._now())
        return [limit_of(row) for row in rows]

    @transition
    def count_keys(self, *, count_max: int) -> Conversation[int]:
        (row,) = yield self._ask("count_keys", count_max=count_max, now=self._now())
        return int(row["keys"])

    def _check_template(self, name: str) -> Conversation[None]:
        template = template_of(name)
        if template is not None and not (yield self._ask("template_exists", template=template)):
            known = [row["name"] for row in (yield self._ask("templates", template=None))]
            raise UnknownTemplate(template, get_close_matches(template, known))

    def _change(self, name: str, rule: Callable[[Limit, datetime], Limit], now: int) -> Conversation[Limit]:
        (row,) = yield self._ask("write_limit.hold", limit_name=name, now=now)
        limit = rule(limit_of(row), moment_of(now))
        yield self._write(limit, now)
        return limit

    def _write(self, limit: Limit, now: int) -> Ask:
        return self._ask(
            "write_limit.write",
            limit_name=limit.name,
            pool=limit.pool,
            next_slot_ns=limit.next_slot_ns,
            slow_until=in_microseconds_or_none(limit.slow_until),
            slow_reason=limit.slow_reason,
            now=now,
            **columns_of_rates(limit),
        )

    def _open_gates(self, now: int) -> Conversation[None]:
        yield self._ask("open_gates.libraries")
        yield self._ask("open_gates.lanes", now=now)


def limit_of(row: Row) -> Limit:
    return Limit(
        name=row["name"],
        rate=rate_of(row["requests"], row["per_us"]),
        pool=row["pool"],
        next_slot_ns=row["next_slot_ns"],
        slow_until=moment_or_none(row["slow_until"]),
        slow_rate=rate_of(row["slow_requests"], row["slow_per_us"]),
        slow_reason=row["slow_reason"],
        updated_at=moment_of(row["updated_at"]),
    )
