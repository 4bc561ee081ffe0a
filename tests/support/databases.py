"""Databases of PostgreSQL that tests have one after the other: to empty one takes a tenth of the time of making one.

What a test leaves is deleted, connections included. A database in which a test changed more than rows (tables,
settings, schemas) is dropped, and so is one that was used often: what is left of deleted rows would slow it down.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, LiteralString

import psycopg
from psycopg import sql

from support.postgres import PostgresServer

USES_MAX = 50

DISCONNECT = """
select pg_terminate_backend(pid, 5000) from pg_stat_activity
 where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'
"""
SHAPE = """
with ours as (select oid, nspname from pg_namespace where nspname !~ '^(pg_|information_schema)'),
tables as (select c.oid, c.xmin from pg_class c where c.relnamespace in (select oid from ours)),
parts as (
    select count(*) as many, sum(cast(cast(n.xmin as text) as bigint)) as versions
      from pg_namespace n where n.oid in (select oid from ours)
    union all
    select count(*), sum(cast(cast(t.xmin as text) as bigint)) from tables t
    union all
    select count(*), sum(cast(cast(a.xmin as text) as bigint))
      from pg_attribute a where a.attrelid in (select oid from tables)
    union all
    select count(*), sum(cast(cast(c.xmin as text) as bigint))
      from pg_constraint c where c.connamespace in (select oid from ours)
    union all
    select count(*), sum(cast(cast(p.xmin as text) as bigint))
      from pg_proc p where p.pronamespace in (select oid from ours)
    union all
    select count(*), sum(cast(cast(t.xmin as text) as bigint)) from pg_trigger t where not t.tgisinternal
)
select concat(string_agg(concat(many, ':', versions), ' '),
              (select string_agg(concat(s.setrole, s.setconfig), ' ') from pg_db_role_setting s
                where s.setdatabase in (0, (select oid from pg_database where datname = current_database()))))
  from parts
"""
"""How many there are of everything but rows, and the transactions that wrote them: a copy has those of its template."""
TABLES = (
    "select oid::regclass::text from pg_class where relkind = 'r' and relnamespace::regnamespace::text !~ '^(pg_|inf)'"
)
SEQUENCES = """
select c.oid::regclass::text, coalesce(s.last_value, s.start_value), s.last_value is not null
  from pg_class c join pg_sequences s on format('%I.%I', s.schemaname, s.sequencename)::regclass = c.oid
"""


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
            self._refill = _refilling(connection)
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
                connection.execute(self._refill)
                return True
        except psycopg.Error:
            return False


def _shape(connection: psycopg.Connection[Any]) -> str | None:
    row = connection.execute(SHAPE).fetchone()
    assert row is not None
    shape: str | None = row[0]
    return shape


def _refilling(connection: psycopg.Connection[Any]) -> sql.Composed:
    """All that makes its rows what they are now, in one message."""
    tables = [sql.Identifier(*table.split(".")) for (table,) in connection.execute(TABLES)]
    filling = [_inserting(table, connection.execute(_of("select * from {}", table)).fetchall()) for table in tables]
    steps = [
        *(_of("select setval({}, {}, {})", *map(sql.Literal, one)) for one in connection.execute(SEQUENCES)),
        *(_of("delete from {}", table) for table in tables),
        *filter(None, filling),
    ]
    return sql.SQL("; ").join([sql.SQL("begin"), *steps, sql.SQL("commit")])


def _inserting(table: sql.Identifier, rows: Sequence[tuple[Any, ...]]) -> sql.Composed | None:
    if not rows:
        return None
    values = [sql.SQL("({})").format(sql.SQL(", ").join(map(sql.Literal, row))) for row in rows]
    return _of("insert into {} overriding system value values {}", table, sql.SQL(", ").join(values))


def _of(text: LiteralString, *parts: sql.Composable) -> sql.Composed:
    return sql.SQL(text).format(*parts)
