"""The HTTP API as a program calls it, without a network between them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import anyio
import httpx
from starlette.types import ASGIApp, Message

from matrixsched import App
from matrixsched.ops.web.api.table import PREFIX
from matrixsched.web import dashboard

VIEWER, OPERATOR = "the token of the viewer", "the token of the operator"
PROBLEM = "application/problem+json"


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


class Api:
    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client

    async def __call__(self, method: str, path: str, body: Any = None, **options: Any) -> httpx.Response:
        """Names in the path are encoded by whoever calls."""
        given = {} if body is None else {"json": body}
        return await self.client.request(method, f"{PREFIX}{path}", **given, **options)

    async def get(self, path: str, **query: Any) -> Any:
        answer = await self("GET", path, params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def done(self, method: str, path: str, body: Any = None, **options: Any) -> Any:
        answer = await self(method, path, body, **options)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    async def problem(self, status: int, method: str, path: str, body: Any = None, **options: Any) -> Any:
        """What is refused, in words."""
        answer = await self(method, path, body, **options)
        return problem_in(answer, status)

    async def all(self, path: str, **query: Any) -> list[Any]:
        """The items of all pages."""
        items: list[Any] = []
        cursor: dict[str, str] = {}
        while True:
            page = await self.get(path, **query, **cursor)
            items += page["items"]
            if page["next_cursor"] is None:
                return items
            cursor = {"cursor": page["next_cursor"]}


def problem_in(answer: httpx.Response, status: int) -> Any:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == PROBLEM
    problem = answer.json()
    assert problem["status"] == status
    assert problem["type"] == "about:blank"
    assert problem["title"]
    assert problem["detail"]
    return problem


def segment(name: str) -> str:
    return quote(name, safe="")


@asynccontextmanager
async def calling(site: ASGIApp, headers: dict[str, str] | None = None) -> AsyncIterator[Api]:
    """It begins and ends as under a server: what it opened is closed."""
    async with living(site), asking(site, headers) as api:
        yield api


@asynccontextmanager
async def asking(site: ASGIApp, headers: dict[str, str] | None = None) -> AsyncIterator[Api]:
    """It is not told when it begins and ends, as one that is mounted into another."""
    transport = httpx.ASGITransport(site)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=headers) as client:
        yield Api(client)


@asynccontextmanager
async def living(site: ASGIApp) -> AsyncIterator[None]:
    """As a server does it: nothing is asked before it has begun."""
    begun, ending, ended = anyio.Event(), anyio.Event(), anyio.Event()
    told = iter(("lifespan.startup", "lifespan.shutdown"))

    async def receive() -> Message:
        kind = next(told)
        if kind == "lifespan.shutdown":
            await ending.wait()
        return {"type": kind}

    async def send(message: Message) -> None:
        match message["type"]:
            case "lifespan.startup.complete":
                begun.set()
            case "lifespan.shutdown.complete":
                ended.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(site, {"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}, receive, send)
        await begun.wait()
        yield
        ending.set()
        await ended.wait()


def guarded(app: App) -> ASGIApp:
    return dashboard(app, viewer_token=VIEWER, operator_token=OPERATOR)
