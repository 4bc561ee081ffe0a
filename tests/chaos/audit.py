"""Triggers that note every change of the tables that matter: what it was before, what it is now, and who wrote it.

Both databases have the same table, so that one judge reads both. The writer is told by its session on PostgreSQL, on
SQLite by a function that its process gives each of its connections: who writes without it is refused.
"""

from __future__ import annotations

import sqlite3
from functools import partial
from typing import Any, NamedTuple

from chaos.place import Place

COLUMNS = (
    "place",
    "op",
    "id",
    "guid",
    "was_guid",
    "attempt",
    "was_attempt",
    "claim",
    "was_claim",
    "due",
    "was_due",
    "state",
    "was_state",
    "succeeded",
    "failed",
    "interrupted",
    "note",
)


class Change(NamedTuple):
    """A change of a row. Times are seconds since 1970, by the database's clock."""

    seq: int
    at: float
    writer: str | None
    place: str
    """row: of processing_queue; action; task: of a queue; lock: of a shard; hold: of a semaphore; grant: of a quota."""
    op: str
    """I, U or D."""
    id: str
    guid: str | None
    """Of the version; of a lock or a task: its guid or receipt."""
    was_guid: str | None
    attempt: int | None
    """Of a grant: how much of it is used."""
    was_attempt: int | None
    claim: str | None
    was_claim: str | None
    due: float | None
    """Of a hold: when its task was enqueued."""
    was_due: float | None
    """Of a hold: when it got its place, which is one instant for all that a statement gives."""
    state: str | None
    """Of a lock: locked or free; of a row: its lane."""
    was_state: str | None
    succeeded: int
    """How many more than before; so are the next two."""
    failed: int
    interrupted: int
    note: str | None
    """Of a lock: who has it; of an action: its last outcome; of a hold: its priority; of a grant: how much it is."""


# For each table: what goes into which column. ROW is the new row or, where it is deleted, the old one; MORE is by how
# much the new one exceeds the old one.
TABLES: dict[str, tuple[str, dict[str, str]]] = {
    "processing_queue": (
        "row",
        {
            "id": "ROW.action_id",
            "guid": "NEW.action_guid",
            "was_guid": "OLD.action_guid",
            "attempt": "NEW.attempt",
            "was_attempt": "OLD.attempt",
            "claim": "NEW.claimed_by",
            "was_claim": "OLD.claimed_by",
            "due": "us(NEW.scheduled_at)",
            "was_due": "us(OLD.scheduled_at)",
            "state": "NEW.lane",
            "was_state": "OLD.lane",
            "interrupted": "MORE.interrupted",
        },
    ),
    "scheduled_actions": (
        "action",
        {
            "id": "ROW.action_id",
            "guid": "NEW.action_guid",
            "was_guid": "OLD.action_guid",
            "due": "us(NEW.scheduled_at)",
            "was_due": "us(OLD.scheduled_at)",
            "state": "NEW.state",
            "was_state": "OLD.state",
            "succeeded": "MORE.succeeded",
            "failed": "MORE.failed",
            "interrupted": "MORE.interrupted",
            "note": "NEW.last_outcome",
        },
    ),
    "queue_tasks": (
        "task",
        {
            "id": "ROW.id",
            "guid": "NEW.receipt",
            "was_guid": "OLD.receipt",
            "attempt": "NEW.attempts",
            "was_attempt": "OLD.attempts",
            "due": "us(NEW.due_at)",
            "was_due": "us(OLD.due_at)",
        },
    ),
    "shard_locks": (
        "lock",
        {
            "id": "ROW.shard_id",
            "guid": "NEW.last_lock_guid",
            "was_guid": "OLD.last_lock_guid",
            "state": "NEW.locked",
            "note": "NEW.last_locked_by",
        },
    ),
    "semaphore_tasks": (
        "hold",
        {
            "id": "ROW.task_id",
            "guid": "NEW.guid",
            "was_guid": "OLD.guid",
            "due": "us(NEW.enqueued_at)",
            "was_due": "us(NEW.acquired_at)",
            "state": "NEW.state",
            "was_state": "OLD.state",
            "note": "NEW.priority",
        },
    ),
    "quota_grants": (
        "grant",
        {
            "id": "ROW.template",
            "attempt": "NEW.used",
            "was_attempt": "OLD.used",
            "note": "NEW.granted",
        },
    ),
}
ONLY_IF = {"shard_locks": "NEW.last_lock_guid <> OLD.last_lock_guid or NEW.locked <> OLD.locked"}
"""Heartbeats of locks are of no interest."""


