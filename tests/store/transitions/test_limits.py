"""Limits in the store: what they say, who may change them, and whom that wakes."""

from __future__ import annotations

from datetime import timedelta

import anyio
import pytest
from support.scene import Scene

from matrixsched.errors import UnknownTemplate
from matrixsched.rules.limits import Closed, Limit, in_nanoseconds
from matrixsched.rules.rates import parse_rate

pytestmark = pytest.mark.anyio

FAST, SLOW = parse_rate("5/s"), parse_rate("1/min")
MINUTE = timedelta(minutes=1)
FAR = timedelta(days=1)


async def limit_of(scene: Scene, name: str = "global") -> Limit | None:
    found = await scene.run(scene.do.find_limits([name]))
    return found[0] if found else None


async def set_limit(scene: Scene, name: str = "global", rate=FAST, *, pool: int = 0) -> Limit:
    return await scene.run(scene.do.set_limit(name, rate, pool=pool))


async def slow_down(scene: Scene, name: str = "global", until=MINUTE, *, rate=None, reason="429") -> Limit | None:
    return await scene.run(scene.do.slow_down(name, until, rate=rate, reason=reason))


async def hold_lane(scene: Scene) -> None:
    await scene.sql(
        "insert into matrixsched.held_lanes (lane, priority, handler, ready_at) "
        "values ('limit|0||greet', 0, 'greet', :at)",
        at=scene.now + FAR,
    )


async def is_looked_at_now(scene: Scene) -> bool:
    (lane,) = await scene.table("held_lanes")
    return bool(lane["ready_at"] == scene.now)


async def add_template(scene: Scene, name: str) -> None:
    await scene.sql(
        "insert into matrixsched.templates (name, distribution, zone, created_at, updated_at) "
        "values (:name, 'uniform', 'UTC', :now_at, :now_at)",
        name=name,
        now_at=scene.now,
    )


async def oldest_library(scene: Scene) -> int:
    return (await scene.run(scene.do.installation())).oldest_library


async def test_what_is_set_is_found_again(scene):
    written = await set_limit(scene, "key:acme", parse_rate("7/100ms"), pool=3)
    assert await limit_of(scene, "key:acme") == written
    assert (written.rate, written.pool, written.updated_at) == (parse_rate("7/100ms"), 3, scene.now)
    assert await limit_of(scene) is None


async def test_set_again_it_is_changed(scene):
    await set_limit(scene)
    scene.clock.advance(MINUTE)
    await set_limit(scene, rate=SLOW, pool=2)
    found = await limit_of(scene)
    assert (found.rate, found.pool, found.updated_at) == (SLOW, 2, scene.now)


async def test_the_slots_that_were_taken_stay_taken(scene):
    await set_limit(scene, rate=parse_rate("1/day"))
    scene.clock.advance(FAR)
    await scene.sql(
        "update matrixsched.limits set next_slot_ns = :slot", slot=in_nanoseconds(scene.now + timedelta(hours=12))
    )
    raised = await set_limit(scene, rate=FAST)
    assert raised.next_slot_ns == in_nanoseconds(scene.now + timedelta(milliseconds=100))  # half a period, as before


async def test_a_limit_may_have_no_rate(scene):
    await set_limit(scene)
    assert (await set_limit(scene, rate=None)).effective(scene.now) is None


async def test_it_can_be_removed_once(scene):
    await set_limit(scene)
    assert await scene.run(scene.do.remove_limit("global"))
    assert not await scene.run(scene.do.remove_limit("global"))
    assert await limit_of(scene) is None


async def test_the_limit_of_a_template_needs_the_template(scene):
    for change in (set_limit(scene, "template:promo"), slow_down(scene, "template:promo")):
        with pytest.raises(UnknownTemplate, match="promo"):
            await change
    assert not await scene.table("limits")
    await add_template(scene, "promo")
    with pytest.raises(UnknownTemplate, match="there is no template 'prmo'; close to it: promo"):
        await set_limit(scene, "template:prmo")
    await set_limit(scene, "template:promo")
    await slow_down(scene, "template:promo")
    assert (await limit_of(scene, "template:promo")).effective(scene.now) == Closed(scene.now + MINUTE)


async def test_libraries_that_know_no_limits_are_shut_out_by_the_first(scene):
    assert not await scene.run(scene.do.remove_limit("global"))
    assert await oldest_library(scene) == 1
    await set_limit(scene)
    assert await oldest_library(scene) == 3


async def test_slowing_down_shuts_them_out_too(scene):
    await slow_down(scene)
    assert await oldest_library(scene) == 3


@pytest.mark.parametrize("change", ["set", "remove", "resume"])
async def test_workers_look_at_once_at_what_waits_for_a_gate(scene, change):
    await set_limit(scene)
    await slow_down(scene)
    await hold_lane(scene)
    changes = {
        "set": scene.do.set_limit("global", FAST, pool=0),
        "remove": scene.do.remove_limit("global"),
        "resume": scene.do.resume_limit("global"),
    }
    await scene.run(changes[change])
    assert await is_looked_at_now(scene)


