"""Free connections, kept at hand.

To acquire one from asyncpg's pool, and to release it, takes a task each and several turns of the event loop, which is
longer than many a statement. So they are acquired once, and go back to the pool when somebody waits there for one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress

from matrixsched.clock import Clock
from matrixsched.store.postgresql.connection import CONFUSED, Connection, is_closed

AT_HAND_S = 300.0
"""How long a connection may lie unused, as in the pool: what stands between us and the server forgets it some time."""


class AtHand:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._free: deque[tuple[Connection, float]] = deque()
        """With the time since when it lies there. The last one used is the next."""
        self._ending: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return sum(not is_closed(connection) for connection, _ in self._free)

    def take(self, transition: str) -> Connection | None:
        """Of those that have its statements planned the one that was used last, if any has; or else of all."""
        self._end_old()
        # One that the server has ended is with the pool already.
        self._free = deque(one for one in self._free if not is_closed(one[0]))
        if not self._free:
            return None
        last = len(self._free) - 1
        chosen = next((at for at in range(last, -1, -1) if self._free[at][0].has_planned(transition)), last)
        connection, _ = self._free[chosen]
        del self._free[chosen]
        return connection

    def put(self, connection: Connection) -> None:
        self._free.append((connection, self._clock.monotonic()))
        if self._ending is None:
            self._ending = asyncio.get_running_loop().call_later(AT_HAND_S, self._end_later)

    def clear(self) -> list[Connection]:
        """All of them, for whoever gives them back."""
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None
        everybody = [connection for connection, _ in self._free]
        self._free.clear()
        return everybody

    def _end_later(self) -> None:
        self._ending = None
        self._end_old()
        if self._free:
            rest_s = self._free[0][1] + AT_HAND_S - self._clock.monotonic()
            self._ending = asyncio.get_running_loop().call_later(max(rest_s, 0.0), self._end_later)

    def _end_old(self) -> None:
        """Those that were used last are at the end."""
        while self._free and self._clock.monotonic() - self._free[0][1] >= AT_HAND_S:
            with suppress(*CONFUSED):
                self._free.popleft()[0].terminate()
