"""A store whose transitions are part of a caller's transaction: what is put there is committed with all the rest."""

from __future__ import annotations

from typing import TypeVar

from matrixsched.store.callers import AsyncCaller, SyncCaller, run_in, run_in_sync
from matrixsched.store.store import Store
from matrixsched.store.transition import Transition
from matrixsched.store.wrapper import StoreWrapper

T = TypeVar("T")


class StoreInside(StoreWrapper):
    def __init__(self, inner: Store, connection: AsyncCaller) -> None:
        super().__init__(inner)
        self._connection = connection

    async def run(self, transition: Transition[T]) -> T:
        return await run_in(self._connection, self.dialect, transition)

    def sibling(self) -> Store:
        raise AssertionError("a transaction is not shared with another thread")


class StoreInsideSync(StoreWrapper):
    """The same for a synchronous one: nothing of it is ever awaited."""

    def __init__(self, inner: Store, connection: SyncCaller) -> None:
        super().__init__(inner)
        self._connection = connection

    async def run(self, transition: Transition[T]) -> T:
        return run_in_sync(self._connection, self.dialect, transition)

    def sibling(self) -> Store:
        raise AssertionError("a transaction is not shared with another thread")
