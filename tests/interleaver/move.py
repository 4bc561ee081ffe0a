"""What a move is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any

from interleaver.facts import plain
from interleaver.stage import Side
from matrixsched.store.transition import Transition

SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)
HOLD = 10 * SECOND
POOL, OTHER_POOL = "pool", "pool of others"
"""The task `x` is in both."""
QUEUE = 1

Said = Callable[[Sequence[Any]], Any]


def last(answers: Sequence[Any]) -> Any:
    """What it was told in the end."""
    return plain(answers[-1])


class Waits(StrEnum):
    """For whose locks a move may wait."""

    FOR_ALL = "for all"
    FOR_WORKERS = "for workers"
    FOR_NOBODY = "for nobody"


@dataclass(frozen=True, slots=True)
class Move:
    name: str
    make: Callable[[Side], Transition[Any]]
    says: Said = last
    """What counts of its answers, of which there are several if it was sent again."""
    again: Callable[[Any], bool] = lambda answer: False
    """Whether whoever got this answer would ask again, once the others are done."""
    round: Callable[[Side], Transition[Any]] | None = None
    """What he asks then, if it is not the same."""
    twin: bool = True
    """Whether the very same may be sent twice, because no answer came to the first."""
    whole: bool = True
    """Whether it happens at one moment, or at none; else only the invariants judge it."""
    timed: bool = False
    """Whether its statements tell the time each for itself; else it is that of one instant, wherever that matters."""
    waits: Waits = Waits.FOR_ALL


ALWAYS: Callable[[Any], bool] = lambda answer: True  # noqa: E731
"""Of those that leave what is in others' hands for their next round."""


def errors_in(answers: Sequence[Any]) -> list[Any]:
    return [plain(answer) for answer in answers if isinstance(answer, Exception)]


def total(answers: Sequence[Any]) -> Any:
    """How many in all rounds."""
    return sum(answers) if all(isinstance(answer, int) for answer in answers) else plain(answers)
