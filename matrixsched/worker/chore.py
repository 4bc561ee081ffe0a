"""A chore: what one worker at a time does for all, under a lease that is stored beside how far it has come.

A holder that is killed is replaced when its lease is over; one that stops leaves, so that another goes on at once.
"""

from __future__ import annotations

from datetime import timedelta

from matrixsched.clock import Chance
from matrixsched.store.store import Store
from matrixsched.store.values import TidyPosition


class Chore:
    def __init__(self, store: Store, name: str, chance: Chance, *, lease: timedelta, every: timedelta) -> None:
        self._store = store
        self._do = store.transitions
        self._name = name
        self._chance = chance
        self.holder = chance.guid()
        """Of this turn: what was sent in an earlier one and arrives late does not count."""
        self._lease = lease
        self._every = every
        self._may_hold = False
        """Whether it is ours, or would be if an answer that was lost said so."""

    async def take(self) -> TidyPosition | None:
        """Where to go on; None if it is another's turn, or nobody's yet."""
        self._may_hold = True
        position = await self._store.run(
            self._do.take_chore(self._name, self.holder, lease=self._lease, every=self._every)
        )
        self._may_hold = position is not None
        return position

    async def keep(self, position: TidyPosition, *, rest: timedelta) -> None:
        """Go on with it after a rest."""
        await self._store.run(self._do.keep_chore(self._name, self.holder, position, lease=self._lease + rest))

    async def end(self) -> None:
        """It is done, until it is due again."""
        await self._store.run(self._do.end_chore(self._name, self.holder, TidyPosition()))
        self._may_hold = False
        self.holder = self._chance.guid()

    async def leave(self) -> None:
        """Let another worker go on with it at once, and not only when the lease is over."""
        if self._may_hold:
            await self._store.run(self._do.leave_chore(self._name, self.holder))
            self._may_hold = False
