"""Outcomes that are those of no serial order, and are meant to be: each with its reason, and how far it goes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations, product


@dataclass(frozen=True, slots=True)
class Outcome:
    """What it came to, as it can be compared."""

    said: tuple[str, ...]
    state: str

    def without(self, columns: Sequence[str]) -> Outcome:
        return Outcome(self.said, re.sub(rf'\\"({"|".join(columns)})\\": [^,]*, ', "", self.state))

    def blended(self, other: Outcome, player: int, tables: Sequence[str]) -> Outcome:
        """As this one, but what a player says, and these tables, as in the other."""
        said = [other.said[player] if number == player else one for number, one in enumerate(self.said)]
        state, others = json.loads(self.state), json.loads(other.state)
        return Outcome(tuple(said), json.dumps({**state, **{table: others[table] for table in tables}}, sort_keys=True))

    def without_dead_rows(self) -> Outcome:
        """Those that wait for a version that is not live."""
        state = json.loads(self.state)
        live = {_version(row) for row in map(json.loads, state["scheduled_actions"]) if row["state"] == "live"}
        state["processing_queue"] = [
            text
            for text in state["processing_queue"]
            if _version(row := json.loads(text)) in live or row["claimed_by"] is not None
        ]
        return Outcome(self.said, json.dumps(state, sort_keys=True))


def _version(row: Mapping[str, str]) -> tuple[str, str]:
    return row["action_id"], row["action_guid"]


@dataclass(frozen=True, slots=True)
class Allowed:
    first: frozenset[str]
    second: frozenset[str]
    why: str
    example: tuple[str, str, str]
    """A pair and a scene that show it."""
    columns: tuple[str, ...] = ()
    """What may be otherwise than after a serial order."""
    unseen: tuple[str, ...] = ()
    """Where they may not have seen each other: what the first says, and these tables, are as if it had come before the
    second, and all the rest as if after it."""
    dead_rows: bool = False
    """Whether rows may be left that somebody drops when he comes to them."""

    def fits(self, names: Sequence[str]) -> bool:
        return next(self._firsts(names), None) is not None

    def covers(self, found: Outcome, serial: Mapping[str, Outcome], names: Sequence[str]) -> bool:
        """Whether an outcome is one of these, of moves that may have come in any of these orders."""
        if self.columns and found.without(self.columns) in [one.without(self.columns) for one in serial.values()]:
            return True
        if self.dead_rows and found.without_dead_rows() in [one.without_dead_rows() for one in serial.values()]:
            return True
        return bool(self.unseen) and any(found in self._blends(serial, number) for number in self._firsts(names))

    def _firsts(self, names: Sequence[str]) -> Iterator[int]:
        for (number, one), (_, other) in permutations(enumerate(names), 2):
            if one in self.first and other in self.second:
                yield number

    def _blends(self, serial: Mapping[str, Outcome], number: int) -> Iterator[Outcome]:
        letter = chr(ord("A") + number)
        before = [outcome for order, outcome in serial.items() if order[0] == letter]
        after = [outcome for order, outcome in serial.items() if order[0] != letter]
        return (late.blended(early, number, self.unseen) for early, late in product(before, after))


CHANGING = frozenset(("cancel", "cancel-read", "reschedule", "run-now", "reschedule-named", "stop-campaign"))

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
        unseen=("scheduled_actions",),
    ),
    Allowed(
        frozenset(("stop-campaign",)),
        frozenset(("move",)),
        "a message that is cancelled while it is moved comes before its gate all the same: who opens that, or sweeps, "
        "drops its row",
        ("move", "stop-campaign", "unsettled"),
        dead_rows=True,
    ),
    Allowed(
        frozenset(("acquire",)),
        frozenset(("move",)),
        "a shard is taken for the work that was seen in it: who held it may do that while it is taken from him",
        ("acquire", "move", "left-stale"),
        unseen=("shard_locks",),
    ),
)


def is_allowed(found: Outcome, serial: Mapping[str, Outcome], names: Sequence[str]) -> bool:
    bare = [name.rstrip("=") for name in names]
    return any(one.fits(bare) and one.covers(found, serial, bare) for one in ALLOWED)
