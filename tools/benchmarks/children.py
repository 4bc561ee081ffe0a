"""Processes with which lines are exchanged; both ends of the conversation.

The parent writes the address of the installation first. A child ends when its input ends, so it cannot outlive its
parent.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.abc
from anyio.streams.buffered import BufferedByteReceiveStream

from benchmarks.places import Place
from matrixsched.app import App

TOOLS = Path(__file__).resolve().parent.parent
TESTS = TOOLS.parent / "tests"
"""`places` connects as tests do."""
ANSWER_MAX_S = 30.0
LINE_BYTES_MAX = 10_000_000


class Child:
    """The parent's end."""

    def __init__(self, process: anyio.abc.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._input = process.stdin
        self._lines = BufferedByteReceiveStream(process.stdout)

    @classmethod
    @asynccontextmanager
    async def of(cls, module: str, place: Place) -> AsyncIterator[Child]:
        """The module of ours as a process on that installation."""
        command, environment = beginning(module)
        async with await anyio.open_process(command, stderr=None, env=environment) as process:
            child = cls(process)
            await child.say(address_of(place))
            try:
                yield child
            finally:
                with anyio.CancelScope(shield=True):
                    await child.end_input()
                    with anyio.move_on_after(ANSWER_MAX_S):
                        await process.wait()

    async def say(self, line: str) -> None:
        await self._input.send(line.encode() + b"\n")

    async def end_input(self) -> None:
        await self._input.aclose()

    async def line(self, *, within_s: float = ANSWER_MAX_S) -> str:
        with anyio.fail_after(within_s):
            return (await self._lines.receive_until(b"\n", LINE_BYTES_MAX)).decode()


def beginning(module: str) -> tuple[list[str], dict[str, str]]:
    """How a module of ours is begun as a process: its command and its environment."""
    path = os.pathsep.join(filter(None, [str(TOOLS), str(TESTS), os.environ.get("PYTHONPATH", "")]))
    return [sys.executable, "-m", module], os.environ | {"PYTHONPATH": path}


def address_of(place: Place) -> str:
    """The first line that a child is told."""
    return json.dumps({"url": place.url, "installation": place.installation})


# The child's end.


def given_address() -> tuple[str, str]:
    """The database and the installation in it, as the parent writes them."""
    address = json.loads(sys.stdin.readline())
    return address["url"], address["installation"]


def given_app() -> App:
    """An application on the installation whose address the parent writes."""
    url, installation = given_address()
    return App(url, installation=installation)


def tell(line: str) -> None:
    data = line.encode() + b"\n"
    while data:
        data = data[os.write(sys.stdout.fileno(), data) :]


async def heard_line() -> str:
    """What the parent says next; empty when it has ended its side."""
    return await anyio.to_thread.run_sync(sys.stdin.readline)
