"""app.foresee: what waits in the database, played forward. It changes nothing."""

from __future__ import annotations

from datetime import timedelta

import pytest
from support.scene import GATES, Scene

from matrixsched import App, call, foresight
from matrixsched.clock import ManualClock
from matrixsched.errors import InvalidNumber
from matrixsched.rules import lots
from matrixsched.rules.forecast import HOURS_MAX, Outlook
from matrixsched.rules.quota import Held

pytestmark = pytest.mark.anyio

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


@pytest.fixture
def scene(app: App, clock: ManualClock) -> Scene:
    return Scene(app.store, clock)


async def send(app: App, count: int, template: str = "promo", **options: object) -> None:
    """Messages of a template, due now unless `delay` says otherwise."""
    calls = (call("greet", template=template, **options) for _ in range(count))  # type: ignore[arg-type]
    await app.schedule_many(calls)


async def outlook(app: App, template: str = "promo", hours: int = 24) -> Outlook:
    forecast = await app.foresee(hours)
    (found,) = [one for one in forecast.outlooks if one.template == template]
    return found


async def test_without_templates_there_is_nothing_to_foresee(app: App):
    await app.schedule("greet", id="no message")
    forecast = await app.foresee()
    assert (forecast.outlooks, forecast.hours, forecast.max_to_send) == ((), 24, None)


async def test_a_campaign_is_played_to_its_end(app: App, clock: ManualClock):
    await app.templates.set("promo")
    await app.limits.set("global", "2/min")
    await send(app, 250)
    found = await outlook(app, hours=3)
    # The first slot comes after half a minute, the second with the next window.
    assert (found.waiting, found.planned, found.held) == (250, 1, {Held.TOTAL: 248, Held.LIMIT: 1})
    assert found.sent == (119, 120, 11)
    assert found.finishes_at == clock.now() + 125 * MINUTE


async def test_the_maximum_speed_and_the_pause_of_a_template_are_known(app: App, clock: ManualClock):
    await app.templates.set("promo", max_speed="1/min")
    await app.templates.set("later")
    await app.templates.pause("later", until=HOUR)
    await send(app, 30)
    await send(app, 20, "later")
    assert (await outlook(app)).held == {Held.TEMPLATE_MAX: 29, Held.LIMIT: 1}
    later = await outlook(app, "later")
    assert (later.planned, later.held, later.sent[:2]) == (0, {Held.PAUSED: 20}, (0, 20))


async def test_a_limit_that_was_told_to_slow_down_is_known(app: App):
    await app.templates.set("promo")
    await app.limits.set("global", "10/min")
    await app.limits.slow_down("global", HOUR)
    await send(app, 30)
    found = await outlook(app)
    assert (found.planned, found.sent[0], found.sent[1]) == (0, 0, 30)


async def test_recipients_in_a_zone_that_this_machine_does_not_know_are_outside(app: App, scene: Scene):
    await app.templates.set("promo", distribution="morning")
    await send(app, 4, zone="Asia/Tokyo")
    # As scheduled on a machine whose data are newer.
    await scene.sql("update matrixsched.scheduled_actions set zone = 'Mars/Olympus'")
    found = await outlook(app)
    assert (found.waiting, found.inside, found.planned, found.left) == (4, 0, 4, 0)


async def test_recipients_in_different_zones_and_priorities_are_told_apart(app: App, clock: ManualClock):
    assert clock.now().hour == 0  # in UTC; 09:00 in Tokyo
    await app.templates.set("promo", distribution="morning")
    await app.limits.set("global", "10/min")
    await send(app, 4, zone="Asia/Tokyo")
    await send(app, 3, zone="Asia/Tokyo", priority=1)
    await send(app, 5, zone="Europe/London")
    await send(app, 6)
    found = await outlook(app)
    assert (found.waiting, found.inside, found.planned) == (18, 7, 9)


async def test_what_is_not_due_and_what_expires_is_told_apart(app: App, clock: ManualClock):
    await app.templates.set("promo")
    await app.limits.set("global", "1/min")
    await send(app, 100, expires_at=clock.now() + HOUR)
    await send(app, 7, delay=2 * HOUR)
    await send(app, 2, delay=50 * HOUR)
    found = await outlook(app)
    assert found.waiting == 109
    assert found.held == {Held.TOTAL: 99, Held.LIMIT: 1, Held.NOT_DUE: 9}
    assert (found.sent[:4], found.expires, found.left) == ((59, 0, 7, 0), 41, 2)


