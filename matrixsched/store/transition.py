"""A transition: one step of the protocol as a conversation with the database.

A transition yields what it asks and is sent the rows; it neither knows nor cares who carries the statements: our own
asyncpg pool, our SQLite thread, or a transaction that belongs to the caller. It can be begun again, so a driver may
repeat it whole after a definite failure.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from matrixsched.store.statements import Statement

T = TypeVar("T")
S = TypeVar("S")
P = ParamSpec("P")

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Ask:
    """A statement with its parameters."""

    statement: Statement
    parameters: Mapping[str, object]


Conversation = Generator[Ask, Sequence[Row], T]


@dataclass(frozen=True, slots=True)
class Transition(Generic[T]):
    """A conversation that has not begun yet."""

    name: str
    begin: Callable[[], Conversation[T]]

    def converse(self, execute: Callable[[Ask], Sequence[Row]]) -> T:
        """Hold the conversation with a database that answers at once (without awaiting)."""
        conversation = self.begin()
        try:
            ask = next(conversation)
            while True:
                ask = conversation.send(execute(ask))
        except StopIteration as end:
            answer: T = end.value
            return answer

    async def converse_async(self, execute: Callable[[Ask], Awaitable[Sequence[Row]]]) -> T:
        """Hold the conversation with a database that is awaited."""
        conversation = self.begin()
        try:
            ask = next(conversation)
            while True:
                ask = conversation.send(await execute(ask))
        except StopIteration as end:
            answer: T = end.value
            return answer


@dataclass(frozen=True, slots=True)
class Transaction(Transition[T]):
    """A transition whose statements take effect together or not at all, and hold their locks to its end.

    On SQLite all are like that; on PostgreSQL each costs two round trips more than its statements, and is asked for.
    """


@dataclass(frozen=True, slots=True)
class Composed(Transition[T]):
    """A transition made of others that changes something: where one of these is a transaction, so is the whole."""


def transition(method: Callable[Concatenate[S, P], Conversation[T]]) -> Callable[Concatenate[S, P], Transition[T]]:
    """Turn a generator method into one that answers with a Transition."""

    def prepared(self: S, /, *args: P.args, **kwargs: P.kwargs) -> Transition[T]:
        return Transition(method.__name__, lambda: method(self, *args, **kwargs))

    return prepared


def transaction(method: Callable[Concatenate[S, P], Conversation[T]]) -> Callable[Concatenate[S, P], Transaction[T]]:
    """Turn a generator method into one that answers with a Transaction."""

    def prepared(self: S, /, *args: P.args, **kwargs: P.kwargs) -> Transaction[T]:
        return Transaction(method.__name__, lambda: method(self, *args, **kwargs))

    return prepared
