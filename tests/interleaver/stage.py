"""Sessions on one database, scenes that are put back before each run, and the tables as they stand after it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count
from typing import Any
from uuid import UUID

import asyncpg
from support.interleaving import Mutant, World, a_world

from interleaver.facts import Facts
from interleaver.players import Seat, Watch
from matrixsched.clock import ManualClock
from matrixsched.store.fsck import CHORES
from matrixsched.store.postgresql.transitions import PostgresTransitions
from matrixsched.store.statements import Statement, load

NAMES = "ABC"
VACUUM_EVERY = 100
"""Rows that were put back as often as that are in the way of the next ones."""
TABLES = (
    "scheduled_actions",
    "incoming_queue",
    "processing_queue",
    "shard_locks",
    "requests",
    "attempt_history",
    "chores",
    "limits",
    "templates",
    "quota_settings",
    "quota_windows",
    "quota_grants",
    "held_lanes",
    "semaphores",
    "semaphore_tasks",
    "semaphore_changes",
    "queue_tasks",
    "queue_dead_letters",
    "queue_settings",
    "installation",
)

Rows = list[dict[str, Any]]
Tables = Mapping[str, Rows]


@dataclass(frozen=True, slots=True)
class Side:
    """One of those who play, in a scene; with guids of its own."""

    name: str
    index: int
    facts: Facts
    now: datetime
    guids: Any = field(default_factory=lambda: count(1))

    @property
    def do(self) -> PostgresTransitions:
        return PostgresTransitions("default", clock=ManualClock(self.now))  # statements are sent with the stage's time

    def guid(self) -> UUID:
        """The same ones in every run."""
        return guid(ord(self.name), next(self.guids))

    def passing_guid(self) -> UUID:
        """One that may be another in every run, and says so."""
        return guid(PASSING, next(_passing))


PASSING = 0x7FFF
_passing = count(1)


def guid(owner: int, number: int) -> UUID:
    return UUID(int=(owner << 96) + number, version=4)


@dataclass(slots=True)
class Setting:
    """A scene being built."""

    world: World
    facts: Facts = field(default_factory=Facts)
    guids: Any = field(default_factory=lambda: count(1))

    def guid(self) -> UUID:
        return guid(0, next(self.guids))

    @property
    def now(self) -> datetime:
        return self.world.clock.now()

    def later(self, time: timedelta) -> None:
        self.world.clock.advance(time)

    async def sql(self, text: str, *parameters: object) -> None:
        await self.world.watcher.execute(text, *parameters)


@dataclass(frozen=True, slots=True)
class Saved:
    """A scene that was built, and is kept beside the tables."""

    number: int
    facts: Facts
    now: datetime
    tables: Tables


@dataclass(slots=True)
class Stage:
    world: World
    watch: Watch
    seats: list[Seat]
    sound: Mapping[str, Statement]
    played: Mapping[str, Statement]
    """The statements as they are played; perhaps with mistakes planted in them."""
    scenes: dict[str, Saved] = field(default_factory=dict)
    current: Saved | None = None
    disturbed: set[str] = field(default_factory=set)
    """Tables that may not be as the scene says."""
    resets: int = 0

    async def build(self, name: str, builder: Callable[[Setting], Any]) -> Saved:
        """The scene of that name; built once, and copied from then on."""
        if name not in self.scenes:
            await self.world.watcher.execute(_CLEAR)
            self.world.clock = ManualClock()
            setting = Setting(self.world)
            await builder(setting)
            number = len(self.scenes)
            schema = f"create schema scene_{number};"
            copies = [f"create table scene_{number}.{t} as select * from matrixsched.{t};" for t in TABLES]
            await self.world.watcher.execute(schema + "".join(copies))
            self.scenes[name] = Saved(number, setting.facts, setting.now, await self.read(TABLES))
        return self.scenes[name]

    async def reset(self, scene: Saved) -> None:
        """Put back what was changed."""
        tables = set(TABLES) if self.current is not scene else self.disturbed
        ordered = [table for table in TABLES if table in tables]
        deletes = [f"delete from matrixsched.{t};" for t in ordered]
        inserts = [f"insert into matrixsched.{t} select * from scene_{scene.number}.{t};" for t in ordered]
        if ordered:
            await self.world.watcher.execute("".join(deletes + inserts))
        self.current, self.disturbed = scene, set()
        self.resets += 1
        if self.resets % VACUUM_EVERY == 0:
            await self.world.watcher.execute(f"vacuum {', '.join(f'matrixsched.{t}' for t in TABLES)}")

    async def read(self, tables: Collection[str]) -> dict[str, Rows]:
        """All rows of these tables."""
        ordered = [table for table in TABLES if table in tables]
        parts = [f"'{t}', (select coalesce(json_agg(t), '[]') from matrixsched.{t} t)" for t in ordered]
        read: dict[str, Rows] = json.loads(
            await self.world.watcher.fetchval(f"select json_build_object({', '.join(parts)})")
        )
        return read

    @contextlib.contextmanager
    def planted(self, mutants: Sequence[Mutant]) -> Iterator[None]:
        """Play with mistakes; with none, as it should be."""
        before, changed = self.played, dict(self.sound)
        for mutant in mutants:
            changed[mutant.statement] = mutant.of(changed[mutant.statement])
        self.played = changed
        try:
            yield
        finally:
            self.played = before


@contextlib.asynccontextmanager
async def a_stage(dsn: str) -> AsyncIterator[Stage]:
    """On a database with an installation that nobody else uses."""
    async with a_world(dsn) as world, AsyncExitStack() as stack:
        seats = []
        for number, _ in enumerate(NAMES, start=1):
            connection = await asyncpg.connect(
                dsn, statement_cache_size=1000, max_cached_statement_lifetime=0, timeout=10
            )
            stack.callback(connection.terminate)
            # Planning these statements takes longer than all the rest.
            await connection.execute("set deadlock_timeout = '10ms'; set plan_cache_mode = force_generic_plan")
            seats.append(Seat(connection, number))
        watch = Watch(world.gate, world.watcher, {seat.pid for seat in seats})
        played = load("postgresql", "default")
        old = await world.watcher.fetch("select nspname from pg_namespace where nspname like 'scene\\_%'")
        for row in old:
            await world.watcher.execute(f"drop schema {row['nspname']} cascade")
        stage = Stage(world, watch, seats, played, played)
        yield stage
        await world.watcher.execute(_CLEAR)


_CLEAR = (
    "".join(
        f"delete from matrixsched.{table};"
        for table in TABLES
        if table not in ("chores", "quota_settings", "installation")
    )
    + f"insert into matrixsched.chores (name) select unnest(array{list(CHORES)}) on conflict do nothing;"
    + "update matrixsched.chores set held_by = null, position = '{}', done_at = null, held_until = 'epoch';"
    + "insert into matrixsched.shard_locks (shard_id) values (0), (1)"
)
