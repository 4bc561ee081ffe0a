"""Workers in processes of their own that drain what is due, from a common signal on; both ends of the conversation."""

from __future__ import annotations

import json
import resource
import sys
import time
from array import array
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from benchmarks.children import Child, given_app, heard_line, tell
from benchmarks.measuring import run_loop
from benchmarks.parts import working
from benchmarks.places import Place
from matrixsched.events import OutcomesRecorded, StepFailed

STATUS = Path("/proc/self/status")


@dataclass
class Drained:
    """What several workers did."""

    elapsed_s: float = 0.0
    """From the signal to the last outcome that was recorded."""
    recorded: int = 0
    ran: list[int] = field(default_factory=list)
    """The numbers of the actions for which a handler was called, as often as it was."""
    faults: list[str] = field(default_factory=list)
    start_mb: list[float] = field(default_factory=list)
    peak_mb: list[float] = field(default_factory=list)


class Drainers:
    """The parent's end."""

    def __init__(self, children: Sequence[Child]) -> None:
        self._children = children
        self._done = Drained()

    @classmethod
    @asynccontextmanager
    async def of(cls, place: Place, processes: int) -> AsyncIterator[Drainers]:
        """Processes that are connected and wait for the signal."""
        async with AsyncExitStack() as stack:
            drainers = cls(
                [await stack.enter_async_context(Child.of("benchmarks.drainers", place)) for _ in range(processes)]
            )
            for child in drainers._children:
                drainers._done.start_mb.append(float(await child.line()))
            yield drainers

    async def drain(self, expected: int, *, within_s: float) -> Drained:
        """Let them work until so many outcomes are recorded, or for that long; then they leave."""
        begun_ns = time.monotonic_ns()
        for child in self._children:
            await child.say("go")
        with anyio.move_on_after(within_s):
            async with anyio.create_task_group() as group:
                for child in self._children:
                    group.start_soon(self._listen, child, begun_ns, expected, group.cancel_scope)
        for child in self._children:
            await child.end_input()
            await self._hear_the_end(child, begun_ns)
        return self._done

    async def _listen(self, child: Child, begun_ns: int, expected: int, listening: anyio.CancelScope) -> None:
        while self._done.recorded < expected:
            self._note(await child.line(within_s=float("inf")), begun_ns)
        listening.cancel()

    def _note(self, line: str, begun_ns: int) -> None:
        recorded, at_ns = map(int, line.split())
        self._done.recorded += recorded
        self._done.elapsed_s = max(self._done.elapsed_s, (at_ns - begun_ns) / 1e9)

    async def _hear_the_end(self, child: Child, begun_ns: int) -> None:
        while not (line := await child.line()).startswith("{"):
            self._note(line, begun_ns)
        end = json.loads(line)
        self._done.ran += end["ran"]
        self._done.faults += end["faults"]
        self._done.peak_mb.append(end["peak_mb"])


async def work() -> None:
    """The worker's end: what it keeps of each action is four bytes, lest they count as the library's memory."""
    app = given_app()
    ran, faults = array("i"), list[str]()

    @app.action("count")
    async def count(number: int) -> None:
        ran.append(number)

    app.events.subscribe(StepFailed, lambda failed: faults.append(f"step {failed.step} failed: {failed.error}"))
    app.events.subscribe(OutcomesRecorded, lambda event: tell(f"{event.recorded} {time.monotonic_ns()}"))
    async with app:
        tell(str(memory_mb("VmRSS")))
        if await heard_line():
            async with working(app):
                while await heard_line():
                    pass
    peak_mb = memory_mb("VmHWM")  # before the answer is put together
    tell(json.dumps({"ran": list(ran), "faults": faults, "peak_mb": peak_mb}))


def memory_mb(field: str) -> float:
    """What this process holds now (VmRSS) or held at most (VmHWM); where the system does not say, at most."""
    if STATUS.exists():
        # Not getrusage: there a process inherits the peak of the one that started it.
        words = next(line for line in STATUS.read_text().splitlines() if line.startswith(f"{field}:")).split()
        return int(words[1]) / 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1024 * 1024 if sys.platform == "darwin" else 1024)


if __name__ == "__main__":
    run_loop(work)
