"""Where the actions of a stage live: a database in memory, or an installation of its own that is thrown away."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

import anyio
import anyio.to_thread
from anyio.from_thread import BlockingPortal

from matrixsched.clock import Chance, Clock, SystemChance
from matrixsched.store.news import News
from matrixsched.store.opening import open_store
from matrixsched.store.sqlite.store import SqliteStore
from matrixsched.store.store import Store
from matrixsched.store.transition import Transition
from matrixsched.store.wrapper import StoreWrapper

T = TypeVar("T")

SHARDS = 4


@contextmanager
def in_memory(installation: str, clock: Clock, portal: BlockingPortal) -> Iterator[Store]:
    """A fresh SQLite database that ends with the stage."""
    store = SqliteStore(None, installation, clock=clock, hop=_at_once)
    portal.call(store.open)
    try:
        portal.call(store.upgrade, SHARDS)
        yield store
    finally:
        portal.call(store.close)


async def _at_once(function: Callable[[], T]) -> T:
    """The visit to the database without a thread, so that any event loop, and any thread, can make it."""
    return function()


@contextmanager
def thrown_away(url: str, clock: Clock, chance: Chance, portal: BlockingPortal) -> Iterator[Store]:
    """A fresh installation beside whatever else is in the database; dropped at the end."""
    # Not drawn from the stage's own chance: tests that run at the same time must not share it.
    installation = f"stage_{SystemChance().guid().hex[:16]}"
    store = open_store(url, installation, clock=clock, chance=chance)
    portal.call(store.open)
    try:
        portal.call(store.upgrade, SHARDS)
        try:
            yield PortalStore(store, portal)
        finally:
            portal.call(store.drop)
    finally:
        portal.call(store.close)


class PortalStore(StoreWrapper):
    """A store whose connections belong to the stage's own event loop, for callers in any other.

    It is open as long as the stage is: test runners begin and end event loops as they please.
    """

    def __init__(self, inner: Store, portal: BlockingPortal) -> None:
        super().__init__(inner)
        self._portal = portal

    async def run(self, transition: Transition[T]) -> T:
        return await anyio.to_thread.run_sync(partial(self._portal.call, self._inner.run, transition))

    async def open(self) -> None:
        """It is."""

    async def close(self) -> None:
        """The stage does that."""

    async def upgrade(self, shard_count: int, *, distributed: bool | None = None) -> list[str]:
        upgrade = partial(self._inner.upgrade, shard_count, distributed=distributed)
        return await anyio.to_thread.run_sync(partial(self._portal.call, upgrade))

    async def drop(self) -> None:
        await anyio.to_thread.run_sync(partial(self._portal.call, self._inner.drop))

    async def watch(self, changed: Callable[[News], None]) -> None:
        """Nobody tells: a worker looks when the test travels, or when this process schedules something."""
        await anyio.sleep_forever()

    def sibling(self) -> PortalStore:
        return self
