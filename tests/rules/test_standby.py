"""Who may begin with a queue whose processors are limited: examples, and the laws."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrixsched.rules.processors import ProcessorPlan, QueueLoad, WorkerRoom, plan_processors
from matrixsched.rules.standby import plan_with_standby

A, B, C = 1, 2, 3
QUEUES = range(1, 5)


def worker(number: int, processors_max: int, assigned: dict[int, int] | None = None) -> WorkerRoom:
    return WorkerRoom(
        worker=UUID(int=number),
        processors_max=processors_max,
        queues=frozenset(QUEUES),
        assigned=dict(assigned or {}),
    )


def load(queue: int, ready: int, most: int | None = None, *, is_paused: bool = False) -> QueueLoad:
    return QueueLoad(queue=queue, ready=ready, most=most, is_paused=is_paused)


def totals(plan: ProcessorPlan) -> Counter[int]:
    return sum((Counter(told) for told in plan.values()), Counter[int]())


def followed(workers: list[WorkerRoom], plan: ProcessorPlan) -> list[WorkerRoom]:
    return [replace(room, assigned=plan[room.worker]) for room in workers]


EXAMPLES = {
    "one stands by for a limited queue that is empty": ([load(A, 0, 2)], [worker(1, 4)], [{A: 1}]),
    "none where none is allowed": ([load(A, 0, 0)], [worker(1, 4)], [{}]),
    "nor for a paused one": ([load(A, 0, 2, is_paused=True)], [worker(1, 4)], [{}]),
    "nor for one without a limit, where those that go round come": ([load(A, 0)], [worker(1, 4)], [{}]),
    "where the most are free": ([load(A, 0, 1), load(B, 8)], [worker(1, 4), worker(2, 9)], [{A: 1, B: 1}, {B: 7}]),
    "the same as before": ([load(A, 0, 1)], [worker(1, 4, {A: 1}), worker(2, 9)], [{A: 1}, {}]),
    "even if all are needed elsewhere": ([load(A, 0, 1), load(B, 8)], [worker(1, 1)], [{A: 1, B: 1}]),
    "and there is more to do than processors": ([load(A, 9, 1), load(B, 9)], [worker(1, 1)], [{A: 1}]),
    "what has some already gets no more": ([load(A, 9, 2), load(B, 9)], [worker(1, 4)], [{A: 2, B: 1}]),
    "what may only look empty keeps what it has": ([load(A, 0, 3)], [worker(1, 4, {A: 3})], [{A: 3}]),
}


@pytest.mark.parametrize(("loads", "workers", "expected"), EXAMPLES.values(), ids=EXAMPLES)
def test_examples(loads: list[QueueLoad], workers: list[WorkerRoom], expected: list[dict[int, int]]) -> None:
    assert list(plan_with_standby(loads, workers).values()) == expected


LOADS = st.lists(
    st.builds(
        QueueLoad,
        queue=st.sampled_from(QUEUES),
        ready=st.sampled_from([0, 0, 1, 7, 1000]),
        oldest_s=st.floats(0, 100),
        most=st.none() | st.integers(0, 3),
        is_paused=st.sampled_from([False, False, True]),
    ),
    unique_by=lambda load: load.queue,
)
WORKERS = st.lists(
    st.builds(
        WorkerRoom,
        worker=st.integers(1, 9).map(lambda number: UUID(int=number)),
        processors_max=st.integers(0, 4),
        queues=st.frozensets(st.sampled_from(QUEUES)),
        assigned=st.dictionaries(st.sampled_from(QUEUES), st.integers(1, 3), max_size=3),
    ),
    max_size=4,
    unique_by=lambda room: room.worker,
)


@given(LOADS, WORKERS)
def test_every_limited_queue_may_be_begun_and_none_has_more_than_it_may(
    loads: list[QueueLoad], workers: list[WorkerRoom]
) -> None:
    plan = plan_with_standby(loads, workers)
    has = totals(plan)
    for one in loads:
        assert has[one.queue] <= one.at_most(10**6)
        is_served = any(one.queue in room.queues and room.processors_max for room in workers)
        assert has[one.queue] or one.most is None or not one.at_most(1) or not is_served
    for room in workers:
        assert plan[room.worker].keys() <= room.queues


@given(LOADS, WORKERS)
def test_nobody_stands_by_for_others(loads: list[QueueLoad], workers: list[WorkerRoom]) -> None:
    """Beyond its processors a worker gets one at most for each queue that is limited."""
    limited = {one.queue for one in loads if one.most is not None}
    for room in workers:
        told = plan_with_standby(loads, workers)[room.worker]
        standby = sum(count == 1 and queue in limited for queue, count in told.items())
        assert sum(told.values()) - standby <= room.processors_max


@given(LOADS, WORKERS)
def test_a_plan_that_was_followed_stays(loads: list[QueueLoad], workers: list[WorkerRoom]) -> None:
    plan = plan_with_standby(loads, workers)
    assert plan_with_standby(loads, followed(workers, plan)) == plan


@given(LOADS, WORKERS)
def test_where_nothing_is_limited_nobody_stands_by(loads: list[QueueLoad], workers: list[WorkerRoom]) -> None:
    free = [replace(one, most=None) for one in loads]
    assert plan_with_standby(free, workers) == plan_processors(free, workers)
