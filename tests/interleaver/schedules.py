"""Which orders of steps there are, and which of them need no run of their own.

A schedule is the order in which the players take their steps, such as `AABAB`. Every run is a schedule from its
beginning; wherever another player could have gone on instead, that is another one to run. Where two steps have no table
in common that one of them changes, their order makes no difference, and only one of the two is run (sleep sets: whoever
could have gone first sleeps until somebody does something that matters to him). Those with the fewest changes from one
player to another are run first.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Protocol

from interleaver.players import Step


@dataclass(frozen=True, slots=True, order=True)
class Branch:
    """A beginning, and who sleeps after it."""

    changes: int
    number: int
    letters: str = field(compare=False)
    asleep: frozenset[str] = field(compare=False)


class Chooser(Protocol):
    """Decides who goes on."""

    def choose(self, letters: str, steps: Mapping[str, Step]) -> str | None:
        """One of those who can go on; None: this order was run before, in other letters."""
        ...

    def took(self, letters: str, step: Step, steps: Mapping[str, Step], *, disturbed: bool) -> None:
        """The schedule up to now, its last step, what could have been done; whether anybody waits or went on by it."""
        ...


@dataclass(slots=True)
class Fixed:
    """The schedule that is given; then each to its end, one after the other."""

    letters: str

    def choose(self, letters: str, steps: Mapping[str, Step]) -> str | None:
        wanted = self.letters[len(letters) : len(letters) + 1]
        return wanted if wanted in steps and wanted else next(iter(steps))

    def took(self, letters: str, step: Step, steps: Mapping[str, Step], *, disturbed: bool) -> None: ...


@dataclass(slots=True)
class Drawn:
    """A schedule by chance: of three players there are too many."""

    random: Random

    def choose(self, letters: str, steps: Mapping[str, Step]) -> str | None:
        return self.random.choice(sorted(steps))

    def took(self, letters: str, step: Step, steps: Mapping[str, Step], *, disturbed: bool) -> None: ...


@dataclass(slots=True)
class Every:
    """All schedules, one for each call of `following`."""

    reduced: bool = True
    """Without those that are another one in other letters."""
    pending: list[Branch] = field(default_factory=lambda: [Branch(0, 0, "", frozenset())])
    numbers: count[int] = field(default_factory=lambda: count(1))
    _forced: str = ""
    _asleep: frozenset[str] = frozenset()
    _changes: int = 0

    def following(self) -> bool:
        """Turn to the next one; False: there is none."""
        if not self.pending:
            return False
        branch = heapq.heappop(self.pending)
        self._forced, self._asleep, self._changes = branch.letters, branch.asleep, branch.changes
        return True

    def choose(self, letters: str, steps: Mapping[str, Step]) -> str | None:
        if len(letters) < len(self._forced):
            wanted = self._forced[len(letters)]
            return wanted if wanted in steps else next(iter(steps))  # after a deadlock it may be another
        awake = [name for name in steps if name not in self._asleep]
        if not awake:
            return None
        before = letters[-1:]
        chosen = before if before in awake else awake[0]
        asleep = self._asleep | {chosen} if self.reduced else frozenset[str]()
        for other in awake:
            if other != chosen:
                changes = self._changes + (before in steps)
                heapq.heappush(self.pending, Branch(changes, next(self.numbers), letters + other, asleep))
                asleep = asleep | {other} if self.reduced else asleep
        return chosen

    def took(self, letters: str, step: Step, steps: Mapping[str, Step], *, disturbed: bool) -> None:
        if len(letters) < len(self._forced):
            return  # still on the way; the last step of a branch is the first of its own
        if disturbed:
            self._asleep = frozenset()
            return
        self._asleep = frozenset(
            name for name in self._asleep if name != letters[-1] and name in steps and steps[name].commutes_with(step)
        )
