"""The whole site as one ASGI application: pages, API, metrics and probes behind the guard."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from matrixsched.app import App
from matrixsched.config import origin_of
from matrixsched.errors import ConfigurationError, MatrixSchedError
from matrixsched.observe.metrics import Metrics
from matrixsched.ops.web.access import Access, Tokens
from matrixsched.ops.web.api.routing import api_routes
from matrixsched.ops.web.desk import Desk, desk_of, visitor_of
from matrixsched.ops.web.guard import Guard
from matrixsched.ops.web.pages.errors import error_page, wants_page
from matrixsched.ops.web.pages.routes import page_routes
from matrixsched.ops.web.problems import Refused, problem, refusal_of


def dashboard(
    app: App,
    *,
    viewer_token: str | None = None,
    operator_token: str | None = None,
    public_url: str | None = None,
) -> ASGIApp:
    """The dashboard and the API of an application, to be mounted into another one or served by itself.

    >>> api = FastAPI()
    >>> api.mount("/matrixsched", dashboard(app, operator_token=os.environ["OPERATOR_TOKEN"]))

    Without tokens it answers this machine only; ConfigurationError if one is empty, too short or too long, or if both
    are the same. It connects with the first request, unless the application is open; who opens that closes it.

    `public_url` (https://jobs.example.com) is how browsers reach it through a reverse proxy that does not pass that on:
    forms from there are taken, whatever host the proxy asks for, and over https the session stays there.
    """
    tokens = Tokens(viewer_token, operator_token)
    access = Access(tokens, secret=secrets.token_bytes(32), clock=app.clock)
    origin = None if public_url is None else _origin_of(public_url)
    return Guard(site(Desk(app, access, public_origin=origin)), only_local=not tokens, public_origin=origin)


def _origin_of(public_url: str) -> str:
    try:
        return origin_of(public_url)
    except ValueError as error:
        raise ConfigurationError([f"public_url: {error}"]) from None


def site(desk: Desk) -> Starlette:
    metrics = Metrics(desk.app)

    async def tell_metrics(request: Request) -> Response:
        visitor_of(request)
        return Response(metrics.exposition(), media_type=CONTENT_TYPE_LATEST)

    @asynccontextmanager
    async def life(site: Starlette) -> AsyncIterator[None]:
        yield
        await desk.close()

    built = Starlette(
        routes=[
            *page_routes(),
            Route("/metrics", tell_metrics),
            Route("/healthz", is_alive),
            Route("/readyz", is_ready),
            *api_routes(),
        ],
        lifespan=life,
        exception_handlers={
            Refused: answer_refusal,
            MatrixSchedError: answer_error,
            HTTPException: answer_http_error,
            Exception: answer_surprise,
        },
    )
    built.state.desk = desk
    return built


async def is_alive(request: Request) -> Response:
    return PlainTextResponse("alive\n")


async def is_ready(request: Request) -> Response:
    desk = desk_of(request)
    async with desk.open():
        await desk.app.store.run(desk.app.store.transitions.now())
    return PlainTextResponse("the database answers\n")


# Errors, whoever meets them. Who looks through a browser is shown them as a page.

Answer = Callable[[Request, Exception], Awaitable[Response]]


async def answer_refusal(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return answered(request, error)


async def answer_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, MatrixSchedError)
    return answered(request, refusal_of(error))


async def answer_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return answered(request, Refused(HTTPStatus(error.status_code), str(error.detail), headers=error.headers))


async def answer_surprise(request: Request, error: Exception) -> Response:
    """A mistake of ours; what it was stands in the log of whoever serves this."""
    refused = Refused(HTTPStatus.INTERNAL_SERVER_ERROR, "this is a mistake of the server: see its log")
    return answered(request, refused)


def answered(request: Request, refused: Refused) -> Response:
    return error_page(request, refused) if wants_page(request) else problem(refused, instance=request.url.path)
