"""The only loop in the package: run a step, rest as long as it says, wake early on news."""

from __future__ import annotations

import traceback
from collections.abc import Awaitable, Callable

import anyio
import anyio.lowlevel

from matrixsched.clock import Chance, Clock
from matrixsched.errors import MatrixSchedError
from matrixsched.events import Events, StepFailed
from matrixsched.rules.backoff import backoff_s

Step = Callable[[], Awaitable[float]]


class Wakeup:
    """Shortens a rest. News that come while a step is running shorten the next one."""

    def __init__(self) -> None:
        self._event = anyio.Event()

    def set(self) -> None:
        self._event.set()

    async def wait_at_most(self, seconds: float, clock: Clock) -> None:
        await clock.wait(self._event, seconds)
        if self._event.is_set():
            self._event = anyio.Event()


async def paced(
    name: str,
    step: Step,
    *,
    wakeup: Wakeup,
    clock: Clock,
    chance: Chance,
    events: Events,
    rest_max_s: float,
    first_rest_s: float = 0.0,
) -> None:
    failures = 0
    if first_rest_s > 0:
        await wakeup.wait_at_most(first_rest_s, clock)
    while True:
        try:
            rest_s = await step()
            failures = 0
        except Exception as error:
            # Whatever it is, the daemon goes on: the database may be away, and rows are safe where they are.
            failures += 1
            rest_s = backoff_s(failures, first=0.05, most=rest_max_s, spread=chance.random())
            events.emit(StepFailed(name, described(error), failures, rest_s))
            await clock.sleep(rest_s)  # news do not make a database come back sooner
            continue
        if rest_s > 0:
            await wakeup.wait_at_most(rest_s, clock)
        else:
            await anyio.lowlevel.checkpoint()


def described(error: BaseException) -> str:
    """Our own errors hold no secrets; of others, which may hold values, only what and where."""
    if isinstance(error, MatrixSchedError):
        return f"{type(error).__name__}: {error}"
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} in {place.name} ({place.filename.rpartition('/')[2]}:{place.lineno})"
