"""Connections that users bring along, of every library we promise to work with, behind one face for tests."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import aiosqlite
import asyncpg
import django
import psycopg
from django.conf import settings
from django.db import connections
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from support.drivers import async_engine, connect_asyncpg, connect_psycopg, engine, of_asyncpg, of_psycopg

ASYNC_KINDS = {
    "sqlalchemy aiosqlite": "sqlite",
    "sqlalchemy asyncpg": "postgresql",
    "sqlalchemy psycopg": "postgresql",
    "session aiosqlite": "sqlite",
    "session asyncpg": "postgresql",
    "aiosqlite": "sqlite",
    "asyncpg": "postgresql",
    "asyncpg pool": "postgresql",
    "psycopg": "postgresql",
}
SYNC_KINDS = {
    "sqlalchemy pysqlite": "sqlite",
    "sqlalchemy psycopg": "postgresql",
    "session pysqlite": "sqlite",
    "session psycopg": "postgresql",
    "scoped pysqlite": "sqlite",
    "sqlite3": "sqlite",
    "psycopg": "postgresql",
    "django sqlite": "sqlite",
    "django postgresql": "postgresql",
}


@dataclass
class AsyncCaller:
    connection: Any
    execute: Callable[[str], Awaitable[object]]
    begin: Callable[[], Awaitable[object]]
    commit: Callable[[], Awaitable[object]]
    rollback: Callable[[], Awaitable[object]]


@dataclass
class SyncCaller:
    connection: Any
    execute: Callable[[str], object]
    begin: Callable[[], object]
    commit: Callable[[], object]
    rollback: Callable[[], object]


def path_of(url: str) -> str:
    return url.removeprefix("sqlite:///")


async def nothing() -> None: ...


@asynccontextmanager
async def async_caller(kind: str, url: str) -> AsyncIterator[AsyncCaller]:
    """A connection on which nothing has begun."""
    library, _, driver = kind.partition(" ")
    if library in ("sqlalchemy", "session"):
        their = async_engine(url, driver)
        async with their.connect() if library == "sqlalchemy" else AsyncSession(their) as one:
            yield AsyncCaller(one, lambda sql: one.execute(text(sql)), nothing, one.commit, one.rollback)
        await their.dispose()
    elif kind == "aiosqlite":
        async with aiosqlite.connect(path_of(url), isolation_level=None) as own:
            own.row_factory = sqlite3.Row
            yield in_statements(own, own.execute)
    elif kind == "psycopg":
        async with await psycopg.AsyncConnection.connect(**of_psycopg(url), autocommit=True) as connection:
            yield in_statements(connection, connection.execute)
    elif kind == "asyncpg":
        bare = await connect_asyncpg(url)
        yield in_statements(bare, bare.execute)
        await bare.close()
    else:
        async with asyncpg.create_pool(**of_asyncpg(url), min_size=1) as pool, pool.acquire() as lent:
            yield in_statements(lent, lent.execute)


def in_statements(connection: Any, execute: Callable[[str], Awaitable[object]]) -> AsyncCaller:
    def sending(sql: str) -> Callable[[], Awaitable[object]]:
        return lambda: execute(sql)

    return AsyncCaller(connection, execute, sending("begin"), sending("commit"), sending("rollback"))


@contextmanager
def sync_caller(kind: str, url: str) -> Iterator[SyncCaller]:
    library, _, driver = kind.partition(" ")
    if library in ("sqlalchemy", "session", "scoped"):
        their = engine(url, driver)
        one: Any = {
            "sqlalchemy": their.connect,
            "session": lambda: Session(their),
            "scoped": lambda: scoped_session(sessionmaker(their)),
        }[library]()
        try:
            yield SyncCaller(one, lambda sql: one.execute(text(sql)), lambda: None, one.commit, one.rollback)
        finally:
            one.close()
            their.dispose()
    elif library == "django":
        connection = django_connection(url)
        try:
            yield SyncCaller(
                connection,
                lambda sql: connection.cursor().execute(sql),
                lambda: connection.set_autocommit(False),
                lambda: (connection.commit(), connection.set_autocommit(True)),
                lambda: (connection.rollback(), connection.set_autocommit(True)),
            )
        finally:
            connection.close()
    else:
        own: Any = (
            sqlite3.connect(path_of(url), isolation_level=None)
            if kind == "sqlite3"
            else connect_psycopg(url, autocommit=True)
        )
        try:
            yield SyncCaller(
                own,
                own.execute,
                lambda: own.execute("begin"),
                lambda: own.execute("commit"),
                lambda: own.execute("rollback"),
            )
        finally:
            own.close()


def django_connection(url: str) -> Any:
    """A connection of Django's that knows no time zones, which is the harder case; under the alias "default"."""
    if not settings.configured:
        settings.configure(DATABASES={}, USE_TZ=False, TIME_ZONE="America/New_York")
        django.setup()
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        database = {"ENGINE": "django.db.backends.sqlite3", "NAME": path_of(url)}
    else:
        database = {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": parts.path.lstrip("/"),
            "HOST": parts.hostname,
            "PORT": str(parts.port),
            "USER": parts.username,
        }
    connections.settings = connections.configure_settings({"default": database})
    if hasattr(connections._connections, "default"):
        del connections["default"]
    return connections["default"]
