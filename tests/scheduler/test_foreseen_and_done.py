"""What is foreseen is what happens: the forecast beside the same messages sent by a worker on a stage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from matrixsched import App, call, testing
from matrixsched.rules.forecast import Forecast, Outlook

pytestmark = pytest.mark.anyio

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
BEGIN = datetime(2030, 1, 1, 6, tzinfo=UTC)
TOLERANCE = 2 * SECOND
"""Of what takes minutes."""


@pytest.fixture
def app(database_url: str) -> App:
    app = App(database_url)

    @app.action("send")
    async def send() -> None: ...

    @app.action("work")
    async def work() -> None: ...

    return app


@pytest.fixture
def on(app: App, database_url: str) -> Iterator[testing.Stage]:
    with testing.stage(app, at=BEGIN, url=database_url) as on:
        yield on


async def send(app: App, count: int, template: str | None = "promo", handler: str = "send", **options: object) -> None:
    name = template or "plain"
    calls = (
        call(handler, id=f"{name}:{options}:{number}", template=template, **options)  # type: ignore[arg-type]
        for number in range(count)
    )
    await app.schedule_many(calls)


async def check(app: App, on: testing.Stage, *, tolerance: timedelta = TOLERANCE) -> Forecast:
    """Look ahead, let everything happen, and compare how many each template sends and when it is through."""
    forecast, so_far = await app.foresee(1), len(on.ran)
    foreseen = {outlook.template: _end_of(outlook) for outlook in forecast.outlooks}
    await on.travel_to(max(foreseen.values()) + MINUTE)
    last: dict[str, datetime] = {}
    sent: Counter[str] = Counter()
    for one in on.ran[so_far:]:
        template = one.id.partition(":")[0]
        last[template] = one.at
        sent[template] += 1
    for outlook in forecast.outlooks:
        name = outlook.template
        assert sent[name] == outlook.waiting
        assert abs(foreseen[name] - last[name]) <= tolerance, f"{name}: foreseen {foreseen[name]}, done {last[name]}"
    return forecast


def _end_of(outlook: Outlook) -> datetime:
    assert outlook.finishes_at is not None
    return outlook.finishes_at


async def test_under_the_global_limit(app: App, on: testing.Stage):
    await app.limits.set("global", "60/min")
    await app.templates.set("promo")
    await send(app, 150)
    forecast = await check(app, on)
    assert forecast.outlooks[0].finishes_at == BEGIN + 150 * SECOND


async def test_under_the_limit_of_a_handler(app: App, on: testing.Stage):
    await app.limits.set("handler:send", "60/min")
    await app.templates.set("promo")
    await app.templates.set("free")
    await send(app, 150)
    await send(app, 20, "free", "work")
    forecast = await check(app, on)
    (free, promo) = forecast.outlooks
    assert (free.finishes_at, promo.finishes_at) == (BEGIN, BEGIN + 150 * SECOND)
    assert promo.held == {"limit": 91}


async def test_under_the_limits_of_keys(app: App, on: testing.Stage):
    await app.limits.set("key:*", "6/min")
    await app.limits.set("key:fast", "30/min", pool=5)
    await app.templates.set("promo")
    await app.templates.set("other")
    await send(app, 40, limit="slow")
    await send(app, 60, limit="fast")
    await send(app, 30, "other", limit="third")
    forecast = await check(app, on)
    (other, promo) = forecast.outlooks
    assert (other.finishes_at, promo.finishes_at) == (BEGIN + 290 * SECOND, BEGIN + 390 * SECOND)


async def test_a_pool_is_known(app: App, on: testing.Stage):
    await app.limits.set("handler:send", "60/min", pool=30)
    await app.templates.set("promo")
    await on.advance(5 * MINUTE)
    await send(app, 100)
    await check(app, on)


@pytest.mark.parametrize(("priority", "done_s"), [(0, 180), (2, 60)])
async def test_beside_actions_without_a_template_of_another_priority(
    app: App, on: testing.Stage, priority: int, done_s: int
):
    await app.limits.set("global", "60/min")
    await app.templates.set("promo")
    await send(app, 120, None, "work", priority=priority)
    await send(app, 60, priority=1)
    forecast = await check(app, on)
    assert forecast.others == 120
    finishes_at = forecast.outlooks[0].finishes_at
    assert finishes_at is not None
    assert abs(finishes_at - BEGIN - done_s * SECOND) <= TOLERANCE


async def test_beside_actions_without_a_template_that_come_later(app: App, on: testing.Stage):
    await app.limits.set("global", "60/min")
    await app.templates.set("promo")
    await on.advance(MINUTE)
    await send(app, 30, None, "work", priority=0, delay=MINUTE)
    await send(app, 90, priority=1)
    forecast = await check(app, on)
    assert forecast.others == 30


async def test_in_the_middle_of_a_planned_window(app: App, on: testing.Stage):
    await app.limits.set("global", "60/min")
    await app.templates.set("promo")
    await app.templates.set("other", max_speed="15/min")
    await send(app, 120)
    await send(app, 60, "other")
    await on.advance(90 * SECOND)
    sent = Counter(one.id.partition(":")[0] for one in on.ran)
    # Who goes first within a window is not foreseen to the second.
    forecast = await check(app, on, tolerance=10 * SECOND)
    assert forecast.is_planned
    assert {outlook.template: outlook.waiting + sent[outlook.template] for outlook in forecast.outlooks} == {
        "promo": 120,
        "other": 60,
    }


async def test_what_comes_after_a_window_was_planned_waits_for_the_next(app: App, on: testing.Stage):
    await app.limits.set("global", "60/min")
    await app.templates.set("promo")
    await app.templates.set("late")
    await send(app, 5)
    await on.advance(20 * SECOND)
    await send(app, 5, "late")
    forecast = await app.foresee(1)
    assert forecast.is_planned
    (late,) = [outlook for outlook in forecast.outlooks if outlook.template == "late"]
    assert (late.planned, late.held) == (0, {"quota": 5})
    ran = await on.advance(5 * MINUTE)
    assert late.finishes_at is not None
    assert abs(late.finishes_at - ran[-1].at) <= TOLERANCE


async def test_in_the_middle_of_a_window_that_nobody_has_planned(app: App, on: testing.Stage):
    await app.limits.set("global", "60/min")
    await app.templates.set("promo")
    await on.advance(40 * SECOND)
    await send(app, 100)
    forecast = await check(app, on)
    assert not forecast.is_planned
    assert forecast.outlooks[0].planned == 20


async def test_from_windows_of_the_day_and_shares(app: App, on: testing.Stage):
    await app.limits.set("global", "60/min")
    for name, distribution in (("promo", "morning"), ("news", "uniform"), ("tips", "evening")):
        await app.templates.set(name, distribution=distribution, zone="Europe/Berlin")
        await send(app, 60, name)
        await send(app, 20, name, zone="Asia/Tokyo")
    await check(app, on, tolerance=MINUTE)
