"""How far a chore has come, to and from the JSON that is stored beside its lease."""

from __future__ import annotations

import json
from uuid import UUID

from matrixsched.store.values import SweepPosition, TidyPosition

TIDY = "tidy"
"""The chore that keeps the tables small; its row is part of the schema."""
BALANCE = "balance"
"""The chore that gives out the places of semaphores."""
QUEUES = "queues"
"""The chore that tells workers which queues to work on."""


def encode_position(position: TidyPosition) -> str:
    stored = {"rows": _encoded(position.rows), "history": _encoded(position.history), "tasks": position.tasks}
    return json.dumps(stored, separators=(",", ":"))


def decode_position(text: str) -> TidyPosition:
    """Where to go on; from the beginning if another version of the library wrote what this one cannot read."""
    try:
        stored = json.loads(text)
        tasks = _number(stored.pop("tasks", 0))
        return TidyPosition(**{name: _decoded(position) for name, position in stored.items()}, tasks=tasks)
    except (ValueError, TypeError, AttributeError):
        return TidyPosition()


def _encoded(position: SweepPosition | None) -> list[object] | None:
    return None if position is None else [position.shard, position.action_id, str(position.guid)]


def _decoded(stored: list[object] | None) -> SweepPosition | None:
    if stored is None:
        return None
    shard, action_id, guid = stored
    if not isinstance(shard, int) or not isinstance(action_id, str):
        raise TypeError("not a position")
    return SweepPosition(shard, action_id, UUID(str(guid)))


def _number(stored: object) -> int | None:
    if stored is not None and not isinstance(stored, int):
        raise TypeError("not a number")
    return stored
