"""Whether an application is connected: from its first opening to its last close, and for those who only visit."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import anyio

from matrixsched.scheduler import Scheduler
from matrixsched.store.store import Store


class Opening:
    def __init__(self, store: Callable[[], Store], scheduler: Callable[[], Scheduler]) -> None:
        self._store = store
        self._scheduler = scheduler
        self._connecting = anyio.Lock()
        self._openings = 0
        self._visits = 0
        self._is_lent = False
        """Whether it is connected for visitors alone, who may come again."""

    @property
    def is_connected(self) -> bool:
        return self._is_used or self._is_lent

    @property
    def _is_used(self) -> bool:
        return bool(self._openings or self._visits)

    async def open(self) -> None:
        async with self._connecting:
            await self._connect()
            # While visitors are here it may be one of them who opens it: that is seen when they go.
            self._is_lent = self._is_lent and bool(self._visits)
            self._openings += 1

    async def close(self) -> None:
        self._openings = max(0, self._openings - 1)
        if not self._is_used:
            self._is_lent = False
            await self._store().close()

    @asynccontextmanager
    async def visit(self) -> AsyncIterator[None]:
        """Connected until the block ends, for somebody who is not told when all is over, such as a part that is mounted
        into a web application.

        Who opens the application, before or after, closes it for them as well. If nobody does it stays connected for
        the next visit, until `end_visits`.
        """
        async with self._connecting:
            if not self.is_connected:
                await self._connect()
                self._is_lent = True
            self._visits += 1
        try:
            yield
        finally:
            self._visits -= 1
            if not self._visits and self._openings:
                self._is_lent = False
            if not self.is_connected:  # who had opened it closed it meanwhile
                await self._store().close()

    async def end_visits(self) -> None:
        """Close what only visitors needed."""
        if self._is_lent:
            self._is_lent = False
            if not self._is_used:
                await self._store().close()

    async def _connect(self) -> None:
        """Once, also if two begin at the same time."""
        if self.is_connected:
            return
        async with AsyncExitStack() as stack:
            store = self._store()
            await store.open()
            stack.push_async_callback(store.close)
            await store.run(self._scheduler().installing())
            stack.pop_all()
