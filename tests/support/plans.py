"""Plans of the hot statements, as the databases make them and PostgreSQL carries them out, on tables that hold much."""

from __future__ import annotations

import json
import sqlite3
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, cast

import anyio
import psycopg
from psycopg import sql

from matrixsched.store.migrations import load_migrations
from matrixsched.store.postgresql.store import PostgresStore
from matrixsched.store.statements import Statement
from matrixsched.store.transition import Ask, Transition
from support.postgres import PostgresServer

BIG_TABLES = {
    "scheduled_actions",
    "incoming_queue",
    "processing_queue",
    "requests",
    "attempt_history",
    "semaphores",
    "semaphore_tasks",
    "semaphore_changes",
    "queue_tasks",
    "queue_dead_letters",
}

Node = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Plan:
    root: Node

    def nodes(self) -> Iterator[Node]:
        waiting = [self.root]
        while waiting:
            node = waiting.pop()
            yield node
            waiting.extend(node.get("Plans", []))

    def reads(self) -> Iterator[Node]:
        """Where rows of the big tables are read."""
        for node in self.nodes():
            if node.get("Relation Name") in BIG_TABLES and "Scan" in node["Node Type"]:
                yield node

    @property
    def full_scans(self) -> list[str]:
        return [node["Relation Name"] for node in self.reads() if node["Node Type"] == "Seq Scan"]

    @property
    def rows_read(self) -> int:
        """Rows of the big tables that were looked at, whether or not they were any use."""
        return sum(round(rows * node["Actual Loops"]) for node in self.reads() for rows in _rows(node))

    @property
    def rows_thrown_away(self) -> int:
        return sum(round(rows * node["Actual Loops"]) for node in self.nodes() for rows in _rows(node)[1:])

    @property
    def blocks(self) -> int:
        """Pages touched."""
        return int(self.root["Shared Hit Blocks"] + self.root["Shared Read Blocks"])


def _rows(node: Node) -> list[float]:
    removed = [value for name, value in node.items() if name.startswith("Rows Removed by")]
    return [node["Actual Rows"], *removed]


def first_ask(transition: Transition[Any]) -> Ask:
    return next(transition.begin())


def prepare(connection: psycopg.Connection[Any], name: str, ask: Ask) -> None:
    connection.execute(cast("Any", f"prepare {name} as {ask.statement.positional}"))


def explain(connection: psycopg.Connection[Any], name: str, ask: Ask) -> Plan:
    """Carry out a prepared statement in a transaction that is rolled back."""
    values = [sql.Literal(ask.parameters[parameter]) for parameter in ask.statement.parameters]
    query = sql.SQL("explain (analyze, buffers, timing off, format json) execute {}({})").format(
        sql.Identifier(name), sql.SQL(", ").join(values)
    )
    with connection.transaction(force_rollback=True):
        row = connection.execute(query).fetchone()
    assert row is not None
    document = row[0] if isinstance(row[0], list) else json.loads(row[0])
    return Plan(document[0]["Plan"])


# SQLite.


@contextmanager
def filled_sqlite(fill: str, *, analysed: bool) -> Iterator[sqlite3.Connection]:
    """An installation in memory; its plans depend on the indexes, and on ANALYZE where an operator ran it."""
    with closing(sqlite3.connect(":memory:")) as connection:
        for migration in load_migrations("sqlite", "default"):
            for text in migration.statements:
                connection.execute(text)
        connection.executescript(fill)
        if analysed:
            connection.execute("analyze")
        yield connection


def sqlite_plan(connection: sqlite3.Connection, statement: Statement) -> list[str]:
    # Lists are JSON, and what is looked into while planning must be some.
    parameters = dict.fromkeys(statement.parameters, "[]")
    return [row[3] for row in connection.execute(f"explain query plan {statement.text}", parameters)]


# PostgreSQL, however a statement comes to its plan.

EMPTY, NEVER, CUSTOM, GENERIC = "made when the tables were empty", "never analysed", "custom", "generic"
RARE_GENERIC, RARE_CUSTOM = "generic, analysed when few were there", "custom, analysed when few were there"
WAYS = (EMPTY, NEVER, GENERIC, CUSTOM, RARE_GENERIC, RARE_CUSTOM)

Plans = dict[str, dict[str, Plan]]
"""For each way a statement comes to its plan, the plans of all as they were carried out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stock:
    """What lies in the tables when statements are planned."""

    tables: Sequence[str]
    fill: Sequence[str]
    empty: Sequence[str]
    """Takes away what there is much of, and lets the database count."""
    refill: str


def plans_of_all_ways(server: PostgresServer, asks: Mapping[str, Ask], stock: Stock) -> Plans:
    name = f"plans_{uuid.uuid4().hex}"
    dsn = server.create_database(name)
    anyio.run(_install, dsn)
    prepared = {ask: f"statement_{number}" for number, ask in enumerate(asks)}
    found: Plans = {}
    with psycopg.connect(dsn, autocommit=True) as connection:

        def run(*texts: str) -> None:
            for text in texts:
                connection.execute(text.encode())

        def plans() -> dict[str, Plan]:
            return {ask: explain(connection, prepared[ask], asks[ask]) for ask in asks}

        run(*(f"alter table matrixsched.{table} set (autovacuum_enabled = off)" for table in stock.tables))
        run("set plan_cache_mode = force_generic_plan")
        for ask, statement in prepared.items():
            prepare(connection, statement, asks[ask])
        plans()
        run(*stock.fill)
        found[EMPTY] = plans()
        run("set plan_cache_mode = force_custom_plan")
        found[NEVER] = plans()
        run("vacuum analyze")
        found[CUSTOM] = plans()
        run("set plan_cache_mode = force_generic_plan")
        found[GENERIC] = plans()
        run(*stock.empty, stock.refill)
        found[RARE_GENERIC] = plans()
        run("set plan_cache_mode = force_custom_plan")
        found[RARE_CUSTOM] = plans()
    server.drop_database(name)
    return found


async def _install(dsn: str) -> None:
    store = PostgresStore(dsn, "default", connections=1)
    await store.open()
    await store.upgrade(4)
    await store.close()
