"""Typed queues over HTTP."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.away import leaving
from support.queue_contract import CONTRACT
from support.web_api import Api, calling

from matrixsched import App
from matrixsched.ops.operator import audit_page
from matrixsched.rules.audit import AuditOutcome
from matrixsched.rules.queues import NewItem
from matrixsched.web import dashboard

pytestmark = pytest.mark.anyio


@pytest.fixture
async def api(app: App) -> AsyncIterator[Api]:
    app.queues.use(CONTRACT)
    async with calling(dashboard(app)) as api:
        yield api


async def set_aside(app: App, count: int) -> None:
    storage = app.queues.storage
    taken = await storage.get(1, count)
    await storage.set_aside([(task, "no such address") for task in taken])


async def test_tasks_are_put_by_their_contract_and_told_again(api: Api, app: App) -> None:
    body = {"tasks": [{"data": {"number": n}} for n in range(3)] + [{"data": {"number": 3}, "delay": "1h"}]}
    put = await api("POST", "/queues/emails/tasks", body)
    assert put.status_code == 201
    assert len(put.json()["ids"]) == 4
    told = await api.get("/queues/emails")
    assert (told["queue"], told["name"], told["ready"], told["delayed"]) == (1, "emails", 3, 1)
    assert await api.get("/queues/1") == told
    tasks = (await api.get("/queues/emails/tasks", data="true"))["items"]
    assert [(task["state"], task["data"]) for task in tasks] == [
        ("ready", {"number": 0}),
        ("ready", {"number": 1}),
        ("ready", {"number": 2}),
        ("delayed", {"number": 3}),
    ]
    assert all("data" not in task for task in (await api.get("/queues/emails/tasks"))["items"])
    assert [one["name"] for one in (await api.get("/queues"))["items"]] == ["emails", "sms", "reports"]
    assert await audit_page(app) == []


async def test_without_a_contract_tasks_are_bytes(app: App) -> None:
    await app.queues.storage.put(9, b"\x00\xff")
    async with calling(dashboard(app)) as api:
        encoded = b64encode(b"task").decode()
        await api.done("POST", "/queues/9/tasks", {"tasks": [{"base64": encoded}]})
        tasks = (await api.get("/queues/9/tasks", data="true"))["items"]
        assert [task["base64"] for task in tasks] == ["AP8=", encoded]
        problem = await api.problem(422, "POST", "/queues/9/tasks", {"tasks": [{"data": {}}]})
        assert "matrixsched serve MODULE:APP" in problem["detail"]


@pytest.mark.parametrize(
    "task",
    [
        {},
        {"data": {"number": 1}, "base64": "AA=="},
        {"data": {"number": "secret"}},
        {"data": {}},
        {"data": {"number": 1, "other": 2}},
        {"base64": "?"},
        {"data": {"number": 1}, "at": "2030-01-01T00:00:00Z", "delay": 5},
    ],
)
async def test_a_task_that_is_none_is_refused_with_its_place_and_none_is_put(
    api: Api, app: App, task: dict[str, Any]
) -> None:
    body = {"tasks": [{"data": {"number": 1}}, task]}
    problem = await api.problem(422, "POST", "/queues/emails/tasks", body)
    assert problem["errors"][0]["pointer"].startswith("#/tasks/1")
    assert "secret" not in str(problem)
    assert (await app.queues.stat())["emails"].total == 0


async def test_a_task_that_is_too_large_has_a_status_of_its_own(api: Api) -> None:
    await api.problem(413, "POST", "/queues/emails/tasks", {"tasks": [{"base64": "A" * 1_398_104}]})


async def test_a_queue_is_paused_and_resumed(api: Api, app: App) -> None:
    assert (await api.done("POST", "/queues/emails/pause"))["paused"] is True
    assert (await api.done("POST", "/queues/1/resume"))["paused"] is False
    assert {entry.verb for entry in await audit_page(app)} == {"pause_queue", "resume_queue"}


async def test_dead_letters_are_read_redriven_and_purged(api: Api, app: App) -> None:
    await api.done("POST", "/queues/emails/tasks", {"tasks": [{"data": {"number": n}} for n in range(5)]})
    await set_aside(app, 5)
    letters = await api.all("/queues/emails/dead-letters", limit=2, data="true")
    assert [letter["data"]["number"] for letter in letters] == [0, 1, 2, 3, 4]
    assert {letter["reason"] for letter in letters} == {"no such address"}
    some = {"ids": [letters[0]["id"], letters[1]["id"]]}
    assert await api.done("POST", "/queues/emails/redrive", some) == {"redriven": 2}
    assert await api.done("POST", "/queues/emails/purge", {"ids": [letters[2]["id"]]}) == {"purged": 1}
    assert await api.done("POST", "/queues/emails/purge", {"all": True}) == {"purged": 2}
    told = await api.get("/queues/emails")
    assert (told["ready"], told["dead"]) == (2, 0)
    for body in ({}, {"ids": []}, {"ids": [1], "all": True}, {"ids": ["1"]}):
        await api.problem(422, "POST", "/queues/emails/purge", body)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "", None),
        ("POST", "/pause", None),
        ("POST", "/resume", None),
        ("GET", "/tasks", None),
        ("POST", "/tasks", {"tasks": [{"base64": ""}]}),
        ("GET", "/dead-letters", None),
        ("POST", "/redrive", {"all": True}),
        ("POST", "/purge", {"all": True}),
    ],
)
@pytest.mark.parametrize("queue", ["77", "letters", "-1", "9" * 30])
async def test_an_unknown_queue_is_not_found(api: Api, app: App, queue: str, method: str, path: str, body: Any) -> None:
    await api.problem(404, method, f"/queues/{queue}{path}", body)
    assert await audit_page(app) == []


async def test_tasks_that_are_sent_again_under_the_same_key_are_put_once(api: Api, app: App) -> None:
    body = {"tasks": [{"data": {"number": n}} for n in range(3)]}
    key = {"Idempotency-Key": "the first"}
    first = await api.done("POST", "/queues/emails/tasks", body, headers=key)
    again = await api.done("POST", "/queues/emails/tasks", body, headers=key)
    assert first == again
    assert (await api.get("/queues/emails"))["ready"] == 3
    other = await api.done("POST", "/queues/emails/tasks", body, headers={"Idempotency-Key": "another"})
    assert not set(other["ids"]) & set(first["ids"])
    assert (await api.get("/queues/emails"))["ready"] == 6


async def test_a_key_is_of_one_queue(api: Api) -> None:
    key, encoded = {"Idempotency-Key": "the same"}, b64encode(b"task").decode()
    body = {"tasks": [{"base64": encoded}]}
    first = await api.done("POST", "/queues/emails/tasks", body, headers=key)
    assert await api.done("POST", "/queues/sms/tasks", body, headers=key) != first
    assert (await api.get("/queues/sms"))["ready"] == 1


async def test_what_stops_half_way_is_told_as_that(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("matrixsched.ops.queues.BATCH", 2)
    storage = app.queues.storage
    await storage.put_many([NewItem(queue=1, data=b"x")] * 5)
    await set_aside(app, 5)
    async with calling(dashboard(leaving(app, "purge_dead", times=1))) as api:
        problem = await api.problem(504, "POST", "/queues/1/purge", {"all": True})
        assert "purged 2" in problem["detail"]
        await api.problem(503, "POST", "/queues/1/purge", {"all": True})
    assert {entry.outcome for entry in await audit_page(app)} == {AuditOutcome.FAILED, AuditOutcome.REFUSED}
    assert len(await storage.dead_letters(1)) == 3
