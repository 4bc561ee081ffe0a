"""How many processors each queue gets, and where: examples as a table, and the laws."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrixsched.rules.processors import (
    AGE_DOUBLES_S,
    AGE_MAX_S,
    ProcessorPlan,
    QueueLoad,
    WorkerRoom,
    fair_shares,
    plan_processors,
    weights,
    whole_shares,
)

A, B, C, D = 1, 2, 3, 4
ALL = frozenset({A, B, C, D})


def worker(
    number: int, processors_max: int, queues: frozenset[int] = ALL, assigned: dict[int, int] | None = None
) -> WorkerRoom:
    return WorkerRoom(
        worker=UUID(int=number), processors_max=processors_max, queues=queues, assigned=dict(assigned or {})
    )


def load(queue: int, ready: int, oldest_s: float = 0.0, task_s: float | None = None, **others: int) -> QueueLoad:
    return QueueLoad(queue=queue, ready=ready, oldest_s=oldest_s, task_s=task_s, **others)  # type: ignore[arg-type]


def totals(plan: ProcessorPlan) -> dict[int, int]:
    return dict(sorted(sum((Counter(one) for one in plan.values()), Counter[int]()).items()))


def followed(workers: list[WorkerRoom], plan: ProcessorPlan) -> list[WorkerRoom]:
    return [replace(room, assigned=plan[room.worker]) for room in workers]


# Examples: on one worker of ten processors, which serves four queues.

EXAMPLES = {
    "nothing to do: all go round": ([], {}, {}),
    "one queue gets all but the one that watches the others": ([load(A, 1000)], {}, {A: 9}),
    "no more than there are batches": ([load(A, 25, batch_size=10)], {}, {A: 3}),
    "nor more than somebody allowed": ([load(A, 1000, most=2), load(B, 10)], {}, {A: 2, B: 7}),
    "if that is none, it is left to those that go round": ([load(A, 1000, most=0)], {A: 1}, {}),
    "what is taken counts: a queue that keeps up has nothing else": ([load(A, 0, taken=40, batch_size=10)], {}, {A: 4}),
    "by how many wait": ([load(A, 800), load(B, 100)], {}, {A: 8, B: 1}),
    "by how long they take": ([load(A, 100, task_s=0.8), load(B, 100, task_s=0.1)], {}, {A: 8, B: 1}),
    "what nobody has measured takes as long as the others on average": (
        [load(A, 100, task_s=0.1), load(B, 100, task_s=0.3), load(C, 100)],
        {},
        {A: 2, B: 4, C: 3},
    ),
    "by how long the oldest has waited": ([load(A, 100, AGE_DOUBLES_S), load(B, 100)], {}, {A: 6, B: 3}),
    "but not without end": ([load(A, 100, 86400), load(B, 100)], {}, {A: 7, B: 2}),
    "one for each at least": ([load(A, 10**6), load(B, 1), load(C, 1), load(D, 1)], {}, {A: 7, B: 1, C: 1, D: 1}),
    "equal ones: the smaller number first": (
        [load(A, 100), load(B, 100), load(C, 100), load(D, 100)],
        {},
        {A: 3, B: 3, C: 2, D: 2},
    ),
    "what is near enough is kept": ([load(A, 460), load(B, 440)], {A: 4, B: 5}, {A: 4, B: 5}),
    "what is not is changed": ([load(A, 600), load(B, 300)], {A: 4, B: 5}, {A: 6, B: 3}),
    "a part too many of many is nothing": ([load(A, 800), load(B, 100)], {A: 7, B: 1}, {A: 7, B: 1}),
    "an empty queue keeps none that another wants": ([load(A, 1000)], {A: 5, B: 4}, {A: 9}),
    "but what nobody wants": ([load(A, 5), load(B, 0)], {A: 5, B: 4}, {A: 5, B: 4}),
    "of which another takes what it can use and no more": ([load(A, 7), load(B, 0)], {A: 5, B: 4}, {A: 7, B: 2}),
    "with nothing to do all stay where they are": ([], {A: 5, B: 4}, {A: 5, B: 4}),
    "but for one that watches the others": ([], {A: 5, B: 5}, {A: 5, B: 4}),
    "who has too much keeps it if nobody wants it": ([load(A, 2), load(B, 3)], {A: 5, B: 3}, {A: 5, B: 3}),
    "but not what is wanted, be it near enough": (
        [load(A, 340), load(B, 540), load(C, 0)],
        {A: 3, B: 5, C: 1},
        {A: 3, B: 6},
    ),
    "nor more than somebody allows now": ([load(A, 0, most=2), load(B, 3)], {A: 5, B: 3}, {A: 2, B: 3}),
    "a queue that was empty gets one at once": ([load(A, 1000), load(B, 1)], {A: 9}, {A: 8, B: 1}),
    "a paused queue has nothing to do": (
        [load(A, 100), QueueLoad(queue=B, ready=10**6, is_paused=True)],
        {A: 1, B: 8},
        {A: 9},
    ),
    "what no worker serves is left out": ([load(A, 100), load(99, 100)], {}, {A: 9}),
    "more than there are processors for are taken away": ([load(A, 1000)], {A: 12}, {A: 9}),
}


@pytest.mark.parametrize(("loads", "now", "expected"), EXAMPLES.values(), ids=EXAMPLES)
def test_on_one_worker(loads: list[QueueLoad], now: dict[int, int], expected: dict[int, int]) -> None:
    assert totals(plan_processors(loads, [worker(1, 10, assigned=now)])) == expected


def test_a_worker_gets_queues_alone_that_it_serves() -> None:
    workers = [worker(1, 4, frozenset({A})), worker(2, 4, frozenset({A, B}))]
    plan = plan_processors([load(A, 1000), load(B, 1000)], workers)
    assert list(plan.values()) == [{A: 4}, {B: 4}]


def test_what_one_cannot_use_is_given_to_another() -> None:
    workers = [worker(1, 2, frozenset({A})), worker(2, 6, frozenset({B, C}))]
    plan = plan_processors([load(A, 10**6), load(B, 20), load(C, 10)], workers)
    assert list(plan.values()) == [{A: 2}, {B: 4, C: 2}]


def test_a_queue_makes_room_for_one_that_has_no_other_worker() -> None:
    """B is the younger, but could be elsewhere; the older A of the second worker must not cost it its place."""
    workers = [worker(1, 1, frozenset({A, B})), worker(2, 1, frozenset({A}))]
    plan = plan_processors([load(A, 9, 60), load(B, 9)], workers)
    assert list(plan.values()) == [{B: 1}, {A: 1}]


def test_workers_keep_what_they_have() -> None:
    workers = [worker(1, 4, assigned={A: 4}), worker(2, 4, assigned={A: 1, B: 2}), worker(3, 4)]
    plan = plan_processors([load(A, 500), load(B, 200), load(C, 200), load(D, 200)], workers)
    assert totals(plan) == {A: 6, B: 2, C: 2, D: 2}
    assert list(plan.values()) == [{A: 4}, {A: 1, B: 2, D: 1}, {A: 1, C: 2, D: 1}]


def test_where_queues_are_more_than_processors_the_oldest_have_their_own_and_one_goes_round() -> None:
    loads = [load(A, 10, 5), load(B, 10, 50), load(C, 10, 20), load(D, 10, 1)]
    assert totals(plan_processors(loads, [worker(1, 3)])) == {B: 1, C: 1}
    assert totals(plan_processors(loads, [worker(1, 1)])) == {}


def test_who_grows_old_takes_the_place_of_who_was_served() -> None:
    workers = [worker(1, 2)]
    loads = [load(A, 10, 30), load(B, 10, 20), load(C, 10, 10)]
    workers = followed(workers, plan_processors(loads, workers))
    assert totals(plan_processors(loads, workers)) == {A: 1}
    served = [load(A, 5, 2), load(B, 10, 25), load(C, 10, 15)]
    assert totals(plan_processors(served, workers)) == {B: 1}


def test_a_queue_that_looks_empty_between_two_batches_keeps_its_processors() -> None:
    workers = followed([worker(1, 8), worker(2, 8)], {UUID(int=1): {A: 3, B: 2}, UUID(int=2): {A: 3, C: 2}})
    looks = [
        {A: 6, B: 2, C: 2},
        {A: 0, B: 2, C: 2},
        {A: 4, B: 0, C: 1},
        {A: 0, B: 0, C: 0},
        {A: 5, B: 1, C: 2},
    ]
    for taken in looks:
        loads = [load(queue, 0, taken=count) for queue, count in taken.items()]
        assert plan_processors(loads, workers) == {room.worker: room.assigned for room in workers}


def test_what_was_kept_goes_to_whoever_has_something_to_do() -> None:
    workers = [worker(1, 2, frozenset({A, B}), {A: 2}), worker(2, 2, frozenset({A}), {A: 2})]
    plan = plan_processors([load(A, 0), load(B, 1)], workers)
    assert list(plan.values()) == [{B: 1}, {A: 2}], "the other one watches"


def test_age_counts_up_to_its_most() -> None:
    found = weights([load(A, 1, 0), load(B, 1, AGE_DOUBLES_S), load(C, 1, AGE_MAX_S), load(D, 1, 10**9)])
    assert [found[queue] / found[A] for queue in (B, C, D)] == [2, 4, 4]


def test_as_a_queue_fills_up_processors_move_to_it() -> None:
    workers = [worker(1, 4), worker(2, 4)]
    seen = []
    for ready in (0, 1, 100, 1000, 10_000, 1000, 100, 0):
        workers = followed(workers, plan_processors([load(A, 1000), load(B, ready)], workers))
        seen.append(totals({room.worker: room.assigned for room in workers}))
    assert seen == [
        {A: 7},
        {A: 6, B: 1},
        {A: 6, B: 1},
        {A: 4, B: 3},
        {A: 1, B: 6},
        {A: 4, B: 3},
        {A: 6, B: 1},
        {A: 7},
    ]


# Laws.

QUEUES = range(1, 7)
LOADS = st.lists(
    st.builds(
        QueueLoad,
        queue=st.sampled_from(QUEUES),
        ready=st.integers(0, 50) | st.integers(0, 10**6),
        taken=st.integers(0, 5),
        oldest_s=st.floats(0, 1000),
        task_s=st.none() | st.floats(0, 10),
        batch_size=st.integers(1, 20),
        most=st.none() | st.integers(0, 5),
        is_paused=st.sampled_from([False, False, False, True]),
    ),
    max_size=len(QUEUES),
    unique_by=lambda load: load.queue,
)
ASSIGNED = st.dictionaries(st.sampled_from(QUEUES), st.integers(1, 5), max_size=4)
WORKERS = st.lists(
    st.builds(
        WorkerRoom,
        worker=st.integers(1, 9).map(lambda number: UUID(int=number)),
        processors_max=st.integers(0, 12),
        queues=st.frozensets(st.sampled_from(QUEUES)),
        assigned=ASSIGNED,
    ),
    max_size=5,
    unique_by=lambda room: room.worker,
)
ALIKE = st.lists(st.integers(1, 12), min_size=1, max_size=4).map(
    lambda sizes: [worker(number, size, frozenset(QUEUES)) for number, size in enumerate(sizes, 1)]
)
"""Workers that all serve all queues, and have heard nothing yet."""


def busy(loads: list[QueueLoad]) -> set[int]:
    return {load.queue for load in loads if load.processors_max}


@given(LOADS, WORKERS)
def test_no_worker_gets_more_than_it_has_or_what_it_does_not_serve(
    loads: list[QueueLoad], workers: list[WorkerRoom]
) -> None:
    plan = plan_processors(loads, workers)
    assert plan.keys() == {room.worker for room in workers}
    for room in workers:
        assert sum(plan[room.worker].values()) <= room.processors_max
        assert plan[room.worker].keys() <= room.queues
        assert all(count > 0 for count in plan[room.worker].values())
    has, had = totals(plan), totals({room.worker: room.assigned for room in workers})
    for queue in has.keys() - busy(loads):
        assert has[queue] <= had.get(queue, 0), "empty ones get none"
    for one in loads:
        assert has.get(one.queue, 0) <= one.at_most(10**6), "nor paused ones, nor more than somebody allows"


@given(LOADS, ALIKE)
def test_each_queue_with_something_to_do_gets_one_while_there_are_enough(
    loads: list[QueueLoad], workers: list[WorkerRoom]
) -> None:
    if len(busy(loads)) <= sum(room.processors_max for room in workers):
        assert totals(plan_processors(loads, workers)).keys() == busy(loads)


@given(LOADS, WORKERS)
def test_what_gets_none_is_seen_by_one_that_goes_round(loads: list[QueueLoad], workers: list[WorkerRoom]) -> None:
    plan = plan_processors(loads, workers)
    for queue in busy(loads) - totals(plan).keys():
        serving = [room for room in workers if queue in room.queues and room.processors_max]
        assert not serving or any(sum(plan[room.worker].values()) < room.processors_max for room in serving)


@given(LOADS, ALIKE)
def test_where_there_are_too_few_the_oldest_have_them(loads: list[QueueLoad], workers: list[WorkerRoom]) -> None:
    found = totals(plan_processors(loads, workers))
    left_out = [load.oldest_s for load in loads if load.processors_max and load.queue not in found]
    if left_out:
        assert all(load.oldest_s >= max(left_out) for load in loads if load.queue in found)


@given(LOADS, ALIKE)
def test_shares_are_in_proportion_within_one(loads: list[QueueLoad], workers: list[WorkerRoom]) -> None:
    """Between two queues that are at none of their bounds, what one has for its work differs by less than one each."""
    found = totals(plan_processors(loads, workers))
    served = [load for load in loads if load.queue in found]
    weight = weights(served)
    between = [load.queue for load in served if 1 < found[load.queue] < load.processors_max]
    for one in between:
        for other in between:
            assert (found[one] - 1) * weight[other] <= (found[other] + 1) * weight[one]


@given(LOADS, WORKERS)
def test_a_plan_that_was_followed_stays(loads: list[QueueLoad], workers: list[WorkerRoom]) -> None:
    """From wherever it begins, one plan is enough: it converges at once and does not swing."""
    plan = plan_processors(loads, workers)
    assert plan_processors(loads, followed(workers, plan)) == plan


@given(LOADS, WORKERS, st.data())
def test_who_looks_empty_loses_only_what_others_get(
    loads: list[QueueLoad], workers: list[WorkerRoom], data: st.DataObject
) -> None:
    """Or what watches: one on each worker at most."""
    if not loads:
        return
    before = plan_processors(loads, workers)
    chosen = data.draw(st.sampled_from(loads))
    looks = [replace(one, ready=0, taken=0) if one is chosen else one for one in loads]
    after = plan_processors(looks, followed(workers, before))
    had, has = Counter(totals(before)), Counter(totals(after))
    assert (had - has).total() <= (has - had).total() + len(workers)


@given(LOADS, ALIKE, st.lists(ASSIGNED, min_size=4, max_size=4))
def test_one_for_each_comes_before_what_others_keep(
    loads: list[QueueLoad], workers: list[WorkerRoom], before: list[dict[int, int]]
) -> None:
    workers = [replace(room, assigned=assigned) for room, assigned in zip(workers, before, strict=False)]
    if len(busy(loads)) <= sum(room.processors_max for room in workers):
        assert totals(plan_processors(loads, workers)).keys() >= busy(loads)


@given(LOADS, ALIKE, st.data())
def test_more_to_do_never_means_fewer(loads: list[QueueLoad], workers: list[WorkerRoom], data: st.DataObject) -> None:
    if not loads:
        return
    chosen = data.draw(st.sampled_from(loads))
    more = replace(chosen, ready=chosen.ready + data.draw(st.integers(1, 10**5)))
    before = totals(plan_processors(loads, workers))
    after = totals(plan_processors([more if one is chosen else one for one in loads], workers))
    assert after.get(chosen.queue, 0) >= before.get(chosen.queue, 0)


@given(LOADS, ALIKE, st.lists(ASSIGNED, min_size=4, max_size=4))
def test_as_few_move_as_must(loads: list[QueueLoad], workers: list[WorkerRoom], before: list[dict[int, int]]) -> None:
    """Of what fits, only what a queue has too much goes; and on each worker one more, to go round."""
    fitting = [room for room in workers]
    for place, (room, assigned) in enumerate(zip(workers, before, strict=False)):
        if sum(assigned.values()) <= room.processors_max:
            fitting[place] = replace(room, assigned=assigned)
    plan = plan_processors(loads, fitting)
    had, has = Counter(totals({room.worker: room.assigned for room in fitting})), Counter(totals(plan))
    came = sum((Counter(plan[room.worker]) - Counter(room.assigned)).total() for room in fitting)
    assert came <= (has - had).total() + len(workers)


@given(LOADS, WORKERS, st.randoms(use_true_random=False))
def test_the_order_of_the_facts_does_not_matter(loads: list[QueueLoad], workers: list[WorkerRoom], chance) -> None:  # type: ignore[no-untyped-def]
    plan = plan_processors(loads, workers)
    chance.shuffle(loads)
    chance.shuffle(workers)
    assert plan_processors(loads, workers) == plan


def test_a_large_fleet_is_planned_in_a_moment() -> None:
    """The worker that plans for all has handlers of its own to run. A hundred workers, two hundred queues."""
    queues = range(200)
    workers = [worker(number, 10, frozenset(queues)) for number in range(1, 101)]
    loads = [load(queue, 37 * queue % 1009, queue % 13, 0.1 + queue % 7, batch_size=10) for queue in queues]
    took_s = []
    for _ in range(3):
        began = time.thread_time()
        workers = followed(workers, plan_processors(loads, workers))
        took_s.append(time.thread_time() - began)
    assert min(took_s) < 0.25, "a tenth of that on a machine of 2024"


@given(
    st.dictionaries(st.sampled_from(QUEUES), st.tuples(st.integers(1, 10**9), st.integers(1, 30)), min_size=1),
    st.integers(0, 60),
)
def test_bounded_shares_add_up(wanted: dict[int, tuple[int, int]], spare: int) -> None:
    total = len(wanted) + spare
    most = {queue: bound for queue, (_, bound) in wanted.items()}
    shares = fair_shares({queue: weight for queue, (weight, _) in wanted.items()}, most, total)
    assert sum(shares.values()) == min(total, sum(most.values()))
    assert all(1 <= share <= most[queue] for queue, share in shares.items())
    whole = whole_shares(shares)
    assert sum(whole.values()) == sum(shares.values())
    assert all(abs(whole[queue] - share) < 1 for queue, share in shares.items())
