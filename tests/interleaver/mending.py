"""Moves of `fsck --repair`: whatever it finds, others are at work on it at the same time.

Each mends its fault of all versions that the scene knows, or of what else has it there: which of them have it the
statement sees for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from asyncpg import UniqueViolationError
from support.interleaving import LEASE

from interleaver.building_damage import NOWHERE
from interleaver.facts import Facts, plain
from interleaver.move import ALWAYS, HOUR, POOL, Move, Waits, errors_in
from interleaver.stage import Side
from matrixsched.rules.faults import Fault, Finding
from matrixsched.store.fsck import CHORES, FsckTerms
from matrixsched.store.transition import Transition

TERMS = FsckTerms(shard_count=2, attempt_lease_max=LEASE, visibility_max=HOUR, limit=99)
"""The action `a` belongs into shard 1 …"""
TERMS_OF_THREE = replace(TERMS, shard_count=3)
"""… but into shard 0 where there are three."""

Sought = Callable[[Facts], Sequence[Finding]]
"""What the repair has found, as far as the scene knows."""


def mending(
    fault: Fault,
    sought: Sought | None = None,
    waits: Waits = Waits.FOR_NOBODY,
    *,
    terms: FsckTerms = TERMS,
    name: str = "",
) -> Move:
    """Whoever is passed over is found again by the next run, so that a second one makes it whole."""
    find = sought or (lambda facts: [Finding(fault, 0, "a", str(guid), "") for guid in facts.versions])

    def make(side: Side) -> Transition[Any]:
        return side.do.mend(find(side.facts), terms)

    return Move(name or f"mend-{fault.value}", make, how_many, ALWAYS, waits=waits)


def how_many(answers: Sequence[Any]) -> Any:
    """In all rounds; what others put there meanwhile, so that it cannot be, is left to be decided."""
    told = [0 if isinstance(answer, UniqueViolationError) else answer for answer in answers]
    return errors_in(told) or plain(sum(answer if isinstance(answer, int) else len(answer) for answer in told))


def _misplaced(shard: int) -> Sought:
    return lambda facts: [Finding(Fault.MISPLACED, shard, "a", None, "")]


def _lock(fault: Fault, shard: int) -> Sought:
    def sought(facts: Facts) -> Sequence[Finding]:
        holder = facts.holders.get(shard)
        return [Finding(fault, shard, str(shard), None if holder is None else str(holder), "")]

    return sought


def _task(fault: Fault) -> Sought:
    return lambda facts: [Finding(fault, None, str(facts.wrong_task), None, "")]


def _chores(facts: Facts) -> Sequence[Finding]:
    return [Finding(Fault.CHORE, None, name, None, "") for name in CHORES]


def _of(fault: Fault, subject: str) -> Sought:
    return lambda facts: [Finding(fault, None, subject, None, "")]


MENDS = (
    # Two who put back the same row: the second one waits for the first, to see whether it stays.
    mending(Fault.LOST, waits=Waits.FOR_WORKERS),
    mending(Fault.TWICE),
    mending(Fault.TIME),
    mending(Fault.LANE),
    mending(Fault.LEASE),
    mending(Fault.COUNTERS),
    mending(Fault.DEAD),
    mending(Fault.FORGOTTEN),
    mending(Fault.MISPLACED, _misplaced(0), Waits.FOR_ALL),
    mending(Fault.MISPLACED, _misplaced(1), Waits.FOR_ALL, terms=TERMS_OF_THREE, name="mend-misplaced-home"),
    mending(Fault.NO_LOCK, _lock(Fault.NO_LOCK, 0), Waits.FOR_WORKERS),
    mending(Fault.EXTRA_LOCK, _lock(Fault.EXTRA_LOCK, NOWHERE)),
    mending(Fault.LOCK_TIME, _lock(Fault.LOCK_TIME, 0)),
    mending(Fault.CHORE, _chores, Waits.FOR_WORKERS),
    mending(Fault.QUOTA, _of(Fault.QUOTA, "settings"), Waits.FOR_WORKERS),
    mending(Fault.UNBALANCED, _of(Fault.UNBALANCED, POOL), Waits.FOR_WORKERS),
    mending(Fault.TASK_LEASE, _task(Fault.TASK_LEASE)),
    mending(Fault.TASK_TWICE, _task(Fault.TASK_TWICE)),
)
