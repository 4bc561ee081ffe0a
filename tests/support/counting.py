"""What goes to the database, counted where it leaves the process: neither clocks nor the machine's speed have a say."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Literal, TypeVar

from anyio.lowlevel import checkpoint

from matrixsched import App
from matrixsched.clock import ManualClock, SeededChance
from matrixsched.store.postgresql.store import PostgresStore
from matrixsched.store.sqlite.store import Hop, SqliteStore
from matrixsched.store.statements import Statement, load, load_distributed
from matrixsched.store.store import Store
from matrixsched.store.transition import Transition
from support.drivers import as_drivers_take_it, is_pooled

T = TypeVar("T")

DISCARD_PLANS = "discard plans"
Form = Literal["sqlite", "postgresql", "distributed"]


class Sent:
    """What was sent to the database, by name: on PostgreSQL each round trip, on SQLite each transaction."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self.plans_discarded = 0
        """Counted apart: plans are discarded when they are old, by the real clock, or outgrown."""

    def note(self, name: str) -> None:
        if name == DISCARD_PLANS:
            self.plans_discarded += 1
        else:
            self._names.append(name)

    async def during(self, work: Callable[[], Awaitable[object]]) -> Counter[str]:
        """What `work` sent, how often."""
        await checkpoint()  # asyncpg tells of a statement in the next turn of the event loop
        self._names.clear()
        self.plans_discarded = 0
        await work()
        await checkpoint()
        return Counter(self._names)


class _CountedPostgresStore(PostgresStore):
    sent: Sent

    async def _begin_session(self, connection: Any) -> None:
        await super()._begin_session(connection)
        names = {one.positional: name for name, one in self._statements().items()}
        connection.add_query_logger(lambda record: self.sent.note(names.get(record.query, record.query)))

    def _statements(self) -> dict[str, Statement]:
        is_distributed = self._transitions.is_distributed
        return load_distributed(self.installation) if is_distributed else load("postgresql", self.installation)


class _CountedSqliteStore(SqliteStore):
    sent: Sent

    async def run(self, transition: Transition[T]) -> T:
        self.sent.note(transition.name)
        return await super().run(transition)


def form_of(app: App) -> Form:
    """What everything costs depends on it: each form has bounds of its own."""
    transitions = app.store.transitions
    return "distributed" if getattr(transitions, "is_distributed", False) else app.store.dialect


async def in_this_thread(function: Callable[[], T]) -> T:
    """Instead of the thread that a SQLite database has otherwise, where a profile would not see it."""
    return function()


def _counted_store(url: str, clock: ManualClock, sent: Sent, *, connections: int, hop: Hop | None) -> Store:
    if url.startswith("sqlite"):
        sqlite = _CountedSqliteStore(url.removeprefix("sqlite:///"), "default", clock=clock, hop=hop)
        sqlite.sent = sent
        return sqlite
    pooled = {"prepared_statements": False, "listen": False} if is_pooled(url) else {}
    plain = as_drivers_take_it(url)
    postgres = _CountedPostgresStore(plain, "default", clock=clock, connections=connections, **pooled)
    postgres.sent = sent
    return postgres


@asynccontextmanager
async def counted_app(
    url: str, clock: ManualClock, *, shards: int, connections: int = 8, hop: Hop | None = None
) -> AsyncIterator[tuple[App, Sent]]:
    """An application on a fresh installation, and what it sends."""
    sent = Sent()
    store = _counted_store(url, clock, sent, connections=connections, hop=hop)
    app = App(url, clock=clock, chance=SeededChance(1), store=store)
    await app.init(shards=shards)
    async with app:
        yield app, sent
