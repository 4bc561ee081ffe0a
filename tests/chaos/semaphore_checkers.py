"""What must hold of the places of a semaphore, whatever went wrong."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from chaos.audit import Change
from chaos.checkers import Objections
from chaos.facts import Facts
from chaos.setting import PLACES

BALANCE_S = 1.0
"""What was enqueued less than so long ago a balance that is under way may not have seen."""


def overfull(facts: Facts) -> Objections:
    """A semaphore never has more holders than places, after any change and in any snapshot."""
    holding: set[str] = set()
    for change in facts.places:
        if change.op == "D" or change.state == "waiting":
            holding.discard(change.id)
        else:
            holding.add(change.id)
        if len(holding) > PLACES:
            yield f"{len(holding)} held one of {PLACES} places after {change.writer} gave one to {change.id}"
    for snapshot in facts.snapshots:
        if snapshot.held > PLACES:
            yield f"{snapshot.held} held one of {PLACES} places at {snapshot.at:.3f}"


def overtaken(facts: Facts) -> Objections:
    """A place goes to the most important task that waits, among equals to the one that was enqueued first."""
    waiting: dict[str, Change] = {}
    for together in _in_order(facts.places):
        for change in together:
            waiting.pop(change.id, None)
        for change in together:
            if change.state == "waiting":
                waiting[change.id] = change
            elif _gets_place(change):
                yield from _overtaking(facts, change, waiting)


def _in_order(changes: list[Change]) -> Iterator[list[Change]]:
    """One by one, but all places that one statement gave at once: in which order it wrote them says nothing."""
    given: dict[tuple[str | None, float | None], list[Change]] = defaultdict(list)
    for change in filter(_gets_place, changes):
        given[change.writer, change.was_due].append(change)
    for change in changes:
        together = given[change.writer, change.was_due] if _gets_place(change) else [change]
        if together[0] is change:
            yield together


def _gets_place(change: Change) -> bool:
    return change.was_state == "waiting" and change.state == "acquired"


def _overtaking(facts: Facts, given: Change, waiting: dict[str, Change]) -> Objections:
    for task in waiting.values():
        is_seen = task.at < given.at - BALANCE_S
        is_held_up = facts.fault_between(given.writer, given.at - BALANCE_S, given.at) is not None
        if is_seen and _rank(task) < _rank(given) and not is_held_up:
            yield f"{given.id} ({_told(given)}) got a place at {given.at:.3f} while {task.id} ({_told(task)}) waited"


def _rank(task: Change) -> tuple[float, float, str]:
    return (-float(task.note or 0), task.due or 0.0, task.id)


def _told(task: Change) -> str:
    return f"priority {task.note}, enqueued at {task.due:.3f}"


def untold(facts: Facts) -> Objections:
    """Every task whose enqueueing was acknowledged is told of its place, and nobody of one that nobody enqueued."""
    told = {one.task for one in facts.told}
    called = {id for one in facts.operations if one.what == "enqueue" for id in one.ids}
    for operation in facts.operations:
        if operation.what == "enqueue" and operation.reply == "ok":
            for task in set(operation.ids) - told:
                yield f"{task} was never told of its place"
    for task in told - called:
        yield f"{task} was told of a place that nobody asked for"
