"""The time of a stage: it stands still until somebody travels."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta

import anyio
import anyio.lowlevel

from matrixsched.clock import ManualClock


class HastyClock:
    """The same time for those who wait in the middle of a call, where nobody could move the clock for them.

    A scheduler whose answer was lost rests before it sends the call again, a worker before it asks what it holds: such
    a rest moves the clock at once. Everybody else who sleeps on the stage's clock waits until the test travels.
    """

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock

    def now(self) -> datetime:
        return self._clock.now()

    def monotonic(self) -> float:
        return self._clock.monotonic()

    async def sleep(self, seconds: float) -> None:
        self._clock.advance(timedelta(seconds=max(0.0, seconds)))
        await anyio.lowlevel.checkpoint()

    async def wait(self, event: anyio.Event, seconds: float) -> None:
        await self._clock.wait(event, seconds)

    def wait_in_thread(self, event: threading.Event, seconds: float) -> None:
        self._clock.wait_in_thread(event, seconds)
