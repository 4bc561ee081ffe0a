"""An operation of the scheduler: a conversation that can be told how patient to be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from matrixsched.store.transition import Conversation, Transition

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Operation(Transition[T]):
    """A transition that can be told how long to wait for a lock; begun without, as in a caller's transaction, it waits
    as long as the transaction it is part of."""

    waiting: Callable[[timedelta | None], Conversation[T]]
    calling_off: Transition[None] | None = None
    """Lets an earlier try that may still be on its way change nothing when it arrives."""

    def patient(self, lock_timeout: timedelta) -> Transition[T]:
        return Transition(self.name, lambda: self.waiting(lock_timeout))


def operation(
    name: str, waiting: Callable[[timedelta | None], Conversation[T]], calling_off: Transition[None] | None = None
) -> Operation[T]:
    return Operation(name, lambda: waiting(None), waiting, calling_off)
