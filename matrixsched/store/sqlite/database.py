"""One SQLite database and its queue of writers. Synchronous: each method is one visit to the database's thread.

A transition begins in a read transaction. If it asks to write, it begins anew in a write transaction, behind an
advisory lock file: SQLite's own waiting is a lottery (of eight writers five got one transaction in four seconds), the
kernel's queue for the file is fair and is freed by a `kill -9`. SQLite's own lock stays the guard.
"""

from __future__ import annotations

import fcntl
import os
import re
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TypeVar
from uuid import UUID

from matrixsched.clock import Clock
from matrixsched.errors import (
    DatabaseBusy,
    DatabaseError,
    DatabaseFileMissing,
    DatabaseFileUnusable,
    NotOpen,
    OutcomeUnknown,
    SchemaMissing,
)
from matrixsched.store.facts import SqliteFacts
from matrixsched.store.migrations import Migration, load_migrations, missing
from matrixsched.store.sqlite.each import AskEach
from matrixsched.store.sqlite.inspecting import Inspection
from matrixsched.store.sqlite.rows import in_microseconds
from matrixsched.store.statements import render
from matrixsched.store.transition import Ask, Row, Transition

T = TypeVar("T")

_BUSY_TIMEOUT_S = 30
_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_UNAVAILABLE = frozenset(
    {
        sqlite3.SQLITE_AUTH,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_INTERRUPT,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_NOLFS,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_READONLY,
    }
)
_CREATE_MIGRATIONS = """
create table if not exists matrixsched_migrations (
    number      integer primary key,
    name        text    not null,
    checksum    text    not null,
    applied_at  integer not null
)
"""
_CREATE_INSTALLATION = """
insert into matrixsched_installation (singleton, shard_count, schema_version, oldest_library, created_at)
values (1, :shard_count, :schema_version, 1, :now)
on conflict do nothing
returning shard_count
"""


_CREATED = re.compile(r"^\s*create (table|view) (?:if not exists )?(\w+)", re.MULTILINE)
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)\b")


class _WantsToWrite(Exception):
    """A conversation held in a read transaction came to a statement that writes."""


