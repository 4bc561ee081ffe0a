"""A store that a worker waits for no longer than it can afford.

A connection may be silent without being broken. A worker that waited as long as a user would lose its leases meanwhile:
past a third of one it takes the outcome for unknown, drops the connection and goes on with another.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import anyio

from matrixsched.errors import OutcomeUnknown
from matrixsched.store.statements import Dialect
from matrixsched.store.store import Store
from matrixsched.store.transition import Transition
from matrixsched.store.transitions import Transitions
from matrixsched.store.values import Pool

T = TypeVar("T")


class BoundedStore:
    def __init__(self, store: Store, limit_s: float) -> None:
        self._store = store
        self._limit_s = limit_s

    @property
    def dialect(self) -> Dialect:
        return self._store.dialect

    @property
    def installation(self) -> str:
        return self._store.installation

    @property
    def transitions(self) -> Transitions:
        return self._store.transitions

    @property
    def description(self) -> str:
        return self._store.description

    @property
    def pool(self) -> Pool:
        return self._store.pool

    async def run(self, transition: Transition[T]) -> T:
        with anyio.move_on_after(self._limit_s):
            return await self._store.run(transition)
        raise OutcomeUnknown(f"{transition.name}: no answer from {self.description} within {self._limit_s:g} s")

    async def open(self) -> None:
        await self._store.open()

    async def close(self) -> None:
        await self._store.close()

    async def upgrade(self, shard_count: int) -> list[str]:
        return await self._store.upgrade(shard_count)

    async def drop(self) -> None:
        await self._store.drop()

    async def watch(self, changed: Callable[[], None]) -> None:
        await self._store.watch(changed)

    def sibling(self) -> BoundedStore:
        return BoundedStore(self._store.sibling(), self._limit_s)
