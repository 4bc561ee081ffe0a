"""Workloads of time: how soon a handler starts, how late a timer is, what a worker costs that has nothing to do."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

import anyio

from benchmarks.checking import Tally, check_all_done, check_all_written
from benchmarks.measuring import Figure, Measured, Run, rested, run_loop, spread_of
from benchmarks.parts import PATIENCE_S, failures_told, installed, working
from benchmarks.starts import StartReporter
from benchmarks.statements import TRANSACTIONS
from matrixsched import Context
from matrixsched.calls import Call, call

ASKING = 2
"""Transactions that asking for their number costs: connecting is one, too."""
WARM_UP_STARTS = 5
TIMERS_BEGIN_AFTER = timedelta(seconds=1)


def latency(run: Run) -> Measured:
    """from the call of schedule to the start of the handler, on an idle worker in a process of its own"""
    times = Latencies(run.scale.starts)

    async def work() -> None:
        async with installed(run) as app, StartReporter.of(run.place) as worker:
            for number in times.numbers:
                await times.rest(number)
                begun_ns = time.monotonic_ns()
                await app.schedule("start", number)
                times.note(number, (await worker.start_of(number) - begun_ns) / 1e9)
                await worker.recorded()

    run_loop(work)
    return Measured(times.figures(), check_all_written(run.place, len(times.numbers)))


class Latencies:
    """Those of starts on an idle worker: at first a moment after it recorded the last one, then after a longer rest,
    from which processors and their caches have to come back."""

    def __init__(self, starts: int) -> None:
        self._shortly = range(WARM_UP_STARTS, WARM_UP_STARTS + starts)
        self.numbers = range(self._shortly.stop + starts)
        self._shortly_s: list[float] = []
        self._rested_s: list[float] = []

    async def rest(self, number: int) -> None:
        """A while, and not in step with anybody's polling."""
        await anyio.sleep(rest_before(number, is_long=number >= self._shortly.stop))

    def note(self, number: int, elapsed_s: float) -> None:
        if number in self._shortly:
            self._shortly_s.append(elapsed_s)
        elif number >= self._shortly.stop:
            self._rested_s.append(elapsed_s)

    def figures(self) -> list[Figure]:
        return [*spread_of(self._shortly_s), *rested(spread_of(self._rested_s))]


def rest_before(number: int, *, is_long: bool) -> float:
    return 0.02 + 0.01 * (number % 3) if is_long else 0.001 + 0.001 * (number % 3)


def lateness(run: Run) -> Measured:
    """how long after its instant a handler starts, for actions spread evenly over 20 seconds"""
    count, over_s = run.scale.timers, run.scale.timers_over_s
    tally = Tally(count)
    late_s: list[float] = []

    async def work() -> None:
        app = run.place.app()
        all_started = anyio.Event()

        @app.action("count")
        async def start(number: int, context: Context) -> None:
            # Worker and database must share a clock, or this says more about clocks than about us.
            late_s.append((datetime.now(UTC) - context.scheduled_at).total_seconds())
            tally.count(number)
            if len(late_s) == count:
                all_started.set()

        await app.init(shards=run.shards)
        async with failures_told(app, tally), working(app):
            await app.schedule_many(timers(run))
            with anyio.move_on_after(over_s + PATIENCE_S):
                await all_started.wait()

    run_loop(work)
    return Measured(spread_of(late_s), [*check_all_done(run.place, tally), *check_none_early(late_s)])


def timers(run: Run) -> Iterator[Call]:
    """Actions that are due one after another, from a moment on that leaves time to write them."""
    begin = datetime.now(UTC) + TIMERS_BEGIN_AFTER
    every = timedelta(seconds=run.scale.timers_over_s / run.scale.timers)
    return (call("count", number, id=f"due-{number}", at=begin + number * every) for number in range(run.scale.timers))


def check_none_early(late_s: Sequence[float]) -> list[str]:
    early = [late for late in late_s if late < 0]
    if not early:
        return []
    return [f"{len(early)} of {len(late_s)} actions started early, the first by {-min(early) * 1000:.3f} ms"]


def idle_16(run: Run) -> Measured:
    """as idle, with 16 shards"""
    return _idle(run, shards=16)


def idle(run: Run) -> Measured:
    """processor time, and transactions per second on the server, of a worker with 64 shards that has nothing to do"""
    return _idle(run, shards=64)


def idle_256(run: Run) -> Measured:
    """as idle, with 256 shards"""
    return _idle(run, shards=256)


def _idle(run: Run, *, shards: int) -> Measured:
    sized = Run(run.place, run.scale, shards)
    is_counted = run.place.dialect == "postgresql"  # SQLite keeps no count of transactions

    async def transactions() -> int:
        return await anyio.to_thread.run_sync(_transactions, run) if is_counted else 0

    async def work() -> list[Figure]:
        async with installed(sized) as app, working(app):
            await anyio.sleep(run.scale.idle_settle_s)
            before, begun, begun_cpu = await transactions(), time.perf_counter(), time.process_time()
            await anyio.sleep(run.scale.idle_s)
            busy_s, elapsed_s = time.process_time() - begun_cpu, time.perf_counter() - begun
            made = max(0, await transactions() - before - ASKING)
        per_second = [Figure("transactions", made / elapsed_s, "/s")] if is_counted else []
        return [*per_second, Figure("cpu", 100 * busy_s / elapsed_s, "%")]

    return Measured(run_loop(work))


def _transactions(run: Run) -> int:
    ((count,),) = run.place.ask(TRANSACTIONS)
    return int(count)
