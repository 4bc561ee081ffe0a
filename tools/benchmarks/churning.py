"""The workload of churn: whether tables stay small and workers fast, however much has gone through them.

An hour's worth of work goes through in a minute or two, in rounds. What an hour would leave to time is done after each:
what ended before the last round is pruned, as retention does; what is dead is swept, as workers do when they tidy up;
and the tables are vacuumed and analysed, as autovacuum does at each of its turns, of which there would be several. It
goes on beside, as the server is set; nobody waits for it. When the snapshot has ended they are vacuumed once more, and
from then on rounds take turns with rounds of an installation that was empty until then.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial

import anyio
import anyio.to_thread
import psycopg

from benchmarks.checking import Tally, check_churned
from benchmarks.measuring import Figure, Measured, Run, run_loop
from benchmarks.parts import PATIENCE_S, failures_told, working
from benchmarks.statements import TABLE_BYTES
from matrixsched import Cancel, Context, Retry, every
from matrixsched.app import App
from matrixsched.calls import Call, call
from matrixsched.events import OutcomesRecorded
from matrixsched.store.values import SweepPosition

HOT = {
    "processing": "processing_queue",
    "incoming": "incoming_queue",
    "locks": "shard_locks",
    "actions": "scheduled_actions",
    "requests": "requests",
}
"""Tables, by how figures name them."""
BLOCK = 20
"""Of so many runs in a row 15 are of plain actions and two of replaced ones; a repeated one has two, and one fails
first. With them goes one that is cancelled before it is due."""
REPLACED, REPEATED, RETRIED = (15, 16), 17, 19
FAILED_ATTEMPTS = 1
LATER = timedelta(hours=1)
TIDY_BATCH = 500
CANCELLERS = 8
MB = 1024 * 1024


def churn(run: Run) -> Measured:
    """drain rates and table sizes before, while and after another session keeps vacuum from removing anything"""
    third = run.scale.churn // run.scale.churn_round // 3
    churned = Course(run, rounds=3 * third)

    async def work(fresh: Course) -> None:
        async with churned.open() as app, fresh.open() as fresh_app:
            for _ in range(third):
                await churned.round(app)
            with _snapshot(run):
                for _ in range(third):
                    await churned.round(app)
            await anyio.to_thread.run_sync(churned.vacuum)
            for _ in range(third):
                await churned.round(app)
                await fresh.round(fresh_app)

    with run.place.beside() as place:
        fresh = Course(replace(run, place=place), rounds=third)
        run_loop(partial(work, fresh))
        violations = churned.violations() + fresh.violations()
    return Measured([*_rates(churned, fresh, third), *_sizes(churned, third)], violations)


@contextmanager
def _snapshot(run: Run) -> Iterator[None]:
    """Whoever reads for long: until it ends, no row may go that was there when it began."""
    with psycopg.connect(run.place.url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute("select count(*) from pg_class")
        yield


def _rates(churned: Course, fresh: Course, third: int) -> Iterator[Figure]:
    rates = churned.rates
    before, beside, after = (statistics.median(part) for part in (rates[:third], rates[third:-third], rates[-third:]))
    took_turns = zip(rates[-third:], fresh.rates, strict=True)
    yield Figure("before", before, "/s")
    yield Figure("snapshot open", beside, "/s")
    yield Figure("slowest round", min(rates), "/s")
    yield Figure("after", after, "/s")
    yield Figure("after / before", after / before, "share")
    # A machine that is slower in this minute than in the last says nothing about us: these took turns.
    yield Figure("after / fresh", statistics.median(ours / other for ours, other in took_turns), "share")


def _sizes(churned: Course, third: int) -> Iterator[Figure]:
    for table in HOT:
        sizes = [after_round[table] for after_round in churned.sizes]
        for moment, size in (("before", sizes[third - 1]), ("most", max(sizes)), ("after", sizes[-1])):
            yield Figure(f"{table} {moment}", size, "MB")


class Course:
    """Rounds of the same work in one installation."""

    def __init__(self, run: Run, *, rounds: int) -> None:
        self._run = run
        self._rounds = rounds
        self._runs = run.scale.churn_round
        """Of a round."""
        self._tally = Tally(rounds * self._runs)
        self._scheduled = self._pruned = 0
        self._unrecorded, self._all_recorded = 0, anyio.Event()
        self.rates: list[float] = []
        """Of each round, from the start of its worker to the last recorded outcome."""
        self.sizes: list[dict[str, float]] = []
        """In MB, with indexes, after each round."""

    @asynccontextmanager
    async def open(self) -> AsyncIterator[App]:
        """An installation of its own, in which lies what the first round will replace or cancel."""
        app = self._run.place.app()
        self._register(app)
        app.events.subscribe(OutcomesRecorded, self._count_recorded)
        await app.init(shards=self._run.shards)
        async with failures_told(app, self._tally):
            await app.schedule_many(self._laid_for_later(0))
            yield app

    async def round(self, app: App) -> None:
        begun, number = time.monotonic(), len(self.rates)
        await self._schedule(app, number)
        self.rates.append(self._runs / await self._drained(app))
        await self._tidy(app, keep=timedelta(seconds=time.monotonic() - begun))
        self.sizes.append(await anyio.to_thread.run_sync(self.vacuum))

    def violations(self) -> list[str]:
        return check_churned(self._run.place, self._tally, self._scheduled, self._pruned)

    def _register(self, app: App) -> None:
        tally = self._tally

        @app.action("count", retry=Retry(first_delay=timedelta(0)))
        async def count(number: int, context: Context) -> Cancel | None:
            if number % BLOCK == RETRIED and not context.failures:
                raise RuntimeError("the first attempt fails")
            tally.count(number + context.tick)
            return Cancel("it was repeated once") if context.tick else None

        @app.action("never")
        async def never(number: int) -> None:
            tally.faults.append(f"action {number} was run although it was cancelled")

    # What comes in.

    async def _schedule(self, app: App, number: int) -> None:
        """All of a round, and for the next one what will be replaced or cancelled before it is due."""
        await app.schedule_many(_due(self._numbers(number)))
        await _cancel_all(app, [_withdrawn(one) for one in self._numbers(number) if one % BLOCK == 0])
        if number + 1 < self._rounds:
            await app.schedule_many(self._laid_for_later(number + 1))
        self._scheduled += self._runs  # of each block one action is run twice, and one never

    def _numbers(self, number: int) -> range:
        return range(number * self._runs, (number + 1) * self._runs)

    def _laid_for_later(self, number: int) -> Iterator[Call]:
        for one in self._numbers(number):
            if one % BLOCK in REPLACED:
                yield call("never", one, id=_id(one), delay=LATER)
            elif one % BLOCK == 0:
                yield call("never", one, id=_withdrawn(one), delay=LATER)

    # What goes out.

    async def _drained(self, app: App) -> float:
        self._unrecorded, self._all_recorded = self._runs // BLOCK * (BLOCK + FAILED_ATTEMPTS), anyio.Event()
        begun = time.perf_counter()
        async with working(app):
            with anyio.move_on_after(PATIENCE_S + self._runs / 200):
                await self._all_recorded.wait()
            return time.perf_counter() - begun

    def _count_recorded(self, event: OutcomesRecorded) -> None:
        self._unrecorded -= event.recorded
        if self._unrecorded <= 0:
            self._all_recorded.set()

    async def _tidy(self, app: App, *, keep: timedelta) -> None:
        store, do = app.store, app.store.transitions
        self._pruned += sum((await app.prune(keep)).values())
        while await store.run(do.prune_requests(keep=keep, limit=TIDY_BATCH)) >= TIDY_BATCH:
            pass
        position, is_complete = SweepPosition(), False
        while not is_complete:
            swept = await store.run(do.sweep_dead(position, limit=TIDY_BATCH, reach=LATER))
            position, is_complete = swept.position, swept.position == SweepPosition()

    def vacuum(self) -> dict[str, float]:
        for table in (*HOT.values(), "attempt_history"):
            self._run.place.ask(f"vacuum analyze matrixsched.{table}")
        return {name: self._run.place.ask(TABLE_BYTES.format(table=table))[0][0] / MB for name, table in HOT.items()}


def _due(numbers: Sequence[int]) -> Iterator[Call]:
    for number in numbers:
        if number % BLOCK == REPEATED:
            yield call("count", number, id=_id(number), repeat=every(timedelta(milliseconds=1), after_end=True))
        elif number % BLOCK != REPEATED + 1:
            # Every other one can be sent again by name, which leaves a row among the requests.
            yield call("count", number, id=_id(number), request_id="churn" if number % 2 else None)


async def _cancel_all(app: App, ids: list[str]) -> None:
    async def cancel() -> None:
        while ids:
            await app.cancel(ids.pop())

    async with anyio.create_task_group() as cancellers:
        for _ in range(CANCELLERS):
            cancellers.start_soon(cancel)


def _id(number: int) -> str:
    return f"due-{number}"


def _withdrawn(number: int) -> str:
    return f"withdrawn-{number}"
