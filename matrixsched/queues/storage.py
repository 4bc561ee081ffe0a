"""Where the tasks of queues are: in memory, or in the database. All behave alike, by the clock of the storage."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Protocol

from matrixsched.rules.queues import (
    LOOK_WITHIN,
    VISIBILITY_DEFAULT,
    DeadTask,
    NewItem,
    Outlook,
    QueueStat,
    Settled,
    StoredTask,
    Taken,
)


class QueueStorage(Protocol):
    async def get(self, queue: int, count: int, *, visibility: timedelta = VISIBILITY_DEFAULT) -> list[StoredTask]:
        """Take up to `count` tasks that are ready, the longest ready first; nobody else gets them for `visibility`.

        Of a paused queue there are none.
        """
        ...

    async def done(self, tasks: Iterable[Taken]) -> Settled:
        """They are finished, and gone."""
        ...

    async def retry(self, retries: Iterable[tuple[Taken, datetime | timedelta]]) -> Settled:
        """Let tasks come back at a time, or after a delay."""
        ...

    async def set_aside(self, letters: Iterable[tuple[Taken, str]]) -> Settled:
        """Make dead letters of tasks, each with its reason."""
        ...

    async def extend(
        self, tasks: Iterable[Taken], *, visibility: timedelta = VISIBILITY_DEFAULT, only_longer: bool = False
    ) -> Settled:
        """Hold tasks for `visibility` from now on; with `only_longer`, what is held for longer stays so."""
        ...

    async def put(self, queue: int, data: bytes, *, at: datetime | None = None, delay: timedelta = timedelta(0)) -> int:
        """Add a task; its id."""
        ...

    async def put_many(self, items: Iterable[NewItem]) -> list[int]:
        """Add tasks, all or none; their ids, in that order."""
        ...

    async def look(self, queues: Collection[int], *, within: timedelta = LOOK_WITHIN) -> Mapping[int, Outlook]:
        """Which of these queues have something to take, and when more will be, if that is within that time; of which
        nothing is said has none.

        Nothing is taken or counted: it costs the same however much there is.
        """
        ...

    async def stat(self) -> Mapping[int, QueueStat]:
        """How many tasks there are, by queue; of those queues that have, or had, any, or were paused."""
        ...

    async def dead_letters(self, queue: int, *, after: int = 0, limit: int = 100) -> list[DeadTask]:
        """A page of what was set aside, by id."""
        ...

    async def redrive(self, queue: int, *, ids: Iterable[int] | None = None, limit: int = 1000) -> int:
        """Put dead letters back as if they were new, without attempts and ready now; how many were.

        These, or as many as `limit` says.
        """
        ...

    async def purge_dead(self, queue: int, *, ids: Iterable[int] | None = None, limit: int = 1000) -> int:
        """Delete dead letters for good, these or as many as `limit` says; how many were."""
        ...

    async def pause(self, queue: int) -> bool:
        """Hand out nothing of a queue; whether it was not so before. What is taken may be settled."""
        ...

    async def resume(self, queue: int) -> bool: ...


class SyncQueueStorage(Protocol):
    """The same for handlers that are plain functions: each call waits for its answer."""

    def get(self, queue: int, count: int, *, visibility: timedelta = VISIBILITY_DEFAULT) -> list[StoredTask]: ...

    def done(self, tasks: Iterable[Taken]) -> Settled: ...

    def retry(self, retries: Iterable[tuple[Taken, datetime | timedelta]]) -> Settled: ...

    def set_aside(self, letters: Iterable[tuple[Taken, str]]) -> Settled: ...

    def extend(
        self, tasks: Iterable[Taken], *, visibility: timedelta = VISIBILITY_DEFAULT, only_longer: bool = False
    ) -> Settled: ...

    def put(self, queue: int, data: bytes, *, at: datetime | None = None, delay: timedelta = timedelta(0)) -> int: ...

    def put_many(self, items: Iterable[NewItem]) -> list[int]: ...

    def look(self, queues: Collection[int], *, within: timedelta = LOOK_WITHIN) -> Mapping[int, Outlook]: ...

    def stat(self) -> Mapping[int, QueueStat]: ...

    def dead_letters(self, queue: int, *, after: int = 0, limit: int = 100) -> list[DeadTask]: ...

    def redrive(self, queue: int, *, ids: Iterable[int] | None = None, limit: int = 1000) -> int: ...

    def purge_dead(self, queue: int, *, ids: Iterable[int] | None = None, limit: int = 1000) -> int: ...

    def pause(self, queue: int) -> bool: ...

    def resume(self, queue: int) -> bool: ...
