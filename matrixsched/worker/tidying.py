"""Hygiene: what is old, dead or too late goes, a small batch at a time, by one worker at a time.

The lease of the chore spares the others the work; correctness does not hang on it, for every statement is safe beside
its like. How far the sweeps have come is stored with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from matrixsched.clock import Chance, Clock
from matrixsched.events import Events, Tidied
from matrixsched.rules.queues import VISIBILITY_MAX
from matrixsched.store.chores import TIDY
from matrixsched.store.queues import SweptTasks
from matrixsched.store.store import Store
from matrixsched.store.values import SweepPosition, Swept, TidyPosition
from matrixsched.worker.chore import Chore
from matrixsched.worker.policy import ATTEMPT_LEASE_MAX, WorkerPolicy

SWEEPS_PER_TURN = 10
"""A round through the tables goes on this often in `tidy_every`, and at once where it finds something."""


@dataclass(frozen=True, slots=True)
class _Batch:
    tidied: Tidied
    position: TidyPosition
    is_full: bool
    """There is more: what is tidied away must not be slower than what comes in."""


class Tidying:
    def __init__(self, store: Store, policy: WorkerPolicy, events: Events, *, clock: Clock, chance: Chance) -> None:
        self._store = store
        self._do = store.transitions
        self._policy = policy
        self._events = events
        self._clock = clock
        self.chore = Chore(store, TIDY, chance, lease=policy.shard_lease, every=policy.tidy_every)

    async def step(self) -> float:
        """One batch of each kind, if it is our turn; the rest until there may be more to do."""
        every = self._policy.tidy_every
        position = await self.chore.take()
        if position is None:
            return every.total_seconds()
        began = self._clock.monotonic()
        batch = await self._batch(position)
        if batch.tidied != Tidied(0, 0, 0):
            self._events.emit(batch.tidied)
        if batch.position.is_complete and not batch.is_full:
            await self.chore.end()
            return every.total_seconds()
        # At most half of the time is spent on it, however much there is.
        rest_s = self._clock.monotonic() - began if batch.is_full else every.total_seconds() / SWEEPS_PER_TURN
        await self.chore.keep(batch.position, rest=timedelta(seconds=rest_s))
        return rest_s

    async def expire(self) -> bool:
        """Only this, and at once: end a batch of what waits past its end; whether there may be more."""
        limit = self._policy.tidy_batch
        expiry = await self._store.run(self._do.expire_waiting(limit=limit))
        if expiry.gone:
            rows = expiry.gone - expiry.expired
            self._events.emit(Tidied(0, 0, rows, expired=expiry.expired, expired_of=expiry.templates))
        return expiry.gone >= limit

    async def _batch(self, position: TidyPosition) -> _Batch:
        run, limit = self._store.run, self._policy.tidy_batch
        pruned = [
            await run(self._do.prune_actions(state, keep=keep, limit=limit))
            for state, keep in self._policy.retention.items()
        ]
        requests = await run(self._do.prune_requests(keep=self._policy.keep_requests, limit=limit))
        expiry = await run(self._do.expire_waiting(limit=limit))
        rows = await self._sweep_rows(position.rows)
        history = await self._sweep_history(position.history)
        tasks = await self._sweep_tasks(position.tasks)
        tidied = Tidied(
            actions=sum(pruned),
            requests=requests,
            rows=rows.gone + expiry.gone - expiry.expired,
            expired=expiry.expired,
            leases=rows.shortened + tasks.shortened,
            history=history.gone,
            expired_of=expiry.templates,
        )
        following = TidyPosition(_unless_complete(rows), _unless_complete(history), tasks.position)
        finds = (rows.gone and following.rows) or (history.gone and following.history)
        return _Batch(tidied, following, is_full=max(*pruned, requests, expiry.gone) >= limit or bool(finds))

    async def _sweep_rows(self, position: SweepPosition | None) -> Swept:
        if position is None:
            return _COMPLETE
        return await self._store.run(
            self._do.sweep_dead(position, limit=self._policy.tidy_batch, reach=ATTEMPT_LEASE_MAX)
        )

    async def _sweep_history(self, position: SweepPosition | None) -> Swept:
        if position is None:
            return _COMPLETE
        return await self._store.run(
            self._do.sweep_history(position, limit=self._policy.tidy_batch, history_max=self._policy.history_max)
        )

    async def _sweep_tasks(self, after: int | None) -> SweptTasks:
        if after is None:
            return SweptTasks(None, 0)
        return await self._store.run(self._do.sweep_tasks(after, limit=self._policy.tidy_batch, reach=VISIBILITY_MAX))


_COMPLETE = Swept(0, SweepPosition())


def _unless_complete(swept: Swept) -> SweepPosition | None:
    return None if swept.position == SweepPosition() else swept.position
