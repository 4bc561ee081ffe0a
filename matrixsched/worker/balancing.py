"""Balancing: semaphores about which something changed are balanced, by one worker at a time.

The lease of the chore spares the others the work; correctness does not hang on it, for a balance holds its semaphore
while it decides. Only workers that are told of events, because they know handlers of them, look at all.
"""

from __future__ import annotations

from datetime import timedelta

from matrixsched.clock import Chance, Clock
from matrixsched.events import Events, SemaphoreBalanced
from matrixsched.handlers import Handlers
from matrixsched.rules.semaphore import is_event_handler
from matrixsched.store.chores import BALANCE
from matrixsched.store.store import Store
from matrixsched.store.values import TidyPosition
from matrixsched.worker.policy import WorkerPolicy

KEYS_MAX = 100
"""How many semaphores are looked for in a statement."""
AGAIN_REST_S = 0.1
"""Until it is tried again to balance what somebody else's transaction held."""


class Balancing:
    def __init__(
        self,
        store: Store,
        handlers: Handlers,
        policy: WorkerPolicy,
        events: Events,
        *,
        clock: Clock,
        chance: Chance,
    ) -> None:
        self._store = store
        self._do = store.transitions
        self._handlers = handlers
        self._policy = policy
        self._events = events
        self._clock = clock
        self._chance = chance
        self._holder = chance.guid()
        self._shards: int | None = None

    async def step(self) -> float:
        """Balance what is to be, if it is our turn; the rest until there may be more."""
        rest_s = self._policy.rest_max.total_seconds()
        if not any(map(is_event_handler, self._handlers.names)):
            return rest_s
        keys = await self._store.run(self._do.changed_semaphores(limit=KEYS_MAX))
        if not keys:
            return rest_s
        lease = self._policy.shard_lease
        turn = self._do.take_chore(BALANCE, self._holder, lease=lease, every=timedelta(0))
        if await self._store.run(turn) is None:
            return rest_s
        try:
            complete = [await self._balance(key) for key in sorted(keys)]
        finally:
            await self._store.run(self._do.end_chore(BALANCE, self._holder, TidyPosition()))
        return 0.0 if all(complete) else AGAIN_REST_S

    async def _balance(self, key: str) -> bool:
        """Whether nothing is left to be done."""
        began = self._clock.monotonic()
        balanced = await self._store.run(self._do.balance(key, self._chance.guid, shards=await self._shard_count()))
        if balanced is None:
            return False
        self._events.emit(
            SemaphoreBalanced(
                key,
                acquired=len(balanced.acquired),
                asked=len(balanced.asked),
                kept=len(balanced.kept),
                lapsed=len(balanced.lapsed),
                took_s=self._clock.monotonic() - began,
            )
        )
        return balanced.is_complete

    async def _shard_count(self) -> int:
        if self._shards is None:
            self._shards = (await self._store.run(self._do.installation())).shard_count
        return self._shards
