"""Turns at a rate, on a virtual clock: the n-th comes at the very nanosecond, whoever comes, waits and leaves."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from fractions import Fraction
from random import Random
from typing import TypeVar

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulation.loop import SeededLoop, Standstill

from matrixsched import Throughput
from matrixsched.clock import ManualClock, SystemClock
from matrixsched.errors import InvalidDuration, InvalidNumber
from matrixsched.rules.rates import Rate

T = TypeVar("T")

HOUR_S = 3600
SECOND_NS = 1_000_000_000


class LoopClock(SystemClock):
    """The time of a loop that jumps to whatever happens next."""

    def __init__(self, loop: SeededLoop) -> None:
        self.loop = loop

    def monotonic(self) -> float:
        return self.loop.time()


@contextmanager
def virtual(seed: int = 0, *, shuffles: bool = False) -> Iterator[LoopClock]:
    loop = SeededLoop(Random(seed))
    loop.shuffles = shuffles
    try:
        yield LoopClock(loop)
    finally:
        loop.close()


def run(main: Callable[[LoopClock], Awaitable[T]], *, seed: int = 0, shuffles: bool = False) -> T:
    with virtual(seed, shuffles=shuffles) as clock:

        async def begun() -> T:
            return await main(clock)

        return clock.loop.run_until_complete(begun())


@dataclass
class Workers:
    """Who got a turn, and when, since the clock was set to zero."""

    throughput: Throughput
    clock: LoopClock
    began_s: float = 0.0
    seen: list[tuple[object, int]] = field(default_factory=list)

    async def work(self, name: object, priority: int = 0) -> None:
        await self.throughput.wait(priority)
        self.seen.append((name, self.now_ns()))

    def now_ns(self) -> int:
        return round((self.clock.monotonic() - self.began_s) * SECOND_NS)

    @property
    def seen_ms(self) -> list[tuple[object, float]]:
        return [(name, ns / 1_000_000) for name, ns in self.seen]


async def settled() -> None:
    """Until all did what they can do at this instant."""
    for _ in range(20):
        await anyio.lowlevel.checkpoint()


# The runs that are shown for TPControl, in the order in which its workers happened to be launched.

ONE_QUEUE = [(0, 1), (0, 0), (0, 2), (0, 3), (0, 4)]
ONE_QUEUE_POOLED = [(0, batch) for batch in (4, 0, 1, 2, 3, 5, 7, 6, 8, 9)]
THREE_QUEUES = [(priority, batch) for batch in range(3) for priority in range(3)]
THREE_QUEUES_POOLED = [(2, 1), (0, 0), (1, 0), (2, 0), (0, 1), (1, 1)]
THREE_QUEUES_POOLED += [(priority, batch) for batch in (2, 3) for priority in range(3)]


@pytest.mark.parametrize(
    ("settings", "launched", "expected"),
    [
        ((5, 1, 1, 0), ONE_QUEUE, list(zip(ONE_QUEUE, range(200, 1001, 200), strict=True))),
        (
            (5, 1, 1, 5),
            ONE_QUEUE_POOLED,
            list(zip(ONE_QUEUE_POOLED, [0, 0, 0, 0, 0, 200, 400, 600, 800, 1000], strict=True)),
        ),
        ((5, 1, 3, 0), THREE_QUEUES, list(zip(sorted(THREE_QUEUES), range(200, 1801, 200), strict=True))),
        (
            (10, 3, 3, 5),
            THREE_QUEUES_POOLED,
            [((2, 1), 0), ((0, 0), 0), ((1, 0), 0), ((2, 0), 0), ((0, 1), 0)]
            + [((0, 2), 300), ((0, 3), 600), ((1, 1), 900), ((1, 2), 1200), ((1, 3), 1500)]
            + [((2, 2), 1800), ((2, 3), 2100)],
        ),
    ],
    ids=["5 in 1 s", "5 in 1 s, pool", "5 in 1 s, priorities", "10 in 3 s, priorities, pool"],
)
def test_the_runs_of_the_model_to_the_millisecond(settings, launched, expected):
    requests, seconds, _, pool = settings

    async def main(clock: LoopClock) -> list[tuple[object, float]]:
        throughput = Throughput(*settings, clock=clock)
        await clock.sleep(pool * seconds / requests)  # until the pool is full
        workers = Workers(throughput, clock, began_s=clock.monotonic())
        async with anyio.create_task_group() as group:
            for priority, batch in launched:
                group.start_soon(workers.work, (priority, batch), priority)
        return workers.seen_ms

    assert run(main) == expected


# The rate.


def test_the_rate_is_even_and_does_not_drift_in_ten_hours():
    async def main(clock: LoopClock) -> list[int]:
        workers = Workers(Throughput(3, 7, clock=clock), clock)

        async def again_and_again() -> None:
            while clock.monotonic() < 10 * HOUR_S:
                await workers.work("one of two")

        async with anyio.create_task_group() as group:
            group.start_soon(again_and_again)
            group.start_soon(again_and_again)
        return [ns for _, ns in workers.seen]

    seen = run(main)
    assert len(seen) > 10 * HOUR_S * 3 // 7
    assert seen == [math.ceil(number * Fraction(7_000_000_000, 3)) for number in range(1, len(seen) + 1)]


def test_a_process_that_always_wakes_late_keeps_the_rate():
    class LateClock(LoopClock):
        async def wait(self, event: anyio.Event, seconds: float) -> None:
            await super().wait(event, seconds + 0.003)

    async def main(clock: LoopClock) -> list[tuple[object, float]]:
        clock = LateClock(clock.loop)
        workers = Workers(Throughput(1000, 10, clock=clock), clock)
        async with anyio.create_task_group() as group:
            for number in range(1, 501):
                group.start_soon(workers.work, number)
        return workers.seen_ms

    assert run(main) == [(number, 10 * number + 3) for number in range(1, 501)]


def test_after_a_stall_few_turns_come_at_once():
    async def main(clock: LoopClock) -> list[float]:
        workers = Workers(Throughput(100, 1, clock=clock), clock)
        async with anyio.create_task_group() as group:
            for number in range(20):
                group.start_soon(workers.work, number)
            await clock.sleep(0.025)
            clock.loop._elapsed += 1  # whatever it was, nobody ran meanwhile
        return [ms for _, ms in workers.seen_ms]

    # 50 ms of the second are kept: the turn of just now, and five before it.
    assert run(main) == [10, 20] + [1025] * 6 + [1035 + 10 * number for number in range(12)]


def test_after_a_rest_at_most_one_turn_is_at_hand_without_a_pool():
    async def main(clock: LoopClock) -> list[tuple[object, float]]:
        workers = Workers(Throughput(5, 1, clock=clock), clock)
        await clock.sleep(1.05)
        for number in range(3):
            await workers.work(number)
        return workers.seen_ms

    assert run(main) == [(0, 1050), (1, 1250), (2, 1450)]


def test_while_nobody_waits_nothing_happens():
    async def main(clock: LoopClock) -> int:
        throughput = Throughput(1000, 1, pool=10, clock=clock)
        for _ in range(10):
            await throughput.wait()
        steps = clock.loop.steps
        await clock.sleep(10 * HOUR_S)
        return clock.loop.steps - steps

    assert run(main) < 10


def test_whoever_waits_is_asleep():
    async def main(clock: LoopClock) -> int:
        throughput = Throughput(1, HOUR_S, 2, clock=clock)
        async with anyio.create_task_group() as group:
            for number in range(100):
                group.start_soon(throughput.wait, number % 2)
        return clock.loop.steps

    assert run(main) < 100 * 15


# Order.


def test_the_most_important_of_those_who_wait_comes_first_and_the_oldest_among_them():
    async def main(clock: LoopClock) -> list[object]:
        workers = Workers(Throughput(1, 1, 3, clock=clock), clock)
        async with anyio.create_task_group() as group:
            for name, priority, at_s in [("a", 2, 0), ("b", 1, 0), ("c", 2, 0), ("d", 1, 0.5), ("e", 0, 1.5)]:
                await clock.sleep(at_s - clock.monotonic())
                group.start_soon(workers.work, name, priority)
        return [name for name, _ in workers.seen]

    assert run(main) == ["b", "e", "d", "a", "c"]


def test_a_slot_is_for_who_waited_not_for_who_comes_at_that_instant():
    async def main(clock: LoopClock) -> list[tuple[object, float]]:
        workers = Workers(Throughput(1, 1, 2, clock=clock), clock)
        async with anyio.create_task_group() as group:
            group.start_soon(workers.work, "waited", 1)
            await clock.sleep(1)
            group.start_soon(workers.work, "came", 0)
        return workers.seen_ms

    for seed in range(10):
        assert run(main, seed=seed, shuffles=True) == [("waited", 1000), ("came", 2000)]


def test_whoever_only_tries_never_jumps_the_queue():
    async def main(clock: LoopClock) -> list[bool]:
        throughput = Throughput(1, 1, 2, clock=clock)
        tried = [throughput.try_acquire()]
        async with anyio.create_task_group() as group:
            group.start_soon(throughput.wait, 1)
            await anyio.sleep(0.5)
            tried.append(throughput.try_acquire(0))
            await anyio.sleep(0.5)
            tried.append(throughput.try_acquire(0))
        await anyio.sleep(1)
        return [*tried, throughput.try_acquire(), throughput.try_acquire()]

    for seed in range(10):
        assert run(main, seed=seed, shuffles=True) == [False, False, False, True, False]


@dataclass(frozen=True)
class Visit:
    """Somebody who comes, and perhaps leaves before it is their turn."""

    came_ns: int
    priority: int
    left_ns: int | None


@st.composite
def visits(draw: st.DrawFn) -> list[Visit]:
    """No two come at one instant, and nobody leaves when somebody comes or a slot does: what would be first then?"""
    came = draw(st.lists(st.integers(0, 300), min_size=1, max_size=25, unique=True))
    stays = draw(st.lists(st.none() | st.integers(0, 200), min_size=len(came), max_size=len(came)))
    priorities = draw(st.lists(st.integers(0, 2), min_size=len(came), max_size=len(came)))
    return [
        Visit(
            came_ns=start * SECOND_NS,
            priority=priority,
            left_ns=None if stay is None else (start + stay) * SECOND_NS + 600_000_007 + 7_000_000 * number,
        )
        for number, (start, stay, priority) in enumerate(zip(sorted(came), stays, priorities, strict=True))
    ]


def foreseen(visits: list[Visit], period_ns: Fraction, pool: int) -> list[tuple[int, int]]:
    """Who gets a turn, and when, as a bucket says that fills with time: another way to count than by slots."""
    changes = [(visit.came_ns, True, number) for number, visit in enumerate(visits)]
    changes += [(visit.left_ns, False, number) for number, visit in enumerate(visits) if visit.left_ns is not None]
    level, now, waiting = Fraction(0), 0, list[int]()
    served: list[tuple[int, int]] = []

    def pass_until(moment: int | None) -> None:
        nonlocal level, now
        while waiting:
            ready = now + max(0, math.ceil((1 - level) * period_ns))
            if moment is not None and ready > moment:
                break
            level, now = level + (ready - now) / period_ns - 1, ready
            waiting.sort(key=lambda number: (visits[number].priority, number))
            served.append((waiting.pop(0), now))
        if moment is not None:
            level, now = min(Fraction(max(1, pool)), level + (moment - now) / period_ns), moment

    for moment, comes, number in sorted(changes):
        pass_until(moment)
        if comes:
            waiting.append(number)
            pass_until(moment)
        elif number in waiting:
            waiting.remove(number)
    pass_until(None)
    return served


@settings(deadline=None, max_examples=150)
@given(
    visits=visits(),
    requests=st.integers(1, 7),
    seconds=st.integers(1, 20),
    pool=st.integers(0, 4),
    seed=st.integers(0, 1000),
)
def test_turns_come_as_foreseen_whoever_comes_and_leaves(visits, requests, seconds, pool, seed):
    async def main(clock: LoopClock) -> list[tuple[object, int]]:
        workers = Workers(Throughput(requests, seconds, 3, pool, clock=clock), clock)

        async def visit(number: int, visit: Visit) -> None:
            await clock.sleep(visit.came_ns / SECOND_NS)
            stays_s = math.inf if visit.left_ns is None else visit.left_ns / SECOND_NS - clock.monotonic()
            with anyio.move_on_after(stays_s):
                await workers.work(number, visit.priority)

        async with anyio.create_task_group() as group:
            for number, one in enumerate(visits):
                group.start_soon(visit, number, one)
        assert workers.throughput.statistics().waiting == (0, 0, 0)
        return workers.seen

    period_ns = Fraction(seconds * SECOND_NS, requests)
    seen = run(main, seed=seed, shuffles=True)
    # Those of one instant go on in the order of their loop, which is any here.
    assert sorted(seen) == sorted(foreseen(visits, period_ns, pool))
    times = [ns for _, ns in seen]
    for begin in range(len(times)):
        for end in range(begin, len(times)):
            window_ns = times[end] - times[begin] + 1  # one for rounding
            assert end - begin + 1 <= window_ns / period_ns + max(1, pool)


# Leaving.


@pytest.mark.parametrize("leaver", range(4))
def test_whoever_is_cancelled_while_waiting_leaves_their_turn_to_the_next(leaver):
    async def main(clock: LoopClock) -> list[tuple[object, float]]:
        workers = Workers(Throughput(1, 1, 2, clock=clock), clock)
        async with anyio.create_task_group() as group:
            tasks = [clock.loop.create_task(workers.work(number, number // 2)) for number in range(4)]
            await clock.sleep(0.5)
            tasks[leaver].cancel()
            group.start_soon(workers.work, 4, 1)
        return workers.seen_ms

    stayed = [number for number in range(5) if number != leaver]
    assert run(main) == [(number, 1000 * place) for place, number in enumerate(stayed, start=1)]


def test_whoever_is_cancelled_in_the_instant_of_their_turn_leaves_it_to_the_next():
    async def main(clock: LoopClock) -> list[tuple[object, float]]:
        workers = Workers(Throughput(1, 1, 2, clock=clock), clock)

        async def leaves_late() -> None:
            await clock.sleep(0.5)
            await workers.work("leaver")

        async with anyio.create_task_group() as group:
            leaver = clock.loop.create_task(leaves_late())
            group.start_soon(workers.work, "next", 1)
            await clock.sleep(1)  # before the leaver began to: this goes on first
            assert workers.throughput.statistics().granted == 1
            assert not workers.seen, "granted, but it does not know yet"
            leaver.cancel()
        assert workers.throughput.statistics().cancelled == 1
        assert workers.throughput.statistics().granted == 1
        return workers.seen_ms

    assert run(main) == [("next", 1000)]


def test_turns_of_a_pool_that_were_not_used_are_there_for_others():
    async def main(clock: LoopClock) -> tuple[int, list[tuple[object, float]]]:
        workers = Workers(Throughput(1, 1, pool=5, clock=clock), clock)
        await clock.sleep(5)
        tasks = [clock.loop.create_task(workers.work(number)) for number in range(5)]

        async def leave() -> None:
            assert workers.throughput.statistics().granted == 5
            assert not workers.seen, "granted, but they do not know yet"
            tasks[1].cancel()
            tasks[3].cancel()

        clock.loop.create_task(leave())
        await settled()
        available = workers.throughput.statistics().available
        for number in range(5, 8):
            await workers.work(number)
        return available, workers.seen_ms

    assert run(main) == (2, [(0, 5000), (2, 5000), (4, 5000), (5, 5000), (6, 5000), (7, 6000)])


def test_a_turn_that_is_given_back_too_late_is_void():
    async def main(clock: LoopClock) -> list[tuple[object, float]]:
        throughput = Throughput(10, 1, clock=clock)
        workers = Workers(throughput, clock)
        leaver = clock.loop.spawn("stopped", workers.work("leaver"))
        async with anyio.create_task_group() as group:
            await clock.sleep(0.05)
            for number in range(4):
                group.start_soon(workers.work, number)
            clock.loop.hold("stopped")  # as if in another loop, which is blocked
            await clock.sleep(0.15)
            throughput.statistics()
            await clock.sleep(0.15)
            leaver.cancel()
            clock.loop.let_go("stopped")
        return workers.seen_ms

    assert run(main) == [(0, 250), (1, 350), (2, 450), (3, 550)]


def test_a_turn_that_is_given_back_after_the_rate_changed_is_void():
    async def main(clock: LoopClock) -> list[tuple[object, float]]:
        workers = Workers(Throughput(1000, 1000, 2, clock=clock), clock)

        async def leaves_late() -> None:
            await clock.sleep(0.5)
            await workers.work("leaver")

        async with anyio.create_task_group() as group:
            leaver = clock.loop.create_task(leaves_late())
            group.start_soon(workers.work, "next", 1)
            await clock.sleep(1)
            assert workers.throughput.statistics().granted == 1
            workers.throughput.change(1, 3)
            leaver.cancel()
        return workers.seen_ms

    assert run(main) == [("next", 4000)]


def test_whoever_is_cancelled_already_takes_no_turn():
    async def main(clock: LoopClock) -> int:
        throughput = Throughput(1, 1, pool=3, clock=clock)
        await clock.sleep(3)
        with anyio.CancelScope() as scope:
            scope.cancel()
            await throughput.wait()
        return throughput.statistics().available

    assert run(main) == 3


def test_a_task_that_is_thrown_away_unfinished_waits_no_longer():
    """At any moment, also while somebody is being served: that is when the garbage collector may come by."""

    class Collected(LoopClock):
        garbage: list[Coroutine[object, None, None]] = []

        def monotonic(self) -> float:
            while self.garbage:
                self.garbage.pop().close()
            return super().monotonic()

    async def main(clock: LoopClock) -> tuple[int, ...]:
        clock = Collected(clock.loop)
        throughput = Throughput(1, 1, clock=clock)
        waiting = throughput.wait()
        waiting.send(None)
        assert throughput.statistics().waiting == (1,)
        clock.garbage.append(waiting)
        return throughput.statistics().waiting

    assert run(main) == (0,)


# What it says of itself, and what it takes.


def test_statistics_say_how_it_stands():
    async def main(clock: LoopClock) -> None:
        throughput = Throughput(2, 1, 3, pool=4, clock=clock)
        assert throughput.statistics().available == 0
        await clock.sleep(60)
        assert throughput.statistics().available == 4
        async with anyio.create_task_group() as group:
            for number in range(9):
                group.start_soon(throughput.wait, number % 3)
            await settled()
            with anyio.move_on_after(0.1):
                await throughput.wait(0)
            statistics = throughput.statistics()
            assert statistics.rate == Rate(2, timedelta(seconds=1))
            assert (statistics.granted, statistics.cancelled, statistics.available) == (4, 1, 0)
            assert statistics.waiting == (1, 2, 2)
        statistics = throughput.statistics()
        assert (statistics.granted, statistics.waiting) == (9, (0, 0, 0))
        assert statistics.longest_wait == timedelta(seconds=2.5)

    run(main)


def test_another_rate_goes_for_those_who_wait_already():
    async def main(clock: LoopClock) -> list[tuple[object, float]]:
        workers = Workers(Throughput(1, HOUR_S, clock=clock), clock)
        async with anyio.create_task_group() as group:
            for number in range(5):
                group.start_soon(workers.work, number)
            await clock.sleep(0.05)
            workers.throughput.change(10, 1)
            await clock.sleep(0.2)
            workers.throughput.change(1, 2)
        assert workers.throughput.statistics().rate == Rate(1, timedelta(seconds=2))
        return workers.seen_ms

    assert run(main) == [(0, 100), (1, 200), (2, 2200), (3, 4200), (4, 6200)]


NOT_A_COUNT = [0, -1, 1.5, math.nan, math.inf, True, "5", None, 10**12]


@pytest.mark.parametrize("requests", NOT_A_COUNT)
def test_requests_must_be_a_count(requests):
    refused(lambda: Throughput(requests), "requests")
    refused(lambda: Throughput().change(requests, 1), "requests")


@pytest.mark.parametrize("seconds", [0, -1, 1e-9, math.nan, math.inf, True, "1", None, 1e12])
def test_seconds_must_be_a_time(seconds):
    refused(lambda: Throughput(5, seconds), "seconds")
    refused(lambda: Throughput().change(5, seconds), "seconds")


@pytest.mark.parametrize("priorities", NOT_A_COUNT)
def test_there_must_be_a_priority(priorities):
    refused(lambda: Throughput(priorities=priorities), "priorities")


@pytest.mark.parametrize("pool", [-1, 1.5, math.nan, True, "5", None])
def test_a_pool_must_be_a_count_or_nothing(pool):
    refused(lambda: Throughput(pool=pool), "pool")


@pytest.mark.parametrize("priority", [-1, 2, 0.0, math.nan, True, "0", None])
def test_a_priority_must_exist(priority):
    throughput = Throughput(priorities=2, clock=ManualClock())
    refused(lambda: throughput.try_acquire(priority), "priority")
    refused(lambda: throughput.wait_sync(priority), "priority")
    refused(lambda: anyio.run(throughput.wait, priority), "priority")
    assert throughput.statistics().waiting == (0, 0)


@pytest.mark.parametrize("timeout", [1, timedelta(seconds=-1), "1s"])
def test_a_timeout_must_be_a_duration(timeout):
    with pytest.raises(InvalidDuration, match="timeout"):
        Throughput(clock=ManualClock()).wait_sync(timeout=timeout)


def refused(call: Callable[[], object], argument: str) -> None:
    with pytest.raises(InvalidNumber) as caught:
        call()
    assert caught.value.argument == argument
    assert str(caught.value).endswith("Choose such a number.")


def test_nothing_is_left_when_all_are_served():
    with virtual() as clock:
        throughput = Throughput(1, 1, clock=clock)
        clock.loop.run_until_complete(throughput.wait())
        with pytest.raises(Standstill):
            clock.loop.run_forever()
