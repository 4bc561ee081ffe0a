"""The attempts that were claimed and have not started: whose turn it is, and from when on."""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush

from matrixsched.clock import Clock
from matrixsched.rules.intake import START_WITHIN_S
from matrixsched.rules.semaphore import semaphore_of
from matrixsched.worker.leases import Held

ROUNDING_S = 1e-6
"""Instants are known to the microsecond: what is nearer than that has begun."""


class Line:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._events: deque[Held] = deque()
        """Those that tell of semaphores: nothing else is taken before them."""
        self._waiting: deque[Held] = deque()
        self._prompt: deque[Held] = deque()
        """Those whose slots have begun and will soon be void. Behind all that is waiting they would never start."""
        self._timed: list[tuple[float, int, Held]] = []
        """A heap of those whose slots are yet to begin."""
        self._timed_count = 0

    def __len__(self) -> int:
        """How many may start now."""
        return len(self._events) + len(self._prompt) + len(self._waiting)

    @property
    def pressing(self) -> int:
        """How many will need a handler at their time, and not later."""
        return len(self._prompt) + len(self._timed)

    @property
    def passed_by_events(self) -> int:
        """How many more events may be put in line, so that each starts in the stead of another one."""
        return max(0, len(self._prompt) + len(self._waiting) - len(self._events))

    def unhurried_among_next(self, count: int) -> int:
        """How many of the next so many have no slot that is void soon."""
        starting = min(count, len(self))
        return starting - min(max(0, starting - len(self._events)), len(self._prompt))

    def put(self, held: Held) -> bool:
        """Put it in its place; whether it is now the first whose slot is yet to begin."""
        if semaphore_of(held.attempt.handler) is not None:  # it passes no gate, and so has no slot
            self._events.append(held)
            return False
        now = self._clock.monotonic()
        if held.starts_at > now + ROUNDING_S:
            self._timed_count += 1
            heappush(self._timed, (held.starts_at, self._timed_count, held))
            return self._timed[0][2] is held
        (self._prompt if held.void_at - now < START_WITHIN_S else self._waiting).append(held)
        return False

    def begin_slots(self) -> float | None:
        """Let those go whose slots have begun; how long until the next one begins, if there is one."""
        now = self._clock.monotonic()
        while self._timed and self._timed[0][0] <= now + ROUNDING_S:
            self._prompt.append(heappop(self._timed)[2])
        return self._timed[0][0] - now if self._timed else None

    def take(self) -> Held:
        """The one whose turn it is."""
        return (self._events or self._prompt or self._waiting).popleft()

    def take_older_than(self, asked_at: float) -> list[Held]:
        """Those that were claimed before that and are still waiting."""
        stale = []
        for part in (self._events, self._waiting):
            while part and part[0].asked_at <= asked_at:
                stale.append(part.popleft())
        return stale

    def take_void(self) -> list[Held]:
        """Those that cannot start in their slots any more."""
        now = self._clock.monotonic()
        void = [held for held in (*self._prompt, *self._waiting) if now > held.void_at]
        if void:
            self._prompt = deque(held for held in self._prompt if now <= held.void_at)
            self._waiting = deque(held for held in self._waiting if now <= held.void_at)
        return void

    def clear(self) -> list[Held]:
        """All of them."""
        everybody = [*self._events, *self._prompt, *self._waiting, *(held for _, _, held in self._timed)]
        for part in (self._events, self._prompt, self._waiting, self._timed):
            part.clear()
        return everybody
