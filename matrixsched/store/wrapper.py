"""A store around another store: what one of them changes it overrides, the rest is passed on from here."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TypeVar

from matrixsched.clock import Clock
from matrixsched.store.facts import DatabaseFacts
from matrixsched.store.news import Hearing
from matrixsched.store.statements import Dialect
from matrixsched.store.store import Store
from matrixsched.store.transition import Transition
from matrixsched.store.transitions import Transitions
from matrixsched.store.values import Pool

T = TypeVar("T")


class StoreWrapper(ABC):
    def __init__(self, inner: Store) -> None:
        self._inner = inner

    @property
    def dialect(self) -> Dialect:
        return self._inner.dialect

    @property
    def installation(self) -> str:
        return self._inner.installation

    @property
    def transitions(self) -> Transitions:
        return self._inner.transitions

    @property
    def description(self) -> str:
        return self._inner.description

    @property
    def pool(self) -> Pool:
        return self._inner.pool

    async def open(self) -> None:
        await self._inner.open()

    async def close(self) -> None:
        await self._inner.close()

    async def run(self, transition: Transition[T]) -> T:
        return await self._inner.run(transition)

    async def inspect(self, clock: Clock, *, thorough: bool = False) -> DatabaseFacts:
        return await self._inner.inspect(clock, thorough=thorough)

    async def upgrade(self, shard_count: int, *, distributed: bool | None = None) -> list[str]:
        return await self._inner.upgrade(shard_count, distributed=distributed)

    async def drop(self) -> None:
        await self._inner.drop()

    async def watch(self, changed: Hearing) -> None:
        await self._inner.watch(changed)

    @abstractmethod
    def sibling(self) -> Store:
        """Passed on as it is, the sibling would stand outside of what the wrapper is for."""
