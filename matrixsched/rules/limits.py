"""Limits: how fast the whole fleet may start actions. Each is a bucket of time slots, from which claims take the next.

A limit is unlimited, at a rate, or closed until an instant: `effective` says which. Slots are instants in nanoseconds,
one period apart, and `next_slot_ns` is the first that nobody has taken. A slot in the past can still be taken, as far
back as the pool reaches; so the starts in any time are at most its rate times that time, and the pool.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from matrixsched.errors import BadInput, InvalidId, InvalidLimit
from matrixsched.rules.lanes import ANY_KEY, GLOBAL, handler_limit, key_limit, template_limit
from matrixsched.rules.names import check_name
from matrixsched.rules.rates import Rate
from matrixsched.rules.semaphore import semaphore_of
from matrixsched.rules.throughput import slots_at_hand
from matrixsched.rules.times import check_duration, check_integer, check_time

POOL_MAX = 1_000_000_000
_KINDS = {"handler": handler_limit, "template": template_limit, "key": key_limit}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Closed:
    """Nothing may start before that instant."""

    until: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    name: str
    rate: Rate | None = None
    """None: no rate of its own. A key then goes at the rate of key:*, anything else as fast as it likes."""
    pool: int = 0
    """How many slots are kept while nobody wants them; at least the one that is next."""
    next_slot_ns: int = 0
    slow_until: datetime | None = None
    """Told to slow down until then, …"""
    slow_rate: Rate | None = None
    """… to this rate; None: to nothing at all."""
    slow_reason: str | None = None
    updated_at: datetime

    def is_slowed(self, now: datetime) -> bool:
        return self.slow_until is not None and now < self.slow_until

    def effective(self, now: datetime) -> Rate | Closed | None:
        """What holds now; None: no limit."""
        if self.slow_until is None or now >= self.slow_until:
            return self.rate
        return Closed(self.slow_until) if self.slow_rate is None else slower(self.rate, self.slow_rate)

    def under(self, default: Limit | None) -> Limit:
        """A key as it is with key:* for those that have no rate of their own."""
        if self.rate is not None or default is None:
            return self
        return replace(self, rate=default.rate, pool=default.pool)

    # Slots.

    def left(self, now: datetime) -> int | None:
        """How many slots can be taken now; None: any number."""
        match self.effective(now):
            case None:
                return None
            case Closed():
                return 0
            case rate:
                return slots_at_hand(self.next_slot_ns, in_nanoseconds(now), rate.period_ns, self.pool_at(now))

    def pool_at(self, now: datetime) -> int:
        """What is slowed down keeps no slots: they would go at once, which is the opposite."""
        return 0 if self.is_slowed(now) else self.pool

    def following(self, slot_ns: int, now: datetime) -> int:
        """The slot that follows one that is taken now; past the end of a slow-down it is by the limit's own rate."""
        rate = self.effective(now)
        if not isinstance(rate, Rate):
            return slot_ns
        next_ns = slot_ns + rate.period_ns
        if self.slow_until is None or now >= self.slow_until:
            return next_ns
        return min(next_ns, max(slot_ns, in_nanoseconds(self.slow_until)) + period_ns_of(self.rate))

    # Changes. Whoever makes them holds the row.

    def set_to(self, rate: Rate | None, pool: int, now: datetime) -> Limit:
        """At another rate; a slow-down stays in force."""
        changed = replace(self, rate=rate, pool=pool, updated_at=now)
        before, after = self.effective(now), changed.effective(now)
        if not isinstance(after, Rate):
            return changed
        return replace(changed, next_slot_ns=self._rescaled(before if isinstance(before, Rate) else None, after, now))

    def _rescaled(self, before: Rate | None, after: Rate, now: datetime) -> int:
        """The next slot at another rate: as many slots away as before, so that none is given out twice and a limit
        that was very slow opens at once. Where it is lowered, slots that were taken ahead are used as they are and the
        next one follows them. Without a rate before, the first slot comes after one period."""
        now_ns = in_nanoseconds(now)
        if before is None:
            return now_ns + after.period_ns
        ahead_ns = self.next_slot_ns - now_ns
        as_many_ns = -(-ahead_ns * after.period_ns // before.period_ns)
        return max(0, min(now_ns + as_many_ns, max(now_ns, self.next_slot_ns) + after.period_ns))

    def slowed(self, until: datetime, rate: Rate | None, reason: str | None, now: datetime) -> Limit:
        """Told to slow down: never shorter and never faster than was told before; itself if that says as much."""
        if until <= now:
            return self
        if self.slow_until is None or now >= self.slow_until:
            return self._slow(until, rate, reason, now)
        stronger = None if self.slow_rate is None or rate is None else slower(self.slow_rate, rate)
        if until <= self.slow_until and stronger == self.slow_rate:
            return self
        why = reason if until > self.slow_until else self.slow_reason
        return self._slow(max(until, self.slow_until), stronger, why, now)

    def _slow(self, until: datetime, rate: Rate | None, reason: str | None, now: datetime) -> Limit:
        until_ns = in_nanoseconds(until)
        first_ns = until_ns if rate is None else min(until_ns, in_nanoseconds(now) + rate.period_ns)
        return replace(
            self,
            next_slot_ns=max(self.next_slot_ns, first_ns),
            slow_until=until,
            slow_rate=rate,
            slow_reason=reason,
            updated_at=now,
        )

    def resumed(self, now: datetime) -> Limit:
        """As if it had never been told to slow down; the next slot comes within a period."""
        return replace(
            self,
            next_slot_ns=min(self.next_slot_ns, in_nanoseconds(now) + period_ns_of(self.rate)),
            slow_until=None,
            slow_rate=None,
            slow_reason=None,
            updated_at=now,
        )


def slower(one: Rate | None, other: Rate) -> Rate:
    """The slower of two rates; None is no rate at all."""
    if one is None or other.requests * one.per_us < one.requests * other.per_us:
        return other
    return one


def in_nanoseconds(moment: datetime) -> int:
    """Since 1970 in UTC, exactly."""
    return (moment - _EPOCH) // _MICROSECOND * 1000


def period_ns_of(rate: Rate | None) -> int:
    """How far apart slots are; without a rate not at all."""
    return 0 if rate is None else rate.period_ns


# What users write.


def check_limit_name(name: object) -> str:
    """The name itself if it is that of a limit."""
    if not isinstance(name, str):
        raise InvalidLimit(name, f"it must be text, not {type(name).__name__}")
    if not name:
        raise InvalidLimit(name, "it is empty")
    if name == GLOBAL:
        return name
    kind, colon, of = name.partition(":")
    if not colon or kind not in _KINDS:
        raise InvalidLimit(name, _guess(kind, of))
    try:
        check_name(f"the name after {kind}:", of)
    except InvalidId as error:
        raise InvalidLimit(name, f"{error.what} {error.why}") from None
    return name


def check_settable(name: object) -> str:
    """The name itself if it is that of a limit that anything can be under."""
    kind, _, of = check_limit_name(name).partition(":")
    if kind == "handler" and semaphore_of(of) is not None:
        raise InvalidLimit(
            name,
            "events of semaphores pass no gate, so it would hold up nothing: "
            "to have fewer tasks active, give the semaphore fewer places",
        )
    return str(name)


def _guess(kind: str, of: str) -> str:
    if kind.lower() in (GLOBAL, *_KINDS):
        return f"did you mean {kind.lower()}{':' if of else ''}{of}?" if kind.lower() != kind else f"{kind}: of what?"
    meant = [make(of or kind) for make in _KINDS.values()]
    return f"did you mean {', '.join(meant[:-1])} or {meant[-1]}?"


def check_key(key: object) -> str:
    """The key itself if an action can be put under it."""
    if check_name("limit", key) == "*":
        raise BadInput(f"limit is *, but {ANY_KEY} stands for every key that has no limit of its own: choose another")
    return str(key)


def check_pool(pool: object) -> int:
    return check_integer("pool", pool, least=0, most=POOL_MAX)


def template_of(name: str) -> str | None:
    """The template that a limit is of; None if it is another kind."""
    kind, _, of = name.partition(":")
    return of if kind == "template" else None


def check_slowable(name: object) -> str:
    """The name itself if it is that of a limit that can be told to slow down."""
    if check_settable(name) == ANY_KEY:
        raise InvalidLimit(name, "it is the rate of every key that has none of its own: slow one of them down")
    return str(name)


def check_until(argument: str, until: object) -> datetime | timedelta:
    """How long to slow down: until an instant, or for a time from now."""
    if isinstance(until, timedelta):
        return check_duration(argument, until, zero=False)
    return check_time(argument, until)
