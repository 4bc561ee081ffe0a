"""What waits, counted for the forecast; and the window of this moment."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest
from support.gates import gated, grant, look, put_template, set_limit
from support.scene import LEASE, Scene

from matrixsched.rules.lanes import Lane
from matrixsched.rules.lots import on_grid
from matrixsched.rules.templates import Distribution
from matrixsched.store.stock import BEGINNING, Others

pytestmark = pytest.mark.anyio

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


async def others(scene: Scene, *, keyed: bool = True, limit: int = 100, ahead: timedelta = HOUR) -> Others:
    return await scene.run(scene.do.others(0, until=scene.now + ahead, keyed=keyed, limit=limit))


async def test_actions_without_a_template_are_counted_wherever_they_wait(scene: Scene):
    await put_template(scene, "promo")
    await set_limit(scene, "global", "1/h")
    await scene.put_in_processing("held", "held too", handler="greet")
    await scene.put_in_processing("keyed", **gated(key="k", priority=3))
    await scene.put_in_processing("message", **gated(template="promo"))
    await scene.put_in_processing("soon", at=scene.now + 90 * SECOND, expires_at=scene.now + 100 * SECOND)
    await scene.put_in_processing("later", at=scene.now + 2 * HOUR)
    await scene.schedule("new")
    await scene.schedule("replaced")
    await scene.schedule("replaced", at=scene.now + 2 * HOUR)
    await scene.schedule("cancelled")
    await scene.cancel("cancelled")
    found = await others(scene)
    assert found.unseen_from is None
    assert {lot.template for lot in found.lots} == {None}
    facts = {(lot.priority, lot.key, lot.due_at - scene.now, lot.expires_at): lot.count for lot in found.lots}
    assert facts == {
        (0, None, timedelta(0), None): 3,
        (3, "k", timedelta(0), None): 1,
        (0, None, 2 * MINUTE, scene.now + 2 * MINUTE): 1,
    }
    assert {lot.key for lot in (await others(scene, keyed=False)).lots} == {None}


async def test_attempts_under_way_have_their_slots(scene: Scene):
    attempt = await scene.start("running")
    assert (await others(scene)).lots == []
    scene.clock.advance(LEASE + SECOND)
    (again,) = (await others(scene)).lots
    assert (again.count, again.due_at) == (1, scene.now)
    assert attempt.claim.action_id == "running"


async def test_no_more_is_looked_at_than_is_allowed_and_then_it_is_said(scene: Scene):
    await scene.put_in_processing(*(f"soon {number}" for number in range(5)), at=scene.now + MINUTE)
    found = await others(scene, limit=5)
    assert (sum(lot.count for lot in found.lots), found.unseen_from) == (5, scene.now + MINUTE)
    await scene.put_in_processing("soonest", at=scene.now + SECOND)
    assert sum(lot.count for lot in (await others(scene, limit=5)).lots) == 5
    for number in range(3):
        await scene.schedule(f"new {number}")
    assert (await others(scene, limit=3)).unseen_from == scene.now
    assert (await others(scene, limit=7)).unseen_from is None


async def test_messages_are_told_apart_by_handler_and_key(scene: Scene):
    for number, (handler, key) in enumerate([("greet", "a"), ("greet", "b|%"), ("post", "a"), ("post", "a")]):
        lane = Lane(handler=handler, key=key, template="promo").name
        await scene.schedule(f"{number}", handler=handler, lane=lane, template="promo")
    for keyed, expected in ((True, {("greet", "a"): 1, ("greet", "b|%"): 1, ("post", "a"): 2}), (False, {})):
        asked = scene.do.stock(BEGINNING, now=scene.now, until=scene.now + HOUR, keyed=keyed, limit=100)
        counts = Counter[tuple[str, str | None]]()
        for lot in (await scene.run(asked)).lots:
            counts[lot.handler, lot.key] += lot.count
        assert counts == (expected or {("greet", None): 2, ("post", None): 2})


async def test_times_are_rounded_as_the_rules_say_and_the_coarser_the_later_they_are(scene: Scene):
    aheads = [timedelta(0), SECOND, HOUR, HOUR + SECOND, 8 * HOUR, 9 * HOUR, 24 * HOUR, 25 * HOUR + SECOND, 100 * HOUR]
    for number, ahead in enumerate(aheads):
        options = {"at": scene.now + ahead, "expires_at": scene.now + ahead + 7 * SECOND}
        await scene.schedule(f"{number}", **gated(template="promo"), **options)
    scene.clock.advance(3 * SECOND)
    asked = scene.do.stock(BEGINNING, now=scene.now, until=scene.now + 300 * HOUR, keyed=False, limit=100)
    found = {(lot.due_at, lot.expires_at) for lot in (await scene.run(asked)).lots}
    begin = scene.now - 3 * SECOND
    assert found == {
        (on_grid(begin + ahead, scene.now), on_grid(begin + ahead + 7 * SECOND, scene.now)) for ahead in aheads
    }


# The window.


async def test_a_window_that_nobody_has_planned_lies_on_the_grid(scene: Scene):
    scene.clock.advance(75 * SECOND)
    window = await scene.run(scene.do.present_window())
    assert (window.at, window.ends_at - window.begins_at) == (scene.now, MINUTE)
    assert (scene.now - window.begins_at, window.left) == (15 * SECOND, None)


async def test_of_a_planned_window_the_rest_of_its_grants_is_told(scene: Scene):
    await put_template(scene, "promo")
    await put_template(scene, "idle")
    await scene.send([scene.new(id, **gated(template="promo")) for id in ("a", "b", "c")])
    await grant(scene, "promo", 2)
    assert len((await look(scene, room=1)).attempts) == 1
    scene.clock.advance(10 * SECOND)
    window = await scene.run(scene.do.present_window())
    assert (window.begins_at, window.ends_at) == (scene.now - 10 * SECOND, scene.now + 50 * SECOND)
    assert window.left == {("promo", 0, False): 1}
    scene.clock.advance(MINUTE)
    assert (await scene.run(scene.do.present_window())).left is None


async def test_a_planned_window_knows_who_was_served_and_which_zones_are_inside(scene: Scene):
    await put_template(scene, "promo", distribution=Distribution.MORNING)
    await set_limit(scene, "global", "100/min")
    assert scene.now.hour == 0  # 09:00 in Tokyo
    await scene.put_in_processing("a", **gated(template="promo", zone="Asia/Tokyo"))
    await scene.put_in_processing("b", **gated(template="promo", zone="Europe/London"))
    await scene.run(scene.do.plan_window("host:1"))
    window = await scene.run(scene.do.present_window())
    assert window.left == {("promo", 0, True): 1, ("promo", 0, False): 1}
    assert window.zones_inside == {"promo": frozenset({"Asia/Tokyo"})}
    assert list(window.last_served) == [("promo", 0)]
