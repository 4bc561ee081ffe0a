"""Moves of `fsck --repair`: whatever it finds, others are at work on it at the same time.

Each mends its fault of all versions that the scene knows: which of them have it the statement sees for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from support.interleaving import LEASE

from interleaver.facts import plain
from interleaver.move import ALWAYS, HOUR, Move, Waits, errors_in
from interleaver.stage import Side
from matrixsched.rules.faults import Fault, Finding
from matrixsched.store.fsck import FsckTerms
from matrixsched.store.transition import Transition

TERMS = FsckTerms(shard_count=2, attempt_lease_max=LEASE, visibility_max=HOUR, limit=99)


def mending(fault: Fault, waits: Waits = Waits.FOR_NOBODY) -> Move:
    """Whoever is passed over is found again by the next run, so that a second one makes it whole."""
    return Move(f"mend-{fault.value}", _of(fault), how_many, ALWAYS, waits=waits)


def _of(fault: Fault) -> Callable[[Side], Transition[Any]]:
    def make(side: Side) -> Transition[Any]:
        return side.do.mend([Finding(fault, 0, "a", str(guid), "") for guid in side.facts.versions], TERMS)

    return make


def how_many(answers: Sequence[Any]) -> Any:
    """In all rounds."""
    return errors_in(answers) or plain(sum(len(answer) for answer in answers))


MENDS = (
    # Two who put back the same row: the second one waits for the first, to see whether it stays.
    mending(Fault.LOST, Waits.FOR_WORKERS),
    mending(Fault.TWICE),
    mending(Fault.TIME),
    mending(Fault.LANE),
    mending(Fault.LEASE),
    mending(Fault.COUNTERS),
    mending(Fault.DEAD),
    mending(Fault.FORGOTTEN),
)
