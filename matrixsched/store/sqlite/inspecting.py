"""What a file of SQLite and an installation in it are like, asked over a connection of its own that only reads."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from threading import Event

from matrixsched.clock import Clock
from matrixsched.store.catalogue import catalogue_of
from matrixsched.store.facts import SchemaFacts, SqliteFacts
from matrixsched.store.sqlite.places import file_facts, filesystem_of, free_bytes, holders_of
from matrixsched.store.statements import load, namespace
from matrixsched.store.transition import Row

WRITER_PATIENCE_S = 2.0
"""How long to wait for our turn to write: a write of ours takes milliseconds."""
_LOOK_EVERY_S = 0.02
_FAULTS_MAX = 10
_WRITER_LOCK = 120
"""The byte of the index of the log that a writer has locked."""


class Inspection:
    def __init__(self, path: str, installation: str, *, clock: Clock, thorough: bool) -> None:
        self._path = path
        self._installation = installation
        self._clock = clock
        self._thorough = thorough
        self._statements = load("sqlite", installation)

    def facts(self) -> SqliteFacts:
        """Raises sqlite3.Error or OSError if the file cannot be read."""
        path = os.path.abspath(self._path)
        file = file_facts(path)
        if file is None:
            raise FileNotFoundError(path)
        folder = file_facts(os.path.dirname(path))
        assert folder is not None
        with self._connection() as connection:
            # First, since it is what our own connection may change: the log is there once somebody reads.
            wal, shm, lock = (file_facts(f"{path}{ending}") for ending in ("-wal", "-shm", ".lock"))
            waited, is_stuck, writers = self._wait_for_our_turn(path)
            return SqliteFacts(
                version=sqlite3.sqlite_version_info,
                file=file,
                wal=wal,
                shm=shm,
                lock=lock,
                folder=folder,
                filesystem=filesystem_of(path),
                free_bytes=free_bytes(path),
                journal_mode=str(_pragma(connection, "journal_mode")),
                page_size=int(_pragma(connection, "page_size")),
                page_count=int(_pragma(connection, "page_count")),
                free_pages=int(_pragma(connection, "freelist_count")),
                faults=self._faults(connection) if self._thorough else None,
                writer_waited=waited,
                is_writer_stuck=is_stuck,
                writers=writers,
                schema=self._schema(connection),
            )

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        address = f"{Path(self._path).absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(address, uri=True, isolation_level=None, timeout=WRITER_PATIENCE_S)) as connection:
            connection.row_factory = sqlite3.Row
            yield connection

    def _ask(self, connection: sqlite3.Connection, name: str) -> Sequence[Row]:
        statement = self._statements[f"inspect.{name}"]
        values = {"prefix": namespace("sqlite", self._installation)}
        parameters = {parameter: values[parameter] for parameter in statement.parameters}
        return [dict(row) for row in connection.execute(statement.text, parameters)]

    def _schema(self, connection: sqlite3.Connection) -> SchemaFacts:
        rows = [*self._ask(connection, "catalogue"), *self._ask(connection, "columns")]
        found = catalogue_of("sqlite", self._installation, rows)
        migrations = self._ask(connection, "migrations") if "table migrations" in found else ()
        version = self._ask(connection, "version") if "table installation" in found else ()
        return SchemaFacts(
            exists="table installation" in found,
            catalogue=found,
            checksums={row["number"]: row["checksum"] for row in migrations},
            version=version[0]["schema_version"] if version else None,
            oldest_library=version[0]["oldest_library"] if version else None,
        )

    def _faults(self, connection: sqlite3.Connection) -> list[str]:
        rows = connection.execute(f"pragma quick_check({_FAULTS_MAX})").fetchall()
        return [row[0] for row in rows if row[0] != "ok"]

    def _wait_for_our_turn(self, path: str) -> tuple[timedelta, bool, Sequence[int]]:
        """Stand in line as a writer does, first for the lock file, then for SQLite's own lock; write nothing.

        How long that took, whether our turn never came, and who was before us then.
        """
        began = self._clock.monotonic()
        writers = self._waited_for_file(path)
        waited = timedelta(seconds=self._clock.monotonic() - began)
        return waited, writers is not None, writers or ()

    def _waited_for_file(self, path: str) -> Sequence[int] | None:
        """Who holds us up; None: our turn came."""
        lock = f"{path}.lock"
        try:
            file = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return self._waited_for_database(path)
        try:
            for _ in range(round(WRITER_PATIENCE_S / _LOOK_EVERY_S)):
                with suppress(BlockingIOError):
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    # Under the lock file, as all of us: the last connection to close carries over the log.
                    return self._waited_for_database(path)
                Event().wait(_LOOK_EVERY_S)
            return holders_of(lock)
        finally:
            os.close(file)

    def _waited_for_database(self, path: str) -> Sequence[int] | None:
        address = f"{Path(path).as_uri()}?mode=rw"
        try:
            with closing(
                sqlite3.connect(address, uri=True, isolation_level=None, timeout=WRITER_PATIENCE_S)
            ) as connection:
                connection.execute("begin immediate")
                connection.execute("rollback")
        except sqlite3.OperationalError as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY:
                log = f"{path}-shm"
                return holders_of(log, byte=_WRITER_LOCK) if os.path.exists(log) else holders_of(path)
        return None


def _pragma(connection: sqlite3.Connection, name: str) -> str | int:
    value: str | int = connection.execute(f"pragma {name}").fetchone()[0]
    return value
