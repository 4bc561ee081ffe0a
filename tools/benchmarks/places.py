"""Fresh installations to measure in: a schema on PostgreSQL, a file on SQLite."""

from __future__ import annotations

import contextlib
import secrets
import sqlite3
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import psycopg
from support.drivers import connect_psycopg

from matrixsched.app import App
from matrixsched.store.statements import Dialect, render


class Place(Protocol):
    """One installation, not created yet."""

    @property
    def dialect(self) -> Dialect: ...

    @property
    def url(self) -> str: ...

    @property
    def installation(self) -> str: ...

    def app(self) -> App:
        """An application of its own, with connections of its own."""
        ...

    def ask(self, text: str) -> list[tuple[Any, ...]]:
        """The rows of a statement, which is written for the default installation on PostgreSQL."""
        ...

    def beside(self) -> contextlib.AbstractContextManager[Place]:
        """Another installation in the same database, to take turns with."""
        ...

    def settle(self) -> None:
        """Bring statistics up to date and pay for what was written so far, so that the next one does not."""
        ...


class Places(Protocol):
    """A database that gives out installations."""

    @property
    def dialect(self) -> Dialect: ...

    @property
    def version(self) -> str: ...

    @property
    def is_durable(self) -> bool:
        """Whether what was committed outlives a loss of power."""
        ...

    def fresh(self) -> contextlib.AbstractContextManager[Place]:
        """An installation that nobody else has; what is left of it is removed afterwards."""
        ...


@dataclass(frozen=True)
class PostgresPlace:
    url: str
    installation: str
    ours: bool
    dialect: Dialect = "postgresql"

    def app(self) -> App:
        return App(self.url, installation=self.installation)

    def ask(self, text: str) -> list[tuple[Any, ...]]:
        with connect_psycopg(self.url, autocommit=True) as connection:
            cursor = connection.execute(render("postgresql", self.installation, text))
            return cursor.fetchall() if cursor.description else []

    def beside(self) -> contextlib.AbstractContextManager[PostgresPlace]:
        return PostgresPlaces(self.url, self.ours).fresh()

    def settle(self) -> None:
        for table in (
            "scheduled_actions",
            "incoming_queue",
            "processing_queue",
            "semaphores",
            "semaphore_tasks",
            "queue_tasks",
        ):
            self.ask(f"vacuum analyze matrixsched.{table}")
        if self.ours:
            self.ask("checkpoint")


@dataclass(frozen=True)
class PostgresPlaces:
    """Schemas in one database. Only on a server of our own are checkpoints forced."""

    url: str
    ours: bool
    dialect: Dialect = "postgresql"

    @property
    def version(self) -> str:
        with psycopg.connect(self.url) as connection:
            return f"{connection.info.server_version // 10_000}.{connection.info.server_version % 10_000}"

    @property
    def is_durable(self) -> bool:
        with psycopg.connect(self.url) as connection:
            settings = [connection.execute(f"show {name}").fetchone() for name in ("fsync", "synchronous_commit")]
        return settings == [("on",), ("on",)]

    @contextlib.contextmanager
    def fresh(self) -> Iterator[PostgresPlace]:
        place = PostgresPlace(self.url, f"bench_{secrets.token_hex(4)}", self.ours)
        try:
            yield place
        finally:
            # The name without its dot: render() knows schemas by the dot after them.
            place.ask(f"drop schema if exists matrixsched_{place.installation} cascade")


@dataclass(frozen=True)
class SqlitePlace:
    url: str
    installation: str = "default"
    dialect: Dialect = "sqlite"

    def app(self) -> App:
        return App(self.url, installation=self.installation)

    def ask(self, text: str) -> list[tuple[Any, ...]]:
        with contextlib.closing(sqlite3.connect(sqlite_file(self.url), isolation_level=None)) as connection:
            return connection.execute(text.replace("matrixsched.", "matrixsched_")).fetchall()

    def beside(self) -> contextlib.AbstractContextManager[SqlitePlace]:
        return SqlitePlaces(Path(sqlite_file(self.url)).parent).fresh()

    def settle(self) -> None:
        self.ask("pragma wal_checkpoint(truncate)")


def sqlite_file(url: str) -> str:
    return urlsplit(url).path.removeprefix("/")


@dataclass(frozen=True)
class SqlitePlaces:
    folder: Path
    dialect: Dialect = "sqlite"

    @classmethod
    @contextlib.contextmanager
    def in_temporary_folder(cls) -> Iterator[SqlitePlaces]:
        with tempfile.TemporaryDirectory(prefix="matrixsched-bench-") as folder:
            yield cls(Path(folder))

    @property
    def version(self) -> str:
        return sqlite3.sqlite_version

    @property
    def is_durable(self) -> bool:
        return True  # the library sets synchronous=FULL

    @contextlib.contextmanager
    def fresh(self) -> Iterator[SqlitePlace]:
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            yield SqlitePlace(f"sqlite:///{folder}/bench.db")
