"""Semaphores over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from support.web_api import Api, calling, segment

from matrixsched import App
from matrixsched.ops.operator import audit_page
from matrixsched.web import dashboard

pytestmark = pytest.mark.anyio


@pytest.fixture
async def api(app: App) -> AsyncIterator[Api]:
    async with calling(dashboard(app)) as api:
        yield api


async def test_a_semaphore_is_made_to_be_so_however_often(api: Api, app: App) -> None:
    path, body = f"/semaphores/{segment('pool/ä')}", {"active": 5, "try_release": 2, "hold_for": "1m"}
    made = await api.done("PUT", path, body)
    assert (made["key"], made["active"], made["try_release"], made["hold_for"]) == ("pool/ä", 5, 2, 60.0)
    assert await api.done("PUT", path, body) == made
    other = await api.done("PUT", path, {"active": 7})
    assert (other["active"], other["try_release"], other["hold_for"]) == (7, 7, None)
    changed = await api.done("PATCH", path, {"try_release": 3})
    assert (changed["active"], changed["try_release"]) == (7, 3)
    assert (await api.done("PATCH", path, {"hold_for": 30}))["hold_for"] == 30
    assert (await api.done("PATCH", path, {"active": 8}))["hold_for"] == 30
    assert (await api.done("PATCH", path, {"hold_for": None}))["hold_for"] is None
    verbs = {entry.verb for entry in await audit_page(app)}
    assert verbs == {"set_semaphore", "update_semaphore"}


async def test_the_most_important_tasks_hold_and_the_others_wait(api: Api, app: App) -> None:
    await api.done("PUT", "/semaphores/pool", {"active": 2})
    tasks = [{"id": f"t/{n}", "priority": n} for n in range(5)]
    assert await api.done("POST", "/semaphores/pool/tasks", {"tasks": tasks}) == {"total": 5, "created": 5}
    assert (await api.done("POST", "/semaphores/pool/tasks", {"tasks": tasks}))["created"] == 0
    await (await app.semaphores.get("pool")).balance()
    told = await api.get("/semaphores/pool", waiting=2)
    assert [task["id"] for task in told["holders"]] == ["t/4", "t/3"]
    assert [task["id"] for task in told["waiting"]] == ["t/2", "t/1"]
    assert (told["semaphore"]["held"], told["semaphore"]["waiting"]) == (2, 3)
    assert await audit_page(app, limit=1) != []
    assert await api.done("POST", "/semaphores/pool/release", {"ids": ["t/4", "t/0"]}) == {"released": 2}
    problem = await api.problem(404, "POST", "/semaphores/pool/release", {"ids": ["t/3", "t/4"]})
    assert "'t/4'" in problem["detail"]
    assert (await (await app.semaphores.get("pool")).get("t/3")).state.value == "acquired"


async def test_semaphores_are_listed_by_key(api: Api, app: App) -> None:
    for key in ("b", "a", "B"):
        await app.semaphores.get_or_create(key, hold_for=timedelta(seconds=5))
    items = await api.all("/semaphores", limit=1)
    assert [(one["key"], one["hold_for"]) for one in items] == [("B", 5.0), ("a", 5.0), ("b", 5.0)]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "", None),
        ("PATCH", "", {"active": 5}),
        ("POST", "/tasks", {"tasks": [{"id": "t"}]}),
        ("POST", "/release", {"ids": ["t"]}),
    ],
)
async def test_an_unknown_semaphore_is_not_found(api: Api, method: str, path: str, body: Any) -> None:
    assert "'nobody'" in (await api.problem(404, method, f"/semaphores/nobody{path}", body))["detail"]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "", {"active": -1}),
        ("PUT", "", {"active": 10_001}),
        ("PUT", "", {"active": 5, "try_release": 6}),
        ("PUT", "", {"hold_for": "10ms"}),
        ("PATCH", "", {"active": 1.5}),
        ("PATCH", "", {"try_release": 5000}),
        ("POST", "/tasks", {"tasks": []}),
        ("POST", "/tasks", {"tasks": [{"id": "t", "priority": "high"}]}),
        ("POST", "/tasks", {"tasks": [{"id": "t\u0007"}]}),
        ("POST", "/release", {"ids": []}),
    ],
)
async def test_what_no_semaphore_can_be_is_refused(api: Api, app: App, method: str, path: str, body: Any) -> None:
    await app.semaphores.get_or_create("pool", active=3)
    await api.problem(422, method, f"/semaphores/pool{path}", body)
    assert (await app.semaphores.settings("pool")).active == 3
    assert await (await app.semaphores.get("pool")).waiting() == []
