"""How many actions a worker may claim now: as many as it can start soon, and no more."""

from __future__ import annotations

from math import sqrt

START_WITHIN_S = 0.25
"""What is claimed should be started within this time, going by the present pace."""


def room(*, slots: int, held: int, ended_per_s: float, most: int) -> int:
    """How many more attempts may be held beyond the `held` ones (waiting, running or not recorded yet)."""
    ahead = int(ended_per_s * START_WITHIN_S)
    return max(0, min(slots + ahead, max(most, slots)) - held)


def gated_room(*, slots: int, busy: int, ended_per_s: float, within_s: float) -> int:
    """How many attempts may be claimed that must start at their slots, which begin within that time.

    For each a handler must be free by then, or its slot is lost to everybody. `busy` are those that run, and those that
    are to start at slots already. Of those that run as many will have ended as the pace lets expect, less what chance
    may make of it: of few, none can be counted on.
    """
    expected = ended_per_s * within_s
    return max(0, slots - busy + max(0, int(expected - 2 * sqrt(expected))))
