"""Procrastinate at work: python with_procrastinate.py WHAT URL COUNT, in a database of its own."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

import psycopg
from helping import CALLERS, answer, batches, judged, judged_calls, seconds_at_once
from procrastinate import App, PsycopgConnector

CONCURRENCY = 10
STORED = "select count(*) as jobs from procrastinate_jobs where status in ('todo', 'doing')"


def made(url: str) -> tuple[App, Any, list[int]]:
    """An application, its task, and the numbers that the task was called with."""
    app = App(connector=PsycopgConnector(conninfo=url, min_size=4, max_size=CALLERS))
    ran: list[int] = []

    @app.task(name="noop")
    async def noop(number: int) -> None:
        ran.append(number)

    return app, noop, ran


async def stored(app: App) -> int:
    return int((await app.connector.execute_query_one_async(STORED))["jobs"])


async def enqueue(url: str, count: int) -> None:
    app, noop, _ = made(url)
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        seconds = await seconds_at_once(count, lambda number: noop.defer_async(number=number))
        found = await stored(app)
    answer(seconds=seconds, violations=judged_calls(count, found))


async def drain(url: str, count: int) -> None:
    app, noop, ran = made(url)
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        for several in batches(count):
            await noop.batch_defer_async(*[{"number": number} for number in several])
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
            await connection.execute("vacuum analyze")
        begun = time.perf_counter()
        await app.run_worker_async(concurrency=CONCURRENCY, wait=False, install_signal_handlers=False)
        seconds = time.perf_counter() - begun
        answer(seconds=seconds, violations=judged(count, ran, await stored(app)))


if __name__ == "__main__":
    what, url, count = sys.argv[1:]
    asyncio.run({"enqueue": enqueue, "drain": drain}[what](url, int(count)))
