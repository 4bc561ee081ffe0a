"""Hygiene: old finished actions, old requests and dead queue rows go, a small batch at a time."""

from __future__ import annotations

from matrixsched.events import Events, Tidied
from matrixsched.store.store import Store
from matrixsched.store.values import SweepPosition
from matrixsched.worker.policy import WorkerPolicy


class Tidying:
    def __init__(self, store: Store, policy: WorkerPolicy, events: Events) -> None:
        self._store = store
        self._policy = policy
        self._events = events
        self._position = SweepPosition()

    async def step(self) -> float:
        """One batch of each kind; goes on at once while there is much to do."""
        do, limit = self._store.transitions, self._policy.tidy_batch
        pruned = [
            await self._store.run(do.prune_actions(state, keep=keep, limit=limit))
            for state, keep in self._policy.retention.items()
        ]
        actions = sum(pruned)
        requests = await self._store.run(do.prune_requests(keep=self._policy.keep_requests, limit=limit))
        swept = await self._store.run(do.sweep_dead(self._position, limit=limit))
        self._position = swept.position
        if actions or requests or swept.gone:
            self._events.emit(Tidied(actions, requests, swept.gone))
        every_s = self._policy.tidy_every.total_seconds()
        if max(*pruned, requests) >= limit or swept.gone:
            return every_s / 1000  # there is more: what is tidied away must not be slower than what comes in
        return every_s if self._position == SweepPosition() else every_s / 10
