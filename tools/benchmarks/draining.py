"""Workloads of draining: how fast actions that are due get to their recorded outcome, and what that takes."""

from __future__ import annotations

import statistics
from dataclasses import replace
from functools import partial

from benchmarks.checking import Tally, check_all_done, check_part_done
from benchmarks.drainers import Drained, Drainers
from benchmarks.measuring import Figure, Measured, Run, rate, run_loop
from benchmarks.parts import PATIENCE_S, calls, drained, installed
from benchmarks.staging import AGO, LATER, stage

TURNS = 3


def drain(run: Run) -> Measured:
    """actions per second from the incoming queue to their recorded outcome, one process, async no-op handler"""
    drains = Drains(run)
    drains.prepare()
    drains.turn()
    return Measured([Figure("rate", *drains.rates, "/s")], drains.violations())


def drain_future_100k(run: Run) -> Measured:
    """as drain, with a hundred thousand actions present that are not due yet; and divided by that with none"""
    return _drained_beside(run, run.scale.future // 10)


def drain_future(run: Run) -> Measured:
    """as drain, with a million actions present that are not due yet; and divided by that with none"""
    return _drained_beside(run, run.scale.future)


def drain_future_10m(run: Run) -> Measured:
    """as drain, with ten million actions present that are not due yet; and divided by that with none"""
    return _drained_beside(run, run.scale.future * 10)


def _drained_beside(run: Run, future: int) -> Measured:
    with run.place.beside() as place:
        beside, alone = Drains(run, turns=TURNS), Drains(replace(run, place=place), turns=TURNS)
        beside.prepare(future)
        alone.prepare()
        # They take turns: a drain takes a second, and a busy one of the machine would decide.
        for _ in range(TURNS):
            alone.turn()
            beside.turn()
        to_none = [ours / other for ours, other in zip(beside.rates, alone.rates, strict=True)]
        figures = [
            Figure("rate", statistics.median(beside.rates), "/s"),
            Figure("to none", statistics.median(to_none), "share"),
        ]
        return Measured(figures, beside.violations() + alone.violations())


class Drains:
    """What is due is scheduled in one installation and run by a worker in this process, turn after turn."""

    def __init__(self, run: Run, *, turns: int = 1) -> None:
        self._run = run
        self._tally = Tally(turns * run.scale.due)
        self.rates: list[float] = []
        """Of each turn, from the start of its worker to the last recorded outcome."""

    def prepare(self, future: int = 0) -> None:
        _install(self._run)
        if future:
            stage(self._run, future, "aside", ahead=LATER)
        self._run.place.settle()

    def turn(self) -> None:
        self.schedule()
        self.drain()

    def drain(self) -> None:
        """Run what is scheduled for this turn."""
        due = self._run.scale.due
        self.rates.append(due / run_loop(partial(drained, self._run, self._tally, due)))

    def schedule(self) -> None:
        """What is due in the next turn."""
        due = self._run.scale.due
        first = len(self.rates) * due

        async def schedule() -> None:
            async with self._run.place.app() as app:
                await app.schedule_many(calls(range(first, first + due)))

        run_loop(schedule)

    def violations(self) -> list[str]:
        return check_all_done(self._run.place, self._tally)


def drain_staged(run: Run) -> Measured:
    """actions per second from the processing queue, where they were moved before, to their recorded outcome"""
    tally = Tally(run.scale.due)
    _install(run)
    stage(run, tally.expected, "due", ahead=AGO)
    run.place.settle()
    elapsed_s = run_loop(partial(drained, run, tally, tally.expected))
    return Measured([rate("rate", tally.expected, elapsed_s)], check_all_done(run.place, tally))


def drain_2(run: Run) -> Measured:
    """actions per second of two worker processes together, from a common signal to the last recorded outcome"""
    tally = Tally(run.scale.due)

    async def work() -> Drained:
        async with Drainers.of(run.place, processes=2) as drainers:
            return await drainers.drain(tally.expected, within_s=PATIENCE_S + tally.expected / 200)

    drains = Drains(run)
    drains.prepare()
    drains.schedule()
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
