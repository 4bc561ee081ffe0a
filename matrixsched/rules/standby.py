"""Standing by: who may begin with a queue whose processors are limited, when it was empty or got none. Pure.

Those that go round leave such a queue alone, for nobody knows how many of them are there in the whole fleet. So one
worker at a time is told that one of its processors may go there: the first task need not wait for the next plan, and
where queues are more than processors it has its turns like all others. It takes nothing from anybody while there is
nothing to do, and so may be one more than the worker has processors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from uuid import UUID

from matrixsched.rules.processors import ProcessorPlan, QueueLoad, WorkerRoom, plan_processors


def plan_with_standby(loads: Sequence[QueueLoad], workers: Sequence[WorkerRoom]) -> ProcessorPlan:
    """Who shall work on what, as `plan_processors` says; and who stands by for the limited queues that got none."""
    plan = plan_processors(loads, _without_standby(loads, workers))
    given = sum((Counter(told) for told in plan.values()), Counter[int]())
    found = {worker: dict(told) for worker, told in plan.items()}
    for load in sorted(loads, key=lambda load: load.queue):
        if load.most is not None and load.at_most(1) and not given[load.queue]:
            worker = _who_stands_by(load.queue, workers, found)
            if worker is not None:
                found[worker][load.queue] = 1
    return {worker: dict(sorted(told.items())) for worker, told in found.items()}


def _without_standby(loads: Iterable[QueueLoad], workers: Sequence[WorkerRoom]) -> list[WorkerRoom]:
    """The workers without what they have as a standby alone: nobody plans with that."""
    assigned = sum((Counter(room.assigned) for room in workers), Counter[int]())
    alone = {load.queue: load for load in loads if load.most is not None and assigned[load.queue] == 1}
    return [
        replace(
            room,
            assigned={
                queue: count
                for queue, count in room.assigned.items()
                if queue not in alone or not (_has_too_much(room) or not alone[queue].tasks)
            },
        )
        for room in workers
    ]


def _has_too_much(room: WorkerRoom) -> bool:
    return sum(room.assigned.values()) > room.processors_max


def _who_stands_by(queue: int, workers: Iterable[WorkerRoom], given: ProcessorPlan) -> UUID | None:
    """Who did so before; otherwise whoever has the most processors that are told nothing."""
    able = [room for room in workers if queue in room.queues and room.processors_max]
    best = min(
        able,
        key=lambda room: (
            queue not in room.assigned,
            sum(given[room.worker].values()) - room.processors_max,
            room.worker,
        ),
        default=None,
    )
    return None if best is None else best.worker
