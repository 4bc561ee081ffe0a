"""A store that a worker waits for no longer than it can afford.

A connection may be silent without being broken. A worker that waited as long as a user would lose its leases meanwhile:
past a third of one it takes the outcome for unknown, drops the connection and goes on with another.
"""

from __future__ import annotations

from typing import TypeVar

import anyio

from matrixsched.errors import OutcomeUnknown
from matrixsched.store.store import Store
from matrixsched.store.transition import Transition
from matrixsched.store.wrapper import StoreWrapper

T = TypeVar("T")


class BoundedStore(StoreWrapper):
    def __init__(self, inner: Store, limit_s: float) -> None:
        super().__init__(inner)
        self._limit_s = limit_s

    async def run(self, transition: Transition[T]) -> T:
        with anyio.move_on_after(self._limit_s):
            return await self._inner.run(transition)
        raise OutcomeUnknown(f"{transition.name}: no answer from {self.description} within {self._limit_s:g} s")

    def sibling(self) -> BoundedStore:
        return BoundedStore(self._inner.sibling(), self._limit_s)
