"""A rate for whatever this process does: so many turns in a time, evenly, the most important first.

Everybody who comes by, to ask for a turn or because it is time, serves whoever waits (`_serve`): there is no thread and
no task of our own. In each event loop, and among the threads, the one that waits longest keeps time and sleeps until
the next slot; all others sleep until they are woken. So a blocked event loop holds up nobody but its own tasks.
"""

from __future__ import annotations

import math
import os
import threading
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain
from weakref import WeakSet

from anyio.lowlevel import checkpoint

from matrixsched.clock import Clock, SystemClock
from matrixsched.gates.bells import Bell, TaskBell, ThreadBell
from matrixsched.rules.rates import PER_MAX, PER_MIN, REQUESTS_MAX, Rate
from matrixsched.rules.throughput import LATE_NS, Bucket
from matrixsched.rules.times import check_duration, check_integer, check_number

PRIORITIES_MAX = 100
_SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputStatistics:
    """A throughput at one moment."""

    rate: Rate
    granted: int
    """Turns that were taken."""
    cancelled: int
    """Waits that ended without a turn: cancelled, or out of time."""
    waiting: tuple[int, ...]
    """How many wait, by priority."""
    available: int
    """Turns that could be taken at once; none while somebody waits."""
    longest_wait: timedelta
    """Of all that got their turn."""


@dataclass(slots=True, eq=False)
class _Turn:
    """A turn that somebody asked for."""

    priority: int
    bell: Bell
    asked_ns: int
    granted: tuple[Bucket, int] | None = None
    """The slot, and the bucket it is of."""


_Turns = OrderedDict[_Turn, None]
"""In the order in which they were asked for; unlike a plain dictionary, quick at its beginning after many left it."""


