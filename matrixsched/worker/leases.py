"""The attempts this process holds, and the step that keeps their leases.

Shared between the event loop that runs handlers and the thread that prolongs leases, hence the lock.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from matrixsched.clock import Clock
from matrixsched.events import ClaimsLost, Events
from matrixsched.rules.action import Attempt, Claim
from matrixsched.store.store import Store
from matrixsched.store.values import Extension, Holding
from matrixsched.worker.database_time import DatabaseTime
from matrixsched.worker.policy import WorkerPolicy

USABLE_S = 0.02
"""For so long a slot can be used at least. The database's time is known as well as its quickest answer was quick: where
that takes longer than a slot lasts none could be used, ever; they are rather used later, by that much."""
UNTIL_RECORDED = timedelta(days=365)
"""After a claim: longer than anybody waits for a database."""


@dataclass(slots=True, eq=False)
class Held:
    """An attempt in our hands, and until when we may trust that it is ours."""

    attempt: Attempt
    asked_at: float
    """Monotonic, before the claim was sent: `attempt.claimed_at` by the database's clock is not earlier."""
    trusted_until: float
    starts_at: float = float("-inf")
    """Monotonic, as everything here: the slot in which it may start has surely begun by then."""
    void_at: float = float("inf")
    """From then on that slot may be over."""
    longest: timedelta | None = None
    """Set when the handler is started: the lease is prolonged to at most this long after the claim, while it runs."""
    ended: bool = False
    """Its outcome is with the recorder, who will hear whether it was lost."""
    lost: bool = False

    @property
    def held_for(self) -> timedelta | None:
        """What has ended is held until it is recorded, however long the database refuses that."""
        return UNTIL_RECORDED if self.ended and self.longest is not None else self.longest


class Leases:
    def __init__(self, policy: WorkerPolicy, clock: Clock, events: Events) -> None:
        self._policy = policy
        self._clock = clock
        self._events = events
        self._lock = threading.Lock()
        self._held: dict[UUID, Held] = {}
        self.database_time = DatabaseTime()
        self._trust_s = (policy.attempt_lease - policy.lease_margin).total_seconds()

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, claim: Claim) -> bool:
        held = self._held.get(claim.guid)
        return held is not None and held.attempt.claim == claim

    def take(self, attempt: Attempt, asked_at: float) -> Held:
        held = Held(attempt, asked_at, asked_at + self._trust_s)
        if attempt.slot is not None:
            held.starts_at = self.database_time.surely_reached(attempt.slot.starts_at)
            void_at = self.database_time.perhaps_reached(attempt.slot.void_at)
            held.void_at = max(void_at, held.starts_at + USABLE_S)
        with self._lock:
            earlier = self._held.get(attempt.claim.guid)
            if earlier is not None:
                earlier.lost = True  # its lease ran out: this claim, our own, took its place
            self._held[attempt.claim.guid] = held
        return held

    def drop(self, *claims: Claim) -> None:
        with self._lock:
            for claim in claims:
                if claim in self:
                    del self._held[claim.guid]

    async def extend(self, store: Store) -> float:
        """Prolong the leases of all attempts under way; the rest until the next time."""
        rest_s = self._policy.attempt_lease.total_seconds() / 3
        with self._lock:
            started = [
                (held, Holding(held.attempt.claim, longest))
                for held in self._held.values()
                if (longest := held.held_for) is not None and not held.lost
            ]
        if not started:
            return rest_s
        asked_at = self._clock.monotonic()
        answers = await store.run(
            store.transitions.extend([holding for _, holding in started], attempt_lease=self._policy.attempt_lease)
        )
        lost = 0
        for held, holding in started:
            match answers.get(holding.claim.guid):
                case Extension.EXTENDED:
                    held.trusted_until = min(asked_at + self._trust_s, held.asked_at + holding.longest.total_seconds())
                case Extension.LOST:
                    # An attempt that was recorded meanwhile is not in its row any more either.
                    if holding.claim in self and not held.ended:
                        held.lost = True
                        lost += 1
        if lost:
            self._events.emit(ClaimsLost(lost))
        return max(rest_s - (self._clock.monotonic() - asked_at), 0.001)
