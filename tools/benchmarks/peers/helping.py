"""What the scripts of the peers share. They run in environments of their own: only the standard library is there."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

CALLERS = 32
BATCH = 1_000
LINE_BYTES_MAX = 10_000_000


def answer(**facts: object) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def batches(count: int) -> Iterator[range]:
    return (range(first, min(first + BATCH, count)) for first in range(0, count, BATCH))


async def seconds_at_once(count: int, call: Callable[[int], Awaitable[object]]) -> float:
    """How long 32 callers take together for so many calls, each making one after another.

    Each has made one before, with numbers from `count` on: connections are there and statements are prepared.
    """
    numbers = iter(range(count))

    async def caller() -> None:
        for number in numbers:
            await call(number)

    await asyncio.gather(*[call(count + number) for number in range(CALLERS)])
    begun = time.perf_counter()
    await asyncio.gather(*[caller() for _ in range(CALLERS)])
    return time.perf_counter() - begun


def judged_calls(count: int, stored: int) -> list[str]:
    """Whether as many jobs are stored as calls were made, those before the clock started as well."""
    made = count + CALLERS
    return [] if stored == made else [f"{stored} jobs are stored after {made} calls"]


def judged(expected: int, ran: Iterable[int], left: int = 0) -> list[str]:
    """Whether each of the jobs 0 … expected - 1 was run once and none is left, in words if not."""
    runs = [0] * expected
    for number in ran:
        runs[number] += 1
    found = {
        "jobs are left": left,
        "jobs were never run": runs.count(0),
        "jobs were run more than once": sum(times > 1 for times in runs),
    }
    return [f"{count} {what}" for what, count in found.items() if count]


class Worker:
    """The same script in another process, with which lines are exchanged; it leaves when its input ends."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    @asynccontextmanager
    async def of(cls, words: Sequence[str]) -> Any:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            sys.argv[0],
            *words,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=LINE_BYTES_MAX,
        )
        worker = cls(process)
        try:
            await worker.line()  # it is ready
            yield worker
        finally:
            process.stdin.close()  # type: ignore[union-attr]
            await process.wait()

    def go(self) -> None:
        self._process.stdin.write(b"go\n")  # type: ignore[union-attr]

    async def line(self) -> Any:
        return json.loads(await self._process.stdout.readline())  # type: ignore[union-attr]


async def heard_line() -> str:
    return await asyncio.to_thread(sys.stdin.readline)
