"""Databases of PostgreSQL that tests have one after the other: to empty one takes a tenth of the time of making one.

What a test leaves is deleted, connections included. A database in which a test changed more than rows (tables,
settings, schemas) is dropped, and so is one that was used often: what is left of deleted rows would slow it down.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from support.postgres import PostgresServer

USES_MAX = 50

DISCONNECT = """
select pg_terminate_backend(pid, 5000) from pg_stat_activity
 where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'
"""
SHAPE = """
with ours as (select oid, nspname, nspacl from pg_namespace where nspname !~ '^(pg_|information_schema)')
select md5(string_agg(what, ' ' order by what)) from (
    select concat('schema ', nspname, nspacl) as what from ours
    union all
    select concat(c.relkind, n.nspname, '.', c.relname, c.reloptions, c.relacl, c.relpersistence,
                  (select string_agg(concat(a.attname, a.atttypid, a.attnotnull, a.attcollation), ' ' order by a.attnum)
                     from pg_attribute a where a.attrelid = c.oid and a.attnum > 0))
      from pg_class c join ours n on n.oid = c.relnamespace
    union all
    select concat(c.conrelid::regclass, c.conname, pg_get_constraintdef(c.oid))
      from pg_constraint c join ours n on n.oid = c.connamespace
    union all
    select concat('function ', p.proname) from pg_proc p join ours n on n.oid = p.pronamespace
    union all
    select concat('trigger ', tgname) from pg_trigger where not tgisinternal
    union all
    select concat('setting ', s.setrole, s.setconfig) from pg_db_role_setting s
     where s.setdatabase in (0, (select oid from pg_database where datname = current_database()))
) as shape (what)
"""
TABLES = (
    "select oid::regclass::text from pg_class where relkind = 'r' and relnamespace::regnamespace::text !~ '^(pg_|inf)'"
)
SEQUENCES = "select setval(oid::regclass, 1, false) from pg_class where relkind = 'S'"

Rows = Sequence[tuple[Any, ...]]


@dataclass
class Used:
    name: str
    uses: int = 1


class Databases:
    """Copies of one database, or empty ones."""

    def __init__(self, server: PostgresServer, install: Callable[[str], None] | None = None) -> None:
        self._server = server
        self._template: str | None = None
        if install is not None:
            self._template = f"installed_{uuid.uuid4().hex}"
            install(server.create_database(self._template))
        name = self._template or f"empty_{uuid.uuid4().hex}"
        if self._template is None:
            server.create_database(name)
        with psycopg.connect(server.dsn(name), autocommit=True) as connection:
            self._shape = _shape(connection)
            self._rows = {table: _rows(connection, table) for table in _tables(connection)}
        if self._template is None:
            server.drop_database(name)
        self._free: list[Used] = []

    def take(self) -> Used:
        while self._free:
            used = self._free.pop()
            if used.uses < USES_MAX and self._emptied(used.name):
                used.uses += 1
                return used
            self._server.drop_database(used.name)
        used = Used(f"test_{uuid.uuid4().hex}")
        self._server.create_database(used.name, template=self._template)
        return used

    def give_back(self, used: Used) -> None:
        self._free.append(used)

    def close(self) -> None:
        for used in self._free:
            self._server.drop_database(used.name)
        if self._template is not None:
            self._server.drop_database(self._template)

    def _emptied(self, name: str) -> bool:
        """Make it as new; not, if that cannot be done by changing rows."""
        try:
            with psycopg.connect(self._server.dsn(name), autocommit=True) as connection:
                connection.execute(DISCONNECT)
                if _shape(connection) != self._shape:
                    return False
                with connection.transaction():
                    connection.execute(SEQUENCES)
                    for table, rows in self._rows.items():
                        _refill(connection, table, rows)
                return True
        except psycopg.Error:
            return False


def _shape(connection: psycopg.Connection[Any]) -> str | None:
    row = connection.execute(SHAPE).fetchone()
    assert row is not None
    shape: str | None = row[0]
    return shape


def _tables(connection: psycopg.Connection[Any]) -> list[str]:
    return [table for (table,) in connection.execute(TABLES)]


def _rows(connection: psycopg.Connection[Any], table: str) -> Rows:
    return connection.execute(_statement("select * from {}", table)).fetchall()


def _refill(connection: psycopg.Connection[Any], table: str, rows: Rows) -> None:
    connection.execute(_statement("delete from {}", table))
    if rows:
        places = sql.SQL(", ").join([sql.Placeholder()] * len(rows[0]))
        insert = sql.SQL("insert into {} overriding system value values ({})").format(_name(table), places)
        with connection.cursor() as cursor:
            cursor.executemany(insert, rows)


def _statement(text: Any, table: str) -> sql.Composed:
    return sql.SQL(text).format(_name(table))


def _name(table: str) -> sql.Identifier:
    return sql.Identifier(*table.split("."))
