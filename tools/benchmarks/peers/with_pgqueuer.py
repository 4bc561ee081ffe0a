"""PgQueuer at work: python with_pgqueuer.py WHAT URL COUNT [SECONDS], in a database of its own."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import uvloop
from helping import CALLERS, Worker, answer, batches, heard_line, judged, judged_calls, seconds_at_once
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgPoolDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries
from pgqueuer.types import QueueExecutionMode

DRAIN_BATCH = 500
WARM_UP_STARTS = 5


@asynccontextmanager
async def connected(url: str, *, connections: int = 10) -> AsyncIterator[AsyncpgPoolDriver]:
    async with asyncpg.create_pool(url, min_size=2, max_size=connections) as pool:
        yield AsyncpgPoolDriver(pool)


@asynccontextmanager
async def installed(url: str, *, connections: int = 10) -> AsyncIterator[Queries]:
    async with connected(url, connections=connections) as driver:
        queries = Queries(driver)
        await queries.install()
        yield queries


async def put(queries: Queries, numbers: range) -> None:
    await queries.enqueue(["noop"] * len(numbers), [b"%d" % number for number in numbers], [0] * len(numbers))


async def left(queries: Queries) -> int:
    return sum(one.count for one in await queries.queue_size())


async def enqueue(url: str, count: int) -> None:
    async with installed(url, connections=CALLERS) as queries:
        seconds = await seconds_at_once(count, lambda number: queries.enqueue("noop", b"%d" % number))
        stored = await left(queries)
    answer(seconds=seconds, violations=judged_calls(count, stored))


async def bulk(url: str, count: int) -> None:
    async with installed(url) as queries:
        begun = time.perf_counter()
        for several in batches(count):
            await put(queries, several)
        seconds = time.perf_counter() - begun
        stored = await left(queries)
    answer(seconds=seconds, violations=[] if stored == count else [f"{stored} jobs, not {count}"])


async def drain(url: str, count: int, *, processes: int = 1) -> None:
    async with installed(url) as queries:
        for several in batches(count):
            await put(queries, several)
        await queries.driver.execute("vacuum analyze")
        async with AsyncExitStack() as stack:
            workers: list[Worker] = [
                await stack.enter_async_context(Worker.of(["drainer", url, str(count)])) for _ in range(processes)
            ]
            begun_ns = time.monotonic_ns()
            for worker in workers:
                worker.go()
            ends: list[dict[str, Any]] = [await worker.line() for worker in workers]
        ran = [number for end in ends for number in end["ran"]]
        seconds = (max(end["recorded_ns"] for end in ends) - begun_ns) / 1e9
        answer(seconds=seconds, violations=judged(count, ran, await left(queries)))


async def drain_2(url: str, count: int) -> None:
    await drain(url, count, processes=2)


async def drainer(url: str, count: int) -> None:
    """One process of a drain: it says which jobs it ran, and when the last outcome was written."""
    ran: list[int] = []
    recorded_ns = 0
    async with connected(url) as driver:
        worker = PgQueuer(driver)
        write = worker.qm.queries.log_jobs

        @worker.entrypoint("noop")
        async def noop(job: Job) -> None:
            ran.append(int(job.payload or b""))

        async def write_and_note(*arguments: Any) -> None:
            nonlocal recorded_ns
            await write(*arguments)
            recorded_ns = time.monotonic_ns()

        worker.qm.queries.log_jobs = write_and_note  # type: ignore[method-assign]
        answer(ready=True)
        if await heard_line():
            await worker.run(batch_size=DRAIN_BATCH, mode=QueueExecutionMode.drain)
    answer(ran=ran, recorded_ns=recorded_ns)


async def latency(url: str, count: int) -> None:
    """So many starts a moment after the last one, then as many after a longer rest, as ours."""
    times_s: list[float] = []
    async with installed(url) as queries, Worker.of(["starter", url, str(count)]) as worker:
        for number in range(-WARM_UP_STARTS, 2 * count):
            await asyncio.sleep(0.02 + 0.01 * (number % 3) if number >= count else 0.003 + 0.001 * (number % 3))
            begun_ns = time.monotonic_ns()
            await queries.enqueue("noop", b"%d" % number)
            reported, started_ns = await worker.line()
            assert reported == number, f"{reported} was started, not {number}"
            if number >= 0:
                times_s.append((started_ns - begun_ns) / 1e9)
    answer(times_s=times_s[:count], rested_s=times_s[count:], violations=[])


async def starter(url: str, count: int) -> None:
    """The worker of the latency: it says when each job started."""
    async with connected(url) as driver:
        worker = PgQueuer(driver)

        @worker.entrypoint("noop")
        async def noop(job: Job) -> None:
            started_ns = time.monotonic_ns()
            sys.stdout.write(f"[{int(job.payload or b'')}, {started_ns}]\n")
            sys.stdout.flush()

        running = asyncio.create_task(worker.run())
        answer(ready=True)
        while await heard_line():
            pass
        worker.shutdown.set()
        await running


async def lateness(url: str, count: int, over_s: float) -> None:
    late_s: list[float] = []
    ran: list[int] = []
    async with installed(url) as queries:
        worker = PgQueuer(queries.driver)

        @worker.entrypoint("noop")
        async def noop(job: Job) -> None:
            late_s.append((datetime.now(UTC) - job.execute_after).total_seconds())
            ran.append(int(job.payload or b""))
            if len(ran) == count:
                worker.shutdown.set()

        waits = [timedelta(seconds=1 + over_s * number / count) for number in range(count)]
        payloads = [b"%d" % number for number in range(count)]
        await queries.enqueue(["noop"] * count, payloads, [0] * count, waits)
        await worker.run()
        answer(times_s=late_s, violations=judged(count, ran))


if __name__ == "__main__":
    what, url, count, *more = sys.argv[1:]
    tasks = {one.__name__: one for one in (enqueue, bulk, drain, drain_2, drainer, latency, starter, lateness)}
    uvloop.install()
    asyncio.run(tasks[what](url, int(count), *map(float, more)))  # type: ignore[operator]
