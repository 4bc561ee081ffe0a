"""Which queue a processor goes to next: in turns, and not to one that was empty just now.

So many as are assigned to a queue go to that one first; all others, and those whose own queue is empty, go round over
all queues: nobody waits at an empty one while there is something to do elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from matrixsched.rules.backoff import backoff_s

ASK_AGAIN_S = 0.02
"""So long an empty queue is left alone, whatever news there are: most of them are not of it."""
FAILED_REST_FIRST_S, FAILED_REST_MAX_S = 0.1, 5.0
"""After a handler failed: a broken one must not go through its whole queue in a second."""


@dataclass(frozen=True, slots=True)
class Seat:
    """Where a processor is."""

    queue: int
    is_assigned: bool
    """It is one of those that are there for this queue alone."""


class _Stand:
    """How it stands with one queue."""

    __slots__ = ("asked_at", "asking", "assigned", "empty_until", "failed_until", "failures", "is_plentiful")

    def __init__(self) -> None:
        self.assigned = 0
        """Processors that are there for it alone."""
        self.asking = 0
        """Processors that wait for an answer of the storage."""
        self.is_plentiful = False
        """Whether as many tasks came as were asked for."""
        self.asked_at = float("-inf")
        self.empty_until = float("-inf")
        self.failures = 0
        self.failed_until = float("-inf")

    @property
    def rests_until(self) -> float:
        return max(self.empty_until, self.failed_until)


class Rota:
    def __init__(self, queues: Iterable[int], *, processors: int, idle: bool, rest_max_s: float) -> None:
        """`idle`: nobody goes anywhere before something is assigned."""
        self._stands = {queue: _Stand() for queue in queues}
        self._turn = list(self._stands)
        self._assigned: Mapping[int, int] | None = None
        self._is_idle = idle
        self._roaming = 0
        self._processors = processors
        self._rest_max_s = rest_max_s
        self._news = 0
        self._roamed_at: float | None = None
        self._capped: frozenset[int] = frozenset()

    def cap(self, queues: Iterable[int]) -> None:
        """Only those that are assigned go to these queues: how many that are is limited for the whole fleet."""
        self._capped = frozenset(queues)

    @property
    def assigned(self) -> Mapping[int, int] | None:
        """How many processors are there for each queue alone; None: nobody said anything."""
        return self._assigned

    def assign(self, processors: Mapping[int, int]) -> None:
        self._assigned = {queue: count for queue, count in processors.items() if queue in self._stands}
        self._is_idle = self._is_idle and not any(self._assigned.values())

    def hear(self, now: float) -> None:
        """There may be something in queues that were empty."""
        self._news += 1
        for stand in self._stands.values():
            stand.empty_until = min(stand.empty_until, max(now, stand.asked_at + ASK_AGAIN_S))

    def expect(self, queue: int, at: float) -> None:
        """Something comes due there at that time."""
        stand = self._stands[queue]
        stand.empty_until = min(stand.empty_until, at)

    # A processor goes there, asks, and leaves.

    def pick(self, now: float) -> Seat | None:
        """Where to go; None if there is nowhere to go for now."""
        if self._is_idle:
            return None
        if self._roamed_at is None:
            self._roamed_at = now
        queue = self._next(now, self._is_unwatched) if now >= self._roamed_at + self._rest_max_s else None
        if queue is None:
            assigned = self._next(now, self._is_short_of)
            if assigned is not None:
                return self.enter(assigned, is_assigned=True)
            queue = self._next(now, lambda one: one not in self._capped and self._may_roam(now))
        if queue is None:
            return None
        self._roamed_at = now
        return self.enter(queue)

    def _is_unwatched(self, queue: int) -> bool:
        """Whether all processors are somewhere else: now and then one of them looks there all the same."""
        assigned = self._assigned or {}
        return queue not in self._capped and not assigned.get(queue) and sum(assigned.values()) >= self._processors

    def _next(self, now: float, is_wanted: Callable[[int], bool]) -> int | None:
        for place, queue in enumerate(self._turn):
            stand = self._stands[queue]
            if is_wanted(queue) and now >= stand.rests_until and (stand.is_plentiful or not stand.asking):
                self._turn.append(self._turn.pop(place))  # all others come before it has its turn again
                return queue
        return None

    def _is_short_of(self, queue: int) -> bool:
        return self._stands[queue].assigned < (self._assigned or {}).get(queue, 0)

    def _may_roam(self, now: float) -> bool:
        """Whether one is left that nobody waits for where it is assigned to."""
        wanted = sum(count for queue, count in (self._assigned or {}).items() if now >= self._stands[queue].rests_until)
        return self._roaming < self._processors - wanted

    def enter(self, queue: int, *, is_assigned: bool = False) -> Seat:
        """Go there, whoever else is there."""
        stand = self._stands[queue]
        stand.asking += 1
        stand.assigned += is_assigned
        self._roaming += not is_assigned
        return Seat(queue, is_assigned)

    def leave(self, seat: Seat) -> None:
        self._stands[seat.queue].assigned -= seat.is_assigned
        self._roaming -= not seat.is_assigned

    @property
    def news(self) -> int:
        """How often there were news; they may be of what an answer under way does not know yet."""
        return self._news

    def answered(self, queue: int, now: float, *, is_full: bool, news: int) -> None:
        """The storage gave as many as were asked for, or all that there were when `news` were the latest."""
        stand = self._stands[queue]
        stand.asking -= 1
        stand.asked_at = now
        stand.is_plentiful = is_full
        if not is_full:
            stand.empty_until = now + (self._rest_max_s if news == self._news else ASK_AGAIN_S)

    def refused(self, queue: int) -> None:
        """The storage gave no answer."""
        self._stands[queue].asking -= 1

    def handled(self, queue: int) -> None:
        self._stands[queue].failures = 0

    def failed(self, queue: int, now: float, spread: float) -> None:
        stand = self._stands[queue]
        stand.failures += 1
        stand.failed_until = now + backoff_s(
            stand.failures, first=FAILED_REST_FIRST_S, most=FAILED_REST_MAX_S, spread=spread
        )

    @property
    def is_asking(self) -> bool:
        """Whether somebody waits for an answer."""
        return any(stand.asking for stand in self._stands.values())

    def rest_s(self, now: float) -> float:
        """How long until there may be somewhere to go."""
        rests = [
            stand.rests_until - now
            for queue, stand in self._stands.items()
            if self._may_roam(now) or self._is_short_of(queue)
        ]
        # Who is kept away only because others ask is woken by their answer.
        return min([self._rest_max_s, *(rest for rest in rests if rest > 0)])
