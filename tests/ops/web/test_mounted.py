"""The dashboard as a part of another application: whose App it is, and who closes it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from support.web_api import OPERATOR, asking, bearer, calling, living

from matrixsched import App
from matrixsched.clock import ManualClock
from matrixsched.errors import NotOpen
from matrixsched.web import dashboard

pytestmark = pytest.mark.anyio


@pytest.fixture
async def app(installed_url: str, clock: ManualClock) -> AsyncIterator[App]:
    """One that nobody has opened."""
    app = App(installed_url, clock=clock)
    yield app
    await app.close()


def outer_of(app: App, *, opens: bool) -> Starlette:
    """Its program may open the App for as long as it lives; those that are mounted into it are not told of that."""

    @asynccontextmanager
    async def life(_: Starlette) -> AsyncIterator[None]:
        if opens:
            async with app:
                yield
        else:
            yield

    return Starlette(routes=[Mount("/jobs", dashboard(app, operator_token=OPERATOR))], lifespan=life)


async def is_answered(outer: Starlette) -> bool:
    async with asking(outer, bearer(OPERATOR)) as api:
        return (await api.client.get("/jobs/api/v1/actions")).status_code == 200


async def is_closed(app: App) -> bool:
    try:
        await app.list()
    except NotOpen:
        return True
    return False


async def test_whoever_opened_the_app_closes_it(app: App) -> None:
    outer = outer_of(app, opens=True)
    async with living(outer):
        assert await is_answered(outer)
        assert not await is_closed(app)
    assert await is_closed(app)


async def test_whoever_opens_the_app_after_the_first_request_closes_it_as_well(app: App) -> None:
    outer = outer_of(app, opens=False)
    assert await is_answered(outer)
    async with app:
        pass
    assert await is_closed(app)


async def test_two_may_open_the_app_at_the_same_time(app: App) -> None:
    async with anyio.create_task_group() as tasks:
        for _ in range(2):
            tasks.start_soon(app.open)
        tasks.start_soon(is_answered, outer_of(app, opens=False))
    await app.close()
    assert not await is_closed(app)
    await app.close()
    assert await is_closed(app)


async def test_whoever_opens_and_closes_the_app_while_it_is_visited_closes_it_as_soon_as_nobody_does(app: App) -> None:
    await app.open()
    async with app.opening.visit():
        await app.close()
        async with app:  # as what carries out a request may do
            pass
        assert not await is_closed(app)
    assert await is_closed(app)
    async with app.opening.visit():
        await app.open()
    await app.close()
    assert await is_closed(app)


async def test_what_a_request_opens_and_closes_itself_leaves_the_app_as_it_was(app: App) -> None:
    async with asking(outer_of(app, opens=False), bearer(OPERATOR)) as api:
        for _ in range(2):
            made = await api.client.put("/jobs/api/v1/limits/global", json={"rate": "1/s"})
            assert made.status_code == 200, made.text
            assert not await is_closed(app)


async def test_if_nobody_opens_the_app_the_dashboard_does_with_a_request(app: App) -> None:
    outer = outer_of(app, opens=False)
    async with living(outer):
        assert await is_closed(app)
        assert await is_answered(outer)
        assert not await is_closed(app)
        await app.close()
        assert await is_closed(app)
        assert await is_answered(outer)
        assert not await is_closed(app)


async def test_served_by_itself_the_dashboard_closes_what_it_opened_and_nothing_else(app: App) -> None:
    async with calling(dashboard(app)) as api:
        await api.get("/actions")
        assert not await is_closed(app)
    assert await is_closed(app)
    async with app:
        async with calling(dashboard(app)) as api:
            await api.get("/actions")
        assert not await is_closed(app)
