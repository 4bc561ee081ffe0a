"""A storage around another storage: what one of them changes it overrides, the rest is passed on from here."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime, timedelta

from matrixsched.queues.storage import QueueStorage
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


class StorageWrapper:
    def __init__(self, inner: QueueStorage) -> None:
        self._inner = inner

    async def get(self, queue: int, count: int, *, visibility: timedelta = VISIBILITY_DEFAULT) -> list[StoredTask]:
        return await self._inner.get(queue, count, visibility=visibility)

    async def done(self, tasks: Iterable[Taken]) -> Settled:
        return await self._inner.done(tasks)

    async def retry(self, retries: Iterable[tuple[Taken, datetime | timedelta]]) -> Settled:
        return await self._inner.retry(retries)

    async def set_aside(self, letters: Iterable[tuple[Taken, str]]) -> Settled:
        return await self._inner.set_aside(letters)

    async def extend(
        self, tasks: Iterable[Taken], *, visibility: timedelta = VISIBILITY_DEFAULT, only_longer: bool = False
    ) -> Settled:
        return await self._inner.extend(tasks, visibility=visibility, only_longer=only_longer)

    async def put(self, queue: int, data: bytes, *, at: datetime | None = None, delay: timedelta = timedelta(0)) -> int:
        return await self._inner.put(queue, data, at=at, delay=delay)

    async def put_many(self, items: Iterable[NewItem]) -> list[int]:
        return await self._inner.put_many(items)

    async def look(self, queues: Collection[int], *, within: timedelta = LOOK_WITHIN) -> Mapping[int, Outlook]:
        return await self._inner.look(queues, within=within)

    async def stat(self) -> Mapping[int, QueueStat]:
        return await self._inner.stat()

    async def dead_letters(self, queue: int, *, after: int = 0, limit: int = 100) -> list[DeadTask]:
        return await self._inner.dead_letters(queue, after=after, limit=limit)

    async def redrive(self, queue: int, *, ids: Iterable[int] | None = None, limit: int = 1000) -> int:
        return await self._inner.redrive(queue, ids=ids, limit=limit)

    async def purge_dead(self, queue: int, *, ids: Iterable[int] | None = None, limit: int = 1000) -> int:
        return await self._inner.purge_dead(queue, ids=ids, limit=limit)

    async def pause(self, queue: int) -> bool:
        return await self._inner.pause(queue)

    async def resume(self, queue: int) -> bool:
        return await self._inner.resume(queue)


class TellingStorage(StorageWrapper):
    """Calls `wrote` after each change that makes work, so that a worker here looks at once."""

    def __init__(self, inner: QueueStorage, wrote: Callable[[], None]) -> None:
        super().__init__(inner)
        self._wrote = wrote

    async def put(self, queue: int, data: bytes, *, at: datetime | None = None, delay: timedelta = timedelta(0)) -> int:
        id = await super().put(queue, data, at=at, delay=delay)
        self._wrote()
        return id

    async def put_many(self, items: Iterable[NewItem]) -> list[int]:
        ids = await super().put_many(items)
        if ids:
            self._wrote()
        return ids

    async def redrive(self, queue: int, *, ids: Iterable[int] | None = None, limit: int = 1000) -> int:
        redriven = await super().redrive(queue, ids=ids, limit=limit)
        if redriven:
            self._wrote()
        return redriven

    async def resume(self, queue: int) -> bool:
        was_paused = await super().resume(queue)
        if was_paused:
            self._wrote()
        return was_paused