class Database:
    def __init__(self, path: str | None, installation: str, clock: Clock) -> None:
        """`path` None is a database in memory, which nobody else can reach: it needs no lock file."""
        self.path = path
        self._installation = installation
        self._clock = clock
        self._connection: sqlite3.Connection | None = None
        self._lock_file: int | None = None
        self._is_open = False
        self.commits = 0
        """Write transactions so far."""
        # Siblings of a database in memory share it from several threads.
        self._mutex = threading.RLock()

    @property
    def name(self) -> str:
        return self.path or "in memory"

    @property
    def is_connected(self) -> bool:
        return self._connection is not None

    def open(self) -> None:
        """Connect. A file that does not exist is not made, for its name may be mistyped: only `upgrade` makes one."""
        with self._mutex, self._errors_classified():
            self._check_folder()
            if self._exists():
                self._connect()
            self._is_open = True

    def close(self) -> None:
        with self._mutex, self._errors_classified():
            self._is_open = False
            connection, self._connection = self._connection, None
            if connection is None:
                return
            try:
                with self._queue():  # the last one out carries the write-ahead log into the database
                    connection.close()
            finally:
                self._close_lock_file()

    def run(self, transition: Transition[T]) -> T:
        with self._mutex, self._errors_classified():
            try:
                return self._read(transition)
            except _WantsToWrite:
                pass  # written below, so that its errors do not seem to follow from this one
            return self._write(lambda connection: transition.converse(_executor(connection)))

    def upgrade(self, shard_count: int) -> list[str]:
        """Create the installation or bring it to the newest schema; the names of the migrations applied now."""
        with self._mutex, self._errors_classified():
            if self._is_open:
                self._connect(create=True)
            return self._write(lambda connection: self._upgrade(connection, shard_count))

    def inspect(self, clock: Clock, *, thorough: bool) -> SqliteFacts:
        """What the file is like, past our own connection. One in memory is nothing that could be looked at."""
        if self.path is None:
            raise DatabaseFileUnusable("SQLite database in memory: only this process sees it")
        with self._errors_classified():
            self._check_folder()
            try:
                return Inspection(self.path, self._installation, clock=clock, thorough=thorough).facts()
            except FileNotFoundError:
                raise DatabaseFileMissing(self._installation, os.path.abspath(self.path)) from None
            except OSError as error:
                raise DatabaseFileUnusable(f"SQLite database {self.name}: {error.strerror}") from error

    def drop(self) -> None:
        """Remove all that the migrations created, by name: the prefix of one installation may begin another's."""
        texts = [text for migration in load_migrations("sqlite", self._installation) for text in migration.statements]
        created = [found for text in (self._render(_CREATE_MIGRATIONS), *texts) for found in _CREATED.findall(text)]

        def drop_created(connection: sqlite3.Connection) -> None:
            for kind, name in reversed(created):
                connection.execute(f"drop {kind} if exists {name}")

        with self._mutex, self._errors_classified():
            self._write(drop_created)

    def _read(self, transition: Transition[T]) -> T:
        connection = self._connected()
        execute = _executor(connection)

        def execute_reading(ask: Ask) -> Sequence[Row]:
            if ask.statement.writes:
                raise _WantsToWrite
            if not connection.in_transaction:
                connection.execute("begin")
            return execute(ask)

        try:
            return transition.converse(execute_reading)
        finally:
            _end_read(connection)

    def _write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        connection = self._connected()
        with self._queue():
            connection.execute("begin immediate")
            try:
                answer = work(connection)
            except BaseException:
                _roll_back(connection)
                raise
            self._commit(connection)
            return answer

    def _commit(self, connection: sqlite3.Connection) -> None:
        try:
            connection.execute("commit")
            self.commits += 1
        except sqlite3.Error as error:
            _roll_back(connection)
            if _code(error) == sqlite3.SQLITE_IOERR:
                # The log may hold the commit although it could not be flushed: a recovery might bring it back.
                raise OutcomeUnknown(f"SQLite database {self.name}: {error}") from error
            raise

    def _upgrade(self, connection: sqlite3.Connection, shard_count: int) -> list[str]:
        now = in_microseconds(self._clock.now())
        connection.execute(self._render(_CREATE_MIGRATIONS))
        rows = connection.execute(self._render("select number, checksum from matrixsched_migrations")).fetchall()
        migrations = load_migrations("sqlite", self._installation)
        applied_now = missing(migrations, {number: checksum for number, checksum in rows})
        for migration in applied_now:
            self._apply(connection, migration, now)
        self._install(connection, shard_count, migrations[-1].number, now)
        return [f"{migration.number:04}_{migration.name}" for migration in applied_now]

    def _apply(self, connection: sqlite3.Connection, migration: Migration, now: int) -> None:
        for statement in migration.statements:
            connection.execute(statement)
        connection.execute(
            self._render("insert into matrixsched_migrations (number, name, checksum, applied_at) values (?, ?, ?, ?)"),
            (migration.number, migration.name, migration.checksum, now),
        )

    def _install(self, connection: sqlite3.Connection, shard_count: int, schema_version: int, now: int) -> None:
        parameters = {"shard_count": shard_count, "schema_version": schema_version, "now": now}
        if connection.execute(self._render(_CREATE_INSTALLATION), parameters).fetchall():
            connection.executemany(
                self._render("insert into matrixsched_shard_locks (shard_id, last_lock_guid) values (?, ?)"),
                # Nobody holds them yet, so any guids will do that are not the same.
                [(shard, str(UUID(int=shard))) for shard in range(shard_count)],
            )
        # An older library that arrives late knows fewer migrations than were applied.
        connection.execute(
            self._render("update matrixsched_installation set schema_version = max(schema_version, ?)"),
            (schema_version,),
        )

    def _render(self, text: str) -> str:
        return render("sqlite", self._installation, text)

    def _connected(self) -> sqlite3.Connection:
        if not self._is_open:
            raise NotOpen("the store is not open")
        if self._connection is None and not self._exists():
            raise DatabaseFileMissing(self._installation, os.path.abspath(self.name))
        return self._connect()

    def _exists(self) -> bool:
        return self.path is None or os.path.exists(self.path)

    def _connect(self, *, create: bool = False) -> sqlite3.Connection:
        """The connection, made if there is none yet."""
        if self._connection is None:
            try:
                self._open_lock_file()
                with self._queue():
                    self._connection = self._new_connection(create=create)
            except BaseException:
                self._close_lock_file()
                raise
        return self._connection

    def _new_connection(self, *, create: bool) -> sqlite3.Connection:
        mode = "rwc" if create else "rw"
        connection = sqlite3.connect(
            ":memory:" if self.path is None else f"{Path(self.path).absolute().as_uri()}?mode={mode}",
            uri=True,
            timeout=_BUSY_TIMEOUT_S,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )
        try:
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        for pragma in ("synchronous = full", "mmap_size = 0", "temp_store = memory", "cache_size = -65536"):
            connection.execute(f"pragma {pragma}").fetchall()
        mode = connection.execute("pragma journal_mode = wal").fetchone()[0]
        if mode != "wal" and self.path is not None:
            raise DatabaseFileUnusable(f"SQLite database {self.name} cannot be switched to a write-ahead log ({mode})")

    def _check_folder(self) -> None:
        if self.path is None:
            return
        folder = os.path.dirname(os.path.abspath(self.path))
        if not os.path.isdir(folder):
            raise DatabaseFileUnusable(f"SQLite database {self.name}: there is no folder {folder}")
        if os.path.isdir(self.path):
            raise DatabaseFileUnusable(f"SQLite database {self.name} is a folder")

    def _open_lock_file(self) -> None:
        if self.path is None:
            return
        try:
            # Reading is enough for flock, also where another user created the file.
            self._lock_file = os.open(f"{self.path}.lock", os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise DatabaseFileUnusable(f"SQLite database {self.name}: its lock file: {error.strerror}") from error

    def _close_lock_file(self) -> None:
        if self._lock_file is not None:
            os.close(self._lock_file)
            self._lock_file = None

    @contextmanager
    def _queue(self) -> Iterator[None]:
        """Our turn among the writers of all processes."""
        if self._lock_file is None:
            yield
            return
        fcntl.flock(self._lock_file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._lock_file, fcntl.LOCK_UN)

    @contextmanager
    def _errors_classified(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            classified = self._classify(error)
            if classified is None:
                raise
            raise classified from error

    def _classify(self, error: sqlite3.Error) -> Exception | None:
        """The error in our own words; None for what can only be a mistake of ours."""
        code, text = _code(error), f"SQLite database {self.name}: {error}"
        if code in _BUSY:
            return DatabaseBusy(text)
        if code in _UNAVAILABLE:
            return DatabaseFileUnusable(text)
        if str(error).startswith("no such table: matrixsched_"):
            return SchemaMissing(self._installation)
        return DatabaseError(text) if code is not None else None


def _executor(connection: sqlite3.Connection) -> Callable[[Ask], Sequence[Row]]:
    def execute(ask: Ask) -> Sequence[Row]:
        if isinstance(ask, AskEach):
            connection.executemany(_numbered(ask.statement.text, ask.columns), ask.rows)
            return ()
        names = ask.statement.parameters
        parameters = tuple(map(ask.parameters.__getitem__, names))
        return _rows(connection.execute(_numbered(ask.statement.text, names), parameters))

    return execute


def _rows(cursor: sqlite3.Cursor) -> Sequence[Row]:
    if cursor.description is None:
        return ()
    # Dictionaries, because sqlite3.Row looks for each name in the list of all names.
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


@cache
def _numbered(text: str, names: tuple[str, ...]) -> str:
    """The statement with ?1, ?2, … for its parameters: binding by number is faster than by name."""
    return _PARAMETER.sub(lambda found: f"?{names.index(found[1]) + 1}", text)


def _end_read(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        connection.execute("commit")


def _roll_back(connection: sqlite3.Connection) -> None:
    # After some errors (a full disk) SQLite has rolled back by itself.
    if connection.in_transaction:
        connection.execute("rollback")


def _code(error: sqlite3.Error) -> int | None:
    """The primary result code; None if the error is not SQLite's but its binding's."""
    extended: int | None = getattr(error, "sqlite_errorcode", None)
    return None if extended is None else extended & 0xFF
