"""The arithmetic of evenly spaced turns: every turn has a slot in time, and the slots are one period apart.

All times are integers of one unit, nanoseconds or finer: nothing is rounded, so nothing drifts.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from matrixsched.rules.rates import Rate

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


class Bucket:
    """The slots of one rate, a period apart from each other and the first from `last_ns`."""

    def __init__(self, rate: Rate, pool: int, last_ns: int) -> None:
        self.rate = rate
        self._pool = pool
        # A third of a second is no whole number of nanoseconds. It is one of thirds of them: so finely slots are kept.
        self._parts = rate.requests
        self._period = rate.per_us * 1000
        self._next = last_ns * self._parts + self._period
        self._returned: list[int] = []
        """Slots before the next one that were taken and not used, in order."""

    @property
    def next_ns(self) -> int:
        """When the next slot is at hand, once those that are at hand now are taken."""
        return -(-self._next // self._parts)

    def take(self, now_ns: int, late_ns: int = 0) -> int | None:
        """A slot for one turn, if one is at hand."""
        self._forget_void(now_ns, late_ns)
        if self._returned:
            return self._returned.pop(0)
        slot = first_slot(self._next, *self._spacing(now_ns), late_ns * self._parts)
        if slot > now_ns * self._parts:
            return None
        self._next = slot + self._period
        return slot

    def give_back(self, slot: int) -> None:
        """Take back the slot of a turn that was not used: another may use it while it would have been kept."""
        insort(self._returned, slot)
        while self._returned and self._returned[-1] + self._period == self._next:
            self._next = self._returned.pop()

    def at_hand(self, now_ns: int) -> int:
        """How many turns could be taken at once."""
        self._forget_void(now_ns, 0)
        return len(self._returned) + slots_at_hand(self._next, *self._spacing(now_ns))

    def at_rate(self, rate: Rate) -> Bucket:
        """The slots as if that had been the rate since the last one was taken; what was given back is lost."""
        last = self._next - self._period
        return Bucket(rate, self._pool, -(-last // self._parts))

    def _forget_void(self, now_ns: int, late_ns: int) -> None:
        if not self._returned:
            return
        oldest = first_slot(0, *self._spacing(now_ns), late_ns * self._parts)
        del self._returned[: bisect_left(self._returned, oldest)]

    def _spacing(self, now_ns: int) -> tuple[int, int, int]:
        return now_ns * self._parts, self._period, self._pool
