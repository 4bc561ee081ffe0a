"""A worker in a process of its own that reports when its handler starts; both ends of the conversation.

The parent writes the address of the installation to its standard input, the worker writes a line for each start. It
stops when its input ends, so it cannot outlive the parent.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.abc
from anyio.streams.buffered import BufferedByteReceiveStream

TOOLS = Path(__file__).resolve().parent.parent
ANSWER_MAX_S = 30.0
LINE_BYTES_MAX = 100

if __name__ == "__main__":
    sys.path.insert(0, str(TOOLS))

from benchmarks.measuring import run_loop  # noqa: E402
from benchmarks.places import Place  # noqa: E402
from matrixsched.app import App  # noqa: E402
from matrixsched.worker import Worker  # noqa: E402


class StartReporter:
    """The parent's end."""

    def __init__(self, process: anyio.abc.Process) -> None:
        assert process.stdout is not None
        self._lines = BufferedByteReceiveStream(process.stdout)

    @classmethod
    @asynccontextmanager
    async def of(cls, place: Place) -> AsyncIterator[StartReporter]:
        """A worker on that installation, ready."""
        async with await anyio.open_process([sys.executable, __file__], stderr=None) as process:
            assert process.stdin is not None
            address = {"url": place.url, "installation": place.installation}
            await process.stdin.send(json.dumps(address).encode() + b"\n")
            reporter = cls(process)
            try:
                await reporter._line()
                yield reporter
            finally:
                with anyio.CancelScope(shield=True):
                    await process.stdin.aclose()
                    with anyio.move_on_after(ANSWER_MAX_S):
                        await process.wait()

    async def start_of(self, number: int) -> int:
        """When the handler was called with that number, in nanoseconds of the system's monotonic clock."""
        reported, started_ns = map(int, (await self._line()).split())
        if reported != number:
            raise RuntimeError(f"the start of {number} was awaited, but {reported} was started")
        return started_ns

    async def _line(self) -> bytes:
        with anyio.fail_after(ANSWER_MAX_S):
            return await self._lines.receive_until(b"\n", LINE_BYTES_MAX)


async def work() -> None:
    """The worker's end."""
    address = json.loads(sys.stdin.readline())
    app = App(address["url"], installation=address["installation"])

    @app.action("start")
    async def start(number: int) -> None:
        started_ns = time.monotonic_ns()
        os.write(sys.stdout.fileno(), f"{number} {started_ns}\n".encode())

    worker = Worker(app)
    async with app, anyio.create_task_group() as group:
        group.start_soon(worker.run)
        await worker.running.wait()
        os.write(sys.stdout.fileno(), b"ready\n")
        await anyio.to_thread.run_sync(sys.stdin.read)  # until the parent closes it
        worker.stop()


if __name__ == "__main__":
    run_loop(work)
