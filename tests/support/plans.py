"""Plans of the hot statements, as PostgreSQL makes and carries them out, on tables that hold much that is not due."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import psycopg
from psycopg import sql

from matrixsched.store.transition import Ask, Transition

BIG_TABLES = {
    "scheduled_actions",
    "incoming_queue",
    "processing_queue",
    "requests",
    "attempt_history",
    "semaphores",
    "semaphore_tasks",
    "semaphore_changes",
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
