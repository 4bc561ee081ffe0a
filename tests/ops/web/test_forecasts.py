"""Forecasts, where so much waits that one takes long: made once for all who ask, and not for ever."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import timedelta

import anyio
import anyio.lowlevel
import pytest
from support.visits import Visitor, visiting
from support.web_api import Api, calling

from matrixsched import App
from matrixsched.clock import ManualClock
from matrixsched.ops.web import forecasts
from matrixsched.rules.forecast import Forecast
from matrixsched.web import dashboard

pytestmark = pytest.mark.anyio

PAGE = "/template?name=promo&forecast=1"
BEING_RECKONED, TOO_SLOW, SHOWN = "It is being reckoned", "it takes too long to say here", "an hour at most"


@dataclass
class Counting:
    """Forecasts of an App, begun and not ended before that is allowed."""

    begun: int = 0
    ended: int = 0
    cancelled: int = 0
    has_begun: anyio.Event = field(default_factory=anyio.Event)
    may_end: anyio.Event = field(default_factory=anyio.Event)
    has_ended: anyio.Event = field(default_factory=anyio.Event)


@pytest.fixture
async def counting(app: App, monkeypatch: pytest.MonkeyPatch) -> Counting:
    counting, foresee = Counting(), app.foresee

    async def foresee_slowly(hours: int) -> Forecast:
        counting.begun += 1
        counting.has_begun.set()
        try:
            await counting.may_end.wait()
            return await foresee(hours)
        except anyio.get_cancelled_exc_class():
            counting.cancelled += 1
            raise
        finally:
            counting.ended += 1
            counting.has_ended.set()

    monkeypatch.setattr(app, "foresee", foresee_slowly)
    monkeypatch.setattr(forecasts, "SOON_S", 0.0)
    await app.templates.set("promo")
    await app.schedule("send", id="first", template="promo")
    return counting


@pytest.fixture
async def visitor(app: App, counting: Counting) -> AsyncIterator[Visitor]:
    async with visiting(app) as visitor:
        yield visitor


async def shown(visitor: Visitor, counting: Counting) -> str:
    """The page, once what is under way has come to its end."""
    await counting.has_ended.wait()
    while BEING_RECKONED in (page := await visitor.read(PAGE)) and counting.begun == counting.ended:
        await anyio.lowlevel.checkpoint()
    return page


async def test_it_is_reckoned_once_for_all_who_ask(visitor: Visitor, counting: Counting) -> None:
    for _ in range(5):
        page = await visitor.read(PAGE)
        assert BEING_RECKONED in page
        assert SHOWN not in page
    counting.may_end.set()
    assert SHOWN in await shown(visitor, counting)
    assert counting.begun == 1


async def test_it_goes_on_when_whoever_asked_first_is_gone(visitor: Visitor, counting: Counting) -> None:
    async with anyio.create_task_group() as gone:
        gone.start_soon(visitor.open, "/api/v1/plan?hours=24")
        await counting.has_begun.wait()
        gone.cancel_scope.cancel()
    counting.may_end.set()
    assert SHOWN in await shown(visitor, counting)
    assert (counting.begun, counting.cancelled) == (1, 0)


async def test_the_last_one_is_shown_with_its_time_until_there_is_a_newer_one(
    visitor: Visitor, app: App, counting: Counting, clock: ManualClock
) -> None:
    await visitor.read(PAGE)
    counting.may_end.set()
    assert BEING_RECKONED not in await shown(visitor, counting)
    counting.may_end, counting.has_ended = anyio.Event(), anyio.Event()
    clock.advance(timedelta(seconds=31))
    page = await visitor.read(PAGE)
    assert all(text in page for text in (BEING_RECKONED, "this is of 2030-01-01 00:00:00", SHOWN))
    counting.may_end.set()
    assert BEING_RECKONED not in await shown(visitor, counting)
    assert counting.begun == 2


async def test_what_took_long_is_kept_for_longer(visitor: Visitor, counting: Counting, clock: ManualClock) -> None:
    await visitor.read(PAGE)
    await counting.has_begun.wait()
    clock.advance(timedelta(seconds=20))
    counting.may_end.set()
    await shown(visitor, counting)
    clock.advance(timedelta(seconds=199))
    assert BEING_RECKONED not in await visitor.read(PAGE)
    clock.advance(timedelta(seconds=2))
    assert BEING_RECKONED in await visitor.read(PAGE)


async def test_one_that_takes_too_long_is_not_tried_again_for_some_minutes(
    visitor: Visitor, counting: Counting, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forecasts, "RECKONED_MAX_S", 0.0)
    await visitor.read(PAGE)
    page = await shown(visitor, counting)
    assert TOO_SLOW in page
    assert "matrixsched plan" in page
    clock.advance(timedelta(minutes=4))
    for _ in range(3):
        assert TOO_SLOW in await visitor.read(PAGE)
    refused = await visitor.open("/api/v1/plan?hours=48")
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "60")
    assert "matrixsched plan" in refused.text
    assert counting.begun == 1
    clock.advance(timedelta(minutes=2))
    assert BEING_RECKONED in await visitor.read(PAGE)


async def test_one_at_a_time(visitor: Visitor, counting: Counting) -> None:
    async with anyio.create_task_group() as asking:
        for hours in (1, 2, 3):
            asking.start_soon(visitor.read, f"/api/v1/plan?hours={hours}")
        await counting.has_begun.wait()
        await visitor.read(PAGE)
        assert counting.begun == 1
        counting.may_end.set()
    assert counting.begun >= 3


async def test_it_does_not_outlive_the_dashboard(app: App, counting: Counting) -> None:
    async with calling(dashboard(app)) as api, anyio.create_task_group() as asking:
        asking.start_soon(plan, api)
        await counting.has_begun.wait()
        asking.cancel_scope.cancel()
    assert (counting.begun, counting.cancelled) == (1, 1)


async def plan(api: Api) -> None:
    await api.get("/plan")


async def test_what_went_wrong_is_told_to_those_who_wait_and_it_is_tried_again(
    visitor: Visitor, app: App, counting: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    counting.may_end.set()
    await app.store.close()
    assert (await visitor.open("/api/v1/plan")).status_code >= 500
    await app.store.open()
    assert (await visitor.open("/api/v1/plan")).status_code == 200