class Throughput:
    """So many `requests` in so many `seconds`, evenly: `await throughput.wait()` returns when it is your turn.

    The first turn comes one period (`seconds / requests`) after the start. While nobody wants them, turns collect in a
    pool: after a rest, max(1, pool) can be taken at once, in the order of arrival. Of those who wait, the oldest of the
    most important priority comes next; 0 is the most important of `priorities`. No stretch of time sees more turns than
    rate × (its length + 50 ms) + max(1, pool): those 50 ms are for a process that wakes up late.

    For tasks of any event loop (asyncio's) and for threads, all together; for this process alone.
    """

    def __init__(
        self,
        requests: int = 5,
        seconds: float = 1,
        priorities: int = 1,
        pool: int = 0,
        *,
        clock: Clock | None = None,
    ) -> None:
        rate = _rate(requests, seconds)
        self._priorities = check_integer("priorities", priorities, least=1, most=PRIORITIES_MAX)
        self._clock = clock or SystemClock()
        self._began_s = self._clock.monotonic()
        self._bucket = Bucket(rate, check_integer("pool", pool, least=0, most=REQUESTS_MAX), last_ns=0)
        self._granted = self._cancelled = self._longest_wait_ns = 0
        self._begin()
        _all.add(self)

    def _begin(self) -> None:
        # Reentrant: a task that is thrown away unfinished withdraws whenever the garbage collector finds it.
        self._lock = threading.RLock()
        self._queues = [_Turns() for _ in range(self._priorities)]
        self._places: dict[Hashable, _Turns] = {}
        """Who waits where. The first of each keeps time."""

    async def wait(self, priority: int = 0) -> None:
        """Wait for your turn. If you are cancelled, the next one has it."""
        self._check(priority)
        bell = TaskBell()
        turn = self._ask(priority, bell)
        try:
            if turn.granted is not None:
                await checkpoint()
                return
            while (rest_s := self._rest_s(turn)) is not None:
                await bell.heard(rest_s, self._clock)
        except BaseException:
            self._withdraw(turn)
            raise

    def wait_sync(self, priority: int = 0, timeout: timedelta | None = None) -> bool:
        """As `wait`, in a thread; False if the time was up before it was your turn."""
        self._check(priority)
        ends_s = math.inf
        if timeout is not None:
            ends_s = self._clock.monotonic() + check_duration("timeout", timeout).total_seconds()
        bell = ThreadBell()
        turn = self._ask(priority, bell)
        try:
            while (rest_s := self._rest_s(turn)) is not None:
                left_s = ends_s - self._clock.monotonic()
                if left_s <= 0:
                    self._withdraw(turn)
                    return False
                bell.heard(min(rest_s, left_s), self._clock)
        except BaseException:
            self._withdraw(turn)
            raise
        return True

    def try_acquire(self, priority: int = 0) -> bool:
        """Take a turn if one is at hand. Never before somebody who waits."""
        self._check(priority)
        with self._lock:
            return self._take_at_once(self._serve()) is not None

    def change(self, requests: int, seconds: float) -> None:
        """Go on at another rate, as if it had been that one since the last turn. Whoever waits keeps their place."""
        rate = _rate(requests, seconds)
        with self._lock:
            self._serve()
            self._bucket = self._bucket.at_rate(rate)
            self._serve()
            for waiting in list(self._places.values()):
                next(iter(waiting)).bell.ring()

    def statistics(self) -> ThroughputStatistics:
        with self._lock:
            now_ns = self._serve()
            return ThroughputStatistics(
                rate=self._bucket.rate,
                granted=self._granted,
                cancelled=self._cancelled,
                waiting=tuple(len(queue) for queue in self._queues),
                available=self._bucket.at_hand(now_ns),
                longest_wait=timedelta(microseconds=self._longest_wait_ns // 1000),
            )

    # One turn, from when it is asked for.

    def _ask(self, priority: int, bell: Bell) -> _Turn:
        with self._lock:
            # Slots up to now are theirs who wait already, however important the newcomer is: whether they woke up yet
            # is a matter of chance.
            now_ns = self._serve()
            turn = _Turn(priority, bell, asked_ns=now_ns, granted=self._take_at_once(now_ns))
            if turn.granted is None:
                self._queues[priority][turn] = None
                self._places.setdefault(bell.place, _Turns())[turn] = None
            return turn

    def _rest_s(self, turn: _Turn) -> float | None:
        """How long to sleep unless woken; None: it is your turn."""
        with self._lock:
            self._serve()
            if turn.granted is not None:
                return None
            turn.bell.hush()
            if next(iter(self._places[turn.bell.place])) is not turn:
                return math.inf
            # From the beginning, not from the last time anybody looked: small errors would add up.
            return self._began_s + self._bucket.next_ns / _SECOND_NS - self._clock.monotonic()

    def _withdraw(self, turn: _Turn) -> None:
        """Leave without a turn. If it was granted already, the next one has it."""
        with self._lock:
            if turn.granted is not None:
                self._granted -= 1
                bucket, slot = turn.granted
                bucket.give_back(slot)  # in vain if the rate was changed meanwhile
            elif not self._leave(turn):
                return
            self._cancelled += 1
            self._serve()

    # Everybody's business, while nobody else is at it.

    def _serve(self) -> int:
        """Give the slots up to now to those who wait; what time it is."""
        now_ns = self._now_ns()
        while (turn := next(chain.from_iterable(self._queues), None)) is not None:
            slot = self._bucket.take(now_ns, LATE_NS)
            if slot is None:
                break
            self._grant(turn, slot, now_ns)
        return now_ns

    def _grant(self, turn: _Turn, slot: int, now_ns: int) -> None:
        if not self._leave(turn):  # thrown away just now
            self._bucket.give_back(slot)
            return
        if not turn.bell.ring():
            self._cancelled += 1
            self._bucket.give_back(slot)
            return
        turn.granted = self._bucket, slot
        self._granted += 1
        self._longest_wait_ns = max(self._longest_wait_ns, now_ns - turn.asked_ns)

    def _take_at_once(self, now_ns: int) -> tuple[Bucket, int] | None:
        # If somebody waits still, nothing is left of what was there.
        slot = self._bucket.take(now_ns)
        if slot is None:
            return None
        self._granted += 1
        return self._bucket, slot

    def _leave(self, turn: _Turn) -> bool:
        """Wait no longer; False for who did not wait."""
        waiting = self._places.get(turn.bell.place, _Turns())
        if turn not in waiting:
            return False
        kept_time = next(iter(waiting)) is turn
        del waiting[turn], self._queues[turn.priority][turn]
        if not waiting:
            del self._places[turn.bell.place]
        elif kept_time:
            next(iter(waiting)).bell.ring()
        return True

    def _now_ns(self) -> int:
        return round((self._clock.monotonic() - self._began_s) * _SECOND_NS)

    def _check(self, priority: int) -> None:
        check_integer("priority", priority, least=0, most=self._priorities - 1)


_all: WeakSet[Throughput] = WeakSet()


def _begin_in_child() -> None:
    """After a fork whoever waited is in the parent, and so may be whoever held the lock."""
    for throughput in _all:
        throughput._begin()


os.register_at_fork(after_in_child=_begin_in_child)


def _rate(requests: int, seconds: float) -> Rate:
    check_integer("requests", requests, least=1, most=REQUESTS_MAX)
    check_number("seconds", seconds, least=PER_MIN.total_seconds(), most=PER_MAX.total_seconds())
    return Rate(requests, timedelta(seconds=seconds))
