"""Installations in distributed form, and somebody who holds rows of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

from matrixsched import App
from matrixsched.clock import ManualClock
from matrixsched.store.opening import open_store
from matrixsched.store.store import Store
from support.drivers import connect_asyncpg
from support.scene import Scene

SHARDS = 4


@asynccontextmanager
async def a_store(dsn: str, clock: ManualClock | None, *, distributed: bool = True) -> AsyncIterator[Store]:
    """Of an installation in distributed form, or in the usual one, opened after it was made."""
    await App(dsn).init(shards=SHARDS, distributed=distributed)
    store = open_store(dsn, clock=clock)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def put(scene: Scene, *shards: int) -> None:
    for shard in shards:
        await scene.schedule(f"in {shard}", shard=shard)


@asynccontextmanager
async def a_connection(dsn: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await connect_asyncpg(dsn)
    try:
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def held(dsn: str, query: str) -> AsyncIterator[None]:
    """Rows that somebody has locked."""
    async with a_connection(dsn) as connection, connection.transaction():
        assert await connection.fetch(f"{query} for update")
        yield