def sign_as(writer: str) -> None:
    """Let every connection to SQLite that this process makes from now on tell the triggers whose it is."""

    class Signed(sqlite3.Connection):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.create_function("chaos_writer", 0, lambda: writer)

    sqlite3.connect = partial(sqlite3.dbapi2.connect, factory=Signed)  # type: ignore[assignment]


def install(place: Place) -> None:
    statements = _for_postgresql() if place.is_postgresql else _for_sqlite()
    for statement in statements:
        place.ask(statement)


def _for_postgresql() -> list[str]:
    statements = [
        "create schema chaos",
        """
        create table chaos.audit (
            seq bigserial primary key, at bigint not null, writer text, place text not null, op text not null,
            id text not null, guid text, was_guid text, attempt integer, was_attempt integer, claim text,
            was_claim text, due bigint, was_due bigint, state text, was_state text, succeeded integer, failed integer,
            interrupted integer, note text)
        """,
        """
        create function chaos.us(at timestamptz) returns bigint immutable language sql as
        $$ select (extract(epoch from at) * 1000000)::bigint $$
        """,
    ]
    for table, (kind, columns) in TABLES.items():
        given = {"place": f"'{kind}'", "op": "left(TG_OP, 1)"} | columns
        names, values = ", ".join(given), ", ".join(map(_in_postgresql, given.values()))
        statements += [
            f"""
            create function chaos.note_{table}() returns trigger language plpgsql as $$
            begin
                insert into chaos.audit (at, writer, {names})
                values (chaos.us(clock_timestamp()), nullif(current_setting('chaos.writer', true), ''), {values});
                return null;
            end $$
            """,
            f"""
            create trigger chaos_note after {"update" if table in ONLY_IF else "insert or update or delete"}
                on matrixsched.{table} for each row {f"when ({ONLY_IF[table]})" if table in ONLY_IF else ""}
                execute function chaos.note_{table}()
            """,
        ]
    return statements


def _for_sqlite() -> list[str]:
    columns = ", ".join(f"{name} text" for name in COLUMNS)
    statements = [f"create table chaos_audit (seq integer primary key, at integer, writer text, {columns})"]
    for table, (kind, given) in TABLES.items():
        for op in ("update",) if table in ONLY_IF else ("insert", "update", "delete"):
            full = {"place": f"'{kind}'", "op": f"'{op[0].upper()}'"} | given
            names = ", ".join(full)
            values = ", ".join(_in_sqlite(value, op) for value in full.values())
            when = f"when {ONLY_IF[table]}" if table in ONLY_IF else ""
            statements.append(
                f"create trigger chaos_{table}_{op} after {op} on matrixsched.{table} for each row {when} begin "
                f"insert into chaos_audit (at, writer, {names}) "
                f"values (cast((julianday('now') - 2440587.5) * 86400000000 as integer), chaos_writer(), {values}); end"
            )
    return statements


def _in_postgresql(value: str) -> str:
    kind, _, column = value.partition(".")
    match kind:
        case "ROW":
            return f"coalesce(NEW.{column}, OLD.{column})"
        case "MORE":
            return f"coalesce(NEW.{column} - OLD.{column}, 0)"
    return value.replace("us(", "chaos.us(")


def _in_sqlite(value: str, op: str) -> str:
    """SQLite has no OLD where a row is inserted, and no NEW where it is deleted."""
    kind, _, column = value.partition(".")
    match kind.removeprefix("us("), op:
        case "ROW", _:
            return f"OLD.{column}" if op == "delete" else f"NEW.{column}"
        case "MORE", _:
            return f"NEW.{column} - OLD.{column}" if op == "update" else "0"
        case ("OLD", "insert") | ("NEW", "delete"):
            return "null"
    return value.removeprefix("us").strip("()")


def read(place: Place) -> list[Change]:
    """All of it, in order. Changes of one row stand in the order in which they were made: it was locked meanwhile."""
    table = "chaos.audit" if place.is_postgresql else "chaos_audit"
    return [
        _change(row) for row in place.ask(f"select seq, at, writer, {', '.join(COLUMNS)} from {table} order by seq")
    ]


def _change(row: tuple[Any, ...]) -> Change:
    seq, at, writer, *rest = row
    given = dict(zip(COLUMNS, rest, strict=True))
    for name in ("attempt", "was_attempt"):
        given[name] = None if given[name] is None else int(given[name])
    for name in ("due", "was_due"):
        given[name] = None if given[name] is None else int(given[name]) / 1e6
    for name in ("succeeded", "failed", "interrupted"):
        given[name] = int(given[name] or 0)
    if given["place"] == "lock":
        given["state"] = "locked" if given["state"] in ("true", "1") else "free"
    return Change(seq=seq, at=at / 1e6, writer=writer, **given)
