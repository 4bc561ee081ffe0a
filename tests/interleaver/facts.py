"""What is known of a scene to those who play in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from matrixsched.rules.action import Attempt, State
from matrixsched.rules.queues import StoredTask


@dataclass(slots=True)
class Facts:
    version: UUID = field(default_factory=lambda: UUID(int=0))
    """The guid of the action `a`, as a user has read it."""
    versions: list[UUID] = field(default_factory=list)
    """All that were written."""
    attempt: Attempt | None = None
    """Somebody runs it, or did."""
    pruned: State = State.DONE
    """Actions that ended so are pruned."""
    holders: dict[int, UUID] = field(default_factory=dict)
    """Of shards, as they believe."""
    lanes: tuple[str, ...] = ()
    """In which rows wait before gates."""
    taken: StoredTask | None = None
    """A task of queue 1, with a receipt that is good."""
    lapsed: StoredTask | None = None
    """Another one, whose receipt is void."""
    wrong_task: int = 0
    """The id of a task that cannot be as it is."""
    tokens: int = 0
    """How many rows may pass the gates now, in all shards."""

    def held_attempt(self) -> Attempt:
        assert self.attempt is not None
        return self.attempt

    def taken_task(self) -> StoredTask:
        assert self.taken is not None
        return self.taken

    def lapsed_task(self) -> StoredTask:
        assert self.lapsed is not None
        return self.lapsed


def plain(value: Any) -> Any:
    """Answers as they can be compared and shown."""
    match value:
        case dict():
            return sorted((str(key), plain(one)) for key, one in value.items())
        case set() | frozenset():
            return sorted(plain(one) for one in value)
        case list() | tuple():
            return [plain(one) for one in value]
        case Exception():
            return f"{type(value).__name__}"
        case None | bool() | int():
            return value
        case _:
            return str(value)
