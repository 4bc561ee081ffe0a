"""Storages of queues to compare: in memory, on SQLite, on PostgreSQL, all by one clock that stands still."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from matrixsched.clock import ManualClock, SeededChance
from matrixsched.queues.database import DatabaseStorage
from matrixsched.queues.memory import MemoryStorage
from matrixsched.store.opening import open_store
from matrixsched.store.statements import statement
from matrixsched.store.store import Store
from matrixsched.store.transition import Ask, Conversation, transition
from support.scene import QUEUES, SHARDS

KINDS = ("memory", "sqlite", "postgresql")
Storage = MemoryStorage | DatabaseStorage


def storage_of(store: Store, *, seed: int = 1) -> DatabaseStorage:
    chance = SeededChance(seed)
    return DatabaseStorage(lambda: store, chance=lambda: chance)


@asynccontextmanager
async def opened(url: str, clock: ManualClock) -> AsyncIterator[Store]:
    """The store of an installation whose queues are empty."""
    store = open_store(url, clock=clock)
    await store.open()
    try:
        await store.upgrade(SHARDS)
        await clear(store)
        yield store
    finally:
        await store.close()


async def clear(store: Store) -> None:
    for table in (*QUEUES, "requests"):
        await store.run(Deleting(store).delete(table))


class Deleting:
    def __init__(self, store: Store) -> None:
        self._store = store

    @transition
    def delete(self, table: str) -> Conversation[None]:
        prefix = "matrixsched." if self._store.dialect == "postgresql" else "matrixsched_"
        text = f"delete from {prefix}{table}"
        yield Ask(statement(self._store.dialect, self._store.installation, table, text), {})
