"""Workloads of draining: how fast actions that are due get to their recorded outcome, and what that takes."""

from __future__ import annotations

from functools import partial

from benchmarks.checking import Tally, check_all_done, check_part_done
from benchmarks.drainers import Drained, Drainers
from benchmarks.measuring import Figure, Measured, Run, rate, run_loop
from benchmarks.parts import PATIENCE_S, calls, drained, installed
from benchmarks.staging import AGO, LATER, stage


def drain(run: Run) -> Measured:
    """actions per second from the incoming queue to their recorded outcome, one process, async no-op handler"""
    return _drained(run)


def drain_future_100k(run: Run) -> Measured:
    """as drain, with a hundred thousand actions present that are not due yet"""
    return _drained(run, future=run.scale.future // 10)


def drain_future(run: Run) -> Measured:
    """as drain, with a million actions present that are not due yet"""
    return _drained(run, future=run.scale.future)


def drain_future_10m(run: Run) -> Measured:
    """as drain, with ten million actions present that are not due yet"""
    return _drained(run, future=run.scale.future * 10)


def _drained(run: Run, *, future: int = 0) -> Measured:
    tally = Tally(run.scale.due)
    _fill(run, future=future)
    elapsed_s = run_loop(partial(drained, run, tally))
    return Measured([rate("rate", tally.expected, elapsed_s)], check_all_done(run.place, tally))


def drain_staged(run: Run) -> Measured:
    """actions per second from the processing queue, where they were moved before, to their recorded outcome"""
    tally = Tally(run.scale.due)
    _install(run)
    stage(run, tally.expected, "due", ahead=AGO)
    run.place.settle()
    elapsed_s = run_loop(partial(drained, run, tally))
    return Measured([rate("rate", tally.expected, elapsed_s)], check_all_done(run.place, tally))


def drain_2(run: Run) -> Measured:
    """actions per second of two worker processes together, from a common signal to the last recorded outcome"""
    tally = Tally(run.scale.due)

    async def work() -> Drained:
        async with Drainers.of(run.place, processes=2) as drainers:
            return await drainers.drain(tally.expected, within_s=PATIENCE_S + tally.expected / 200)

    _fill(run)
    done = run_loop(work)
    for number in done.ran:
        tally.count(number)
    tally.faults += done.faults
    figures = [rate("rate", tally.expected, done.elapsed_s)] if done.recorded else []
    return Measured(figures, check_all_done(run.place, tally))


def memory(run: Run) -> Measured:
    """memory of a worker process, at most and beyond what it began with, while it works on a million due actions"""
    total = run.scale.backlog

    async def work() -> Drained:
        async with Drainers.of(run.place, processes=1) as drainers:
            return await drainers.drain(total, within_s=run.scale.backlog_s)

    _install(run)
    stage(run, total, "due", ahead=AGO)
    run.place.settle()
    done = run_loop(work)
    (start_mb,), (peak_mb,) = done.start_mb, done.peak_mb
    figures = [Figure("peak", peak_mb, "MB"), Figure("over start", peak_mb - start_mb, "MB")]
    return Measured(figures, done.faults + check_part_done(run.place, done.ran, total))


def _install(run: Run) -> None:
    async def install() -> None:
        async with installed(run):
            pass

    run_loop(install)


def _fill(run: Run, *, future: int = 0) -> None:
    """Actions that are due in the incoming queue, beside others that are not."""

    async def fill() -> None:
        async with run.place.app() as app:
            await app.schedule_many(calls(run.scale.due))

    _install(run)
    if future:
        stage(run, future, "aside", ahead=LATER)
    run.place.settle()
    run_loop(fill)
