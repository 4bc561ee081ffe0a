"""Limits and templates on a stage: what they hold back goes at the instant at which it may."""

from datetime import timedelta

import pytest

from matrixsched import App, SlowDown, call, testing
from matrixsched.events import Tidied
from matrixsched.worker import WorkerPolicy

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
    @app.action("post")
    async def post() -> SlowDown | None:
        return SlowDown(MINUTE) if not on.ran else None

    start = on.now
    await app.schedule("post", id="told")
    await on.run_due()
    await app.schedule_many(call("post", id=id) for id in ("a", "b"))
    await app.schedule("send", id="other")
    assert [one.id for one in await on.advance(MINUTE - SECOND)] == ["other"]
    ran = await on.run_until_idle()
    assert sorted(one.id for one in ran) == ["a", "b", "told"]
    assert {one.at for one in ran} == {start + MINUTE}


@pytest.mark.parametrize("handler", ["send", "of_another_program"])
async def test_what_is_held_past_its_end_expires(app: App, on: testing.Stage, handler: str):
    told: list[Tidied] = []
    app.events.subscribe(Tidied, told.append)
    await app.templates.set("promo")
    await app.templates.pause("promo")
    soon = on.now + MINUTE
    await app.schedule_many(call(handler, id=f"{n}", template="promo", expires_at=soon) for n in range(3))
    await app.schedule(handler, id="later", template="promo", expires_at=soon + MINUTE)
    assert await on.advance(MINUTE - SECOND) == []
    assert [(await app.get(id)).status.state for id in ("0", "later")] == ["live", "live"]
    assert await on.advance(SECOND) == []
    assert [(await app.get(id)).status.state for id in ("0", "1", "2", "later")] == [*["expired"] * 3, "live"]
    assert [dict(one.expired_of) for one in told] == [{"promo": 3}]
    await app.templates.resume("promo")
    on.faults.fail("expire_waiting")
    await on.advance(60 * MINUTE)
    later = (await app.get("later")).status
    assert later.state == ("done" if handler == "send" else "expired")
    assert on.faults.pending == []


async def test_what_waits_for_a_handler_past_its_end_expires(app: App, on: testing.Stage):
    await app.schedule("of_another_program", id="a", expires_at=on.now + MINUTE)
    await on.advance(MINUTE)
    assert (await app.get("a")).status.state == "expired"


async def test_expiring_goes_batch_by_batch(app: App, on: testing.Stage):
    await app.templates.set("promo")
    await app.templates.pause("promo")
    count = WorkerPolicy().tidy_batch + 1
    await app.schedule_many(call("send", template="promo", expires_at=on.now + MINUTE) for _ in range(count))
    await on.advance(60 * MINUTE)
    assert await app.templates.count("promo") == 0


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
