"""An operation of the scheduler: a conversation that can be told how patient to be; and work that goes on beside it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Generic, TypeVar

import anyio

from matrixsched.errors import ActionFinished, ActionNotAsSeen, ActionNotFound, GuidMismatch, MatrixSchedError
from matrixsched.naming import Named, binding
from matrixsched.store.transition import Composed, Conversation, Transaction, Transition
from matrixsched.store.transitions import Transitions

T = TypeVar("T")
S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Operation(Composed[T]):
    """A transition that can be told how long to wait for a lock; begun without, as in a caller's transaction, it waits
    as long as the transaction it is part of."""

    waiting: Callable[[timedelta | None], Conversation[T]]
    calling_off: Transition[None] | None = None
    """Lets an earlier try that may still be on its way change nothing when it arrives."""
    is_transaction: bool = False
    """It is several statements that take effect together."""

    def patient(self, lock_timeout: timedelta) -> Transition[T]:
        kind = Transaction if self.is_transaction else Composed
        return kind(self.name, lambda: self.waiting(lock_timeout))


def operation(
    name: str, waiting: Callable[[timedelta | None], Conversation[T]], calling_off: Transition[None] | None = None
) -> Operation[T]:
    return Operation(name, lambda: waiting(None), waiting, calling_off)


def bound(do: Transitions, operation: Operation[T], requests: Sequence[Named]) -> Operation[T]:
    """The operation, carried out only if these names were not used for something else."""

    def conversation(lock_timeout: timedelta | None) -> Conversation[T]:
        yield from binding(do, requests, lock_timeout)
        return (yield from operation.waiting(lock_timeout))

    return replace(operation, begin=lambda: conversation(None), waiting=conversation, is_transaction=True)


NOT_AS_ASKED = (ActionFinished, ActionNotAsSeen, ActionNotFound, GuidMismatch)
"""Why a change of one action is refused, of which others know nothing."""


def together(operations: Sequence[Operation[T]]) -> Operation[list[T | MatrixSchedError]]:
    """Changes of different actions in one transaction, each with its answer or with why it was refused."""

    def conversation(lock_timeout: timedelta | None) -> Conversation[list[T | MatrixSchedError]]:
        answers: list[T | MatrixSchedError] = []
        for one in operations:
            try:
                answers.append((yield from one.waiting(lock_timeout)))
            except NOT_AS_ASKED as refused:
                answers.append(refused)
        return answers

    def calling_off() -> Conversation[None]:
        for one in operations:
            if one.calling_off is not None:
                yield from one.calling_off.begin()

    name, called_off = operations[0].name, Transition("call_off", calling_off)
    return Operation(name, lambda: conversation(None), conversation, called_off, is_transaction=True)


async def one_ahead(
    make_next: Callable[[], Awaitable[S | None]], carry_out: Callable[[S], Awaitable[T]]
) -> AsyncGenerator[T, None]:
    """Carry out one piece of work after another, and make each ready while the one before is under way, for which
    `make_next` lets others have their turns."""
    following = _Beside(make_next)
    await following.run()
    while (work := following.result()) is not None:
        following = _Beside(make_next)
        done = _Beside(partial(carry_out, work))
        async with anyio.create_task_group() as both:
            both.start_soon(done.run)
            # In this task, as the first: it may be the caller's generator that goes on, and contexts are of a task.
            await following.run()
        yield done.result()


class _Beside(Generic[T]):
    """Work that goes on beside other work: how it ended is asked when both are done."""

    def __init__(self, work: Callable[[], Awaitable[T]]) -> None:
        self._work = work
        self._done: list[T] = []
        self._error: BaseException | None = None

    async def run(self) -> None:
        try:
            self._done.append(await self._work())
        except anyio.get_cancelled_exc_class():
            raise
        except BaseException as error:
            self._error = error  # whatever it is, the caller is to have it as it is, not in a group

    def result(self) -> T:
        if self._error is not None:
            raise self._error
        return self._done[0]
