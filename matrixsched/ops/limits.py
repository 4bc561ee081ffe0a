"""Limits, for operators: how fast everything may go, how much of that is left, and what was told to slow down."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from matrixsched.app import App
from matrixsched.errors import LimitNotFound
from matrixsched.ops.render import Count, Facts
from matrixsched.rules.lanes import ANY_KEY
from matrixsched.rules.limits import Closed, Limit
from matrixsched.rules.rates import Rate

KEYS_COUNT_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Standing:
    """A limit as it stood at a time of the database."""

    limit: Limit
    now: datetime

    @property
    def is_slowed(self) -> bool:
        return self.limit.is_slowed(self.now)

    @property
    def row(self) -> Facts:
        limit, is_slowed = self.limit, self.is_slowed
        return {
            "limit": limit.name,
            "rate": _text(limit.rate),
            "pool": limit.pool,
            "left": None if limit.name == ANY_KEY else limit.left(self.now),  # each key has slots of its own
            "slowed_until": limit.slow_until if is_slowed else None,
            "slowed_to": (_text(limit.slow_rate) or "nothing") if is_slowed else None,
            "reason": limit.slow_reason if is_slowed else None,
        }

    @property
    def facts(self) -> Facts:
        return {**self.row, "updated_at": self.limit.updated_at}

    @property
    def pace(self) -> str:
        """How fast it lets actions start, in words."""
        match self.limit.effective(self.now):
            case None:
                return "as fast as the other limits allow"
            case Closed(until):
                return f"closed until {until.isoformat(sep=' ', timespec='seconds')}"
            case rate:
                return f"at {rate}"


@dataclass(frozen=True, slots=True)
class Listing:
    standings: list[Standing]
    keys: int
    """How many keys have limits of their own, counted up to a bound."""

    @property
    def keys_said(self) -> str:
        if self.keys == 1:
            return "1 key has a limit of its own"
        return f"{Count(self.keys, KEYS_COUNT_MAX)} keys have limits of their own"


async def listed(app: App, *, keys: bool, after: str, limit: int) -> Listing:
    async with app:
        found = await app.limits.list(keys=keys, after=after, limit=limit)
        now = await _now(app)
        return Listing([Standing(one, now) for one in found], await app.limits.count_keys(count_max=KEYS_COUNT_MAX))


async def standing(app: App, name: str) -> Standing:
    async with app:
        return Standing(await app.limits.get(name), await _now(app))


async def standing_or_none(app: App, name: str) -> Standing | None:
    try:
        return await standing(app, name)
    except LimitNotFound:
        return None


async def _now(app: App) -> datetime:
    return await app.store.run(app.store.transitions.now())


def _text(rate: Rate | None) -> str | None:
    return None if rate is None else str(rate)
