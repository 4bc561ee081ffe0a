"""The store on SQLite: transitions in a thread, wake-ups from the database's own change counter."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

import anyio
import anyio.from_thread
import anyio.to_thread
from anyio import CapacityLimiter

from matrixsched.clock import Clock, SystemClock
from matrixsched.errors import DistributedUnsupported
from matrixsched.rules.names import check_shard_count
from matrixsched.store.facts import SqliteFacts
from matrixsched.store.news import Hearing, News
from matrixsched.store.sqlite.database import Database
from matrixsched.store.sqlite.transitions import SqliteTransitions
from matrixsched.store.statements import Dialect
from matrixsched.store.transition import Transition
from matrixsched.store.transitions import Transitions
from matrixsched.store.values import Pool

T = TypeVar("T")

WATCH_EVERY_S = 0.01
_RECONNECT_AFTER_S = 1.0
_POLLS_UNTIL_IDLE = 100


class Hop(Protocol):
    """Runs a synchronous function elsewhere; once begun it runs to its end, also when the caller is cancelled."""

    async def __call__(self, function: Callable[[], T]) -> T: ...


class ThreadHop:
    """To a worker thread, one call at a time."""

    def __init__(self) -> None:
        self._limiter = CapacityLimiter(1)

    async def __call__(self, function: Callable[[], T]) -> T:
        # Not abandoned on cancellation, or a write transaction would go on behind the back of whoever follows.
        return await anyio.to_thread.run_sync(function, limiter=self._limiter, abandon_on_cancel=False)


class SqliteStore:
    def __init__(
        self,
        path: str | None,
        installation: str,
        *,
        clock: Clock | None = None,
        hop: Hop | None = None,
        watch_every_s: float = WATCH_EVERY_S,
    ) -> None:
        """`path` None is a database in memory, for tests: only this store and its siblings see it."""
        self._installation = installation
        self._clock = SystemClock() if clock is None else clock
        self._given_hop = hop
        self._hop: Hop = ThreadHop() if hop is None else hop
        self._watch_every_s = watch_every_s
        self._database = Database(path, installation, self._clock)
        self._owns_database = True
        self._transitions = SqliteTransitions(installation, clock=self._clock)
        self._line = _Line()

    @property
    def dialect(self) -> Dialect:
        return "sqlite"

    @property
    def installation(self) -> str:
        return self._installation

    @property
    def transitions(self) -> Transitions:
        return self._transitions

    @property
    def description(self) -> str:
        return f"SQLite database {self._database.name}, installation {self._installation}"

    @property
    def pool(self) -> Pool:
        line = self._line
        return Pool(
            most=1,
            open=int(self._database.is_connected),
            in_use=line.entered - line.left,
            waiting=line.came - line.entered - line.turned_away,
            served=line.entered,
            waited_s=line.waited_s,
        )

    async def open(self) -> None:
        await self._hop(self._database.open)

    async def close(self) -> None:
        if self._owns_database:
            with anyio.CancelScope(shield=True):
                await self._hop(self._database.close)

    async def run(self, transition: Transition[T]) -> T:
        line, clock, asked_at = self._line, self._clock, self._clock.monotonic()
        has_entered = False

        def visit() -> T:
            nonlocal has_entered
            has_entered = True
            line.entered += 1
            line.waited_s += clock.monotonic() - asked_at
            try:
                return self._database.run(transition)
            finally:
                line.left += 1

        line.came += 1
        try:
            return await self._hop(visit)
        finally:
            line.turned_away += not has_entered

    async def inspect(self, clock: Clock, *, thorough: bool = False) -> SqliteFacts:
        # In a thread of its own: it may wait for writers, and those for nobody.
        look = partial(self._database.inspect, clock, thorough=thorough)
        return await anyio.to_thread.run_sync(look, limiter=CapacityLimiter(1))

    async def upgrade(self, shard_count: int, *, distributed: bool | None = None) -> list[str]:
        check_shard_count(shard_count)
        if distributed:
            raise DistributedUnsupported
        return await self._hop(lambda: self._database.upgrade(shard_count))

    async def drop(self) -> None:
        await self._hop(self._database.drop)

    async def watch(self, changed: Hearing) -> None:
        path = self._database.path
        if path is None:
            await self._watch_memory(changed)
        else:
            await _watch(_Watcher(path, self._watch_every_s, changed))

    async def _watch_memory(self, changed: Hearing) -> None:
        """No other connection sees a database in memory, so its commits are counted where they are made."""
        seen = self._database.commits
        changed(News.ANYTHING)  # what was written before we looked
        while True:
            await anyio.sleep(self._watch_every_s)
            if self._database.commits != seen:
                seen = self._database.commits
                changed(News.ANYTHING)

    def sibling(self) -> SqliteStore:
        path = self._database.path
        sibling = SqliteStore(
            path, self._installation, clock=self._clock, hop=self._given_hop, watch_every_s=self._watch_every_s
        )
        if path is None:
            sibling._database, sibling._owns_database = self._database, False
        return sibling


class _Line:
    """Who stood in line for the database's thread. Each number is written by one thread at a time, and only grows."""

    __slots__ = ("came", "entered", "left", "turned_away", "waited_s")

    def __init__(self) -> None:
        self.came = self.entered = self.left = self.turned_away = 0
        self.waited_s = 0.0


async def _watch(watcher: _Watcher) -> None:
    async with anyio.create_task_group() as watching:
        watching.start_soon(partial(anyio.to_thread.run_sync, watcher.run, limiter=CapacityLimiter(1)))
        try:
            await anyio.sleep_forever()
        finally:
            watcher.end()  # the group then waits for the thread, which ends at once


class _Watcher:
    """Polls the database's change counter in a thread of its own.

    Read-only, so that it never becomes the last connection, whose closing would write outside the writers' queue.
    """

    def __init__(self, path: str, every_s: float, changed: Hearing) -> None:
        self._address = f"{Path(path).absolute().as_uri()}?mode=ro"
        self._every_s = every_s
        self._changed = changed
        self._ended = threading.Event()

    def end(self) -> None:
        self._ended.set()

    def run(self) -> None:
        while not self._ended.is_set():
            try:
                with closing(sqlite3.connect(self._address, uri=True, isolation_level=None)) as connection:
                    self._poll(connection)
            except sqlite3.Error:
                # Wake-ups only shorten a rest: until we are back, work is found without them.
                self._ended.wait(_RECONNECT_AFTER_S)

    def _poll(self, connection: sqlite3.Connection) -> None:
        seen, unchanged = _data_version(connection), 0
        anyio.from_thread.run_sync(self._changed, News.ANYTHING)  # what was written before we looked
        # A database that rests is looked at half as often: an idle process shall cost next to nothing.
        while not self._ended.wait(self._every_s * (2 if unchanged > _POLLS_UNTIL_IDLE else 1)):
            version = _data_version(connection)
            unchanged = unchanged + 1 if version == seen else 0
            if version != seen:
                seen = version
                anyio.from_thread.run_sync(self._changed, News.ANYTHING)


def _data_version(connection: sqlite3.Connection) -> int:
    version: int = connection.execute("pragma data_version").fetchone()[0]
    return version
