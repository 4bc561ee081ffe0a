"""Forecasts for all who ask: reckoned once, beside the requests, and kept.

A forecast counts all that waits, which takes seconds where that is a million. So a request only waits for it; whoever
has had enough leaves it to those who ask next. One is reckoned at a time, and for so long at most; if that was not
enough it is not tried again for some minutes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from contextvars import Context
from dataclasses import dataclass

import anyio

from matrixsched.clock import Clock
from matrixsched.rules.forecast import Forecast

KEPT_S = 30.0
KEPT_TIMES = 10.0
"""It is kept for so long, and for so many times as long as it took: the database has most of its time for others."""
SOON_S = 2.0
"""How long a page waits for it: where little waits it takes no longer."""
RECKONED_MAX_S = 60.0
TOO_SLOW_FOR_S = 300.0


class TooSlow(Exception):
    """A forecast took too long, not long ago."""

    def __init__(self, again_in_s: float) -> None:
        super().__init__(f"a forecast takes more than {RECKONED_MAX_S:.0f} s, so much waits")
        self.again_in_s = again_in_s


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What can be told at once."""

    forecast: Forecast | None
    """The last one, which may be of some time ago; it says when it was made."""
    is_under_way: bool = False
    """Whether a newer one is being reckoned."""
    is_too_slow: bool = False


@dataclass(frozen=True, slots=True)
class _Kept:
    forecast: Forecast
    until: float


class Forecasts:
    def __init__(
        self,
        foresee: Callable[[int], Awaitable[Forecast]],
        clock: Clock,
        *,
        connected: Callable[[], AbstractAsyncContextManager[None]],
    ) -> None:
        """`foresee` makes a forecast of so many hours, while it is `connected`."""
        self._foresee = foresee
        self._clock = clock
        self._connected = connected
        self._kept: dict[int, _Kept] = {}
        self._too_slow: tuple[int, float] | None = None
        """For so many hours, and until when that is remembered."""
        self._under_way: _Reckoning | None = None

    async def of(self, hours: int) -> Forecast:
        """A recent one, for which this waits; TooSlow if it would take too long."""
        while (kept := self._kept.get(hours)) is None or kept.until <= self._clock.monotonic():
            self._check_pace(hours)
            reckoning = self._under_way
            if reckoning is None or reckoning.is_over:
                reckoning = self._under_way = _Reckoning(hours, lambda: self._reckon(hours))
            await reckoning.ended.wait()
            if reckoning.error is not None and reckoning.hours == hours:
                raise reckoning.error
        return kept.forecast

    async def soon(self, hours: int) -> Foreseen:
        try:
            with anyio.move_on_after(SOON_S):
                return Foreseen(await self.of(hours))
        except TooSlow:
            return Foreseen(self._last(hours), is_too_slow=True)
        return Foreseen(self._last(hours), is_under_way=True)

    async def close(self) -> None:
        """Nothing is reckoned any more when this returns."""
        if self._under_way is not None:
            await self._under_way.cancel()

    def _last(self, hours: int) -> Forecast | None:
        kept = self._kept.get(hours)
        return None if kept is None else kept.forecast

    def _check_pace(self, hours: int) -> None:
        if self._too_slow is None:
            return
        slow_hours, until = self._too_slow
        left_s = until - self._clock.monotonic()
        if left_s > 0 and hours >= slow_hours:
            raise TooSlow(left_s)

    async def _reckon(self, hours: int) -> None:
        async with self._connected():
            await self._reckon_in_time(hours)

    async def _reckon_in_time(self, hours: int) -> None:
        began = self._clock.monotonic()
        with anyio.move_on_after(RECKONED_MAX_S):
            forecast = await self._foresee(hours)
            now = self._clock.monotonic()
            others = {ahead: one for ahead, one in self._kept.items() if one.until > now}
            self._kept = others | {hours: _Kept(forecast, now + max(KEPT_S, KEPT_TIMES * (now - began)))}
            return
        self._too_slow = hours, self._clock.monotonic() + TOO_SLOW_FOR_S


class _Reckoning:
    """Under way beside all requests.

    It is a task of nobody's group: those who ask come and go, and where the dashboard is mounted into another
    application nothing of it lives longer than a request. Its time is bounded, and closing the dashboard ends it.
    """

    def __init__(self, hours: int, reckon: Callable[[], Awaitable[None]]) -> None:
        self.hours = hours
        self.error: Exception | None = None
        self.ended = anyio.Event()
        # In a context of its own: it is not part of the request that happened to come first.
        self._task = asyncio.get_running_loop().create_task(self._run(reckon), context=Context())
        self._task.add_done_callback(lambda _: self.ended.set())

    @property
    def is_over(self) -> bool:
        return self._task.done()

    async def _run(self, reckon: Callable[[], Awaitable[None]]) -> None:
        try:
            await reckon()
        except Exception as error:
            self.error = error  # for those who wait

    async def cancel(self) -> None:
        if not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])
