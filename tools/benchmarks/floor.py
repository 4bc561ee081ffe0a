"""The protocol's own statements on raw asyncpg: what is left of the time when the library costs nothing.

The texts are those that the library sends, so a change to them moves the floor as well. What differs: statements and
parameters are made ready before the clock starts, nothing is decoded, no handler is called, no lease is kept and no
slot counted. Each loop has a connection of its own: a pool sends a statement of its own after each of ours.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import anyio
import asyncpg
from asyncpg.prepared_stmt import PreparedStatement

from benchmarks.checking import Tally, check_all_done
from benchmarks.measuring import Measured, Run, rate, run_loop
from matrixsched.rules.names import shard_of
from matrixsched.store.postgresql.connection import PLANNING
from matrixsched.store.postgresql.transitions import channel_of
from matrixsched.store.statements import load

SCHEDULE_BATCH = 1_000
DRAIN_BATCH = 500
LOOPS = 2
DRAINING = ("acquire_shard", "claim", "move", "record", "release_shard")
LEASE = timedelta(seconds=10)
SUSPECT_FROM = 2
HISTORY_MAX = 50

Row = Mapping[str, Any]


def floor(run: Run) -> Measured:
    """the protocol without the library: its statements on raw asyncpg, schedule in 1,000s, drain in 500s"""
    tally = Tally(run.scale.due)
    batches = list(_batches(tally.expected, run))
    where = run.place.url, run.place.installation

    async def install() -> None:
        await run.place.app().init(shards=run.shards)

    async def schedule() -> float:
        async with protocol_on(*where, ["schedule"]) as protocol:
            begun = time.perf_counter()
            for batch in batches:
                await protocol.ask("schedule", batch)
            return time.perf_counter() - begun

    async def drain() -> float:
        payloads: list[bytes] = []
        async with AsyncExitStack() as stack:
            protocols = [await stack.enter_async_context(protocol_on(*where, DRAINING)) for _ in range(LOOPS)]
            begun = time.perf_counter()
            async with anyio.create_task_group() as group:
                for protocol in protocols:
                    group.start_soon(drain_due, protocol, lambda rows: payloads.extend(row["payload"] for row in rows))
            elapsed_s = time.perf_counter() - begun
        for payload in payloads:
            tally.count(json.loads(payload))
        return elapsed_s

    run_loop(install)
    run.place.settle()
    scheduled_s = run_loop(schedule)
    drained_s = run_loop(drain)
    figures = [rate("schedule", tally.expected, scheduled_s), rate("drain", tally.expected, drained_s)]
    return Measured(figures, check_all_done(run.place, tally))


@dataclass(frozen=True)
class Protocol:
    """Statements by name, prepared on one connection."""

    prepared: Mapping[str, tuple[PreparedStatement[Any], Sequence[str]]]

    async def ask(self, name: str, parameters: Mapping[str, object]) -> Sequence[Row]:
        statement, names = self.prepared[name]
        given = {"now": None} | dict(parameters)  # the server's time
        rows: Sequence[Row] = await statement.fetch(*[given[key] for key in names])
        return rows


@asynccontextmanager
async def protocol_on(url: str, installation: str, names: Sequence[str]) -> AsyncIterator[Protocol]:
    """On a connection of its own, whose plans are made as those of the library."""
    connection = await asyncpg.connect(url, server_settings=PLANNING)
    try:
        texts = load("postgresql", installation)
        yield Protocol(
            {name: (await connection.prepare(texts[name].positional), texts[name].parameters) for name in names}
        )
    finally:
        await connection.close()


async def drain_due(protocol: Protocol, run: Callable[[Sequence[Row]], None]) -> datetime | None:
    """Take shard after shard and run what is claimed, until there is no more work; when there will be, if known."""
    while True:
        sync_guid = uuid4()
        (acquired,) = await protocol.ask("acquire_shard", ACQUIRING | {"sync_guid": sync_guid})
        if acquired["shard_id"] is None:
            next_due_at: datetime | None = acquired["next_due_at"]
            return next_due_at
        fence = {"shard_id": acquired["shard_id"], "sync_guid": sync_guid}
        seen = DRAIN_BATCH
        while seen >= DRAIN_BATCH:
            seen = 0
            for name in ["claim"] * acquired["due"] + ["move"] * acquired["incoming"]:
                rows = await protocol.ask(name, fence | TAKING)
                seen = max(seen, rows[0]["seen"])
                if rows[0]["action_id"] is not None:
                    run(rows)
                    await protocol.ask("record", outcomes_of(rows, fence))
        await protocol.ask("release_shard", fence | {"channel": None})


ACQUIRING: dict[str, object] = {
    "holder": "floor",
    "lease": LEASE,
    "lanes": [],
    "gated_handlers": [],
    "ahead": timedelta(0),
    "lanes_max": 0,
    "turn": "oldest",
    "only_events": False,
}

TAKING: dict[str, object] = {
    "lanes": [""],
    "takes": [DRAIN_BATCH],
    "gated": False,
    "suspect_room": 0,
    "handlers": ["count"],
    "holder": None,
    "not_after": None,
    "move_limit": DRAIN_BATCH,
    "claim_limit": DRAIN_BATCH,
    "attempt_lease": LEASE,
    "suspect_from": SUSPECT_FROM,
    "only_events": False,
}


def outcomes_of(rows: Sequence[Row], fence: Mapping[str, object]) -> dict[str, object]:
    """A success for each claimed row; what all have is said once, as the library does."""
    return {
        "shard_ids": [fence["shard_id"]],
        "action_ids": [row["action_id"] for row in rows],
        "action_guids": [row["action_guid"] for row in rows],
        "attempts": [row["attempt"] for row in rows],
        "claimed_by": [fence["sync_guid"]],
        "outcomes": ["succeeded"],
        "states": ["done"],
        "ticks": [0],
        "tick_at": [row["tick_at"] for row in rows],
        "tick_failures": [0],
        "next_at": None,
        "delays": None,
        "errors": None,
        "history_max": HISTORY_MAX,
    }


def _batches(count: int, run: Run) -> Iterator[dict[str, object]]:
    """Parameters of `schedule`, for actions that are due at once."""
    for first in range(0, count, SCHEDULE_BATCH):
        yield batch_of(range(first, min(first + SCHEDULE_BATCH, count)), run)


def batch_of(numbers: range, run: Run) -> dict[str, object]:
    request: UUID = uuid4()
    by_id = {f"due-{number}": number for number in numbers}
    ordered = sorted((shard_of(action_id, run.shards), action_id) for action_id in by_id)
    return {
        "shard_ids": [shard for shard, _ in ordered],
        "action_ids": [action_id for _, action_id in ordered],
        "action_guids": [uuid4() for _ in ordered],
        "request_guids": [request],
        "handlers": ["count"],
        "payloads": [str(by_id[action_id]).encode() for _, action_id in ordered],
        "terms": ["{}"],
        "lanes": [""],
        "priorities": [0],
        "templates": None,
        "zones": None,
        "expires_at": None,
        "ats": None,
        "delays": [timedelta(0)],
        "replace": True,
        "noted": [],
        "only_if_new": False,
        "lock_timeout": None,
        "channel": channel_of(run.place.installation),
    }
