"""What callers are told about actions, judged at the end of a run against what was written; a function each."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from simulation.commit_checkers import Objections
from simulation.history import Operation, Reply

if TYPE_CHECKING:
    from simulation.world import World

_CHANGES = ("schedule", "reschedule", "run_now", "cancel")


def told_what_was_done(world: World) -> Objections:
    """A caller is told that it changed an action if and only if it did; what is refused or has failed was not done."""
    for operation in _changes(world):
        written = [action_id for action_id in operation.ids if _wrote(world, operation, action_id)]
        match operation.reply:
            case Reply.OK if operation.changed and len(written) < len(operation.ids):
                yield f"{_name(operation)} was told to be done, and wrote only {written}"
            case Reply.OK if not operation.changed and len(written) == len(operation.ids):
                yield f"{_name(operation)} was told to have changed nothing, and wrote {written}"
            case Reply.REFUSED | Reply.FAILED if written:
                yield f"{_name(operation)} was told to be {operation.reply}, and wrote {written}"


def failed_for_a_reason(world: World) -> Objections:
    """A call fails only if a fault hit its client meanwhile."""
    for operation in _changes(world):
        if operation.reply is not Reply.FAILED or operation.replied_at is None:
            continue
        if not world.history.is_hit(operation.client, operation.called_at, operation.replied_at):
            yield f"{_name(operation)} failed without a fault"


def _changes(world: World) -> list[Operation]:
    return [operation for operation in world.history.operations if operation.kind in _CHANGES]


def _wrote(world: World, operation: Operation, action_id: str) -> bool:
    return any(UUID(guid) in operation.guids for guid in world.versions[action_id])


def _name(operation: Operation) -> str:
    return f"{operation.kind} {', '.join(operation.ids)} by {operation.client} at {operation.called_at:%H:%M:%S.%f}"
