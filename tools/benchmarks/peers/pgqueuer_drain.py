"""Drain no-op jobs with PgQueuer: python pgqueuer_drain.py URL COUNT, in a database of its own.

Prints the seconds from the start of the worker until every job is completed in the database.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgPoolDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries
from pgqueuer.types import QueueExecutionMode

BATCH = 500


async def main(url: str, count: int) -> None:
    async with asyncpg.create_pool(url, min_size=2, max_size=10) as pool:
        driver = AsyncpgPoolDriver(pool)
        queries = Queries(driver)
        await queries.install()
        for begin in range(0, count, 1000):
            several = range(begin, min(begin + 1000, count))
            await queries.enqueue(["noop"] * len(several), [b"%d" % n for n in several], [0] * len(several))
        worker = PgQueuer(driver)

        @worker.entrypoint("noop")
        async def noop(job: Job) -> None: ...

        begun = time.perf_counter()
        await worker.run(batch_size=BATCH, mode=QueueExecutionMode.drain)
        seconds = time.perf_counter() - begun
        left = sum(one.count for one in await queries.queue_size())
    sys.stdout.write(json.dumps({"seconds": seconds, "left": left}) + "\n")


if __name__ == "__main__":
    uvloop.install()
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
