"""What a database is like, as `Store.inspect` finds it: facts for `matrixsched doctor`, which judges them.

They are read past the store's own connections, so that they can be had also where those would refuse to work, and
before anything is repaired by merely opening it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

Catalogue = Mapping[str, str]
"""Everything that the migrations make, by its kind and name, and how it is defined."""

_NOTHING = timedelta(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaFacts:
    """An installation as the database describes it."""

    exists: bool
    is_locked: bool = False
    """Somebody has a table for himself alone: there is no more to be known until he is done."""
    catalogue: Catalogue = field(default_factory=dict)
    checksums: Mapping[int, str] = field(default_factory=dict)
    """Of the migrations that were applied."""
    version: int | None = None
    """None: it could not be read."""
    oldest_library: int | None = None
    is_distributed: bool = False


@dataclass(frozen=True, slots=True)
class ClockReading:
    """The database's time, and this machine's just before and just after it was asked."""

    asked_at: datetime
    database: datetime
    answered_at: datetime

    @property
    def ahead(self) -> timedelta:
        """By how much the database's clock is certainly ahead of ours, or behind if negative; zero if it may be right:
        at which moment between question and answer it was read nobody knows."""
        if self.database > self.answered_at:
            return self.database - self.answered_at
        return min(self.database - self.asked_at, _NOTHING)

    @property
    def round_trip(self) -> timedelta:
        return self.answered_at - self.asked_at


# PostgreSQL.


@dataclass(frozen=True, slots=True)
class Setting:
    value: str
    """In the unit of the setting's own: milliseconds of a timeout."""
    origin: str
    """Who said so: the role, the database, the server, the connection, or nobody (default)."""


@dataclass(frozen=True, slots=True)
class Pooler:
    """Something between us and the server that hands out its sessions."""

    is_shared: bool
    """One session of the server was seen to serve several of ours, as a pool of transactions does."""


@dataclass(frozen=True, slots=True)
class Connections:
    used: int
    most: int
    reserved: int
    """Of these, for superusers and their like."""
    role_most: int | None
    database_most: int | None
    role_used: int
    database_used: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """A transaction, a prepared one or a replication slot that keeps dead rows from being cleared away."""

    kind: str
    """session, prepared transaction or replication slot."""
    name: str
    """What it is ended by: a process id, a transaction's or a slot's name."""
    who: str
    state: str | None
    age: timedelta | None
    """None: it is not told."""
    xmin_age: int | None
    """How many transactions began since the oldest that it still sees; None: it keeps nothing back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LockWait:
    """A session that waits for a lock on one of our tables."""

    pid: int
    who: str
    tables: Sequence[str]
    mode: str
    waited: timedelta
    blocked_by: Sequence[int]
    blockers: str
    """The same in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFacts:
    name: str
    is_vacuumed: bool
    """Unless somebody switched autovacuum off for it."""
    live: int
    dead: int
    vacuumed_at: datetime | None
    frozen_age: int
    """How many transactions ago its oldest row may have been written."""
    lacking: Sequence[str] = ()
    """Privileges that our role has not."""
    has_row_security: bool = False
    hides_rows: bool = False
    """From our role, by row level security."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresFacts:
    version: int
    """As server_version_num: 170004."""
    version_text: str
    role: str
    database: str
    namespace: str
    """The schema of the installation."""
    settings: Mapping[str, Setting]
    is_standby: bool
    clock: ClockReading
    pooler: Pooler | None
    is_preparing: bool
    """Whether our connections prepare statements, and whether they listen, as the URL says."""
    is_listening: bool
    connections: Connections
    transactions: Sequence[OpenTransaction] = ()
    lock_waits: Sequence[LockWait] = ()
    tables: Sequence[TableFacts] = ()
    can_use_schema: bool = True
    schema: SchemaFacts
    hidden_sessions: int = 0
    """Sessions of other roles, of which only a member of pg_read_all_stats is told more."""


# SQLite.


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFacts:
    path: str
    size: int
    mode: int
    uid: int
    is_ours_to_read: bool = True
    """Whether this process may; root always may."""
    is_ours_to_write: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SqliteFacts:
    version: tuple[int, ...]
    file: FileFacts
    wal: FileFacts | None
    shm: FileFacts | None
    lock: FileFacts | None
    folder: FileFacts
    filesystem: str | None
    """None: this system does not tell."""
    free_bytes: int
    journal_mode: str
    page_size: int
    page_count: int
    free_pages: int
    faults: Sequence[str] | None
    """What SQLite finds when it looks through the file; None: it was not asked to."""
    writer_waited: timedelta
    """How long we waited for our turn to write …"""
    is_writer_stuck: bool
    """… and whether it never came."""
    writers: Sequence[int]
    """The processes that held us up, where the system tells."""
    schema: SchemaFacts


DatabaseFacts = PostgresFacts | SqliteFacts
