"""What workloads are put together from."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import anyio

from benchmarks.checking import Tally
from benchmarks.measuring import Run
from matrixsched.app import App
from matrixsched.calls import Call, call
from matrixsched.events import OutcomesRecorded, StepFailed
from matrixsched.worker import Worker

PATIENCE_S = 60.0


@asynccontextmanager
async def installed(run: Run) -> AsyncIterator[App]:
    """An application in an installation that was created just now."""
    app = run.place.app()
    app.action("count")(ignore)
    await app.init(shards=run.shards)
    async with app:
        yield app


async def ignore(number: int) -> None: ...


@asynccontextmanager
async def counting(app: App, tally: Tally) -> AsyncIterator[App]:
    """The application, open, with a handler that does nothing but count."""

    @app.action("count")
    async def count(number: int) -> None:
        tally.count(number)

    async with failures_told(app, tally):
        yield app


@asynccontextmanager
async def failures_told(app: App, tally: Tally) -> AsyncIterator[App]:
    """The application, open; a step that fails while we measure spoils the figures and is told."""
    app.events.subscribe(StepFailed, lambda failed: tally.faults.append(f"step {failed.step} failed: {failed.error}"))
    async with app:
        yield app


@asynccontextmanager
async def working(app: App) -> AsyncIterator[Worker]:
    """A worker in this process, with the defaults of `matrixsched worker`."""
    worker = Worker(app)
    async with anyio.create_task_group() as group:
        group.start_soon(worker.run)
        try:
            await worker.running.wait()
            yield worker
        finally:
            worker.stop()


def calls(numbers: range) -> Iterator[Call]:
    return (call("count", number, id=f"due-{number}") for number in numbers)


async def drained(run: Run, tally: Tally, due: int) -> float:
    """How many seconds a worker in this process takes to run what is due and to record its outcomes."""
    async with counting(run.place.app(), tally) as app:
        recorded, all_recorded = 0, anyio.Event()

        def count_recorded(event: OutcomesRecorded) -> None:
            nonlocal recorded
            recorded += event.recorded
            if recorded >= due:
                all_recorded.set()

        app.events.subscribe(OutcomesRecorded, count_recorded)
        begun = time.perf_counter()
        # The check afterwards says what is missing if this takes too long.
        async with working(app):
            with anyio.move_on_after(PATIENCE_S + due / 200):
                await all_recorded.wait()
            return time.perf_counter() - begun
