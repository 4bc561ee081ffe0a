"""The store: one installation in one database. It runs transitions and watches for news, nothing else.

Every commit of the product goes through `Store.run`: faults are injected there, and nowhere else.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

from matrixsched.clock import Clock
from matrixsched.store.facts import DatabaseFacts
from matrixsched.store.news import Hearing
from matrixsched.store.statements import Dialect
from matrixsched.store.transition import Transition
from matrixsched.store.transitions import Transitions
from matrixsched.store.values import Pool

T = TypeVar("T")


class Store(Protocol):
    @property
    def dialect(self) -> Dialect: ...

    @property
    def installation(self) -> str: ...

    @property
    def transitions(self) -> Transitions: ...

    @property
    def description(self) -> str:
        """The database in words, without secrets."""
        ...

    @property
    def pool(self) -> Pool:
        """How its connections are used, for metrics; may be asked from any thread."""
        ...

    async def open(self) -> None:
        """Connect. DatabaseUnavailable if that fails."""
        ...

    async def close(self) -> None: ...

    async def run(self, transition: Transition[T]) -> T:
        """Carry out a transition in a transaction of our own.

        DatabaseUnavailable, DatabaseBusy: nothing was done. OutcomeUnknown: it may have been done.
        """
        ...

    async def inspect(self, clock: Clock, *, thorough: bool = False) -> DatabaseFacts:
        """What the database and the installation are like, whether or not the store is open, or could be.

        `clock` is this machine's. `thorough` takes its time: it reads a file of SQLite from end to end.
        """
        ...

    async def upgrade(self, shard_count: int, *, distributed: bool | None = None) -> list[str]:
        """Create the installation or bring it to the newest schema; safe when many do so at once.

        Answers with the names of the migrations applied now. An installation that exists keeps its number of shards,
        and its form: FormMismatch if another one is asked for. None asks for none, and makes a new one as usual.
        """
        ...

    async def drop(self) -> None:
        """Remove the installation and everything in it; for tests that made one of their own."""
        ...

    async def watch(self, changed: Hearing) -> None:
        """Call `changed` soon after others changed something, with what that was of, or ANYTHING where that cannot be
        told, and with the shard where all of it is in one; runs until cancelled, reconnects by itself."""
        ...

    def sibling(self) -> Store:
        """A second store of the same installation with connections of its own, for another thread."""
        ...
