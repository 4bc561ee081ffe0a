"""Handlers for short scenes: they do in turn what is written for them, and nothing by chance."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random
from typing import TYPE_CHECKING

import anyio

from matrixsched.rules.outcome import HandlerOutcome
from matrixsched.rules.retry import Retry
from simulation.actors import Behaviour, Trouble
from simulation.faults import Fault
from simulation.loop import HOST

if TYPE_CHECKING:
    from simulation.world import World

Act = Callable[[], Awaitable[None]]

MOMENT_S = 0.05


def scripted(*acts: Act, timeout_s: float = 20, retry: Retry | None = None) -> Behaviour:
    """A handler whose first calls, whichever worker makes them, are these acts; from then on it returns after a
    moment."""
    left = list(acts)

    async def play(chance: Random) -> HandlerOutcome | None:
        await (left.pop(0) if left else takes(MOMENT_S))()
        return None

    return Behaviour(play, timeout_s, retry or Retry(max_attempts=3, max_interruptions=4))


def takes(seconds: float) -> Act:
    async def act() -> None:
        await anyio.sleep(seconds)

    return act


async def fails() -> None:
    await anyio.sleep(MOMENT_S)
    raise Trouble("as written")


def kills_its_worker(world: World) -> Act:
    async def act() -> None:
        await anyio.sleep(MOMENT_S)
        world.crash(HOST.get(), Fault.CRASH, "in a handler")
        await anyio.sleep_forever()

    return act
