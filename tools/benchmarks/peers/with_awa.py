"""awa at work: python with_awa.py WHAT URL COUNT, in a database of its own."""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import dataclass
from typing import Any

import psycopg
from awa import AsyncClient
from helping import CALLERS, answer, batches, judged, judged_calls, seconds_at_once

QUEUE = "bench"
SLOTS = 500


@dataclass
class Noop:
    number: int


async def settle(url: str) -> None:
    """Bring statistics up to date: without them the library takes minutes to count its jobs."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute("vacuum analyze")


async def queued(client: AsyncClient, url: str) -> int:
    """Jobs that are not through."""
    await settle(url)
    return sum(one.available + one.running for one in await client.queue_stats() if one.queue == QUEUE)


async def enqueue(url: str, count: int) -> None:
    async with AsyncClient(url, max_connections=CALLERS) as client:
        await client.migrate()
        await client.install_queue_storage()
        seconds = await seconds_at_once(count, lambda number: client.insert(Noop(number), queue=QUEUE))
        found = await queued(client, url)
    answer(seconds=seconds, violations=judged_calls(count, found))


async def drain(url: str, count: int) -> None:
    ran: list[int] = []
    all_ran = asyncio.Event()
    async with AsyncClient(url, max_connections=CALLERS) as client:
        await client.migrate()
        await client.install_queue_storage()
        for several in batches(count):
            await client.enqueue_many_copy([Noop(number) for number in several], queue=QUEUE)

        @client.task(Noop, queue=QUEUE)
        async def noop(job: Any) -> None:
            ran.append(job.args.number)
            if len(ran) >= count:
                all_ran.set()

        await settle(url)
        begun = time.perf_counter()
        await client.start([(QUEUE, SLOTS)])
        await all_ran.wait()
        await client.shutdown()  # the last completions are written
        seconds = time.perf_counter() - begun
        left = await queued(client, url)
    answer(seconds=seconds, violations=judged(count, ran, left))


if __name__ == "__main__":
    what, url, count = sys.argv[1:]
    asyncio.run({"enqueue": enqueue, "drain": drain}[what](url, int(count)))