async def test_finished_messages_and_those_of_no_template_are_not_counted(app: App):
    await app.templates.set("promo")
    await app.schedule("greet", id="gone", template="promo")
    await app.cancel("gone")
    await app.schedule("greet", id="plain")
    await app.schedule("greet", id="there", template="promo")
    assert (await outlook(app)).waiting == 1


async def test_any_number_of_messages_is_counted_page_by_page(app: App, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(foresight, "PAGE", 7)
    for name, zone in (("promo", "Asia/Tokyo"), ("second", None)):
        await app.templates.set(name)
        await send(app, 25, name, zone=zone)
        await send(app, 24, name, delay=HOUR)
    for name in ("promo", "second"):
        assert ((await outlook(app, name)).waiting, (await outlook(app, name)).planned) == (49, 25)


async def test_actions_without_a_template_are_counted_where_they_share_a_limit(app: App):
    await app.templates.set("promo")
    await app.schedule_many(call("greet") for _ in range(5))
    assert (await app.foresee()).others == 0
    await app.limits.set("handler:greet", "1/min")
    await app.schedule("greet", id="later", delay=HOUR)
    await app.schedule("greet", id="too late", delay=30 * HOUR)
    await app.schedule("greet", id="gone")
    await app.cancel("gone")
    assert (await app.foresee()).others == 6


async def test_there_may_be_more_than_is_counted_and_then_it_is_said(app: App, monkeypatch: pytest.MonkeyPatch):
    await app.templates.set("promo")
    await app.limits.set("global", "1/min")
    await app.limits.set("key:*", "1/min")
    await send(app, 30, limit="a")
    await send(app, 30, limit="b")
    await app.schedule_many(call("greet") for _ in range(40))
    usual = (await app.foresee()).not_counted
    monkeypatch.setattr(foresight, "OTHERS_MAX", 5)
    monkeypatch.setattr(foresight, "KEYS_MAX", 1)
    forecast = await app.foresee()
    assert forecast.not_counted == (
        *usual,
        "some of the actions without a template",
        "the limits of keys beyond 1, which 30 actions have",
    )
    assert forecast.others <= 20


async def test_ten_thousand_keys_are_taken_together(app: App, clock: ManualClock, monkeypatch: pytest.MonkeyPatch):
    """With a hundred of them, and room for ten."""
    await app.templates.set("promo")
    await app.limits.set("key:*", "6/min")
    for number in range(100):
        await send(app, 2 + number % 3, limit=f"tenant {number}")
    await send(app, 50, limit="large")
    exact = await app.foresee(2)
    monkeypatch.setattr(lots, "TAKERS_MAX", 10)
    rough = await app.foresee(2)
    assert rough.not_counted[-1] == "what 96 keys of about the same size differ in"
    assert (
        exact.outlooks[0].finishes_at == rough.outlooks[0].finishes_at == clock.now() + 49 * 10 * timedelta(seconds=1)
    )


async def test_nothing_is_changed_by_looking(app: App, scene: Scene):
    await app.templates.set("promo")
    await app.limits.set("global", "1/min")
    await send(app, 3)
    tables = (*GATES, "quota_windows", "quota_grants", "chores")
    before = [await scene.contents(), *[await scene.table(name) for name in tables]]
    await app.foresee()
    assert [await scene.contents(), *[await scene.table(name) for name in tables]] == before


async def test_the_same_is_foreseen_from_synchronous_code(app: App, database_url: str, clock: ManualClock):
    await app.templates.set("promo")
    await send(app, 3)
    with App(database_url, clock=clock).sync as sync:
        assert sync.foresee(hours=2) == await app.foresee(hours=2)


@pytest.mark.parametrize("hours", [0, -1, HOURS_MAX + 1, 1.5, True])
async def test_only_a_whole_number_of_hours_is_foreseen(app: App, hours: int):
    with pytest.raises(InvalidNumber, match="hours") as refused:
        await app.foresee(hours)
    assert str(refused.value).endswith("Choose such a number."), "it never writes, and says nothing of that"
