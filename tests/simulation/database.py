"""The one database of a run: SQLite in memory, visited in the step that asks, looked at after every commit."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from matrixsched.clock import Clock
from matrixsched.store.sqlite.store import SqliteStore

T = TypeVar("T")

EPOCH = datetime(2030, 1, 1, tzinfo=UTC)
_UNIX = datetime(1970, 1, 1, tzinfo=UTC)


async def at_once(function: Callable[[], T]) -> T:
    """The hop to the database's thread, without a thread."""
    return function()


class QueueRow(NamedTuple):
    id: str
    guid: str
    due: int
    claimed_by: str | None
    attempt: int
    is_incoming: bool
    shard: int
    lane: str

    @property
    def key(self) -> tuple[UUID, int, UUID]:
        """Of the attempt that has claimed it."""
        return UUID(self.guid), self.attempt, UUID(self.claimed_by)

    def is_leased(self, now: int) -> bool:
        return self.claimed_by is not None and self.due > now


class ActionRow(NamedTuple):
    id: str
    guid: str
    state: str
    scheduled_at: int
    has_repeat: bool
    succeeded: int
    failed: int
    interrupted: int
    missed: int
    last_outcome: str | None
    expires_at: int | None
    finished_at: int | None
    handler: str
    deferred: int
    consecutive_failures: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a commit left behind."""

    actions: dict[str, ActionRow] = field(default_factory=dict)
    queue: list[QueueRow] = field(default_factory=list)

    def rows_of(self, action_id: str) -> list[QueueRow]:
        return [row for row in self.queue if row.id == action_id]


class Lock(NamedTuple):
    shard: int
    guid: str
    heartbeat_at: int


_ACTIONS = """
select action_id, action_guid, state, scheduled_at, coalesce(terms, '') like '%repeat%', succeeded, failed, interrupted,
       missed, last_outcome, expires_at, finished_at, handler, deferred, consecutive_failures
  from matrixsched_scheduled_actions
"""
_QUEUE = """
select action_id, action_guid, scheduled_at, null, 0, 1, shard_id, lane from matrixsched_incoming_queue
union all
select action_id, action_guid, scheduled_at, claimed_by, attempt, 0, shard_id, lane from matrixsched_processing_queue
"""
_PAST = "select action_id, action_guid, attempt, outcome from matrixsched_attempt_history"
_SERVED = "select shard_id, last_processing_start_at from matrixsched_shard_locks"
_LOCKED = "select shard_id, last_lock_guid, last_heartbeat_at from matrixsched_shard_locks where locked"

_IN_TURN = "select shard_id from matrixsched_shard_locks order by last_processing_start_at, shard_id"


class PastRow(NamedTuple):
    """An attempt that is remembered."""

    id: str
    guid: str
    attempt: int
    outcome: str


class SimulatedDatabase:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.store = SqliteStore(None, "default", clock=clock, hop=at_once)

    async def create(self, shard_count: int) -> None:
        await self.store.open()
        await self.store.upgrade(shard_count)

    def close(self) -> None:
        self.store._database.close()

    @property
    def _connection(self) -> sqlite3.Connection:
        return self.store._database._connected()

    @property
    def changes(self) -> int:
        """Rows written so far."""
        return self._connection.total_changes

    def now(self) -> int:
        return microseconds(self._clock.now())

    def snapshot(self) -> Snapshot:
        actions = [ActionRow(*row) for row in self._rows(_ACTIONS)]
        return Snapshot({row.id: row for row in actions}, [QueueRow(*row) for row in self._rows(_QUEUE)])

    def locked(self) -> list[Lock]:
        return [Lock(*row) for row in self._rows(_LOCKED)]

    def remembered(self) -> list[PastRow]:
        return [PastRow(*row) for row in self._rows(_PAST)]

    def served(self) -> dict[int, int]:
        """When each shard was last taken."""
        return dict(self._rows(_SERVED))

    def shards_in_turn(self) -> list[int]:
        """Those first that have waited longest to be taken."""
        return [shard for (shard,) in self._rows(_IN_TURN)]

    def _rows(self, sql: str) -> list[tuple[Any, ...]]:
        cursor = self._connection.cursor()
        cursor.row_factory = None
        return cursor.execute(sql).fetchall()


def microseconds(moment: datetime) -> int:
    return (moment - _UNIX) // timedelta(microseconds=1)


def moment(microseconds: int) -> datetime:
    return _UNIX + timedelta(microseconds=microseconds)
