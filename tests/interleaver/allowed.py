"""Outcomes that are those of no serial order, and are meant to be: each with its reason."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations


@dataclass(frozen=True, slots=True)
class Allowed:
    first: frozenset[str]
    second: frozenset[str]
    why: str
    example: tuple[str, str, str]
    """A pair and a scene that show it."""
    columns: tuple[str, ...] = ()
    """What may be otherwise than after a serial order; if none is named anything, as long as the invariants hold."""

    def fits(self, names: Sequence[str]) -> bool:
        return any(one in self.first and other in self.second for one, other in permutations(names, 2))


CHANGING = frozenset(("cancel", "cancel-read", "reschedule", "run-now", "stop-campaign"))

ALLOWED = (
    Allowed(
        CHANGING,
        frozenset(("claim", "claim-gated", "expire")),
        "who changes an action takes over the interruptions that its row has counted, as far as they are committed: "
        "one that is counted at this very moment stays in the history alone, for he does not wait for workers",
        ("cancel", "claim", "lapsed"),
        columns=("interrupted",),
    ),
    Allowed(
        frozenset(("stop-campaign",)),
        frozenset(("claim-gated",)),
        "an attempt that is claimed but not committed is not seen: its action is cancelled under it, as `cancel` does",
        ("claim-gated", "stop-campaign", "one-grant"),
    ),
)


def allowed(names: Sequence[str]) -> Iterator[Allowed]:
    bare = [name.rstrip("=") for name in names]
    return (one for one in ALLOWED if one.fits(bare))
