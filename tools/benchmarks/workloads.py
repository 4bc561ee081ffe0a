"""The workloads, by name. What each one measures is the first line of its function."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

import anyio

from benchmarks import gates, queues, semaphores
from benchmarks.checking import Tally, check_all_done, check_all_written
from benchmarks.floor import floor
from benchmarks.measuring import Figure, Measured, Run, rate, run_loop, spread_of
from benchmarks.parts import PATIENCE_S, calls, drained, failures_told, installed, working
from benchmarks.peers import draining
from benchmarks.starts import StartReporter
from benchmarks.statements import FUTURE_ACTIONS, FUTURE_ROWS, TRANSACTIONS
from matrixsched import Context
from matrixsched.calls import call
from matrixsched.store.statements import Dialect

BOTH: tuple[Dialect, ...] = ("postgresql", "sqlite")
POSTGRESQL: tuple[Dialect, ...] = ("postgresql",)

CALLERS = 32
BATCH = 1_000
IDLE_SHARDS = 64
IDLE_SETTLE_S = 2.0
ASKING = 2
"""Transactions that asking for their number costs: connecting is one, too."""
WARM_UP_STARTS = 5
TIMERS_BEGIN_AFTER = timedelta(seconds=1)


@dataclass(frozen=True)
class Ratio:
    """A figure of another workload, measured in the same round, that one of ours is divided by."""

    workload: str
    figure: str


@dataclass(frozen=True)
class Workload:
    name: str
    databases: tuple[Dialect, ...]
    run: Callable[[Run], Measured]
    compared_to: Ratio | None = None
    is_peer: bool = False
    """Another library: it is measured when somebody asks for it."""

    @property
    def summary(self) -> str:
        return (inspect.getdoc(self.run) or "").partition("\n")[0]


# --- scheduling: nobody runs the actions, every call returns only when its action is durable ---


def schedule_1(run: Run) -> Measured:
    """calls per second of one caller that schedules one action after another"""
    return _scheduled(run, callers=1, calls=run.scale.calls_one_by_one)


def schedule_32(run: Run) -> Measured:
    """calls per second of 32 callers at once, each scheduling one action after another"""
    return _scheduled(run, callers=CALLERS, calls=run.scale.calls_at_once)


def _scheduled(run: Run, *, callers: int, calls: int) -> Measured:
    each = calls // callers

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
            await app.schedule_many(calls(count))
            return time.perf_counter() - begun

    elapsed_s = run_loop(work)
    return Measured([rate("rate", count, elapsed_s)], check_all_written(run.place, count + 1))


# --- draining ---


def drain(run: Run) -> Measured:
    """actions per second from the incoming queue to their recorded outcome, one process, async no-op handler"""
    return _drained(run, future=0)


def drain_future(run: Run) -> Measured:
    """the same, with a million actions present that are not due yet"""
    return _drained(run, future=run.scale.future)


def _drained(run: Run, *, future: int) -> Measured:
    tally = Tally(run.scale.due)

    async def prepare() -> None:
        async with installed(run):
            pass

    async def fill() -> None:
        async with run.place.app() as app:
            await app.schedule_many(calls(tally.expected))

    run_loop(prepare)
    if future:
        _add_future_actions(run, future)
    run.place.settle()
    run_loop(fill)
    elapsed_s = run_loop(partial(drained, run, tally))
    return Measured([rate("rate", tally.expected, elapsed_s)], check_all_done(run.place, tally))


def _add_future_actions(run: Run, count: int) -> None:
    """As if they had been scheduled and moved long ago: written directly, the library would take a minute."""
    for text in (FUTURE_ACTIONS, FUTURE_ROWS):
        run.place.ask(text.format(count=count, shards=run.shards))


# --- time ---


def latency(run: Run) -> Measured:
    """from the call of schedule to the start of the handler, on an idle worker in a process of its own"""
    times_s: list[float] = []

    async def work() -> None:
        async with installed(run) as app, StartReporter.of(run.place) as worker:
            for number in range(-WARM_UP_STARTS, run.scale.starts):
                await anyio.sleep(0.02 + 0.01 * (number % 3))  # not in step with anybody's polling
                begun_ns = time.monotonic_ns()
                await app.schedule("start", number)
                started_ns = await worker.start_of(number)
                if number >= 0:
                    times_s.append((started_ns - begun_ns) / 1e9)

    run_loop(work)
    return Measured(spread_of(times_s), check_all_written(run.place, run.scale.starts + WARM_UP_STARTS))


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
            begin = datetime.now(UTC) + TIMERS_BEGIN_AFTER
            every = timedelta(seconds=over_s / count)
            await app.schedule_many(
                call("count", number, id=f"due-{number}", at=begin + number * every) for number in range(count)
            )
            with anyio.move_on_after(over_s + PATIENCE_S):
                await all_started.wait()

    run_loop(work)
    early = [late for late in late_s if late < 0]
    violations = check_all_done(run.place, tally)
    if early:
        violations.append(f"{len(early)} of {count} actions started early, the first by {-min(early) * 1000:.3f} ms")
    return Measured(spread_of(late_s), violations)


def idle(run: Run) -> Measured:
    """transactions per second on the server while a worker with 64 shards has nothing to do"""
    shards = Run(run.place, run.scale, IDLE_SHARDS)

    async def work() -> float:
        async with installed(shards) as app, working(app):
            await anyio.sleep(min(IDLE_SETTLE_S, run.scale.idle_s))
            before, begun = await anyio.to_thread.run_sync(_transactions, run), time.perf_counter()
            await anyio.sleep(run.scale.idle_s)
            after = await anyio.to_thread.run_sync(_transactions, run)
            return (after - before - ASKING) / (time.perf_counter() - begun)

    return Measured([Figure("transactions", max(run_loop(work), 0.0), "/s")])


def _transactions(run: Run) -> int:
    ((count,),) = run.place.ask(TRANSACTIONS)
    return int(count)


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload("schedule-1", BOTH, schedule_1),
        Workload("schedule-32", BOTH, schedule_32),
        Workload("schedule-many", BOTH, schedule_many, Ratio("floor", "schedule")),
        Workload("drain", BOTH, drain, Ratio("floor", "drain")),
        Workload("drain-future", POSTGRESQL, drain_future, Ratio("drain", "rate")),
        Workload("plan", POSTGRESQL, gates.plan),
        Workload("drain-template", POSTGRESQL, gates.drain_template, Ratio("drain", "rate")),
        Workload("drain-held", POSTGRESQL, gates.drain_held, Ratio("drain-template", "rate")),
        Workload("drain-keys", POSTGRESQL, gates.drain_keys, Ratio("drain", "rate")),
        Workload("limit-fleet", BOTH, gates.limit_fleet),
        Workload("balance-small", BOTH, semaphores.balance_small),
        Workload("balance", POSTGRESQL, semaphores.balance, Ratio("balance-small", "p50")),
        Workload("semaphores-idle", BOTH, semaphores.semaphores_idle),
        Workload("queue-put", BOTH, queues.queue_put),
        Workload("queue-drain", BOTH, queues.queue_drain, Ratio("queue-floor", "rate")),
        Workload("queue-future", POSTGRESQL, queues.queue_future, Ratio("queue-drain", "rate")),
        Workload("queue-floor", POSTGRESQL, queues.queue_floor),
        Workload("latency", BOTH, latency),
        Workload("lateness", BOTH, lateness),
        Workload("idle", POSTGRESQL, idle),
        Workload("floor", POSTGRESQL, floor),
        Workload("graphile", POSTGRESQL, draining.graphile, is_peer=True),
        Workload("pgqueuer", POSTGRESQL, draining.pgqueuer, is_peer=True),
    )
}
