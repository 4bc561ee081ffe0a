"""The ports to the world outside: time, chance, guids. Nothing else in the package touches them.

Production uses the system's; tests and the simulator bring their own, so that one seed gives one run.
"""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Protocol

import anyio
import anyio.lowlevel


class Clock(Protocol):
    def now(self) -> datetime:
        """Wall time, aware, in UTC. The database's time on SQLite; only for messages on PostgreSQL."""
        ...

    def monotonic(self) -> float:
        """Seconds that never run backwards: trust windows and durations."""
        ...

    async def sleep(self, seconds: float) -> None: ...

    async def wait(self, event: anyio.Event, seconds: float) -> None:
        """Until the event is set, at most that long."""
        ...

    def wait_in_thread(self, event: threading.Event, seconds: float) -> None:
        """The same for a thread."""
        ...


class SystemClock:
    # CLOCK_MONOTONIC stands still while a machine sleeps; a lease does not. Asked often, hence without its own frame.
    monotonic = staticmethod(partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)))

    def now(self) -> datetime:
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep(seconds)

    async def wait(self, event: anyio.Event, seconds: float) -> None:
        with anyio.move_on_after(seconds):
            await event.wait()

    def wait_in_thread(self, event: threading.Event, seconds: float) -> None:
        event.wait(min(seconds, threading.TIMEOUT_MAX))


@dataclass(slots=True)
class ManualClock:
    """A clock that stands still until it is told to advance; for tests."""

    time: datetime = datetime(2030, 1, 1, tzinfo=UTC)
    _elapsed: float = 0.0
    _sleepers: list[tuple[float, anyio.Event | threading.Event]] = field(default_factory=list)

    def now(self) -> datetime:
        return self.time

    def monotonic(self) -> float:
        return self._elapsed

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await anyio.lowlevel.checkpoint()
            return
        woken = anyio.Event()
        self._sleepers.append((self._elapsed + seconds, woken))
        await woken.wait()

    async def wait(self, event: anyio.Event, seconds: float) -> None:
        async with anyio.create_task_group() as either:

            async def until(wait: Callable[[], Awaitable[object]]) -> None:
                await wait()
                either.cancel_scope.cancel()

            either.start_soon(until, event.wait)
            either.start_soon(until, lambda: self.sleep(seconds))

    def wait_in_thread(self, event: threading.Event, seconds: float) -> None:
        """As `wait`; but when the time is up, the event is set: a thread waits for one thing only."""
        if seconds > 0:
            self._sleepers.append((self._elapsed + seconds, event))
            event.wait()

    def advance(self, duration: timedelta) -> None:
        self.time += duration
        self._elapsed += duration.total_seconds()
        # A thread may go to sleep at any moment: whoever is not due stays in the list it was put in.
        due = [sleeper for sleeper in list(self._sleepers) if sleeper[0] <= self._elapsed]
        for sleeper in due:
            self._sleepers.remove(sleeper)
        for _, woken in sorted(due, key=lambda sleeper: sleeper[0]):
            woken.set()


class Chance(Protocol):
    """Where randomness comes from: jitter and guids."""

    def random(self) -> float:
        """A number in [0, 1)."""
        ...

    def guid(self) -> uuid.UUID: ...


class SystemChance:
    def random(self) -> float:
        return random.random()

    def guid(self) -> uuid.UUID:
        return uuid.uuid4()


class SeededChance:
    """The same seed gives the same numbers and guids."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def random(self) -> float:
        return self._random.random()

    def guid(self) -> uuid.UUID:
        return uuid.UUID(int=self._random.getrandbits(128), version=4)
