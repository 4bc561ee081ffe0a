"""What a commit costs here: most of what is measured beside it depends on that, and some ratios do as well."""

from __future__ import annotations

import sqlite3
import time
from contextlib import AsyncExitStack, closing

import anyio
import asyncpg

from benchmarks.measuring import Figure, Measured, Run, rate, run_loop
from benchmarks.places import sqlite_file
from matrixsched.store.statements import render

CALLERS = 32
TABLE = "create table matrixsched.commits (number integer not null)"
INSERT = "insert into matrixsched.commits values (1)"
# Whoever sends a notice holds a lock of the whole server until its commit is on disk: they go one after another.
INSERT_AND_NOTIFY = "with written as (insert into matrixsched.commits values (1)) select pg_notify('commits', '')"
WRITTEN = "select count(*) from matrixsched.commits"


def commits(run: Run) -> Measured:
    """one small insert per commit, without the library: one connection, 32 at once, and 32 that send a notice each"""
    measured = _on_postgresql(run) if run.place.dialect == "postgresql" else _on_sqlite(run)
    expected = run.scale.calls_one_by_one * len(measured)
    ((written,),) = run.place.ask(WRITTEN)
    return Measured(measured, [] if written == expected else [f"{written} rows after {expected} commits"])


def _on_postgresql(run: Run) -> list[Figure]:
    count = run.scale.calls_one_by_one

    async def seconds(text: str, callers: int) -> float:
        statement = render("postgresql", run.place.installation, text)
        numbers = iter(range(count))

        async def caller(connection: asyncpg.Connection) -> None:
            for _ in numbers:
                await connection.execute(statement)

        async with AsyncExitStack() as stack:
            connections = [await asyncpg.connect(run.place.url) for _ in range(callers)]
            for connection in connections:
                stack.push_async_callback(connection.close)
            begun = time.perf_counter()
            async with anyio.create_task_group() as group:
                for connection in connections:
                    group.start_soon(caller, connection)
            return time.perf_counter() - begun

    async def work() -> list[Figure]:
        await run.place.app().init(shards=run.shards)
        await anyio.to_thread.run_sync(run.place.ask, TABLE)
        return [
            rate("one by one", count, await seconds(INSERT, 1)),
            rate("32 at once", count, await seconds(INSERT, CALLERS)),
            rate("32 with notice", count, await seconds(INSERT_AND_NOTIFY, CALLERS)),
        ]

    return run_loop(work)


def _on_sqlite(run: Run) -> list[Figure]:
    count = run.scale.calls_one_by_one
    run.place.ask("pragma journal_mode = wal")
    run.place.ask(TABLE)
    with closing(sqlite3.connect(sqlite_file(run.place.url), isolation_level=None)) as connection:
        connection.execute("pragma synchronous = full")
        begun = time.perf_counter()
        for _ in range(count):
            connection.execute(INSERT.replace("matrixsched.", "matrixsched_"))
        return [rate("one by one", count, time.perf_counter() - begun)]
