"""Processors: how many of them each queue gets, and on which workers. Pure; the manager writes down what follows.

    minimum     one for each queue that has something to do, the oldest first where there are too few
    watch       one that goes round on a worker of each queue that got none, so that nothing waits unseen
    shares      the rest in proportion to what is to be done, by the largest remainder
    keep        what is there stays while each is near its share (KEEP_WITHIN, KEEP_PART), or nobody wants more
    spare       what nobody else wants stays with the queue that has it, which may only look empty between two batches
    places      a worker keeps the queues it has, as far as their numbers allow

Processors that are assigned to no queue go round over all queues of their worker. So a queue without one of its own is
served, only more slowly: that is why nobody starves where queues are more than processors, and why a queue into which
something is put just now need not wait for the next plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from heapq import heapify, heappop, heapreplace
from uuid import UUID

KEEP_WITHIN = Fraction(3, 4)
"""A queue may be so many processors away from its share. With half a processor, a queue whose share is about one and a
half would change at every look; with a whole one, a queue that should have two would be left with one."""
KEEP_PART = Fraction(1, 5)
"""Or such a part of its share: of many processors one more or less is hardly felt. Backlogs that are counted every few
seconds differ by about as much although nothing has changed."""

AGE_DOUBLES_S = 60
"""Work whose oldest task has waited for so long weighs twice as much as new work: tasks are wanted within minutes."""
AGE_MAX_S = 180
"""From then on it weighs no more: an old heap, however old, must not push away all that is new."""
TASK_S_UNKNOWN = 0.1
"""How long a task is thought to take if no queue has been measured yet. Alone, it is only compared with itself."""
TASK_S_MIN = 1e-6

Assignment = Mapping[int, int]
"""How many processors of a worker are for which queue. Those that are left go round."""
ProcessorPlan = Mapping[UUID, Assignment]
"""By worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLoad:
    """What is to be done of a queue."""

    queue: int
    ready: int
    taken: int = 0
    """In the hands of workers, as they said last. Of a queue that just keeps up it is all that is ever seen."""
    oldest_s: float = 0.0
    """How long the oldest that is ready has been so."""
    task_s: float | None = None
    """How long a processor is at a task; None if nobody has measured it."""
    batch_size: int = 1
    """So many tasks a processor takes at once: more processors than batches would have nothing to take."""
    most: int | None = None
    """How many processors it may have, if somebody said so."""
    is_paused: bool = False

    @property
    def tasks(self) -> int:
        return 0 if self.is_paused else self.ready + self.taken

    @property
    def processors_max(self) -> int:
        """How many it can make use of."""
        return self.at_most(-(-self.tasks // max(1, self.batch_size)))

    def at_most(self, count: int) -> int:
        """So many, or as many as it may have, whatever there is to do."""
        if self.is_paused:
            return 0
        return count if self.most is None else min(count, self.most)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRoom:
    """A worker with the processors that it may run."""

    worker: UUID
    processors_max: int
    queues: frozenset[int]
    """Those it has handlers for."""
    assigned: Assignment = field(default_factory=dict)
    """What it was told before."""


def plan_processors(loads: Iterable[QueueLoad], workers: Iterable[WorkerRoom]) -> ProcessorPlan:
    """Who shall work on what. The same facts give the same plan, and a plan that was followed stays."""
    fleet = _Fleet(workers)
    known = {load.queue: load for load in loads}
    busy = sorted(
        (load for load in known.values() if load.processors_max), key=lambda load: (-load.oldest_s, load.queue)
    )
    paused = {load.queue for load in known.values() if load.is_paused}
    idle = fleet.serving.keys() - paused - {load.queue for load in busy}
    free, places = _minimum_and_watch(fleet, [load.queue for load in busy], idle)
    goal = _goal([load for load in busy if places.counts[load.queue]], fleet, free, places)
    watched = {queue for queue in fleet.serving if fleet.is_watched(queue, free)}
    if _is_good_enough(fleet, goal, known, watched - paused):
        placed: Sequence[Mapping[int, int]] = [room.assigned for room in fleet.rooms]
    else:
        placed = _placed(fleet, free, goal.counts, known)
    return {
        room.worker: {queue: count for queue, count in sorted(here.items()) if count > 0}
        for room, here in zip(fleet.rooms, placed, strict=True)
    }


class _Fleet:
    """The workers in the order of their guids. Further down a worker is its number in that order."""

    def __init__(self, workers: Iterable[WorkerRoom]) -> None:
        self.rooms = sorted(workers, key=lambda room: room.worker)
        serving: dict[int, list[int]] = {}
        for worker, room in enumerate(self.rooms):
            for queue in room.queues:
                serving.setdefault(queue, []).append(worker)
        self.serving = {queue: tuple(crew) for queue, crew in serving.items()}
        """Who has a handler for which queue."""
        self.assigned = sum((Counter(room.assigned) for room in self.rooms), Counter[int]())

    def who_serve(self, queue: int) -> tuple[int, ...]:
        return self.serving.get(queue, ()) if queue >= 0 else (_watch_of(queue),)

    def is_watched(self, queue: int, free: Sequence[int]) -> bool:
        """Whether one goes round where it is served."""
        return any(free[worker] < self.rooms[worker].processors_max for worker in self.who_serve(queue))


def _watch_of(worker: int) -> int:
    """The number that stands for a queue where one of a worker's goes round: it has a place there, and nowhere else.

    The same leads from that number back to the worker.
    """
    return -1 - worker


# What a queue weighs.


def weights(loads: Sequence[QueueLoad]) -> dict[int, int]:
    """The work of each queue, in microseconds times age; whole numbers, so that shares are exact."""
    measured = [load.task_s for load in loads if load.task_s is not None]
    usual_s = sum(measured) / len(measured) if measured else TASK_S_UNKNOWN
    return {load.queue: _weight(load, usual_s) for load in loads}


def _weight(load: QueueLoad, usual_s: float) -> int:
    task_s = usual_s if load.task_s is None else load.task_s
    age = 1 + min(max(load.oldest_s, 0.0), AGE_MAX_S) / AGE_DOUBLES_S
    return load.tasks * max(1, round(max(task_s, TASK_S_MIN) * age / TASK_S_MIN))


# The minimum, and who watches what has none.


def _minimum(fleet: _Fleet, free: Sequence[int], queues: Iterable[int]) -> _Places:
    """One for each queue in this order, as far as there are places. An earlier one is never left out for a later."""
    places = _Places(fleet, free)
    for queue in queues:
        places.add(queue)
    return places


def _minimum_and_watch(fleet: _Fleet, busy: Sequence[int], idle: Iterable[int]) -> tuple[list[int], _Places]:
    """How many processors of each worker may be assigned, and the minimum; the others go round.

    They do so for queues that have none of their own. For a queue with something to do that is so even if another one
    loses its own by that; for an empty queue, of which nobody knows whether it stays so, only if that costs nobody the
    minimum.
    """
    free = [room.processors_max for room in fleet.rooms]
    places = _minimum(fleet, free, busy)
    while unseen := _unseen(fleet, free, busy, places):
        able = [worker for worker in fleet.who_serve(unseen[0]) if free[worker]]
        free[max(able, key=lambda worker: len(fleet.rooms[worker].queues.intersection(unseen)))] -= 1
        places = _minimum(fleet, free, busy)
    for queue in sorted(idle):
        if not fleet.is_watched(queue, free):
            watcher = next((worker for worker in fleet.who_serve(queue) if places.add(_watch_of(worker))), None)
            if watcher is not None:
                free[watcher] -= 1
    return free, places


def _unseen(fleet: _Fleet, free: Sequence[int], queues: Sequence[int], minimum: _Places) -> list[int]:
    """Those that have neither a processor of their own nor one that goes round, although there is a worker."""
    return [
        queue
        for queue in queues
        if not minimum.counts[queue]
        and not fleet.is_watched(queue, free)
        and any(free[worker] for worker in fleet.who_serve(queue))
    ]


# Shares.


@dataclass(frozen=True, slots=True)
class _Goal:
    shares: Mapping[int, Fraction]
    counts: Mapping[int, int]
    """The same in whole processors, as far as workers can be found that serve these queues."""


def _goal(served: Sequence[QueueLoad], fleet: _Fleet, free: Sequence[int], places: _Places) -> _Goal:
    """What each of these is to have; `places` hold the minimum, and are filled."""
    weight = weights(served)
    most = {
        load.queue: min(load.processors_max, sum(free[worker] for worker in fleet.who_serve(load.queue)))
        for load in served
    }
    useful = sum(left for room, left in zip(fleet.rooms, free, strict=True) if not room.queues.isdisjoint(weight))
    shares = fair_shares(weight, most, useful)
    _fill(places, weight, whole_shares(shares))
    # What those could not use whose workers are full, others may.
    _fill(places, weight, most)
    return _Goal(shares, {queue: places.counts[queue] for queue in weight})


def fair_shares(weight: Mapping[int, int], most: Mapping[int, int], total: int) -> dict[int, Fraction]:
    """What each gets of the total in proportion to its weight, but at least one and at most its own most.

    Those that would get less than one, or more than their most, are given that; the others share what is left, and so
    on, until nobody is outside. Whichever side is further out goes first, so that the other may come back in by it.
    """
    shares: dict[int, Fraction] = {}
    left = min(total, sum(most.values()))
    open_ones = dict(weight)
    while open_ones:
        per_weight = Fraction(left, sum(open_ones.values()))
        ideal = {queue: one * per_weight for queue, one in open_ones.items()}
        bounded = {queue: min(max(share, Fraction(1)), Fraction(most[queue])) for queue, share in ideal.items()}
        excess = sum(bounded.values()) - left
        fixed = {
            queue: bounded[queue]
            for queue, share in ideal.items()
            if excess == 0 or (bounded[queue] > share if excess > 0 else bounded[queue] < share)
        }
        shares |= fixed
        for queue, share in fixed.items():
            del open_ones[queue]
            left -= int(share) if excess else 0
    return shares


def whole_shares(shares: Mapping[int, Fraction]) -> dict[int, int]:
    """Rounded by the largest remainder, the same sum; among equals the smaller number of a queue goes first."""
    counts = {queue: int(share) for queue, share in shares.items()}
    order = sorted(shares, key=lambda queue: (counts[queue] - shares[queue], queue))
    for queue in order[: int(sum(shares.values())) - sum(counts.values())]:
        counts[queue] += 1
    return counts


def _fill(places: _Places, weight: Mapping[int, int], most: Mapping[int, int]) -> None:
    """Up to the most of each, as far as there are places: always for the queue with the most work for each it has."""

    def turn(queue: int) -> tuple[float, int]:
        return -weight[queue] / (places.counts[queue] + 1), queue

    hungry = [turn(queue) for queue in weight if places.counts[queue] < most[queue]]
    heapify(hungry)
    while hungry:
        queue = hungry[0][1]
        if places.add(queue) and places.counts[queue] < most[queue]:
            heapreplace(hungry, turn(queue))
        else:
            heappop(hungry)


# Places on workers.

_Move = tuple[int, int, int | None]
"""A worker, which queue comes there, and which goes from there instead; None where there is room."""
_CameFrom = dict[int, tuple[int, int] | None]
"""By which queue each would be pushed away, and where; None for the one that needs a place."""


class _Places:
    """Who works on what, filled one by one.

    What was added stays: to make room it may only move to another worker. So how many of each queue find a place does
    not depend on which place was chosen for whom; and where there is none for a queue, there never will be.
    """

    def __init__(self, fleet: _Fleet, free: Sequence[int]) -> None:
        self._fleet = fleet
        self._free = list(free)
        self._roomy: dict[tuple[int, ...], list[tuple[int, int]]] = {}
        """Those who serve the same queues, the one with the most room first; some may have less since it was noted."""
        self._full: set[int] = set()
        """Queues for which there is no place any more."""
        self.placed: list[Counter[int]] = [Counter() for _ in fleet.rooms]
        self.counts: Counter[int] = Counter()

    def add(self, queue: int) -> bool:
        """Find a place; False if there is none, however the others are moved."""
        if queue in self._full:
            return False
        came_from: _CameFrom = {queue: None}
        found = self._find_room(came_from)
        if found is None:
            self._full |= came_from.keys()  # nor is there for those that would have had to make room
            return False
        for worker, came, went in _way(*found, came_from):
            self.placed[worker][came] += 1
            if went is not None:
                self.placed[worker][went] -= 1
            else:
                self._free[worker] -= 1
        self.counts[queue] += 1
        return True

    def add_up_to(self, queue: int, count: int) -> None:
        while self.counts[queue] < count and self.add(queue):
            pass

    def keep(self, worker: int, queue: int, count: int) -> None:
        """Let it have what it had, as far as there is room."""
        kept = max(0, min(count, self._free[worker])) if queue in self._fleet.rooms[worker].queues else 0
        self.placed[worker][queue] += kept
        self.counts[queue] += kept
        self._free[worker] -= kept

    def _find_room(self, came_from: _CameFrom) -> tuple[int, int] | None:
        """A worker that has room, and who would come there: the shortest way, of which `came_from` tells the rest."""
        looked: set[int] = set()
        front = list(came_from)
        while front:
            for queue in front:
                worker = self._roomiest(queue)
                if worker is not None:
                    return queue, worker
            front = [other for queue in front for other in self._others(queue, looked, came_from)]
        return None

    def _others(self, queue: int, looked: set[int], came_from: _CameFrom) -> Iterator[int]:
        """Who could make room for a queue, if they found some elsewhere."""
        for worker in self._fleet.who_serve(queue):
            if worker not in looked:
                looked.add(worker)
                for other, count in self.placed[worker].items():
                    if count > 0 and other not in came_from:
                        came_from[other] = (queue, worker)
                        yield other

    def _roomiest(self, queue: int) -> int | None:
        """The worker with the most room that serves it."""
        crew = self._fleet.who_serve(queue)
        if (heap := self._roomy.get(crew)) is None:
            heap = self._roomy[crew] = [(-self._free[worker], worker) for worker in crew]
            heapify(heap)
        while heap:
            noted, worker = heap[0]
            if not self._free[worker]:
                heappop(heap)
            elif noted == -self._free[worker]:
                return worker
            else:
                heapreplace(heap, (-self._free[worker], worker))
        return None


def _way(queue: int, worker: int, came_from: _CameFrom) -> list[_Move]:
    """From the worker with room back to the queue that needs it."""
    moves: list[_Move] = [(worker, queue, None)]
    while (step := came_from[queue]) is not None:
        pushing, where = step
        moves.append((where, pushing, queue))
        queue = pushing
    return moves


def _placed(
    fleet: _Fleet, free: Sequence[int], counts: Mapping[int, int], known: Mapping[int, QueueLoad]
) -> Sequence[Mapping[int, int]]:
    """So many of each queue; where they are already, they stay. What is left over stays with who had it."""
    places = _Places(fleet, free)
    before = [
        (worker, queue, count)
        for worker, room in enumerate(fleet.rooms)
        for queue, count in sorted(room.assigned.items())
    ]
    for worker, queue, count in before:
        places.keep(worker, queue, min(count, counts.get(queue, 0) - places.counts[queue]))
    for queue, count in sorted(counts.items()):
        places.add_up_to(queue, count)
    for worker, queue, count in before:
        allowed = _allowed(queue, fleet.assigned[queue], known) - places.counts[queue]
        places.keep(worker, queue, min(count - places.placed[worker][queue], allowed))
    return places.placed


# What is there already.


def _is_good_enough(fleet: _Fleet, goal: _Goal, known: Mapping[int, QueueLoad], watched: Iterable[int]) -> bool:
    """Whether what was assigned before may stay: possible and allowed still, nothing out of sight, and near enough to
    the goal, or such that nobody wants more than it has."""
    now = fleet.assigned
    if not all(map(_is_possible, fleet.rooms)):
        return False
    if any(_allowed(queue, count, known) < count for queue, count in now.items()):
        return False
    free = [sum(room.assigned.values()) for room in fleet.rooms]
    if not all(now[queue] or fleet.is_watched(queue, free) for queue in watched):
        return False
    is_near = all(
        _is_near(now[queue], goal.counts.get(queue, 0), goal.shares.get(queue, Fraction(0)))
        for queue in now.keys() | goal.counts.keys()
    )
    return is_near or all(now[queue] >= count for queue, count in goal.counts.items())


def _allowed(queue: int, count: int, known: Mapping[int, QueueLoad]) -> int:
    return known[queue].at_most(count) if queue in known else count


def _is_possible(room: WorkerRoom) -> bool:
    return sum(room.assigned.values()) <= room.processors_max and room.assigned.keys() <= room.queues


def _is_near(now: int, goal: int, share: Fraction) -> bool:
    if now == goal:
        return True
    return now > 0 and (abs(now - share) <= KEEP_WITHIN or abs(now - goal) <= goal * KEEP_PART)
