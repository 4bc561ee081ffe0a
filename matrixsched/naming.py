"""A request that a program has named stands for one thing that is asked: another one under the same name is refused,
and not taken for it.

What a name asks for is noted beside it in the transaction in which it is done: what was refused leaves no trace of
either.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from hashlib import sha256
from typing import NamedTuple, TypeVar
from uuid import UUID, uuid5

from matrixsched.errors import RequestReused
from matrixsched.store.transition import Conversation, Transaction, Transition
from matrixsched.store.transitions import Transitions

T = TypeVar("T")


class Named(NamedTuple):
    """A request with what it asks for."""

    name: str
    guid: UUID
    """Of the name, for one operation on one action or queue."""
    asks_for: UUID
    """Made of that and of what is asked."""


def named(name: str, request_guid: UUID, asked: str) -> Named:
    """`request_guid` is that under which it is carried out."""
    guid = uuid5(request_guid, "named")
    return Named(name, guid, uuid5(guid, sha256(asked.encode("utf-8", "surrogatepass")).hexdigest()))


def bound(do: Transitions, transition: Transition[T], request: Named) -> Transaction[T]:
    """Carried out only if this name was not used for something else."""

    def conversation() -> Conversation[T]:
        yield from binding(do, [request], None)
        return (yield from transition.begin())

    return Transaction(transition.name, conversation)


def binding(do: Transitions, requests: Sequence[Named], lock_timeout: timedelta | None) -> Conversation[None]:
    """Before what they ask for, in its transaction: refused if one of the names was used for something else."""
    asked = {one.guid: one.asks_for for one in requests}
    first = yield from do.bind_requests(asked, lock_timeout=lock_timeout).begin()
    known = [one for one in requests if one.guid not in first]
    if known:
        same = yield from do.carried_out([one.asks_for for one in known]).begin()
        for one in known:
            if one.asks_for not in same:
                raise RequestReused(one.name)
