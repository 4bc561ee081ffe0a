"""What can only be found out by looking: what is due, what gates and semaphores hold, how late the event loop is.

Looked at now and then, and only while somebody listens: a scrape must not cost a statement, nor an idle worker more
than it has to.
"""

from __future__ import annotations

from matrixsched.clock import Clock
from matrixsched.events import (
    BacklogSampled,
    Events,
    GatesSampled,
    LoopSampled,
    SemaphoresSampled,
)
from matrixsched.handlers import Handlers
from matrixsched.rules.semaphore import SemaphoreSample, semaphore_of
from matrixsched.store.store import Store

BACKLOG_EVERY_S = 15.0
BACKLOG_COUNT_MAX = 10_000
GATED_LANES_MAX = 2_000
HELD_COUNT_MAX = 20_000
LOOP_EVERY_S = 0.25
SEMAPHORES_EVERY_S = 60.0
"""More rarely than the others: each semaphore is a statement, which reads up to ten thousand entries of an index."""
SEMAPHORES_MAX = 100
TASKS_COUNT_MAX = 10_000


class Sampling:
    def __init__(self, store: Store, handlers: Handlers, clock: Clock, events: Events) -> None:
        self._store = store
        self._handlers = handlers
        self._clock = clock
        self._events = events
        self._expected_at: float | None = None

    async def backlog(self) -> float:
        """Look up what is due in the whole installation; the rest until the next look."""
        if self._events.wants(BacklogSampled):
            found = await self._store.run(self._store.transitions.backlog(count_max=BACKLOG_COUNT_MAX))
            ages_s = (
                (found.now - (since or found.now)).total_seconds()
                for since in (found.oldest_due_at, found.oldest_open_at, found.oldest_parked_at)
            )
            self._events.emit(BacklogSampled(found.due, *ages_s))
        return BACKLOG_EVERY_S

    async def gates(self) -> float:
        """Look up what the gates hold back in the whole installation; the rest until the next look."""
        if self._events.wants(GatesSampled):
            report = self._store.transitions.gate_report(lanes_max=GATED_LANES_MAX, count_max=HELD_COUNT_MAX)
            self._events.emit(GatesSampled(await self._store.run(report)))
        return BACKLOG_EVERY_S

    async def semaphores(self) -> float:
        """Look up how those semaphores stand that this worker is told of; the rest until the next look."""
        if self._events.wants(SemaphoresSampled):
            keys = {semaphore_of(name) for name in self._handlers.names} - {None}
            if known := sorted(map(str, keys))[:SEMAPHORES_MAX]:
                self._events.emit(SemaphoresSampled(tuple([await self._sample(key) for key in known])))
        return SEMAPHORES_EVERY_S

    async def _sample(self, key: str) -> SemaphoreSample:
        found = await self._store.run(self._store.transitions.count_tasks(key, count_max=TASKS_COUNT_MAX))
        waited = found.now - (found.oldest_at or found.now)
        return SemaphoreSample(
            key=key,
            held=found.held,
            asked=found.asked,
            waiting=found.waiting,
            oldest_wait_s=max(0.0, waited.total_seconds()),
        )

    async def loop(self) -> float:
        """Compare when this was to be called again with when it is called."""
        now, expected_at, self._expected_at = self._clock.monotonic(), self._expected_at, None
        if not self._events.wants(LoopSampled):
            return BACKLOG_EVERY_S
        if expected_at is not None:
            self._events.emit(LoopSampled(max(0.0, now - expected_at)))
        self._expected_at = now + LOOP_EVERY_S
        return LOOP_EVERY_S
