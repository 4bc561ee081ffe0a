"""Claimed rows that were never started go back: they become due again, unattempted.

A row that stays in our hands without being run lies there until its lease ends and counts as interrupted then, although
nothing was: an action that must not be interrupted would be quarantined without ever having run. So what the database
could not take is sent again. However often that happens, it is harmless: only a row that is still held by the very same
claim is given back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from matrixsched.clock import Clock
from matrixsched.events import ClaimsGivenBack, Events
from matrixsched.store.store import Store
from matrixsched.worker.leases import Held, Leases
from matrixsched.worker.pace import Wakeup
from matrixsched.worker.policy import WorkerPolicy

LEASES_UNTIL_OVER = 2
"""So long after a claim was asked for its lease is over for sure: that began when the database got to it, and what is
not found within two thirds of one is not looked for any more."""


class GivingBack:
    def __init__(
        self,
        store: Store,
        leases: Leases,
        policy: WorkerPolicy,
        *,
        forget: Callable[[Held], None],
        clock: Clock,
        events: Events,
    ) -> None:
        """`forget` is told of each attempt that is out of our hands."""
        self._store = store
        self._leases = leases
        self._policy = policy
        self._forget = forget
        self._clock = clock
        self._events = events
        self._unstarted: list[Held] = []
        self.count = 0
        """How many were given back."""
        self.wakeup = Wakeup()

    @property
    def is_idle(self) -> bool:
        """Nothing is left to give back, and nothing is on its way."""
        return not self._unstarted

    def put(self, unstarted: Iterable[Held]) -> None:
        """Nobody may start them from now on: whether they went back is perhaps known only much later."""
        self._unstarted.extend(unstarted)
        if self._unstarted:
            self.wakeup.set()

    async def step(self) -> float:
        self._leave_to_others()
        if sent := list(self._unstarted):
            count = await self._store.run(self._store.transitions.give_back([held.attempt for held in sent]))
            del self._unstarted[: len(sent)]  # more may have come meanwhile, and stand behind them
            for held in sent:
                self._forget(held)
            self.count += count
            self._events.emit(ClaimsGivenBack(count))
        return 0.0 if self._unstarted else self._policy.rest_max.total_seconds()

    def _leave_to_others(self) -> None:
        """Forget what has come due by itself meanwhile, or was claimed again, be it by ourselves."""
        earliest = self._clock.monotonic() - LEASES_UNTIL_OVER * self._policy.attempt_lease.total_seconds()
        unstarted, self._unstarted = self._unstarted, []
        for held in unstarted:
            if held.asked_at > earliest and held.attempt.claim in self._leases:
                self._unstarted.append(held)
            else:
                self._forget(held)
