"""What a row, a look and a notification cost, measured on a real PostgreSQL with the library itself.

Bytes and rows do not depend on the machine; processor times, which the kernel tells of each session, do.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import asyncpg
from support.by_hand import drain

from matrixsched import App, call
from matrixsched.clock import ManualClock, SeededChance, SystemChance
from matrixsched.rules.action import State
from matrixsched.store.postgresql.store import PostgresStore
from matrixsched.store.values import Turn
from matrixsched.worker import Worker

PAYLOAD = "x" * 100
LATER = timedelta(days=1)
SHARDS = 64
TABLES = ("scheduled_actions", "incoming_queue", "processing_queue")
FEW_SHARDS, MANY_SHARDS = 64, 4096
LOOKS = 15
FEW_LISTENERS, MANY_LISTENERS = 5, 65
NOTICES = 300
PRUNES, PRUNED = 5, 500
LEASE = timedelta(seconds=10)

_WRITTEN = """
select relname, n_tup_upd + n_tup_del, n_tup_hot_upd from pg_stat_user_tables where schemaname = 'matrixsched'
"""


@dataclass(frozen=True, slots=True)
class Lives:
    """What so many actions left behind on their way from the call to the recorded outcome; each for one action."""

    row_bytes: Mapping[str, float]
    """Of each table with its indexes, while all of them lay in it."""
    wal_bytes: float
    """Without images of whole pages: how many there are depends on the checkpoints."""
    dead_rows: Mapping[str, float]
    dead_rows_hot: float
    """Of those of `scheduled_actions`, which an update leaves without touching an index."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Processor time of the server, in microseconds."""

    look_us: float
    """Of a look for work that finds none, beside what its shards cost."""
    look_shard_us: float
    notice_us: float
    """Of a notification, for each session that listens."""
    prune_row_us: float


async def measure(databases: Sequence[str], actions: int) -> dict[str, float]:
    """What stands under these names among the assumptions, found here on three empty databases."""
    lives = await measure_lives(databases[0], actions=actions)
    costs = await measure_costs(databases[1], databases[2], finished=databases[0])
    return {
        "LOOK_US": costs.look_us,
        "LOOK_SHARD_US": costs.look_shard_us,
        "NOTICE_US": costs.notice_us,
        "PRUNE_ROW_US": costs.prune_row_us,
        **told_of(lives),
    }


def told_of(lives: Lives) -> dict[str, float]:
    return {
        "ACTION_BYTES": lives.row_bytes["scheduled_actions"],
        "QUEUE_BYTES": lives.row_bytes["processing_queue"],
        "INCOMING_BYTES": lives.row_bytes["incoming_queue"],
        "WAL_BYTES": lives.wal_bytes,
        "DEAD_ACTIONS": lives.dead_rows["scheduled_actions"],
        "DEAD_QUEUE": lives.dead_rows["processing_queue"],
        "DEAD_INCOMING": lives.dead_rows["incoming_queue"],
    }


async def measure_lives(dsn: str, *, actions: int) -> Lives:
    clock = ManualClock()
    store = PostgresStore(dsn, "default", clock=clock)
    app = App(dsn, clock=clock, chance=SeededChance(1), store=store)

    @app.action("work")
    async def work(text: str) -> None: ...

    await app.init(shards=SHARDS)
    row_bytes: dict[str, float] = {}
    before = await _written(dsn)
    async with app:
        worker = Worker(app)
        wal = await _wal_position(dsn)
        empty = {table: await _bytes_of(dsn, table) for table in TABLES}
        await app.schedule_many(call("work", PAYLOAD, delay=LATER) for _ in range(actions))
        row_bytes["scheduled_actions"] = await _bytes_of(dsn, "scheduled_actions") - empty["scheduled_actions"]
        row_bytes["incoming_queue"] = await _bytes_of(dsn, "incoming_queue") - empty["incoming_queue"]
        await drain(worker, clock)
        row_bytes["processing_queue"] = await _bytes_of(dsn, "processing_queue") - empty["processing_queue"]
        clock.advance(LATER)
        made = await drain(worker, clock)
        assert made == actions
        wal_bytes = await _wal_position(dsn) - wal
    # Sessions tell what they wrote when they end.
    after = await _written(dsn)
    while after["scheduled_actions"][0] - before["scheduled_actions"][0] < actions:
        await anyio.sleep(0.05)
        after = await _written(dsn)
    hot = after["scheduled_actions"][1] - before["scheduled_actions"][1]
    return Lives(
        row_bytes={table: found / actions for table, found in row_bytes.items()},
        wal_bytes=wal_bytes / actions,
        dead_rows={table: (after[table][0] - before[table][0]) / actions for table in TABLES},
        dead_rows_hot=hot / actions,
    )


