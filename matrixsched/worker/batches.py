"""The batches that processors have in their hands, and the step that prolongs them.

Shared between the event loop that runs handlers and the thread that keeps leases, hence the lock.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import timedelta

from matrixsched.clock import Clock
from matrixsched.queues.handlers import BatchHandler
from matrixsched.queues.ledger import Ledger
from matrixsched.queues.storage import QueueStorage
from matrixsched.rules.queues import VISIBILITY_MIN, StoredTask

REST_MIN_S = 0.001


class Batch:
    """Tasks of one queue that were taken together."""

    __slots__ = ("handler", "ledger", "prolong_at", "taken_at", "tasks", "trusted_until", "visibility")

    def __init__(
        self, handler: BatchHandler, tasks: Sequence[StoredTask], visibility: timedelta, asked_at: float
    ) -> None:
        self.handler = handler
        self.tasks = tasks
        self.visibility = visibility
        self.ledger = Ledger(tasks)
        self.taken_at = asked_at
        """Monotonic, as everything here: before they were asked for, so that no receipt ends earlier than we think."""
        self.prolong_at = asked_at + visibility.total_seconds() / 3
        self.trusted_until = asked_at + visibility.total_seconds()
        """Before this none of its tasks can have been taken by others, but for those that are known to be lost."""

    def prolonged(self, asked_at: float, *, is_whole: bool) -> None:
        """`is_whole`: all of its tasks were, that are not settled."""
        self.prolong_at = asked_at + self.visibility.total_seconds() / 3
        if is_whole:
            self.trusted_until = asked_at + self.visibility.total_seconds()


class Batches:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._held: dict[Batch, None] = {}

    def __len__(self) -> int:
        return len(self._held)

    def take(self, batch: Batch) -> None:
        with self._lock:
            self._held[batch] = None

    def drop(self, batch: Batch) -> None:
        with self._lock:
            self._held.pop(batch, None)

    async def prolong(self, storage: QueueStorage) -> float:
        """Hold on to the tasks of batches that take long; the rest until the next time."""
        now = self._clock.monotonic()
        with self._lock:
            due = [batch for batch in self._held if batch.prolong_at <= now]
        for visibility in sorted({batch.visibility for batch in due}):
            await self._prolong(storage, [batch for batch in due if batch.visibility == visibility], visibility)
        with self._lock:
            soonest = min((batch.prolong_at for batch in self._held), default=float("inf"))
        # One that is taken meanwhile is due no earlier than this, also if timeouts are made shorter meanwhile.
        rest_s = VISIBILITY_MIN.total_seconds() / 3
        return max(min(rest_s, soonest - self._clock.monotonic()), REST_MIN_S)

    async def _prolong(self, storage: QueueStorage, batches: list[Batch], visibility: timedelta) -> None:
        asked_at = self._clock.monotonic()
        held = {batch: batch.ledger.unsettled for batch in batches}
        tasks = [task for open, _ in held.values() for task in open]
        # What the handler itself holds on to for longer stays so.
        answer = await storage.extend(tasks, visibility=visibility, only_longer=True) if tasks else None
        for batch, (_, is_whole) in held.items():
            batch.prolonged(asked_at, is_whole=is_whole)
            if answer is not None and answer.stale:
                batch.ledger.lose(answer.stale)
