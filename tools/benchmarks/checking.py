"""Whether a run kept the promises it was measured under: nothing lost, nothing run twice."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.places import Place
from benchmarks.statements import ACTIONS_WRITTEN, CLAIMED, ROWS_LEFT, STATES, WAITING


class Tally:
    """How often each of the actions 0 … expected - 1 was run."""

    def __init__(self, expected: int) -> None:
        self.expected = expected
        self.faults: list[str] = []
        """What else went wrong, in words."""
        self._runs = [0] * expected

    def count(self, number: int) -> None:
        self._runs[number] += 1

    @property
    def violations(self) -> list[str]:
        lost = self._runs.count(0)
        doubled = self.expected - lost - self._runs.count(1)
        found = [f"{lost} of {self.expected} actions were never run"] if lost else []
        if doubled:
            found.append(f"{doubled} of {self.expected} actions were run more than once")
        return found + self.faults


def check_all_done(place: Place, tally: Tally) -> list[str]:
    """Every action was run once, says so in the database, and no queue holds anything of it."""
    states = place.ask(STATES)
    violations = tally.violations
    if [tuple(map(_number, row)) for row in states] != [("done", tally.expected, tally.expected, 0)]:
        violations.append(f"not all {tally.expected} actions are done after one success each: {states}")
    ((incoming, processing, unhappy),) = place.ask(ROWS_LEFT)
    if incoming or processing or unhappy:
        violations.append(f"rows are left: {incoming} incoming, {processing} processing, {unhappy} in the history")
    return violations


def check_part_done(place: Place, ran: Sequence[int], total: int) -> list[str]:
    """Of the actions 0 … total - 1 those were run once that say so in the database; the others wait, unclaimed."""
    violations = []
    if doubled := len(ran) - len(set(ran)):
        violations.append(f"{doubled} actions were run more than once")
    done = len(set(ran))
    states = sorted(tuple(map(_number, row)) for row in place.ask(STATES))
    expected = [("done", done, done, 0), ("live", total - done, 0, 0)]
    if states != [state for state in expected if state[1]]:
        violations.append(f"not {done} of {total} actions are done, and the others live: {states}")
    ((waiting,),) = place.ask(WAITING)
    ((claimed,),) = place.ask(CLAIMED)
    if waiting != total - done or claimed:
        violations.append(f"{waiting} rows wait, {claimed} of them claimed, after {done} of {total} actions were run")
    return violations


def check_churned(place: Place, tally: Tally, scheduled: int, pruned: int) -> list[str]:
    """Every action was run as often as it should be; all have ended, are there or were pruned, and left no row."""
    violations = tally.violations
    states = {state: count for state, count, *_ in place.ask(STATES)}
    if not states.keys() <= {"done", "cancelled"} or sum(states.values()) + pruned != scheduled:
        violations.append(f"of {scheduled} actions {pruned} were pruned, and the others are not all there: {states}")
    ((incoming, processing, _),) = place.ask(ROWS_LEFT)
    if incoming or processing:
        violations.append(f"rows are left: {incoming} incoming, {processing} processing")
    return violations


def check_all_written(place: Place, expected: int) -> list[str]:
    """As many actions are in the database as calls returned."""
    ((written,),) = place.ask(ACTIONS_WRITTEN)
    return [] if written == expected else [f"{written} actions are stored after {expected} calls"]


def _number(value: object) -> object:
    """sum() is a Decimal on PostgreSQL."""
    return value if isinstance(value, str) else int(value)  # type: ignore[call-overload]