async def _asked(dsn: str, sql: str) -> list[Any]:
    connection = await asyncpg.connect(dsn)
    try:
        return list(await connection.fetch(sql))
    finally:
        await connection.close()


async def _bytes_of(dsn: str, table: str) -> int:
    ((found,),) = await _asked(dsn, f"select pg_total_relation_size('matrixsched.{table}')")
    return int(found)


async def _wal_position(dsn: str) -> int:
    ((found,),) = await _asked(dsn, "select pg_current_wal_insert_lsn() - '0/0'::pg_lsn")
    return int(found)


async def _written(dsn: str) -> dict[str, tuple[int, int]]:
    """Of each table how many rows were replaced or deleted, and how many of them without touching an index."""
    return {name: (dead, hot) for name, dead, hot in await _asked(dsn, _WRITTEN)}


async def measure_costs(few: str, many: str, *, finished: str) -> Costs:
    """`few` and `many` are databases for installations with few and many shards; in `finished` actions have ended."""
    with_few = await _look_us(few, FEW_SHARDS)
    with_many = await _look_us(many, MANY_SHARDS)
    shard_us = (with_many - with_few) / (MANY_SHARDS - FEW_SHARDS)
    return Costs(
        look_us=max(0.0, with_few - FEW_SHARDS * shard_us),
        look_shard_us=shard_us,
        notice_us=(await _notices_us(few, MANY_LISTENERS) - await _notices_us(few, FEW_LISTENERS))
        / (MANY_LISTENERS - FEW_LISTENERS),
        prune_row_us=await _prune_us(finished),
    )


async def _look_us(dsn: str, shards: int) -> float:
    store = PostgresStore(dsn, "default", connections=1)
    app = App(dsn, store=store)
    await app.init(shards=shards)
    async with app:
        await _asked(dsn, _FUTURE_ROWS)
        await _asked(dsn, "vacuum analyze")

        async def look() -> None:
            acquired = await store.run(
                store.transitions.acquire_shard(
                    sync_guid=SystemChance().guid(), holder="nobody", lease=LEASE, lanes=[], gated_handlers=(),
                    ahead=timedelta(0), turn=Turn.UNGATED, only_events=False,
                )
            )  # fmt: skip
            assert acquired.shard is None

        await look()  # plans it
        return await _server_us(dsn, look, times=LOOKS)


async def _prune_us(dsn: str) -> float:
    clock = ManualClock()
    clock.advance(2 * LATER)
    store = PostgresStore(dsn, "default", clock=clock, connections=1)
    await store.open()
    pruned: list[int] = []

    async def prune() -> None:
        pruned.append(await store.run(store.transitions.prune_actions(State.DONE, keep=timedelta(0), limit=PRUNED)))

    try:
        await prune()  # plans it
        found = await _server_us(dsn, prune, times=PRUNES) / PRUNED
        assert pruned == [PRUNED] * (1 + PRUNES)
        return found
    finally:
        await store.close()


@dataclass
class _Heard:
    left: int = 0
    all: anyio.Event = field(default_factory=anyio.Event)

    def hear(self, *_: object) -> None:
        self.left -= 1
        if self.left == 0:
            self.all.set()


async def _notices_us(dsn: str, listeners: int) -> float:
    """Processor time of all sessions for a notification that so many hear."""
    listening = [
        await asyncpg.connect(dsn, server_settings={"application_name": "matrixsched"}) for _ in range(listeners)
    ]
    try:
        heard = _Heard()
        for connection in listening:
            await connection.add_listener("sizing", heard.hear)

        async def tell() -> None:
            heard.left, heard.all = listeners, anyio.Event()
            await listening[0].execute("notify sizing, 'actions:1'")
            await heard.all.wait()

        return await _server_us(dsn, tell, times=NOTICES)
    finally:
        for connection in listening:
            connection.terminate()


async def _server_us(dsn: str, work: Callable[[], Awaitable[object]], *, times: int) -> float:
    """Processor time of the library's sessions for one of them."""
    pids = [pid for (pid,) in await _asked(dsn, _SESSIONS)]
    before = sum(map(_busy_ns, pids))
    for _ in range(times):
        await work()
    return (sum(map(_busy_ns, pids)) - before) / 1000 / times


_FUTURE_ROWS = """
insert into matrixsched.processing_queue
       (shard_id, action_id, action_guid, lane, scheduled_at, attempt, interrupted, added_at, moved_by, moved_at)
select shard_id, 'future-' || n, gen_random_uuid(), '', now() + interval '1 day', 0, 0, now(), gen_random_uuid(), now()
  from matrixsched.shard_locks cross join generate_series(1, 20) as n
"""
_SESSIONS = "select pid from pg_stat_activity where application_name = 'matrixsched' and datname = current_database()"


def _busy_ns(pid: int) -> int:
    """As the kernel of Linux tells it."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])
