"""The part of the protocol that sets limits for the fleet. One implementation for each database, the same promises.

What a change does is a rule (rules/limits.py); the row is locked while it is applied. Whatever may open a gate lets
workers look again at once at the lanes that wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol

from matrixsched.rules.limits import Limit
from matrixsched.rules.rates import Rate
from matrixsched.store.transition import Transition


class Limiting(Protocol):
    def set_limit(self, name: str, rate: Rate | None, *, pool: int) -> Transition[Limit]:
        """Set a limit, or change it: it holds at once. UnknownTemplate if it is of a template that is not there."""
        ...

    def remove_limit(self, name: str) -> Transition[bool]:
        """Take a limit away, and what it was told; False if there is none."""
        ...

    def slow_down(
        self, name: str, until: datetime | timedelta, *, rate: Rate | None, reason: str | None
    ) -> Transition[Limit | None]:
        """Close a limit, or slow it down to a rate, until then; None if that has passed. What is not limited yet is so
        until then. It lengthens and strengthens what was told before, and never the contrary."""
        ...

    def resume_limit(self, name: str) -> Transition[bool]:
        """End a slow-down early; False if there is none."""
        ...

    def find_limits(self, names: Sequence[str]) -> Transition[list[Limit]]:
        """Those of these limits that there are, by name."""
        ...

    def limits(self, *, after: str, limit: int, include_keys: bool) -> Transition[list[Limit]]:
        """A page of those that limit anything now, by name, after a given one; of the keys without `include_keys` only
        key:*."""
        ...

    def count_keys(self, *, count_max: int) -> Transition[int]:
        """How many keys have a limit of their own; counting stops at `count_max`."""
        ...


def rate_of(requests: int | None, per_us: int | None) -> Rate | None:
    """A rate as it is stored: both columns, or neither."""
    return None if requests is None or per_us is None else Rate(requests, timedelta(microseconds=per_us))


def columns_of_rates(limit: Limit) -> dict[str, int | None]:
    rate, slow = limit.rate, limit.slow_rate
    return {
        "requests": None if rate is None else rate.requests,
        "per_us": None if rate is None else rate.per_us,
        "slow_requests": None if slow is None else slow.requests,
        "slow_per_us": None if slow is None else slow.per_us,
    }
