"""Whether starts kept to a rate, judged by when they really happened."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from matrixsched.rules.rates import Rate

LATE_S = 0.05
"""How late a slot may be used, as README promises it; not as the product has it, which is judged by this."""


def per_second(rate: Rate) -> float:
    return rate.requests / rate.per.total_seconds()


def starts_too_many(starts: Iterable[float], rate: Rate, pool: int = 0) -> float:
    """By how many starts the worst stretch of time, of whatever length, is above rate × (time + 50 ms) + pool.

    Up to 0: the promise was kept. A stretch from one start to a later one is judged by how much further the count has
    come than the time between them allows; the worst that ends at a start begins where count - rate × time was least.
    """
    speed = per_second(rate)
    allowed = speed * LATE_S + max(1, pool)
    worst, least = -allowed, float("inf")
    for count, start in enumerate(sorted(starts)):
        ahead = count - speed * start
        least = min(least, ahead)
        worst = max(worst, ahead - least + 1 - allowed)
    return worst


def share_used(starts: Sequence[float], rate: Rate, begins: float, ends: float) -> float:
    """Which part of what a rate allows from one moment to another was used."""
    used = sum(begins <= start < ends for start in starts)
    return used / (per_second(rate) * (ends - begins))
