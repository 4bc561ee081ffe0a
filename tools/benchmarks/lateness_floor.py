"""How late the protocol's own statements would start timers, on raw asyncpg: what of `lateness` is the machine's.

As `lateness`, without the library: one connection asks for a shard and claims what is due there, nothing is decoded, no
handler is called; when nothing is due it sleeps until the instant that it was told.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime

import anyio

from benchmarks.checking import Tally, check_all_done
from benchmarks.floor import DRAINING, Row, drain_due, protocol_on
from benchmarks.measuring import Measured, Run, run_loop, spread_of
from benchmarks.parts import PATIENCE_S
from benchmarks.timing import check_none_early, timers


def lateness_floor(run: Run) -> Measured:
    """lateness without the library: `acquire_shard` and `claim` on raw asyncpg, asked at the instant they tell"""
    tally = Tally(run.scale.timers)
    late_s: list[float] = []

    def start(rows: Sequence[Row]) -> None:
        now = datetime.now(UTC)
        for row in rows:
            late_s.append((now - row["due_at"]).total_seconds())
            tally.count(json.loads(row["payload"]))

    async def work() -> None:
        app = run.place.app()
        await app.init(shards=run.shards)
        async with app, protocol_on(run.place.url, run.place.installation, DRAINING) as protocol:
            await app.schedule_many(timers(run))
            with anyio.move_on_after(run.scale.timers_over_s + PATIENCE_S):
                while (next_due_at := await drain_due(protocol, start)) is not None:
                    until_due_s = (next_due_at - datetime.now(UTC)).total_seconds()
                    await anyio.sleep(max(0.0, until_due_s))

    run_loop(work)
    return Measured(spread_of(late_s), [*check_all_done(run.place, tally), *check_none_early(late_s)])
