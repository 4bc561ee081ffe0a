"""What every request needs: the application, opened when it is first asked for, and who is asking."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from http import HTTPStatus

import anyio
from starlette.requests import HTTPConnection, Request

from matrixsched.app import App
from matrixsched.errors import DatabaseError, OutcomeUnknown
from matrixsched.ops.fleet import Overview, overview
from matrixsched.ops.operator import Operator
from matrixsched.ops.web.access import Access, Role, Visitor
from matrixsched.ops.web.forecasts import Forecasts
from matrixsched.ops.web.problems import Refused, half_way
from matrixsched.rules.audit import Via

OVERVIEW_KEPT_S = 2.0
"""However many look at it, the database is asked for the overview once in this time."""
FORECAST_HOURS = 24


class Desk:
    def __init__(self, app: App, access: Access, *, public_origin: str | None = None) -> None:
        """`public_origin`: how browsers reach it, if that is not how we are asked."""
        self.app = app
        self.access = access
        self._is_public_over_https = public_origin is not None and public_origin.startswith("https:")
        self._looking = anyio.Lock()
        self._overview: tuple[float, Overview] | None = None
        self.forecasts = Forecasts(app.foresee, app.clock, connected=self.open)

    def open(self) -> AbstractAsyncContextManager[None]:
        """For as long as a request takes. Where this is mounted into another application nobody says when it begins,
        or ends: so it connects with a request, if nobody has opened the App, and keeps nobody from closing it."""
        return self.app.opening.visit()

    def is_over_https(self, request: HTTPConnection) -> bool:
        """Whether browsers ask over https, so far as we can know."""
        return self._is_public_over_https or request.url.scheme == "https"

    async def close(self) -> None:
        await self.forecasts.close()
        await self.app.opening.end_visits()

    async def overview(self) -> Overview:
        async with self._looking:
            now = self.app.clock.monotonic()
            if self._overview is None or now - self._overview[0] > OVERVIEW_KEPT_S:
                self._overview = (now, await overview(self.app))
            return self._overview[1]


def desk_of(request: HTTPConnection) -> Desk:
    desk: Desk = request.app.state.desk
    return desk


def visitor_of(request: HTTPConnection) -> Visitor:
    """Who asks; refused if that is nobody we know."""
    visitor = desk_of(request).access.visitor(request)
    if visitor is None:
        is_wrong = "authorization" in request.headers
        raise Refused(
            HTTPStatus.UNAUTHORIZED,
            f"{'this token is not known here' if is_wrong else 'a token is needed'}: send the header "
            "`Authorization: Bearer TOKEN`, or sign in on the dashboard",
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
