"""The part of the protocol that asks how the fleet fares: what waits for a handler that nobody has, which chores are
done, and how fast actions end. It locks and writes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from matrixsched.rules.action import State
from matrixsched.store.transition import Transition


@dataclass(frozen=True, slots=True)
class Parked:
    """Rows that are due and that every worker which met them put aside, for it does not know their handler."""

    handler: str
    count: int
    """Counted up to a limit in each shard."""
    oldest_due_at: datetime


@dataclass(frozen=True, slots=True)
class ChoreReport:
    """What one worker at a time does for all."""

    name: str
    is_held: bool
    held_until: datetime
    done_at: datetime | None
    """When it was last done to its end."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How many actions ended since a moment, by how they ended; counted up to a limit in each state."""

    now: datetime
    ended: Mapping[State, int]


class FleetReporting(Protocol):
    def parked(self, *, count_max: int) -> Transition[list[Parked]]:
        """What is due and waits for handlers that no worker had so far, by handler; in each shard `count_max` rows of
        each are counted."""
        ...

    def chores(self) -> Transition[list[ChoreReport]]: ...

    def pace(self, since: datetime, *, count_max: int) -> Transition[Pace]: ...
