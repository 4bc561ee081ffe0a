"""The part of the protocol that keeps the tables small. One implementation for each database, the same promises.

Every one of these does a small batch, waits for nobody and can be carried out by several workers at once: the lease of
a chore spares the database work, it is not what keeps it right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Protocol
from uuid import UUID

from matrixsched.rules.action import State
from matrixsched.store.transition import Transition
from matrixsched.store.values import Expiry, SweepPosition, Swept, TidyPosition


class Hygiene(Protocol):
    def prune_actions(self, state: State, *, keep: timedelta, limit: int) -> Transition[int]:
        """Delete actions that ended in this state longer ago than `keep`, oldest first; how many."""
        ...

    def count_old(self, state: State, *, keep: timedelta, count_max: int) -> Transition[int]:
        """How many `prune_actions` would delete in all; counting stops at `count_max`."""
        ...

    def prune_requests(self, *, keep: timedelta, limit: int) -> Transition[int]: ...

    def carried_out(self, guids: Sequence[UUID]) -> Transition[set[UUID]]:
        """Which of these requests, or of the guids that requests were to write, took effect and were not called off."""
        ...

    def bind_requests(
        self, asked: Mapping[UUID, UUID], *, lock_timeout: timedelta | None = None
    ) -> Transition[set[UUID]]:
        """Keep beside each of these names what it asks for, unless it was used before; which of them were not."""
        ...

    def call_off(self, shard: int, change_guid: UUID) -> Transition[None]:
        """Let a change of an action in this shard that has not taken effect do nothing when it arrives late."""
        ...

    def sweep_dead(self, position: SweepPosition, *, limit: int, reach: timedelta) -> Transition[Swept]:
        """Delete the dead ones of the next rows in processing; cut leases that end later than `reach` from now."""
        ...

    def sweep_history(self, position: SweepPosition, *, limit: int, history_max: int) -> Transition[Swept]:
        """Forget, of the next actions with a history, all but the last attempts; all if the action is gone."""
        ...

    def expire_waiting(self, *, limit: int) -> Transition[Expiry]:
        """Record as expired what waits past its expiry and may have nobody to run it."""
        ...

    # A chore is done by one worker at a time.

    def take_chore(
        self, name: str, holder: UUID, *, lease: timedelta, every: timedelta
    ) -> Transition[TidyPosition | None]:
        """Take a chore that was not done for so long, or go on with it; how far it has come. None: not our turn."""
        ...

    def keep_chore(self, name: str, holder: UUID, position: TidyPosition, *, lease: timedelta) -> Transition[bool]:
        """Note how far it has come and keep it; False if it is somebody else's by now."""
        ...

    def leave_chore(self, name: str, holder: UUID) -> Transition[bool]:
        """Let it go undone, for others to go on with; False if it is somebody else's by now."""
        ...

    def end_chore(self, name: str, holder: UUID, position: TidyPosition) -> Transition[bool]:
        """Let it go as done; False if it is somebody else's by now."""
        ...
