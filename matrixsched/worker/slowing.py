"""A handler was told to slow down: the whole fleet hears of it before the attempt is recorded."""

from __future__ import annotations

from datetime import datetime

import anyio

from matrixsched.events import Events, SlowDownTold, StepFailed
from matrixsched.rules.action import Attempt
from matrixsched.rules.outcome import SlowDown
from matrixsched.rules.rates import check_rate
from matrixsched.rules.texts import storable
from matrixsched.store.store import Store
from matrixsched.worker.pace import described


async def tell_fleet(
    store: Store, attempt: Attempt, told: SlowDown, events: Events, *, now: datetime, patience_s: float
) -> None:
    """Close the limit, or slow it down. If that fails the outcome still counts: the next attempt will be told again."""
    limit = told.limit_of(attempt)
    if limit is None:
        return
    change = store.transitions.slow_down(
        limit,
        told.lasting(now),
        rate=None if told.rate is None else check_rate(told.rate),
        reason=storable(told.reason) or None,
    )
    try:
        with anyio.fail_after(patience_s, shield=True):
            slowed = await store.run(change)
    except Exception as error:
        events.emit(StepFailed("slow_down", described(error), 1, 0.0))
        return
    if slowed is not None and slowed.slow_until is not None:  # else it was over before it could be written
        events.emit(SlowDownTold(slowed.name, slowed.slow_until, slowed.slow_rate))
