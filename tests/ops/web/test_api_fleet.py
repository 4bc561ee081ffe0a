"""The fleet, its shards and its audit log over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from uuid import uuid4

import pytest
from support.web_api import Api, calling

from matrixsched import App
from matrixsched.clock import ManualClock
from matrixsched.ops.web.api.table import BY_TAG, ENDPOINTS, PREFIX
from matrixsched.web import dashboard
from matrixsched.worker import Worker

pytestmark = pytest.mark.anyio


@pytest.fixture
async def api(app: App) -> AsyncIterator[Api]:
    async with calling(dashboard(app)) as api:
        yield api


async def test_the_overview_tells_what_is_due_how_late_and_who_works(api: Api, app: App, clock: ManualClock) -> None:
    @app.action("work")
    async def work() -> None: ...

    await app.schedule("work")
    worker = Worker(app)
    await worker.run_due()
    await worker.minutes.step()
    await app.schedule("work")
    clock.advance(timedelta(seconds=30))
    told = await api.get("/overview")
    assert (told["due"], told["shard_count"], len(told["minutes"])) == (1, 4, 60)
    assert datetime.fromisoformat(told["oldest_due_at"]) == clock.now() - timedelta(seconds=30)
    assert sum(minute["attempts"] for minute in told["minutes"]) == 1
    assert told["late_p99_s"] is not None
    (seen,) = (await api.get("/workers"))["items"]
    assert seen["attempts"] == 1
    assert told["workers"] == [seen]


async def test_what_is_later_than_all_bounds_is_told_by_the_last_one(api: Api, app: App, clock: ManualClock) -> None:
    @app.action("work")
    async def work() -> None: ...

    await app.schedule("work")
    clock.advance(timedelta(hours=3))
    worker = Worker(app)
    await worker.run_due()
    await worker.minutes.step()
    assert (await api.get("/overview"))["late_p99_s"] == 7200


async def test_a_shard_is_released_only_under_the_guid_of_its_lock(api: Api, app: App) -> None:
    shards = (await api.get("/shards"))["items"]
    assert [one["shard"] for one in shards] == [0, 1, 2, 3]
    assert {one["holder"] for one in shards} == {None}
    assert (await api.done("POST", "/shards/0/release", {"guid": str(uuid4())})) == {"shard": 0, "released": False}
    await app.schedule("work", id="a")
    acquiring = app.store.transitions.acquire_shard(
        sync_guid=uuid4(), holder="somebody", lease=timedelta(seconds=10), lanes=[]
    )
    held = await app.store.run(acquiring)
    assert held.shard is not None
    (mine,) = [one for one in (await api.get("/shards"))["items"] if one["holder"]]
    assert (mine["shard"], mine["holder"], mine["incoming"]) == (held.shard, "somebody", 1)
    path = f"/shards/{held.shard}/release"
    await api.problem(412, "POST", path, {"guid": str(uuid4())})
    assert (await api.done("POST", path, {"guid": mine["guid"]}))["released"] is True
    (entry,) = (await api.get("/audit"))["items"]
    assert (entry["verb"], entry["subject"], entry["outcome"]) == ("release_shard", f"shard {held.shard}", "done")


@pytest.mark.parametrize("shard", ["4", "-1", "x", "٣", "9" * 30])
async def test_a_shard_that_is_not_there_is_not_found(api: Api, shard: str) -> None:
    await api.problem(404, "POST", f"/shards/{shard}/release", {"guid": str(uuid4())})


async def test_a_guid_that_is_none_is_refused(api: Api) -> None:
    problem = await api.problem(422, "POST", "/shards/0/release", {"guid": "mine"})
    assert problem["errors"][0]["pointer"] == "#/guid"


async def test_the_audit_log_is_read_page_by_page_from_its_newest_entry(api: Api, app: App, clock: ManualClock) -> None:
    for number in range(5):
        await app.schedule("work", id=f"a{number}", delay=timedelta(hours=1))
        await api.done("POST", f"/actions/a{number}/cancel", headers={"X-Operator": "ann"})
        clock.advance(timedelta(seconds=1))
    entries = await api.all("/audit", limit=2)
    assert [entry["subject"] for entry in entries] == ["a4", "a3", "a2", "a1", "a0"]
    assert entries[0]["before"]["state"] == "live"
    assert entries[0]["after"]["changed"] is True
    for cursor in ("x", "WyJhdWRpdCIsICJ4IiwgInkiXQ", "WyJhdWRpdCIsICIyMDMwLTAxLTAxIiwgInkiXQ"):
        await api.problem(422, "GET", "/audit", params={"cursor": cursor})


async def test_the_document_names_every_endpoint_and_who_may_call_it(api: Api) -> None:
    document = await api.get("/openapi.json")
    told = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert told == {(endpoint.method, endpoint.path) for endpoint in ENDPOINTS}
    assert document["servers"] == [{"url": PREFIX}]
    assert [tag["name"] for tag in document["tags"]] == list(BY_TAG)
    for endpoint in ENDPOINTS:
        operation = document["paths"][endpoint.path][endpoint.method.lower()]
        assert operation["summary"], endpoint.name
        assert ("operator's token" in operation["description"]) is endpoint.is_change
    assert "Idempotency-Key" in document["info"]["description"]
