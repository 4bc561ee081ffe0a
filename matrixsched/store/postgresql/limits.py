"""Limits on PostgreSQL: what a row says is read under its lock, the rule is applied, what follows is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from difflib import get_close_matches

from matrixsched.errors import UnknownTemplate
from matrixsched.rules.lanes import ANY_KEY
from matrixsched.rules.limits import Limit, in_nanoseconds, template_of
from matrixsched.rules.rates import Rate
from matrixsched.store.limits import columns_of_rates, rate_of
from matrixsched.store.postgresql.asking import PostgresAsking
from matrixsched.store.transition import Ask, Conversation, Row, transaction, transition


class PostgresLimits(PostgresAsking):
    _channel: str

    @transaction
    def set_limit(self, name: str, rate: Rate | None, *, pool: int) -> Conversation[Limit]:
        yield from self._check_template(name)
        limit, now = yield from self._change(name, lambda limit, now: limit.set_to(rate, pool, now))
        if name == ANY_KEY and rate is not None:
            yield self._ask("write_limit.keys", first_slot_ns=in_nanoseconds(now) + rate.period_ns)
        yield from self._open_gates()
        return limit

    @transaction
    def remove_limit(self, name: str) -> Conversation[bool]:
        rows = yield self._ask("remove_limit", limit_name=name)
        if rows:
            yield from self._open_gates()
        return bool(rows)

    @transaction
    def slow_down(
        self, name: str, until: datetime | timedelta, *, rate: Rate | None, reason: str | None
    ) -> Conversation[Limit | None]:
        (clock,) = yield self._ask("now")
        end = until if isinstance(until, datetime) else clock["now"] + until
        if end <= clock["now"]:
            return None

        def slowed(limit: Limit, now: datetime) -> Limit:
            return limit.slowed(end, rate, reason, now)

        yield from self._check_template(name)
        # A whole fleet may be told at once: nobody waits for the lock who has nothing to add.
        for row in (yield self._ask("find_limits", names=[name])):
            limit = limit_of(row)
            if slowed(limit, row["now"]) is limit:
                return limit
        limit, _ = yield from self._change(name, slowed)
        yield self._ask("open_gates.libraries")
        return limit

    @transaction
    def resume_limit(self, name: str) -> Conversation[bool]:
        rows = yield self._ask("write_limit.lock", limit_name=name)
        if not rows or not limit_of(rows[0]).is_slowed(rows[0]["now"]):
            return False
        yield self._write(limit_of(rows[0]).resumed(rows[0]["now"]))
        yield from self._open_gates()
        return True

    @transition
    def find_limits(self, names: Sequence[str]) -> Conversation[list[Limit]]:
        rows = yield self._ask("find_limits", names=names)
        return [limit_of(row) for row in rows]

    @transition
    def limits(self, *, after: str, limit: int, include_keys: bool) -> Conversation[list[Limit]]:
        rows = yield self._ask("limits", after=after, limit=limit, include_keys=include_keys)
        return [limit_of(row) for row in rows]

    @transition
    def count_keys(self, *, count_max: int) -> Conversation[int]:
        (row,) = yield self._ask("count_keys", count_max=count_max)
        return int(row["keys"])

    def _check_template(self, name: str) -> Conversation[None]:
        template = template_of(name)
        if template is not None and not (yield self._ask("template_exists", template=template)):
            known = [row["name"] for row in (yield self._ask("templates", template=None))]
            raise UnknownTemplate(template, get_close_matches(template, known))

    def _change(self, name: str, rule: Callable[[Limit, datetime], Limit]) -> Conversation[tuple[Limit, datetime]]:
        (row,) = yield self._ask("write_limit.hold", limit_name=name)
        limit = rule(limit_of(row), row["now"])
        yield self._write(limit)
        return limit, row["now"]

    def _write(self, limit: Limit) -> Ask:
        return self._ask(
            "write_limit.write",
            limit_name=limit.name,
            pool=limit.pool,
            next_slot_ns=limit.next_slot_ns,
            slow_until=limit.slow_until,
            slow_reason=limit.slow_reason,
            **columns_of_rates(limit),
        )

    def _open_gates(self) -> Conversation[None]:
        yield self._ask("open_gates.libraries")
        yield self._ask("open_gates.lanes")
        yield self._ask("wake", channel=self._channel)


def limit_of(row: Row) -> Limit:
    return Limit(
        name=row["name"],
        rate=rate_of(row["requests"], row["per_us"]),
        pool=row["pool"],
        next_slot_ns=row["next_slot_ns"],
        slow_until=row["slow_until"],
        slow_rate=rate_of(row["slow_requests"], row["slow_per_us"]),
        slow_reason=row["slow_reason"],
        updated_at=row["updated_at"],
    )