async def test_slowing_down_lets_nobody_look(scene):
    await set_limit(scene)
    await hold_lane(scene)
    await slow_down(scene)
    assert not await is_looked_at_now(scene)


# Told to slow down.


async def test_what_has_no_limit_is_closed_until_then(scene):
    told = await slow_down(scene, "handler:send", reason="HTTP 429")
    assert told == await limit_of(scene, "handler:send")
    assert (told.rate, told.slow_reason) == (None, "HTTP 429")
    assert told.effective(scene.now) == Closed(scene.now + MINUTE)
    scene.clock.advance(MINUTE)
    assert (await limit_of(scene, "handler:send")).effective(scene.now) is None


async def test_it_can_be_slowed_to_a_rate_until_an_instant(scene):
    await set_limit(scene)
    told = await slow_down(scene, until=scene.now + MINUTE, rate=SLOW, reason=None)
    assert told == await limit_of(scene)
    assert (told.rate, told.slow_rate, told.slow_until) == (FAST, SLOW, scene.now + MINUTE)


@pytest.mark.parametrize("past", [timedelta(0), -MINUTE])
async def test_a_time_that_has_passed_slows_nothing(scene, past):
    assert await slow_down(scene, until=scene.now + past) is None
    assert not await scene.table("limits")


async def test_it_is_never_shortened_and_lengthened_by_a_later_end(scene):
    await slow_down(scene, until=2 * MINUTE, reason="first")
    assert (await slow_down(scene, until=MINUTE, reason="second")).slow_reason == "first"
    later = await slow_down(scene, until=3 * MINUTE, rate=SLOW, reason="third")
    assert (later.slow_until, later.slow_rate, later.slow_reason) == (scene.now + 3 * MINUTE, None, "third")
    assert later == await limit_of(scene)


async def test_whoever_has_nothing_to_add_writes_nothing(scene):
    told = await slow_down(scene)
    scene.clock.advance(timedelta(seconds=1))
    await slow_down(scene, until=timedelta(seconds=1))
    assert await limit_of(scene) == told


async def test_many_that_are_told_at_once_agree_on_the_latest_end(scene):
    async with anyio.create_task_group() as fleet:
        for second in range(1, 21):
            fleet.start_soon(lambda s=second: slow_down(scene, "key:new", timedelta(seconds=s), reason=str(s)))
    told = await limit_of(scene, "key:new")
    assert (told.slow_until, told.slow_reason) == (scene.now + timedelta(seconds=20), "20")


async def test_setting_a_rate_does_not_end_it(scene):
    await slow_down(scene)
    assert (await set_limit(scene)).effective(scene.now) == Closed(scene.now + MINUTE)


async def test_resumed_it_goes_on_at_its_own_rate(scene):
    await set_limit(scene)
    await slow_down(scene, until=FAR)
    assert await scene.run(scene.do.resume_limit("global"))
    found = await limit_of(scene)
    assert found.effective(scene.now) == FAST
    assert found.next_slot_ns <= in_nanoseconds(scene.now + timedelta(milliseconds=200))
    assert not await scene.run(scene.do.resume_limit("global"))
    assert not await scene.run(scene.do.resume_limit("handler:none"))
    assert await limit_of(scene, "handler:none") is None


# All keys.


async def test_keys_wait_no_longer_than_the_new_rate_of_all_keys_says(scene):
    await set_limit(scene, "key:*", parse_rate("1/day"))
    for name in ("key:acme", "key:own", "key:closed", "handler:other"):
        await set_limit(scene, name, parse_rate("1/day") if name == "key:own" else None)
    await slow_down(scene, "key:closed", FAR)
    await scene.sql("update matrixsched.limits set next_slot_ns = :slot", slot=in_nanoseconds(scene.now + FAR))
    await set_limit(scene, "key:*", FAST)
    found = await scene.run(scene.do.find_limits(["key:acme", "key:own", "key:closed", "handler:other"]))
    waits = {limit.name for limit in found if limit.next_slot_ns == in_nanoseconds(scene.now + FAR)}
    assert waits == {"key:own", "key:closed", "handler:other"}


async def test_they_are_listed_by_name_and_keys_only_on_request(scene):
    for name in ("key:b", "handler:send", "global", "key:*", "key:a"):
        await set_limit(scene, name)
    await set_limit(scene, "key:bookkeeping", None)
    await slow_down(scene, "key:told")

    async def names(after="", limit=100, *, include_keys=True):
        page = await scene.run(scene.do.limits(after=after, limit=limit, include_keys=include_keys))
        return [one.name for one in page]

    assert await names() == ["global", "handler:send", "key:*", "key:a", "key:b", "key:told"]
    assert await names(include_keys=False) == ["global", "handler:send", "key:*"]
    assert await names(after="key:*", limit=2) == ["key:a", "key:b"]
    assert await names(after="key:told") == []
    assert await scene.run(scene.do.count_keys(count_max=100)) == 3
    assert await scene.run(scene.do.count_keys(count_max=2)) == 2
    scene.clock.advance(MINUTE)
    assert "key:told" not in await names()
