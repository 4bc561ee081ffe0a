"""How somebody who waits is woken, by whoever it may be: a task on its own event loop, or a thread."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Hashable
from typing import Protocol

import anyio

from matrixsched.clock import Clock


class Bell(Protocol):
    @property
    def place(self) -> Hashable:
        """Those of one place stop together: a task that blocks its event loop keeps all others there from waking."""
        ...

    def ring(self) -> bool:
        """Wake whoever waits, from any thread; False if nobody can be there any more."""
        ...

    def hush(self) -> None:
        """Forget that it rang."""
        ...


class TaskBell:
    """For a task. To be made in it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._rung = anyio.Event()

    @property
    def place(self) -> Hashable:
        return self._loop

    def ring(self) -> bool:
        if _running_loop() is self._loop:
            self._rung.set()
            return True
        try:
            # Not through anyio, which would wait for the other loop to answer.
            self._loop.call_soon_threadsafe(self._rung.set)
        except RuntimeError:  # the loop is closed
            return False
        return True

    def hush(self) -> None:
        if self._rung.is_set():
            self._rung = anyio.Event()

    async def heard(self, seconds: float, clock: Clock) -> None:
        """Wait for it, at most that long."""
        if seconds == math.inf:
            await self._rung.wait()  # for most, and at a fraction of the price
        else:
            await clock.wait(self._rung, seconds)


class ThreadBell:
    """For a thread."""

    place = "threads"

    def __init__(self) -> None:
        self._rung = threading.Event()

    def ring(self) -> bool:
        self._rung.set()
        return True

    def hush(self) -> None:
        self._rung.clear()

    def heard(self, seconds: float, clock: Clock) -> None:
        """Wait for it, at most that long."""
        clock.wait_in_thread(self._rung, seconds)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
