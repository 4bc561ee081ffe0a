"""Connections that want nothing make room: uvicorn counts them like those that ask, and would wait for ever.

A connection must send the head of a request within a time, from its beginning and again after each answer, however
slowly it drips. If there are too many all the same, those go first that have wanted nothing for the longest.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol


def connections(head_max_s: float) -> type[H11Protocol]:
    """The protocol with that limit: uvicorn makes one of this kind for each connection."""

    class Connection(_Connection):
        pass

    Connection.head_max_s = head_max_s
    return Connection


_turns = count()


class _Connection(H11Protocol):
    head_max_s: float

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._turn = 0
        """Of those that wait, the one that began to before the others has the lowest."""
        self._end_of_patience: Callable[[], None] | None = None

    @property
    def is_idle(self) -> bool:
        """Nothing is being answered, so that a head is what it waits for."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._await_head()
        self._make_room()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self.is_idle:
            self._stop_waiting()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        # What came meanwhile may be answered already.
        if self.is_idle:
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _await_head(self) -> None:
        self._stop_waiting()
        self._turn = next(_turns)
        # As at the end of an idle connection that is kept alive.
        self._end_of_patience = self.loop.call_later(self.head_max_s, self.timeout_keep_alive_handler).cancel

    def _stop_waiting(self) -> None:
        if self._end_of_patience is not None:
            self._end_of_patience()
            self._end_of_patience = None

    def _make_room(self) -> None:
        """With uvicorn's limit reached everybody would be refused who asks for something."""
        most = self.limit_concurrency
        if most is None or len(self.connections) < most:
            return
        others = [one for one in self.connections if isinstance(one, _Connection) and one.is_idle and one is not self]
        if others:
            oldest = min(others, key=lambda one: one._turn)
            self.connections.discard(oldest)
            oldest.transport.abort()
