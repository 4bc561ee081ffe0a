"""`app.limits`: how fast the whole fleet may go, set while it runs.

    await app.limits.set("global", "10000/min", pool=100)     # everything but events of semaphores
    await app.limits.set("handler:send_sms", "50/s")          # one handler
    await app.limits.set("key:*", "10/s")                     # each key of its own: schedule(..., limit="customer-7")
    await app.limits.slow_down("handler:send_sms", timedelta(minutes=5), reason="HTTP 429")

A change holds at once, for all workers on all machines; nothing is restarted.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Protocol, TypeVar

from matrixsched.errors import BadInput, InvalidTime, LimitNotFound
from matrixsched.events import Events, SlowDownTold
from matrixsched.rules.arguments import check_flag
from matrixsched.rules.lanes import ANY_KEY
from matrixsched.rules.limits import Limit, check_limit_name, check_pool, check_settable, check_slowable, check_until
from matrixsched.rules.rates import Rate, check_rate
from matrixsched.rules.texts import storable
from matrixsched.rules.times import check_integer
from matrixsched.store.store import Store

T = TypeVar("T")

PAGE_MAX = 10_000
COUNT_MAX = 1_000_000
Page = list[Limit]


class Limits:
    def __init__(self, store: Callable[[], Store], *, wrote: Callable[[], None], events: Callable[[], Events]) -> None:
        """`wrote` is called after a change that may have opened something, so that a worker here looks at once."""
        self._store = store
        self._wrote = wrote
        self._events = events

    async def set(self, name: str, rate: Rate | str, *, pool: int = 0) -> Limit:
        """Set or change a limit: global, handler:<name>, template:<name>, key:<key>, or key:* for every other key.

        `rate` is so many in a time (10000/min, 5/s, 7/100ms), evenly; `pool` is how many may be saved up while nothing
        is due, to go at once. A slow-down that was told stays in force. UnknownTemplate if there is no such template.
        Events of semaphores pass no gate, not even global; so there is no limit of their handlers.
        """
        store = self._store()
        change = store.transitions.set_limit(check_settable(name), check_rate(rate), pool=check_pool(pool))
        limit = await store.run(change)
        self._wrote()
        return limit

    async def remove(self, name: str) -> bool:
        """Take a limit away, with what it was told; False if there was none."""
        store = self._store()
        was_there = await store.run(store.transitions.remove_limit(check_limit_name(name)))
        self._wrote()
        return was_there

    async def get(self, name: str) -> Limit:
        """The limit as it stands; a key without a rate of its own has that of key:*. LimitNotFound if there is none."""
        store = self._store()
        wanted = {check_limit_name(name), *([ANY_KEY] if name.startswith("key:") else [])}
        found = {limit.name: limit for limit in await store.run(store.transitions.find_limits(sorted(wanted)))}
        if name not in found:
            raise LimitNotFound(name)
        return found[name].under(found.get(ANY_KEY))

    async def list(self, *, keys: bool = False, after: str = "", limit: int = 1000) -> Page:
        """A page of the limits that are in force, by name; those of single keys, which may be many, only with `keys`.

        Pass the name of the last one as `after` for the next page.
        """
        check_integer("limit", limit, least=1, most=PAGE_MAX)
        check_flag("keys", keys)
        store = self._store()
        wanted = check_limit_name(after) if after else ""
        return await store.run(store.transitions.limits(after=wanted, limit=limit, include_keys=keys))

    async def count_keys(self, *, count_max: int = 10_000) -> int:
        """How many keys have a limit of their own; counting stops at `count_max`."""
        check_integer("count_max", count_max, least=1, most=COUNT_MAX)
        store = self._store()
        return await store.run(store.transitions.count_keys(count_max=count_max))

    async def slow_down(
        self, name: str, until: datetime | timedelta, *, rate: Rate | str | None = None, reason: str = ""
    ) -> Limit:
        """Close a limit until an instant, or for a time; with `rate` only slow it down.

        What was told before is never shortened or weakened by it, for many may be told at once: `resume` ends it. What
        has no limit yet has one until then.
        """
        if not isinstance(reason, str):
            raise BadInput(f"reason must be a string, not {type(reason).__name__}")
        store = self._store()
        change = store.transitions.slow_down(
            check_slowable(name),
            check_until("until", until),
            rate=None if rate is None else check_rate(rate),
            reason=storable(reason) or None,
        )
        slowed = await store.run(change)
        if slowed is None:
            raise InvalidTime("until", "has passed already")
        if slowed.slow_until is not None:  # else it was over before it could be written
            self._events().emit(SlowDownTold(slowed.name, slowed.slow_until, slowed.slow_rate))
        return slowed

    async def resume(self, name: str) -> bool:
        """End a slow-down early; False if there is none."""
        store = self._store()
        was_slowed = await store.run(store.transitions.resume_limit(check_limit_name(name)))
        self._wrote()
        return was_slowed


class CarryOut(Protocol):
    """Awaits what is done with the limits, elsewhere, and answers with what came of it."""

    def __call__(self, work: Callable[[Limits], Awaitable[T]], /) -> T: ...


class SyncLimits:
    """`app.sync.limits`: the same from synchronous code."""

    def __init__(self, carry_out: CarryOut) -> None:
        self._carry_out = carry_out

    def set(self, name: str, rate: Rate | str, *, pool: int = 0) -> Limit:
        """As Limits.set."""
        return self._carry_out(lambda limits: limits.set(name, rate, pool=pool))

    def remove(self, name: str) -> bool:
        """As Limits.remove."""
        return self._carry_out(lambda limits: limits.remove(name))

    def get(self, name: str) -> Limit:
        """As Limits.get."""
        return self._carry_out(lambda limits: limits.get(name))

    def list(self, *, keys: bool = False, after: str = "", limit: int = 1000) -> Page:
        """As Limits.list."""
        return self._carry_out(lambda limits: limits.list(keys=keys, after=after, limit=limit))

    def count_keys(self, *, count_max: int = 10_000) -> int:
        """As Limits.count_keys."""
        return self._carry_out(lambda limits: limits.count_keys(count_max=count_max))

    def slow_down(
        self, name: str, until: datetime | timedelta, *, rate: Rate | str | None = None, reason: str = ""
    ) -> Limit:
        """As Limits.slow_down."""
        return self._carry_out(lambda limits: limits.slow_down(name, until, rate=rate, reason=reason))

    def resume(self, name: str) -> bool:
        """As Limits.resume."""
        return self._carry_out(lambda limits: limits.resume(name))
