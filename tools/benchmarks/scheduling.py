"""Workloads of scheduling: nobody runs the actions, every call returns only when its action is durable."""

from __future__ import annotations

import time

import anyio

from benchmarks.checking import check_all_written
from benchmarks.measuring import Measured, Run, rate, run_loop
from benchmarks.parts import calls, installed
from matrixsched.calls import call


def schedule_1(run: Run) -> Measured:
    """calls per second of one caller that schedules one action after another"""
    return _scheduled(run, callers=1, calls=run.scale.calls_one_by_one)


def schedule_32(run: Run) -> Measured:
    """calls per second of 32 callers at once, each scheduling one action after another"""
    return _scheduled(run, callers=32, calls=run.scale.calls_at_once)


def schedule_256(run: Run) -> Measured:
    """calls per second of 256 callers at once, each scheduling one action after another"""
    return _scheduled(run, callers=256, calls=run.scale.calls_at_once)


def _scheduled(run: Run, *, callers: int, calls: int) -> Measured:
    each = max(1, calls // callers)

    async def work() -> float:
        async with installed(run) as app:

            async def caller(number: int) -> None:
                for turn in range(each):
                    await app.schedule("count", number * each + turn)

            await app.schedule("count", -1)  # connects, prepares the statement, reads the installation
            begun = time.perf_counter()
            async with anyio.create_task_group() as group:
                for number in range(callers):
                    group.start_soon(caller, number)
            return time.perf_counter() - begun

    elapsed_s = run_loop(work)
    written = callers * each
    return Measured([rate("rate", written, elapsed_s)], check_all_written(run.place, written + 1))


def schedule_many(run: Run) -> Measured:
    """actions per second of one caller that schedules them in batches of 1,000"""
    count = run.scale.calls_in_batches

    async def work() -> float:
        async with installed(run) as app:
            await app.schedule_many([call("count", -1)])
            begun = time.perf_counter()
            await app.schedule_many(calls(range(count)))
            return time.perf_counter() - begun

    elapsed_s = run_loop(work)
    return Measured([rate("rate", count, elapsed_s)], check_all_written(run.place, count + 1))
