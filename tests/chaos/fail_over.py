"""A cluster of servers of which one takes writes, and another one in its place when that is killed or sent to rest."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import psycopg

from chaos.campaign import Tell
from chaos.checkers import standing_of
from chaos.facts import Facts, Operation, first_after
from chaos.nemeses import Fault
from chaos.place import Place

KIND = "fail-over"
CONNECT_MAX_S = 2
PROBE = "create table if not exists chaos.probe (at timestamptz)", "insert into chaos.probe values (now())"
AGAIN_S = 0.5
"""How soon a cluster that was not whole is looked at again."""
STAYS_AWAY_MAX_S = 120.0

Strike = Callable[[], object]
IsWhole = Callable[[], bool]
"""Whether all servers are there, so that another one may be struck."""


@dataclass
class FailOvers:
    """Strikes by their kinds, one after another, each when all servers are there again."""

    place: Place
    strikes: Mapping[str, Strike]
    order: Sequence[str]
    is_whole: IsWhole
    rest_s: float
    tell: Tell
    faults: list[Fault] = field(default_factory=list)
    struck: Counter[str] = field(default_factory=Counter)

    def start(self) -> None:
        self._next_at = time.monotonic() + self.rest_s

    def are_through(self) -> bool:
        return len(self.faults) == len(self.order) and time.monotonic() >= self._next_at

    def restart_if_due(self) -> None:
        if len(self.faults) == len(self.order) or time.monotonic() < self._next_at:
            return
        if not self.is_whole():
            self._next_at = time.monotonic() + AGAIN_S
            return
        kind = self.order[len(self.faults)]
        struck_at = time.time()
        self.strikes[kind]()
        self._until_written(struck_at)
        self.faults.append(Fault(KIND, None, struck_at, time.time(), kind))
        self.struck[kind] += 1
        self.tell(
            f"{len(self.faults)} of {len(self.order)}: {kind}, writes again after {time.time() - struck_at:.1f} s"
        )
        self._next_at = time.monotonic() + self.rest_s

    def heal(self) -> None:
        """Whoever was struck comes back by itself."""

    def _until_written(self, struck_at: float) -> None:
        deadline = time.monotonic() + STAYS_AWAY_MAX_S
        while time.monotonic() < deadline:
            with suppress(psycopg.Error):
                with psycopg.connect(self.place.url, autocommit=True, connect_timeout=CONNECT_MAX_S) as connection:
                    for statement in PROBE:
                        connection.execute(statement)
                return
            time.sleep(0.02)
        raise AssertionError(f"no server takes writes, {time.time() - struck_at:.0f} s after it was struck")


@dataclass(frozen=True)
class Account:
    """What came of one fail-over."""

    kind: str
    away_s: float
    """Until a server took writes."""
    idle_s: float | None
    """Until the next attempt was claimed there."""
    acknowledged: int
    """Calls, since the last one."""
    lost: int
    doubles: int
    """Runs to the end of what had been run to its end before."""


def accounts(facts: Facts) -> list[Account]:
    """Of each in its turn, with what was asked for since the one before."""
    outages = sorted((one for one in facts.faults if one.kind == KIND), key=lambda one: one.begins)
    claimed = sorted(claim.at for claim in facts.claims)
    replied = sorted(one.replied for one in facts.operations if one.is_certain and one.replied is not None)
    lost = sorted(one.replied or 0.0 for one in lost_operations(facts))
    again = sorted(times_again(facts))
    found = []
    for number, outage in enumerate(outages):
        since = outages[number - 1].ends if number else 0.0
        until = outage.ends if number + 1 < len(outages) else float("inf")
        first = first_after(claimed, outage.ends)
        found.append(
            Account(
                outage.what,
                outage.ends - outage.begins,
                None if first is None else first - outage.begins,
                *(bisect_left(times, until) - bisect_left(times, since) for times in (replied, lost, again)),
            )
        )
    return found


def lost_operations(facts: Facts) -> Iterator[Operation]:
    """What was acknowledged, stands, and was not run to its end."""
    done = {run.guid for run in facts.runs if run.ending == "done"}
    for operations in facts.operations_of.values():
        standing = standing_of(operations)
        if len(standing) == 1 and standing[0].what != "cancel" and standing[0].guid not in done | {None}:
            yield standing[0]


def times_again(facts: Facts) -> Iterator[float]:
    """When a tick that had been run to its end was run to its end again."""
    seen: set[tuple[str, int]] = set()
    for run in sorted(facts.runs, key=lambda one: one.ended or 0.0):
        if run.ending == "done" and run.ended is not None:
            if (run.guid, run.tick) in seen:
                yield run.ended
            seen.add((run.guid, run.tick))
