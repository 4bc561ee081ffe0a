"""A database that goes away in the middle of a change."""

from __future__ import annotations

from typing import TypeVar

from matrixsched import App
from matrixsched.errors import DatabaseUnavailable
from matrixsched.store.store import Store
from matrixsched.store.transition import Transition
from matrixsched.store.wrapper import StoreWrapper

T = TypeVar("T")


class Leaving(StoreWrapper):
    """The real store, which refuses a transition once it was carried out so often."""

    def __init__(self, inner: Store, transition: str, times: int) -> None:
        super().__init__(inner)
        self._transition, self.left = transition, times

    async def run(self, transition: Transition[T]) -> T:
        if transition.name == self._transition:
            if not self.left:
                raise DatabaseUnavailable("the database is away")
            self.left -= 1
        return await self._inner.run(transition)

    def sibling(self) -> Leaving:
        return Leaving(self._inner.sibling(), self._transition, self.left)


def leaving(app: App, transition: str, *, times: int) -> App:
    """The same installation, whose database goes away for good at the next one of these transitions."""
    store = Leaving(app.store.sibling(), transition, times)
    return App(app.url, installation=app.installation, clock=app.clock, store=store)
