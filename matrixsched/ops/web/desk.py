"""What every request needs: the application, opened when it is first asked for, and who is asking."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus

import anyio
from starlette.requests import HTTPConnection, Request

from matrixsched.app import App
from matrixsched.errors import DatabaseError, OutcomeUnknown
from matrixsched.ops.fleet import Overview, overview
from matrixsched.ops.operator import Operator
from matrixsched.ops.web.access import Access, Role, Visitor
from matrixsched.ops.web.problems import Refused, half_way
from matrixsched.rules.audit import Via
from matrixsched.rules.forecast import Forecast

OVERVIEW_KEPT_S = 2.0
"""However many look at it, the database is asked for the overview once in this time."""
FORECAST_HOURS = 24
FORECAST_KEPT_S = 30.0
"""The same for a forecast: it counts all that waits, which takes seconds where that is a million."""
FORECAST_WITHIN_S = 10.0


class Desk:
    def __init__(self, app: App, access: Access) -> None:
        self.app = app
        self.access = access
        self._opening = anyio.Lock()
        self._is_open = False
        self._looking = anyio.Lock()
        self._overview: tuple[float, Overview] | None = None
        self._foreseeing = anyio.Lock()
        self._forecasts: dict[int, tuple[float, Forecast]] = {}

    async def open(self) -> None:
        """Where this is mounted into another application nobody says when it begins: so it does with a request."""
        if self._is_open:
            return
        async with self._opening:
            if not self._is_open:
                await self.app.open()
                self._is_open = True

    async def close(self) -> None:
        if self._is_open:
            self._is_open = False
            await self.app.close()

    async def overview(self) -> Overview:
        async with self._looking:
            now = self.app.clock.monotonic()
            if self._overview is None or now - self._overview[0] > OVERVIEW_KEPT_S:
                self._overview = (now, await overview(self.app))
            return self._overview[1]

    async def forecast(self, hours: int) -> Forecast:
        """How the messages of templates go on."""
        async with self._foreseeing:
            now = self.app.clock.monotonic()
            kept = {ahead: one for ahead, one in self._forecasts.items() if now - one[0] <= FORECAST_KEPT_S}
            if hours not in kept:
                kept[hours] = (now, await self.app.foresee(hours))
            self._forecasts = kept
            return kept[hours][1]

    async def forecast_soon(self) -> Forecast | None:
        """The same for the next day; None if so many wait that it takes too long to say."""
        with anyio.move_on_after(FORECAST_WITHIN_S):
            return await self.forecast(FORECAST_HOURS)
        return None


def desk_of(request: HTTPConnection) -> Desk:
    desk: Desk = request.app.state.desk
    return desk


def visitor_of(request: HTTPConnection) -> Visitor:
    """Who asks; refused if that is nobody we know."""
    visitor = desk_of(request).access.visitor(request)
    if visitor is None:
        raise Refused(
            HTTPStatus.UNAUTHORIZED,
            "a token is needed: send the header `Authorization: Bearer TOKEN`, or sign in on the dashboard",
            headers={"WWW-Authenticate": "Bearer"},
        )
    return visitor


@contextmanager
def telling_what_is_done(operator: Operator | None) -> Iterator[None]:
    """Around a change: if the database goes away in the middle of it, it is not told that nothing was done."""
    try:
        yield
    except DatabaseError as error:
        if operator is None or not operator.done or isinstance(error, OutcomeUnknown):
            raise
        raise half_way(operator.done, error) from error


def operator_of(request: Request, via: Via) -> Operator:
    """Who changes something; refused if they may only look."""
    visitor = visitor_of(request)
    if visitor.role < Role.OPERATOR:
        raise Refused(HTTPStatus.FORBIDDEN, "this token is for looking only: changes need the operator's token")
    return Operator(desk_of(request).app, visitor.who, via)
