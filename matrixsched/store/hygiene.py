"""The part of the protocol that keeps the tables small. One implementation for each database, the same promises.

Every one of these does a small batch, waits for nobody and can be carried out by several workers at once: the lease of
a chore spares the database work, it is not what keeps it right.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Protocol

from matrixsched.rules.action import State
from matrixsched.store.transition import Transition
from matrixsched.store.values import SweepPosition, Swept


class Hygiene(Protocol):
    def prune_actions(self, state: State, *, keep: timedelta, limit: int) -> Transition[int]:
        """Delete actions that ended in this state longer ago than `keep`, oldest first; how many."""
        ...

    def count_old(self, state: State, *, keep: timedelta, count_max: int) -> Transition[int]:
        """How many `prune_actions` would delete in all; counting stops at `count_max`."""
        ...

    def prune_requests(self, *, keep: timedelta, limit: int) -> Transition[int]: ...

    def sweep_dead(self, position: SweepPosition, *, limit: int) -> Transition[Swept]: ...
