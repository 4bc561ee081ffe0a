"""One throughput for threads and several event loops at once, in real time."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import anyio
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from support.processes import until

from matrixsched import Throughput
from matrixsched.clock import ManualClock, SystemClock

DEADLINE_S = 20
PERIOD_S = 0.02


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(20) as pool:
        yield pool


@pytest.fixture
def portal() -> Iterator[BlockingPortal]:
    with start_blocking_portal() as portal:
        yield portal


@pytest.fixture
def other_portal() -> Iterator[BlockingPortal]:
    with start_blocking_portal() as portal:
        yield portal


class StandingClock(SystemClock):
    """Moved by hand. Nobody wakes up by it: whoever comes by serves whoever waits."""

    elapsed_s = 0.0

    def monotonic(self) -> float:
        return self.elapsed_s

    async def wait(self, event: anyio.Event, seconds: float) -> None:
        await event.wait()

    def wait_in_thread(self, event: threading.Event, seconds: float) -> None:
        event.wait(DEADLINE_S)


def waiting(throughput: Throughput, count: int) -> None:
    until(lambda: sum(throughput.statistics().waiting) == count, f"{count} wait")


def test_threads_and_tasks_of_two_loops_take_turns_in_the_order_in_which_they_came(threads, portal, other_portal):
    clock = StandingClock()
    throughput = Throughput(1, 1, 2, clock=clock)
    told: list[tuple[int, int]] = []

    def in_thread(name: tuple[int, int]) -> None:
        assert throughput.wait_sync(name[0])
        told.append(name)

    async def in_task(name: tuple[int, int]) -> None:
        await throughput.wait(name[0])
        told.append(name)

    calls = []
    for number in range(12):
        name = ((number + 1) % 2, number)
        match number % 3:
            case 0:
                calls.append(threads.submit(in_thread, name))
            case 1:
                calls.append(portal.start_task_soon(in_task, name))
            case _:
                calls.append(other_portal.start_task_soon(in_task, name))
        waiting(throughput, number + 1)
    for served in range(1, 13):
        clock.elapsed_s = served
        waiting(throughput, 12 - served)
        until(lambda served=served: len(told) == served, "told")
    assert told == sorted(told)
    assert all(call.exception(DEADLINE_S) is None for call in calls)


def test_threads_and_tasks_together_keep_the_rate(threads, portal, other_portal):
    began = time.monotonic()
    throughput = Throughput(1, PERIOD_S)
    moments: list[float] = []

    def in_thread() -> None:
        for _ in range(10):
            throughput.wait_sync()
            moments.append(time.monotonic() - began)

    async def in_task() -> None:
        for _ in range(10):
            await throughput.wait()
            moments.append(time.monotonic() - began)

    calls = [threads.submit(in_thread), threads.submit(in_thread)]
    calls += [place.start_task_soon(in_task) for place in (portal, other_portal) for _ in range(2)]
    assert all(call.result(DEADLINE_S) is None for call in calls)
    # A moment is noted after its turn, never before its slot.
    assert all(moment >= number * PERIOD_S for number, moment in enumerate(sorted(moments), start=1))
    assert throughput.statistics().granted == 60


def test_a_blocked_event_loop_holds_up_nobody_else(threads, portal):
    throughput = Throughput(1, PERIOD_S, 2)
    begun, release = threading.Event(), threading.Event()
    throughput.change(1, 3600)
    first = portal.start_task_soon(throughput.wait)
    waiting(throughput, 1)

    def block() -> None:
        begun.set()
        release.wait(DEADLINE_S)

    blocked = threads.submit(portal.call, block)
    assert begun.wait(DEADLINE_S)
    try:
        others = [threads.submit(throughput.wait_sync, 1) for _ in range(5)]
        waiting(throughput, 6)
        throughput.change(1, PERIOD_S)
        assert all(other.result(DEADLINE_S) for other in others)
        assert not first.done(), "it has its turn, and will learn of it"
        assert throughput.statistics().granted == 6
    finally:
        release.set()
    first.result(DEADLINE_S)
    blocked.result(DEADLINE_S)


def test_a_thread_may_give_up(threads):
    throughput = Throughput(1, 3600)
    assert throughput.wait_sync(timeout=timedelta(0)) is False
    assert throughput.wait_sync(timeout=timedelta(milliseconds=20)) is False
    keeper = threads.submit(throughput.wait_sync, 0, timedelta(milliseconds=50))
    waiting(throughput, 1)
    behind = threads.submit(throughput.wait_sync)
    assert keeper.result(DEADLINE_S) is False
    throughput.change(1, PERIOD_S)
    assert behind.result(DEADLINE_S) is True
    statistics = throughput.statistics()
    assert (statistics.granted, statistics.cancelled, statistics.waiting) == (1, 3, (0,))


def test_tasks_that_waited_in_a_loop_that_is_closed_take_no_turn(threads):
    throughput = Throughput(1, 3600)

    async def leave_unfinished() -> list[asyncio.Task[None]]:
        tasks = [asyncio.create_task(throughput.wait()) for _ in range(2)]
        await anyio.wait_all_tasks_blocked()
        return tasks

    loop = asyncio.new_event_loop()
    tasks = loop.run_until_complete(leave_unfinished())
    loop.close()
    behind = threads.submit(throughput.wait_sync)
    waiting(throughput, 3)
    throughput.change(1, PERIOD_S)
    assert behind.result(DEADLINE_S) is True
    while tasks:
        tasks.pop()._log_destroy_pending = False  # type: ignore[attr-defined]
    gc.collect()  # they withdraw, too late
    statistics = throughput.statistics()
    assert (statistics.granted, statistics.cancelled) == (1, 2)


def test_a_thread_waits_on_a_clock_that_is_moved_by_hand(threads):
    clock = ManualClock()
    throughput = Throughput(1, 3600, clock=clock)
    thread = threads.submit(throughput.wait_sync)
    waiting(throughput, 1)
    assert not thread.done()

    def moved() -> bool:
        clock.advance(timedelta(hours=1))  # again, if the thread had not gone to sleep yet
        return thread.done()

    until(moved, "its turn")
    assert thread.result() is True


FORK = """
import os, threading, warnings
from datetime import timedelta
warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of a fork beside threads: just that is tried
from matrixsched import Throughput
from matrixsched.clock import SystemClock

inside, release = threading.Event(), threading.Event()

class SlowClock(SystemClock):
    def monotonic(self):
        if threading.current_thread().name == "slow":
            inside.set()
            release.wait()
        return super().monotonic()

throughput = Throughput(1, 3600, clock=SlowClock())
threading.Thread(target=throughput.wait_sync, daemon=True).start()
while not sum(throughput.statistics().waiting):
    pass
threading.Thread(target=throughput.statistics, name="slow").start()
inside.wait()
child = os.fork()
if child == 0:
    assert throughput.statistics().waiting == (0,)
    throughput.change(50, 1)
    os._exit(0 if throughput.wait_sync(timeout=timedelta(seconds=20)) else 1)
release.set()
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
print(throughput.statistics().waiting)
"""


def test_a_forked_child_waits_for_nobody_of_its_parent():
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, timeout=50, check=False)
    assert done.stdout == "(1,)\n", done.stderr
