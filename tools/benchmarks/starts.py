"""A worker in a process of its own that reports when its handler starts; both ends of the conversation."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from benchmarks.children import Child, given_app, heard_line, tell
from benchmarks.measuring import run_loop
from benchmarks.parts import working
from benchmarks.places import Place
from matrixsched.events import OutcomesRecorded

RECORDED = "recorded"


class StartReporter:
    """The parent's end."""

    def __init__(self, child: Child) -> None:
        self._child = child

    @classmethod
    @asynccontextmanager
    async def of(cls, place: Place) -> AsyncIterator[StartReporter]:
        """A worker on that installation, ready."""
        async with Child.of("benchmarks.starts", place) as child:
            await child.line()
            yield cls(child)

    async def start_of(self, number: int) -> int:
        """When the handler was called with that number, in nanoseconds of the system's monotonic clock."""
        reported, started_ns = map(int, (await self._child.line()).split())
        if reported != number:
            raise RuntimeError(f"the start of {number} was awaited, but {reported} was started")
        return started_ns

    async def recorded(self) -> None:
        """Its outcome was written: the worker is idle."""
        if (line := await self._child.line()) != RECORDED:
            raise RuntimeError(f"that an outcome was recorded was awaited, but the worker said {line!r}")


async def work() -> None:
    """The worker's end."""
    app = given_app()

    @app.action("start")
    async def start(number: int) -> None:
        started_ns = time.monotonic_ns()
        tell(f"{number} {started_ns}")

    app.events.subscribe(OutcomesRecorded, lambda event: tell(RECORDED))
    async with app, working(app):
        tell("ready")
        while await heard_line():
            pass


if __name__ == "__main__":
    run_loop(work)
