"""What the gates hold back at this moment, and how much of what they allow is used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from matrixsched.rules.gates import Gate, Gates, hindrance
from matrixsched.rules.lanes import ANY_KEY, Lane
from matrixsched.rules.limits import Limit

HeldBy = tuple[Gate | None, str | None]
"""What holds actions back, and of which template they are; None: nothing any more, of none."""


@dataclass(frozen=True, slots=True)
class Share:
    """What a template may send in a window of the quota, and what its claims have spent of that."""

    template: str
    is_present: bool
    """The window of this moment; otherwise the last one before."""
    granted: int
    used: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GateReport:
    held: Mapping[HeldBy, int] = field(default_factory=dict)
    """How many actions are due and wait before gates."""
    slots_left: Mapping[str, int] = field(default_factory=dict)
    """How many could start at this very moment, by limit; those of single keys are not among them."""
    slowed: frozenset[str] = frozenset()
    """Limits that were told to slow down."""
    shares: Sequence[Share] = ()
    paused: frozenset[str] = frozenset()
    """Templates."""


def held_by(waiting: Mapping[str, int], lanes: Mapping[str, Lane], gates: Gates) -> dict[HeldBy, int]:
    """How many actions each gate holds back; a lane is told by what its next row waits for."""
    counts: Counter[HeldBy] = Counter()
    for name, count in waiting.items():
        found = hindrance(lanes[name], gates)
        counts[None if found is None else found.gate, lanes[name].template] += count
    return dict(counts)


def slots_left(limits: Sequence[Limit], now: datetime) -> dict[str, int]:
    """What is left of each limit; key:* has no slots of its own."""
    left = {limit.name: limit.left(now) for limit in limits if limit.name != ANY_KEY}
    return {name: count for name, count in left.items() if count is not None}
