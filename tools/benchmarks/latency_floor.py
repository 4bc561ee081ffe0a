"""The latency of the protocol's own statements on raw asyncpg, between two processes; both ends of the conversation.

As `latency`, without the library: parameters are made ready before the clock starts, one connection is told and another
moves, nothing is decoded but the shard, and no handler is called. With these statements nothing can start sooner.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import anyio
import asyncpg

from benchmarks.checking import Tally, check_all_done
from benchmarks.children import Child, given_address, heard_line, tell
from benchmarks.floor import LEASE, TAKING, Protocol, batch_of, outcomes_of, protocol_on
from benchmarks.measuring import Measured, Run, run_loop
from benchmarks.timing import Latencies
from matrixsched.store.postgresql.transitions import channel_of

MOVING = ("move", "record", "release_shard")


def latency_floor(run: Run) -> Measured:
    """latency without the library: `schedule` on raw asyncpg, its notice, and `move` in another process"""
    times = Latencies(run.scale.starts)
    tally = Tally(len(times.numbers))
    where = run.place.url, run.place.installation

    async def work() -> None:
        await run.place.app().init(shards=run.shards)
        async with protocol_on(*where, ["schedule"]) as protocol, Child.of(__name__, run.place) as child:
            await child.line()
            for number in times.numbers:
                parameters = batch_of(range(number, number + 1), run)
                await times.rest(number)
                begun_ns = time.monotonic_ns()
                await protocol.ask("schedule", parameters)
                moved, moved_ns = map(int, (await child.line()).split())
                tally.count(moved)
                times.note(number, (moved_ns - begun_ns) / 1e9)
                await child.line()

    run_loop(work)
    return Measured(times.figures(), check_all_done(run.place, tally))


async def move() -> None:
    """The other end: whatever shard it is told of."""
    url, installation = given_address()
    told: asyncio.Queue[int] = asyncio.Queue()

    def hear(*news: Any) -> None:
        told.put_nowait(int(news[-1].partition(":")[2]))

    async with protocol_on(url, installation, MOVING) as protocol, anyio.create_task_group() as group:
        listener = await asyncpg.connect(url)
        await listener.add_listener(channel_of(installation), hear)
        group.start_soon(_move_what_is_told, protocol, told)
        tell("ready")
        while await heard_line():
            pass
        group.cancel_scope.cancel()
        listener.terminate()


async def _move_what_is_told(protocol: Protocol, told: asyncio.Queue[int]) -> None:
    while True:
        shard = await told.get()
        fence = {"shard_id": shard, "sync_guid": uuid4()}
        taking = {"holder": "floor", "not_after": datetime.now(UTC) + LEASE}
        rows = await protocol.ask("move", TAKING | fence | taking)
        moved_ns = time.monotonic_ns()
        for row in rows:
            tell(f"{row['payload'].decode()} {moved_ns}")
        await protocol.ask("record", outcomes_of(rows, fence))
        await protocol.ask("release_shard", fence | {"channel": None})
        tell("recorded")


if __name__ == "__main__":
    run_loop(move)
