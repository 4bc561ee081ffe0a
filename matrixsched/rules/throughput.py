"""The arithmetic of evenly spaced turns: every turn has a slot in time, and the slots are one period apart.

All times are integers of one unit, nanoseconds or finer: nothing is rounded, so nothing drifts.
"""

from __future__ import annotations

LATE_NS = 50_000_000
"""How late a slot may be used by somebody who waited for it. No process wakes up at the very nanosecond; if each turn
began a new period, a little of the rate would be lost with every one. After a longer stall slots are void."""


def first_slot(next_slot_ns: int, now_ns: int, period_ns: int, pool: int, late_ns: int = 0) -> int:
    """The first slot that can still be used; it is at hand if it is not after `now_ns`, and then takes one turn.

    `next_slot_ns` follows the last one used by a period. After idling the last max(1, pool) slots up to now are at
    hand, older ones are void. `late_ns` is for turns that were waited for: their slots are kept that long at least.
    So no stretch of time t ever sees more than (t + late) / period + max(1, pool) turns.
    """
    kept_ns = max((max(1, pool) - 1) * period_ns, late_ns)
    return max(next_slot_ns, now_ns - kept_ns)


def slots_at_hand(next_slot_ns: int, now_ns: int, period_ns: int, pool: int, late_ns: int = 0) -> int:
    """How many turns could be taken at once, now."""
    first_ns = first_slot(next_slot_ns, now_ns, period_ns, pool, late_ns)
    return max(0, (now_ns - first_ns) // period_ns + 1)
