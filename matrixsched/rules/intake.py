"""How many actions a worker may claim now: as many as it can start soon, and no more."""

from __future__ import annotations

START_WITHIN_S = 0.25
"""What is claimed should be started within this time, going by the present pace."""


def room(*, slots: int, held: int, ended_per_s: float, most: int) -> int:
    """How many more attempts may be held beyond the `held` ones (waiting, running or not recorded yet)."""
    ahead = int(ended_per_s * START_WITHIN_S)
    return max(0, min(slots + ahead, max(most, slots)) - held)
