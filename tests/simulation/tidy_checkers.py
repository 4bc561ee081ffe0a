"""What must be true of tidying up at every commit of a run; a function each, which yields its objections."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

from matrixsched.rules.action import State
from matrixsched.store.chores import TIDY
from simulation.commit_checkers import Commit, Objections
from simulation.database import ActionRow, microseconds, moment
from simulation.faults import Noted


class Turns:
    """When the present turn of each chore began, by its holder: with the first taking since the last one was over.

    One that is granted late, to nobody any more, was carried out when it was asked for.
    """

    def __init__(self) -> None:
        self.began: dict[tuple[str, UUID], int] = {}

    def committed(self, commit: Commit) -> None:
        if not isinstance(commit.transition, Noted) or not commit.answer:
            return
        if commit.transition.name == "take_chore":
            turn: Any = commit.transition.arguments[:2]
            self.began.setdefault(turn, microseconds(commit.asked_at) if commit.is_late else commit.now)
        elif commit.transition.name == "end_chore":
            self.began.pop(commit.transition.arguments[:2], None)  # type: ignore[arg-type]


def pruned_when_old(commit: Commit) -> Objections:
    """An action is pruned only when it has been over for as long as those that ended like it are kept."""
    if commit.transition.name != "prune_actions":
        return
    for id, action in commit.before.actions.items():
        if id not in commit.after.actions and not _is_old(action, commit, commit.now):
            ended_at = action.finished_at and moment(action.finished_at)
            yield f"{id} at {action.guid} is {action.state} since {ended_at}"


def tidied_when_done(commit: Commit) -> Objections:
    """When a turn of tidying up is said to be over, nothing is left that was old when it began."""
    if commit.transition.name != "end_chore" or not isinstance(commit.transition, Noted) or not commit.answer:
        return
    name, holder = commit.transition.arguments[:2]
    began = commit.world.turns.began.get((name, holder))
    if name != TIDY or began is None:
        return
    for action in commit.after.actions.values():
        if _is_old(action, commit, began):
            yield f"{action.id} at {action.guid} is left, {action.state} since {moment(action.finished_at or 0)}"


def _is_old(action: ActionRow, commit: Commit, at: int) -> bool:
    if action.state == "live" or action.finished_at is None:
        return False
    keep = commit.world.size.policy.retention[State(action.state)]
    return action.finished_at < at - keep // timedelta(microseconds=1)


AT_EVERY_COMMIT: tuple[Callable[[Commit], Objections], ...] = (pruned_when_old, tidied_when_done)
