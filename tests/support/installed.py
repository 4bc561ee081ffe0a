"""Dashboards that are served, for tests that look at them through a browser.

The browser's driver keeps an event loop in its thread: so whatever is asked of the database goes through another one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import anyio

from matrixsched import App
from matrixsched.clock import ManualClock, SeededChance
from matrixsched.web import dashboard
from support.furnished import furnish, furnish_hostile
from support.serving import served

T = TypeVar("T")
SHARDS = 4


@dataclass(frozen=True)
class Installed:
    """A dashboard that is served, and the installation that it shows."""

    url: str
    at: str
    clock: ManualClock

    def ask(self, work: Callable[[App], Awaitable[T]]) -> T:
        """Ask, or do, something through the library."""
        return done(self.url, self.clock, work)


def done(url: str, clock: ManualClock, work: Callable[[App], Awaitable[T]]) -> T:
    async def through() -> T:
        app = App(url, clock=clock, chance=SeededChance(9))
        await app.init(shards=SHARDS)
        async with app:
            return await work(app)

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(anyio.run, through).result()


def installed(url: str, *, hostile: bool = False, **tokens: str) -> Iterator[Installed]:
    clock = ManualClock()

    async def fill(app: App) -> None:
        await (furnish_hostile if hostile else furnish)(app, clock)

    done(url, clock, fill)
    clock.advance(timedelta(seconds=12))
    app = App(url, clock=clock, chance=SeededChance(2))
    with served(dashboard(app, **tokens)) as at:
        yield Installed(url, at, clock)
