"""Limits and templates on a stage: what they hold back goes at the instant at which it may."""

from datetime import timedelta

import pytest

from matrixsched import App, SlowDown, call, testing

pytestmark = pytest.mark.anyio

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def app(database_url: str) -> App:
    app = App(database_url)

    @app.action("send")
    async def send() -> None: ...

    return app


@pytest.fixture
def on(app: App, database_url: str):
    with testing.stage(app, url=database_url) as on:
        yield on


@pytest.mark.parametrize(("rate", "period_s"), [("4/s", 0.25), ("7/s", 1 / 7), ("1000/s", 0.001), ("2/h", 1800)])
async def test_a_limit_spaces_attempts_evenly(app: App, on: testing.Stage, rate: str, period_s: float):
    start = on.now
    await app.limits.set("handler:send", rate)
    await app.schedule_many(call("send") for _ in range(4))
    ran = await on.run_until_idle()
    evenly = [period_s * number for number in range(1, 5)]
    assert [(one.at - start) / SECOND for one in ran] == pytest.approx(evenly, abs=1e-5)


async def test_what_others_make_too_late_for_its_slot_gets_another(app: App, on: testing.Stage):
    @app.action("dawdle")
    async def dawdle() -> None:
        on.clock.advance(SECOND)

    await app.limits.set("global", "1/s", pool=3)
    await on.advance(MINUTE)
    await app.schedule_many(call("dawdle", id=f"{number}") for number in range(5))
    ran = await on.advance(10 * SECOND)
    assert sorted(one.id for one in ran) == [f"{number}" for number in range(5)]


async def test_a_campaign_goes_window_by_window(app: App, on: testing.Stage):
    await app.limits.set("global", "2/min", pool=2)
    await app.templates.set("promo")
    await on.advance(MINUTE)
    start = on.now
    await app.schedule_many(call("send", template="promo") for _ in range(5))
    ran = await on.run_until_idle()
    assert [(one.at - start) // MINUTE for one in ran] == [0, 0, 1, 1, 2]


async def test_what_is_held_back_for_good_ends_a_journey_in_time(app: App, on: testing.Stage):
    await app.templates.set("promo")
    await app.schedule("send", id="a", template="promo")
    await app.templates.pause("promo")
    assert await on.run_until_idle() == []
    on.assert_scheduled("send", id="a")
    await app.templates.resume("promo")
    assert [one.id for one in await on.advance(MINUTE)] == ["a"]


async def test_told_to_slow_down_the_others_wait(app: App, on: testing.Stage):
    told = []

    @app.action("post")
    async def post() -> SlowDown | None:
        told.append(on.now)
        return SlowDown(MINUTE) if len(told) == 1 else None

    await app.schedule_many(call("post", id=f"{n}") for n in range(3))
    start = on.now
    await on.run_until_idle()
    assert told[0] == start
    assert all(moment >= start + MINUTE for moment in told[-1:])


async def test_after_a_crash_the_gate_is_passed_again(app: App, on: testing.Stage):
    await app.limits.set("key:mx", "1/s", pool=5)
    await app.schedule("send", id="a", limit="mx")
    on.faults.crash("a")
    ran = await on.run_until_idle()
    assert [one.outcome for one in ran] == ["interrupted", "succeeded"]


@pytest.mark.parametrize("fault", ["fail", "lose_request", "lose_answer"])
async def test_a_claim_that_goes_wrong_loses_nothing(app: App, on: testing.Stage, fault: str):
    await app.limits.set("key:mx", "1/s", pool=5)
    await on.advance(MINUTE)
    await app.schedule_many(call("send", limit="mx") for _ in range(3))
    getattr(on.faults, fault)("claim_gated")
    ran = await on.run_until_idle()
    assert [one.outcome for one in ran] == ["succeeded"] * 3
    assert on.faults.pending == []


@pytest.mark.parametrize(
    ("few", "many"),
    [({"template": "promo"}, {}), ({"limit": "zzz"}, {"limit": "aaa"}), ({"limit": "aaa"}, {"limit": "zzz"})],
)
async def test_where_there_is_one_slot_at_a_time_a_long_queue_leaves_a_short_one_its_turns(
    app: App, on: testing.Stage, few: dict[str, str], many: dict[str, str]
):
    await app.limits.set("global", "60/min")
    await app.templates.set("promo")
    await app.schedule_many(call("send", id=f"many-{number}", **many) for number in range(200))
    await app.schedule_many(call("send", id=f"few-{number}", **few) for number in range(10))
    ran = await on.advance(2 * MINUTE)
    assert sum(one.id.startswith("few") for one in ran) == 10
    assert len(ran) == pytest.approx(120, abs=2)


async def test_a_stream_that_never_ends_leaves_half_of_the_slots_to_a_campaign(app: App, on: testing.Stage):
    await app.limits.set("global", "60/min")
    await app.templates.set("promo")
    await app.schedule_many(call("send", id=f"plain-{number}", delay=number * SECOND / 2) for number in range(240))
    await app.schedule_many(call("send", id=f"promo-{number}", template="promo") for number in range(200))
    ran = await on.advance(2 * MINUTE)
    assert sum(one.id.startswith("promo") for one in ran) == pytest.approx(60, abs=20)
