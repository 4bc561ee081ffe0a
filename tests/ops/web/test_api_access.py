"""Who may do what: every endpoint without a token, with the viewer's and with the operator's."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from support.queue_contract import CONTRACT
from support.web_api import OPERATOR, VIEWER, Api, bearer, calling, guarded, problem_in

from matrixsched import App
from matrixsched.ops.operator import audit_page
from matrixsched.ops.web.access import Role
from matrixsched.ops.web.api.endpoint import Endpoint
from matrixsched.ops.web.api.table import ENDPOINTS
from matrixsched.rules.queues import NewItem

pytestmark = pytest.mark.anyio

PATHS = {"id": "a", "shard": "0", "name": "promo", "key": "pool", "queue": "1"}
NAMES = {"/limits/{name}": "global"}
BODIES: dict[str, Any] = {
    "schedule_action": {"handler": "other"},
    "schedule_batch": {"calls": [{"handler": "other"}]},
    "replace_action": {"handler": "other"},
    "reschedule_action": {"delay": 1},
    "cancel_actions": {"prefix": "x"},
    "run_actions_now": {"prefix": "x"},
    "redrive_actions": {"prefix": "x"},
    "release_shard": {"guid": "0f8fad5b-d9cb-469f-a165-70867728950e"},
    "set_template": {},
    "pause_template": {},
    "change_quota": {},
    "set_limit": {"rate": "1/s"},
    "slow_limit_down": {"for": 1},
    "set_semaphore": {},
    "change_semaphore": {},
    "enqueue_tasks": {"tasks": [{"id": "t"}]},
    "release_tasks": {"ids": ["held"]},
    "put_tasks": {"tasks": [{"data": {"number": 1}}]},
    "redrive_letters": {"all": True},
    "purge_letters": {"all": True},
}

every_endpoint = pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda one: f"{one.method} {one.path}")


@pytest.fixture
async def api(app: App) -> AsyncIterator[Api]:
    app.queues.use(CONTRACT)
    await app.templates.set("promo")
    await app.limits.set("global", "100/s")
    pool = await app.semaphores.get_or_create("pool")
    await pool.enqueue("held")
    await app.schedule("other", id="a", template="promo", delay=timedelta(hours=1))
    async with calling(guarded(app)) as api:
        yield api


async def ask(api: Api, endpoint: Endpoint, headers: dict[str, str], **query: str) -> Any:
    names = {name: NAMES.get("/" + "/".join(endpoint.segments[:2]), PATHS[name]) for name in endpoint.parameters}
    return await api(
        endpoint.method, endpoint.path.format(**names), BODIES.get(endpoint.name), headers=headers, params=query
    )


def test_every_body_is_here() -> None:
    assert {one.name for one in ENDPOINTS if one.body is not None} == BODIES.keys()


@every_endpoint
async def test_nobody_without_a_token_learns_or_changes_anything(api: Api, app: App, endpoint: Endpoint) -> None:
    for headers in ({}, bearer("wrong"), bearer(""), {"Authorization": f"Basic {OPERATOR}"}):
        answer = await ask(api, endpoint, headers)
        problem = problem_in(answer, 401)
        assert ("this token is not known" in problem["detail"]) == bool(headers)
        assert answer.headers["www-authenticate"] == "Bearer"
    assert await audit_page(app) == []


@every_endpoint
async def test_whoever_may_look_may_not_change(api: Api, app: App, endpoint: Endpoint) -> None:
    answer = await ask(api, endpoint, bearer(VIEWER))
    if endpoint.role is Role.VIEWER:
        assert answer.status_code == 200
    else:
        assert "operator's token" in problem_in(answer, 403)["detail"]
    assert await audit_page(app) == []


@every_endpoint
async def test_the_operator_may_do_everything(api: Api, endpoint: Endpoint) -> None:
    answer = await ask(api, endpoint, bearer(OPERATOR))
    refused = {"remove_template": 409}  # it has a message, which is as well
    assert answer.status_code == refused.get(endpoint.name, answer.status_code)
    assert answer.status_code < 400 or endpoint.name in refused, answer.text


@every_endpoint
def test_looking_is_for_viewers_and_changing_for_operators(endpoint: Endpoint) -> None:
    assert endpoint.role is (Role.OPERATOR if endpoint.is_change else Role.VIEWER)


CONFIDED = {
    ("list_actions", "payload"),
    ("get_action", "payload"),
    ("peek_tasks", "data"),
    ("list_dead_letters", "data"),
}


def test_whatever_may_hold_secrets_must_be_asked_for() -> None:
    assert {(endpoint.name, name) for endpoint in ENDPOINTS for name in endpoint.confided} == CONFIDED


@pytest.mark.parametrize(("endpoint", "name"), sorted(CONFIDED))
async def test_payloads_and_tasks_are_shown_to_operators_only(api: Api, app: App, endpoint: str, name: str) -> None:
    await app.schedule("other", {"card": "4711"}, id="a")
    await app.queues.storage.put_many([NewItem(queue=1, data=b"card 4711")] * 2)
    (taken, *_) = await app.queues.storage.get(1, 1)
    await app.queues.storage.set_aside([(taken, "no such card")])
    (asked,) = [one for one in ENDPOINTS if one.name == endpoint]
    plain = await ask(api, asked, bearer(VIEWER), **{name: "false"})
    assert plain.status_code == 200
    refused = await ask(api, asked, bearer(VIEWER), **{name: "true"})
    assert "operators only" in problem_in(refused, 403)["detail"]
    shown = await ask(api, asked, bearer(OPERATOR), **{name: "true"})
    assert shown.status_code == 200
    secrets = ("4711", b64encode(b"card 4711").decode())
    assert any(secret in shown.text for secret in secrets)
    assert not any(secret in answer.text for secret in secrets for answer in (plain, refused))


async def test_what_is_refused_for_the_role_is_so_before_anything_is_read(api: Api) -> None:
    """A viewer gets no hint of what would have been wrong with it."""
    problem_in(await api("POST", "/actions", content=b"{", headers=bearer(VIEWER)), 403)
