"""Templates, the quota, the forecast and limits over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from support.scene import Scene
from support.web_api import Api, calling, segment

from matrixsched import App
from matrixsched.clock import ManualClock
from matrixsched.ops.operator import audit_page
from matrixsched.rules.rates import parse_rate
from matrixsched.web import dashboard

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)


@pytest.fixture
async def api(app: App) -> AsyncIterator[Api]:
    async with calling(dashboard(app)) as api:
        yield api


async def verbs(app: App) -> list[str]:
    return [entry.verb for entry in reversed(await audit_page(app))]


async def test_where_the_settings_of_the_quota_are_gone_it_is_said_how_to_put_them_back(api: Api, app: App) -> None:
    await Scene(app.store, ManualClock()).sql("delete from matrixsched.quota_settings")
    told = await api.problem(503, "GET", "/quota")
    assert "Put it back by `matrixsched fsck --repair`." in told["detail"]


# Templates.


async def test_a_template_is_made_changed_and_removed(api: Api, app: App, clock: ManualClock) -> None:
    made = await api.done("PUT", "/templates/promo%2Fx", {"windows": ["10:00-12:00"], "max_speed": "100/min"})
    assert (made["name"], made["distribution"], made["max_speed"], made["windows"]) == (
        "promo/x",
        "own",
        "100/min",
        ["10:00-12:00"],
    )
    clock.advance(timedelta(seconds=1))
    changed = await api.done("PUT", "/templates/promo%2Fx", {"weight": 2})
    assert (changed["weight"], changed["max_speed"]) == (2, "100/min")
    clock.advance(timedelta(seconds=1))
    assert (await api.done("PUT", "/templates/promo%2Fx", {"max_speed": None}))["max_speed"] is None
    clock.advance(timedelta(seconds=1))
    assert (await api("DELETE", "/templates/promo%2Fx")).status_code == 204
    await api.problem(404, "GET", "/templates/promo%2Fx")
    await api.problem(404, "DELETE", "/templates/promo%2Fx")
    assert await verbs(app) == ["set_template"] * 3 + ["remove_template"]


async def test_templates_are_listed_by_name(api: Api, app: App) -> None:
    for name in ("b", "a", "ä", "B"):
        await app.templates.set(name)
    assert [one["name"] for one in await api.all("/templates", limit=1)] == ["B", "a", "b", "ä"]
    assert "unfinished" not in (await api.get("/templates"))["items"][0]


async def test_a_template_is_paused_resumed_and_stopped(api: Api, app: App, clock: ManualClock) -> None:
    await app.templates.set("promo")
    for number in range(7):
        await app.schedule("send", id=f"m{number}", template="promo", delay=HOUR)
    assert (await api.get("/templates/promo"))["unfinished"] == 7
    paused = await api.done("POST", "/templates/promo/pause", {"for": "1h"})
    assert datetime.fromisoformat(paused["paused_until"]) == clock.now() + HOUR
    paused = await api.done("POST", "/templates/promo/pause", {})
    assert (paused["paused"], paused["paused_until"]) == (True, None)
    assert (await api.done("POST", "/templates/promo/resume"))["paused"] is False
    problem = await api.problem(409, "DELETE", "/templates/promo")
    assert "/templates/{name}/stop" in problem["detail"]
    assert await api.done("POST", "/templates/promo/stop") == {"cancelled": 7, "complete": True}
    assert (await api.get("/templates/promo"))["unfinished"] == 0


@pytest.mark.parametrize(
    ("method", "path", "body", "words"),
    [
        ("PUT", "", {"weight": 0}, "weight"),
        ("PUT", "", {"windows": ["late"]}, "windows"),
        ("PUT", "", {"windows": ["25:00-26:00"]}, "25:00-26:00"),
        ("PUT", "", {"distribution": "own"}, "windows"),
        ("PUT", "", {"distribution": "nightly"}, "distribution"),
        ("PUT", "", {"max_speed": "fast"}, "max_speed"),
        ("PUT", "", {"max_speed": "0/s"}, "0/s"),
        ("PUT", "", {"zone": "Mars/Base"}, "Mars/Base"),
        ("POST", "/pause", {"until": "2030-01-01T00:00:00Z", "for": 1}, "choose one"),
        ("POST", "/pause", {"until": "1999-01-01T00:00:00Z"}, "future"),
    ],
)
async def test_what_no_template_can_be_is_refused(
    api: Api, app: App, method: str, path: str, body: dict[str, Any], words: str
) -> None:
    before = await app.templates.set("promo")
    assert words in (await api.problem(422, method, f"/templates/promo{path}", body))["detail"]
    assert await app.templates.get("promo") == before


@pytest.mark.parametrize("verb", ["pause", "resume", "stop"])
async def test_an_unknown_template_is_not_found(api: Api, app: App, verb: str) -> None:
    await app.templates.set("promo")
    problem = await api.problem(404, "POST", f"/templates/promo2/{verb}", {} if verb == "pause" else None)
    assert "close to it: promo" in problem["detail"]


async def test_the_quota_is_changed_by_what_is_given(api: Api, app: App) -> None:
    before = await api.get("/quota")
    assert (before["interval"], before["spare"], before["morning"]) == (60.0, "leave", "08:00-12:00")
    after = await api.done("PATCH", "/quota", {"spare": "share", "interval": "5m", "evening": "17:00-23:00"})
    assert after == before | {"spare": "share", "interval": 300.0, "evening": "17:00-23:00"}
    assert (await app.quota.settings()).interval == timedelta(minutes=5)
    for body in ({"interval": "2d"}, {"spare": "keep"}, {"inside_share": 2}, {"day": "never"}):
        await api.problem(422, "PATCH", "/quota", body)
    assert await verbs(app) in (["set_quota"], ["set_quota", "set_quota"])


async def test_the_forecast_tells_what_goes_in_each_hour(api: Api, app: App, clock: ManualClock) -> None:
    await app.templates.set("promo")
    for number in range(5):
        await app.schedule("send", id=f"m{number}", template="promo")
    told = await api.get("/plan", hours=3)
    (outlook,) = told["outlooks"]
    assert (outlook["template"], outlook["waiting"], sum(outlook["sent"]), len(outlook["sent"])) == ("promo", 5, 5, 3)
    await app.schedule("send", id="later", template="promo")
    assert await api.get("/plan", hours=3) == told, "it is kept for a while"
    assert (await api.get("/plan", hours=2))["outlooks"][0]["waiting"] == 6
    clock.advance(timedelta(seconds=31))
    assert (await api.get("/plan", hours=3))["outlooks"][0]["waiting"] == 6
    await api.problem(422, "GET", "/plan", params={"hours": 1000})


# Limits.


async def test_a_limit_is_set_read_slowed_resumed_and_removed(api: Api, app: App, clock: ManualClock) -> None:
    path = f"/limits/{segment('handler:send/sms')}"
    made = await api.done("PUT", path, {"rate": "50/s", "pool": 10})
    assert (made["name"], made["rate"], made["pool"], made["slowed"]) == ("handler:send/sms", "50/s", 10, False)
    clock.advance(timedelta(seconds=1))
    slowed = await api.done("POST", f"{path}/slow-down", {"for": "5m", "rate": "1/s", "reason": "HTTP 429"})
    assert (slowed["slowed"], slowed["slowed_to"], slowed["reason"]) == (True, "1/s", "HTTP 429")
    assert datetime.fromisoformat(slowed["slowed_until"]) == clock.now() + timedelta(minutes=5)
    clock.advance(timedelta(seconds=1))
    assert await api.done("POST", f"{path}/resume") == {"resumed": True}
    clock.advance(timedelta(seconds=1))
    assert (await api.get(path))["slowed"] is False
    assert (await api("DELETE", path)).status_code == 204
    await api.problem(404, "DELETE", path)
    await api.problem(404, "GET", path)
    await api.problem(404, "POST", f"{path}/resume")
    assert await verbs(app) == ["set_limit", "slow_down_limit", "resume_limit", "remove_limit"]


async def test_what_has_no_limit_can_be_closed_for_a_time(api: Api, app: App, clock: ManualClock) -> None:
    until = (clock.now() + HOUR).isoformat()
    told = await api.done("POST", "/limits/handler%3Asend/slow-down", {"until": until})
    assert (told["rate"], told["slowed"], told["slowed_to"], told["left"]) == (None, True, None, 0)


async def test_limits_of_keys_are_listed_only_if_they_are_asked_for(api: Api, app: App) -> None:
    for name in ("global", "key:*", "key:a", "key:b"):
        await app.limits.set(name, "5/s")
    assert [one["name"] for one in await api.all("/limits", limit=1)] == ["global", "key:*"]
    names = [one["name"] for one in await api.all("/limits", limit=1, keys="true")]
    assert names == ["global", "key:*", "key:a", "key:b"]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "global", {"rate": "fast"}),
        ("PUT", "global", {"rate": "0/s"}),
        ("PUT", "global", {"rate": "5/s", "pool": -1}),
        ("PUT", "global", {}),
        ("PUT", "everything", {"rate": "5/s"}),
        ("PUT", "handler%3Aacquired%3Aa", {"rate": "5/s"}),
        ("POST", "global/slow-down", {}),
        ("POST", "global/slow-down", {"for": 5, "until": "2030-01-01T00:00:00Z"}),
        ("POST", "global/slow-down", {"until": "1999-01-01T00:00:00Z"}),
        ("POST", "key%3A*/slow-down", {"for": 5}),
    ],
)
async def test_what_no_limit_can_be_is_refused(api: Api, app: App, method: str, path: str, body: Any) -> None:
    await app.limits.set("global", "7/s")
    await api.problem(422, method, f"/limits/{path}", body)
    assert (await app.limits.get("global")).rate == parse_rate("7/s")


async def test_a_limit_of_an_unknown_template_is_not_found(api: Api) -> None:
    await api.problem(404, "PUT", "/limits/template%3Apromo", {"rate": "5/s"})
