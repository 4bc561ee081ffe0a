"""Which queue a processor goes to next: in turns, and only where something is.

So many as are assigned to a queue go to that one first; all others, and those whose own queue is empty, go round over
all queues: nobody waits at an empty one while there is something to do elsewhere.

What is where is known by a look at all queues at once, whoever makes it: when there are news, when something comes due
that the look before told of, and in any case now and then. It is a hint: others may be quicker, and taking tells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from matrixsched.rules.backoff import backoff_s
from matrixsched.rules.queues import Outlook

LOOK_AGAIN_S = 0.02
"""So long after a look the next one waits, whatever news there are: most of them are not of our queues, or while there
is something to do they can wait for that long. Who found something by the last one, and has nothing left, looks at
once."""
REST_MIN_S = 0.001
FAILED_REST_FIRST_S, FAILED_REST_MAX_S = 0.1, 5.0
"""After a handler failed: a broken one must not go through its whole queue in a second."""
NEVER, EVER_SINCE = float("inf"), float("-inf")
NOTHING = Outlook(False)


@dataclass(frozen=True, slots=True)
class Seat:
    """Where a processor is."""

    queue: int
    is_assigned: bool
    """It is one of those that are there for this queue alone."""


class _Stand:
    """How it stands with one queue."""

    __slots__ = ("asking", "assigned", "due_at", "failed_until", "failures", "is_plentiful", "is_ready", "ready_since")

    def __init__(self) -> None:
        self.assigned = 0
        """Processors that are there for it alone."""
        self.asking = 0
        """Processors that wait for an answer of the storage."""
        self.is_ready = False
        """Whether there is something to take, as far as is known."""
        self.ready_since = 0
        """The number of the last look that said so."""
        self.is_plentiful = False
        """Whether as many tasks came as were asked for."""
        self.due_at = NEVER
        """When the next of what could not be taken is due, as the last look said."""
        self.failures = 0
        self.failed_until = EVER_SINCE

    def is_open(self, now: float) -> bool:
        return self.is_ready and now >= self.failed_until


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
        self._capped: frozenset[int] = frozenset()
        self._was_elsewhere = False
        """Whether the last one that went anywhere went where nobody is assigned, although all are somewhere."""
        self._looks = 0
        """How many were answered."""
        self._is_looking = False
        self._looked_at = EVER_SINCE
        self._was_of_use = False
        """Whether somebody went somewhere since the last look."""
        self._has_news = False
        self._promised_at = NEVER
        """When something comes due of which the last look could not know."""

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

    # Who looks, and when.

    def hear(self) -> None:
        """There may be something in queues that were empty."""
        self._has_news = True

    def expect(self, at: float) -> None:
        """Something comes due at that time, in whichever queue."""
        self._promised_at = min(self._promised_at, at)

    def wants_look(self, now: float) -> bool:
        return not self._is_idle and not self._is_looking and now >= self._look_at(now)

    def _look_at(self, now: float) -> float:
        """When the next look is due."""
        due_at = min((self._comes_due_at(queue) for queue in self._stands), default=NEVER)
        look_at = min(self._looked_at + self._rest_max_s, self._promised_at, due_at)
        if self._has_news:
            is_at_once = self._was_of_use and not any(stand.is_open(now) for stand in self._stands.values())
            look_at = min(look_at, self._looked_at + (0.0 if is_at_once else LOOK_AGAIN_S))
        return look_at

    def _comes_due_at(self, queue: int) -> float:
        """When a look may tell more of a queue than is known. What nobody may go to need not be looked at in time."""
        stand = self._stands[queue]
        return NEVER if stand.is_ready or not self._may_be_served(queue) else max(stand.due_at, stand.failed_until)

    def _may_be_served(self, queue: int) -> bool:
        return queue not in self._capped or (self._assigned or {}).get(queue, 0) > 0

    def begin_look(self) -> list[int]:
        """Somebody looks at these queues; nobody else does until `looked` or `look_failed`."""
        self._is_looking, self._has_news, self._promised_at = True, False, NEVER
        return list(self._stands)

    def looked(self, found: Mapping[int, Outlook], now: float) -> None:
        self._is_looking, self._looked_at, self._was_of_use = False, now, False
        self._looks += 1
        for queue, stand in self._stands.items():
            outlook = found.get(queue, NOTHING)
            stand.is_ready = outlook.is_ready
            stand.due_at = NEVER if outlook.next_due_s is None else now + max(outlook.next_due_s, REST_MIN_S)
            if outlook.is_ready:
                stand.ready_since = self._looks

    def look_failed(self) -> None:
        """The storage gave no answer."""
        self._is_looking, self._has_news = False, True

    @property
    def looks(self) -> int:
        """How many were answered; they may know of what an answer under way does not."""
        return self._looks

    # A processor goes there, asks, and leaves.

    def pick(self, now: float) -> Seat | None:
        """Where to go; None if there is nowhere to go for now."""
        if self._is_idle:
            return None
        # Where all are assigned elsewhere, every other one goes to what has none: its first task must not wait for
        # somebody to plan, and what it takes from the others is at most one of them.
        queue = self._next(now, self._is_unwatched) if not self._roaming and not self._was_elsewhere else None
        self._was_elsewhere = queue is not None
        if queue is None:
            assigned = self._next(now, self._is_short_of)
            if assigned is not None:
                return self.enter(assigned, is_assigned=True)
            queue = self._next(now, lambda one: one not in self._capped and self._may_roam(now))
        return None if queue is None else self.enter(queue)

    def has_open(self, now: float) -> bool:
        """Whether there is something to take, in whichever queue."""
        return any(stand.is_open(now) for stand in self._stands.values())

    def _is_unwatched(self, queue: int) -> bool:
        """Whether all processors are somewhere else."""
        assigned = self._assigned or {}
        return queue not in self._capped and not assigned.get(queue) and sum(assigned.values()) >= self._processors

    def _next(self, now: float, is_wanted: Callable[[int], bool]) -> int | None:
        for place, queue in enumerate(self._turn):
            stand = self._stands[queue]
            if stand.is_open(now) and (stand.is_plentiful or not stand.asking) and is_wanted(queue):
                self._turn.append(self._turn.pop(place))  # all others come before it has its turn again
                return queue
        return None

    def _is_short_of(self, queue: int) -> bool:
        return self._stands[queue].assigned < (self._assigned or {}).get(queue, 0)

    def _may_roam(self, now: float) -> bool:
        """Whether one is left that nobody waits for where it is assigned to."""
        wanted = sum(count for queue, count in (self._assigned or {}).items() if self._stands[queue].is_open(now))
        return self._roaming < self._processors - wanted

    def enter(self, queue: int, *, is_assigned: bool = False) -> Seat:
        """Go there, whoever else is there."""
        stand = self._stands[queue]
        stand.asking += 1
        stand.assigned += is_assigned
        self._roaming += not is_assigned
        self._was_of_use = True
        return Seat(queue, is_assigned)

    def leave(self, seat: Seat) -> None:
        self._stands[seat.queue].assigned -= seat.is_assigned
        self._roaming -= not seat.is_assigned

    def answered(self, queue: int, *, is_full: bool, looks: int) -> None:
        """The storage gave as many as were asked for, or all that there were when so many `looks` had been answered."""
        stand = self._stands[queue]
        stand.asking -= 1
        stand.is_plentiful = is_full
        stand.is_ready = is_full or stand.ready_since > looks

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
        return self._is_looking or any(stand.asking for stand in self._stands.values())

    def rest_s(self, now: float) -> float:
        """How long until there may be somewhere to go."""
        if self._is_idle:
            return self._rest_max_s
        ends = [stand.failed_until - now for stand in self._stands.values() if stand.is_ready]
        if not self._is_looking:  # otherwise its answer wakes us, as it does who is kept away by others that ask
            ends.append(max(self._look_at(now) - now, REST_MIN_S))
        return min([self._rest_max_s, *(rest for rest in ends if rest > 0)])
