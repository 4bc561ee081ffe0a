"""What must hold of the time that it takes to go on after something went wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from chaos.checkers import Objections
from chaos.facts import Claim, Facts, Operation, first_after
from chaos.setting import GATED, TICK_S

PROGRESS_S = 5.0
RECOVERY_GRACE_S = 1.0
OUTAGES = ("restart", "fail-over")
"""Of the database, after which it is there again."""
MANY = 20
"""So many kills, or restarts, must have left something to measure."""
LEAST_SHARE = 0.2
"""Of them, how many cases must at least have been measured."""


@dataclass(frozen=True)
class Times:
    """Some times, and how many others do not count because another fault came between."""

    measured: list[float]
    excused: int

    def at(self, share: float) -> float:
        ordered = sorted(self.measured)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0

    def are_too_few(self, struck: int) -> bool:
        """Whether so many strikes should have left more to measure: what is always excused is never judged."""
        return struck >= MANY and len(self.measured) < LEAST_SHARE * struck

    def __str__(self) -> str:
        found = f"{len(self.measured):,} measured, {self.excused:,} excused by another fault"
        if not self.measured:
            return found
        return f"p50 {self.at(0.5):.2f} s, p99 {self.at(0.99):.2f} s, most {max(self.measured):.2f} s: {found}"


def recovery_times(facts: Facts) -> Times:
    """From a kill to the next start of each action that the worker had in its hands; but of those before a gate, which
    have to wait for their turn once more."""
    kills = {fault.writer: fault.begins for fault in facts.faults if fault.kind == "kill"}
    measured, excused = [], 0
    for claim in facts.claims:
        killed_at = kills.get(claim.writer)
        if killed_at is None or not claim.taken_over or claim.at > killed_at or claim.id.startswith(GATED):
            continue
        began = [run for run in facts.runs_of.get(claim.id, []) if run.begun > killed_at and run.guid == claim.guid]
        if not began:
            continue  # it was replaced or cancelled meanwhile
        # Only what came before the promise was broken excuses: else the longer it took, the surer its excuse.
        if _is_hit_again(facts, claim, killed_at, min(began[0].begun, killed_at + facts.lease_s + RECOVERY_GRACE_S)):
            excused += 1
        else:
            measured.append(began[0].begun - killed_at)
    return Times(measured, excused)


def _is_hit_again(facts: Facts, claim: Claim, since: float, until: float) -> bool:
    """Whether the database was away meanwhile, a fault hit whoever claimed it next or held its shard, or too few were
    left at work; or it had been interrupted before, which makes it a suspect, and those go one by one."""
    if any(fault.begins <= until and fault.ends >= claim.at for fault in facts.faults if fault.writer is None):
        return True
    siblings = facts.claims_of[claim.guid]
    later = [one for one in siblings if claim.at < one.at <= until]
    return (
        len(later) > 1
        or any(one.taken_over for one in siblings if one.at < claim.at)
        or any(facts.fault_between(one.writer, one.at, until) is not None for one in later)
        or facts.is_shard_kept(claim.id, since, until, but_by=claim.writer)
        or facts.are_too_few(since, until)
    )


def slow_recovery(facts: Facts) -> Objections:
    """What a killed worker had in its hands is started again within an attempt's lease and a second (p99)."""
    times = recovery_times(facts)
    kills = sum(fault.kind == "kill" and (fault.writer or "").startswith("w") for fault in facts.faults)
    if times.at(0.99) > facts.lease_s + RECOVERY_GRACE_S + facts.patience_s:
        yield f"{times}"
    if times.are_too_few(kills):
        yield f"too little was measured after {kills:,} kills: {times}"


def progress_times(facts: Facts) -> Times:
    """From the moment at which PostgreSQL accepts again to the next claim."""
    claimed = sorted(claim.at for claim in facts.claims)
    outages = sorted((fault.begins, fault.ends) for fault in facts.faults if fault.kind in OUTAGES)
    measured, excused = [], 0
    for number, (_, ends) in enumerate(outages):
        first = first_after(claimed, ends)
        next_begins = outages[number + 1][0] if number + 1 < len(outages) else float("inf")
        if first is None or (first > next_begins and next_begins - ends < PROGRESS_S):
            excused += 1
        else:
            measured.append(first - ends)
    return Times(measured, excused)


def slow_progress(facts: Facts) -> Objections:
    """After a restart of PostgreSQL, or a fail-over, the next attempt is claimed within five seconds."""
    times = progress_times(facts)
    restarts = len(times.measured) + times.excused
    if times.measured and max(times.measured) > PROGRESS_S + facts.patience_s:
        yield f"{times}"
    if times.are_too_few(restarts):
        yield f"too little was measured after {restarts:,} restarts: {times}"


# Repeated actions.


def missed_ticks(facts: Facts) -> Objections:
    """Until it is cancelled, a repeated action is started in every interval, or a lease and a second after a fault."""
    for id, operations in facts.operations_of.items():
        if operations[0].handler == "tick" and operations[0].is_certain:
            for since, until in _silences(facts, id, operations):
                if (quiet := _unexplained(facts, operations[0], since, until)) is not None:
                    yield f"{id}, due at {since:.3f}, was not started until {until:.3f}; no fault explains {quiet:.3f}"


def _silences(facts: Facts, id: str, operations: list[Operation]) -> Iterator[tuple[float, float]]:
    """From when on a start was due, and when it came, or was no longer expected."""
    cancelled_at = min((one.called for one in operations if one.what == "cancel"), default=float("inf"))
    due = operations[0].replied or operations[0].called
    for run in facts.runs_of.get(id, []):
        if run.begun < cancelled_at:
            yield due, run.begun
            due = run.begun + TICK_S
    if cancelled_at < float("inf"):
        yield due, cancelled_at


def _unexplained(facts: Facts, ticking: Operation, since: float, until: float) -> float | None:
    """The beginning of the first stretch, as long as a start may take, in which nothing kept the action from it."""
    may_take_s = facts.lease_s + RECOVERY_GRACE_S
    while until - since > may_take_s + facts.patience_s:
        if not _is_hindered(facts, ticking, since, since + may_take_s):
            return since
        since += may_take_s
    return None


def _is_hindered(facts: Facts, ticking: Operation, since: float, until: float) -> bool:
    """Whether a fault hit all, or whoever had the action or its shard; or too few were at work."""
    in_hands = [
        claim.writer
        for claim in facts.claims_of.get(ticking.guid or "", [])
        if claim.at <= until and (claim.over_at is None or claim.over_at >= since)
    ]
    return (
        any(facts.fault_between(writer, since, until) is not None for writer in [None, *in_hands])
        or facts.is_shard_kept(ticking.ids[0], since, until)
        or facts.are_too_few(since, until)
    )
