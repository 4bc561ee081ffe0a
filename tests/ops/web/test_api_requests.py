"""Requests that are no good, from other places, or for an application that is part of another."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.requests import HTTPConnection
from starlette.types import Receive, Scope, Send
from support.web_api import OPERATOR, Api, asking, bearer, calling, problem_in, segment

from matrixsched import App
from matrixsched.errors import DatabaseBusy, DatabaseUnavailable, OutcomeUnknown
from matrixsched.ops.operator import audit_page
from matrixsched.ops.web.access import SESSION_COOKIE, Access, Role, Tokens
from matrixsched.ops.web.api.remedies import refusal_of
from matrixsched.ops.web.desk import Desk
from matrixsched.ops.web.guard import BODY_BYTES_MAX, Guard
from matrixsched.ops.web.site import site
from matrixsched.web import dashboard

pytestmark = pytest.mark.anyio

JSON = {"Content-Type": "application/json"}
DEEP = '{"handler":"a","payload":' + "[" * 200 + "]" * 200 + "}"
DEEPER = "[" * 100_000


@pytest.fixture
async def api(app: App) -> AsyncIterator[Api]:
    async with calling(dashboard(app)) as api:
        yield api


# Bodies.


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "no body"),
        (b"{", "line 1"),
        (b'{"handler": "a",}', "line 1"),
        (b"\xff\xfe", "UTF-8"),
        (b'{"handler":"a","handler":"b"}', "same key twice"),
        (b'{"handler":"a","payload":{"x":[{"y":1,"y":2}]}}', "same key twice"),
        (b'{"handler":"a","delay":NaN}', "NaN"),
        (b'{"handler":"a","payload":-Infinity}', "-Infinity"),
        (b'{"handler":"a","payload":1e999}', "too large"),
        (b'{"handler":"a","payload":' + b"9" * 5000 + b"}", "digits"),
        (DEEP.encode(), "deeper than 100"),
        (DEEPER.encode(), "deeper than 100"),
        (b'{"handler":"a","payload":"\\ud800"}', "surrogate"),
    ],
)
async def test_what_is_no_json_or_more_than_one_is_refused(api: Api, app: App, content: bytes, words: str) -> None:
    problem = await api.problem(400, "POST", "/actions", content=content, headers=JSON)
    assert words in problem["detail"]
    assert await app.list() == []


@pytest.mark.parametrize("content", [b"[]", b"null", b'"a"', b"5"])
async def test_json_of_another_kind_cannot_be_taken(api: Api, content: bytes) -> None:
    problem = await api.problem(422, "POST", "/actions", content=content, headers=JSON)
    assert problem["errors"][0]["pointer"] == "#"


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "nonsense"])
async def test_another_form_than_json_is_refused_with_and_without_a_body(api: Api, app: App, kind: str) -> None:
    await app.schedule("other", id="a", delay=timedelta(hours=1))
    headers = {"Content-Type": kind}
    await api.problem(415, "POST", "/actions", content=b'{"handler":"a"}', headers=headers)
    await api.problem(415, "POST", "/actions/a/cancel", headers=headers)
    assert [action.meta.revision for action in await app.list()] == [1]


async def test_a_body_says_what_it_is_and_one_that_is_not_wanted_is_refused(api: Api) -> None:
    await api.problem(415, "POST", "/actions", content=b'{"handler":"a"}')
    await api.problem(400, "POST", "/actions/a/cancel", {"why": "because"})
    await api.done("PUT", "/actions/a", {"handler": "a"}, headers={"Content-Type": "application/json; charset=utf-8"})


async def test_a_body_beyond_the_bound_is_refused_also_if_nobody_says_how_long_it_is(api: Api, app: App) -> None:
    large = b'{"handler":"a","payload":"' + b"x" * BODY_BYTES_MAX + b'"}'
    assert "in parts" in (await api.problem(413, "POST", "/actions", content=large, headers=JSON))["detail"]

    async def in_pieces() -> AsyncIterator[bytes]:
        for begin in range(0, len(large), 65536):
            yield large[begin : begin + 65536]

    await api.problem(413, "POST", "/actions", content=in_pieces(), headers=JSON)
    assert await app.list() == []


# Paths and methods.


@pytest.mark.parametrize(
    "path", ["/nothing", "/actions/", "/actions/a/", "/actions/a/b", "//actions", "/actions//cancel", "/ACTIONS", ""]
)
async def test_an_unknown_path_is_a_problem(api: Api, path: str) -> None:
    await api.problem(404, "GET", path)


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("DELETE", "/actions", "GET, HEAD, POST"),
        ("POST", "/actions/a", "GET, HEAD, PUT"),
        ("GET", "/actions/a/cancel", "POST"),
        ("OPTIONS", "/overview", "GET, HEAD"),
        ("TRACE", "/overview", "GET, HEAD"),
        ("BREW", "/overview", "GET, HEAD"),
    ],
)
async def test_another_method_is_refused_with_those_that_there_are(
    api: Api, method: str, path: str, allowed: str
) -> None:
    answer = await api(method, path)
    problem_in(answer, 405)
    assert answer.headers["allow"] == allowed


async def test_nothing_is_changed_by_get(api: Api, app: App) -> None:
    await app.schedule("other", id="a", delay=timedelta(hours=1))
    for path in ("/actions/a/cancel", "/actions/a/run-now", "/bulk/actions/cancel", "/shards/0/release"):
        await api.problem(405, "GET", path)
    assert (await app.get("a")).meta.revision == 1


async def test_head_is_answered_as_get(api: Api) -> None:
    assert (await api("HEAD", "/overview")).status_code == 200


async def test_a_path_that_is_not_utf8_is_refused(api: Api) -> None:
    assert "UTF-8" in (await api.problem(400, "GET", "/actions/%ff"))["detail"]


async def test_every_answer_has_headers_that_keep_browsers_from_harm(api: Api) -> None:
    for path in ("/overview", "/nothing", "/openapi.json"):
        headers = (await api("GET", path)).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert "default-src 'none'" in headers["content-security-policy"]


# Browsers.


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "null"},
    ],
)
async def test_a_page_of_another_site_changes_nothing(api: Api, app: App, headers: dict[str, str]) -> None:
    await app.schedule("other", id="a", delay=timedelta(hours=1))
    await api.problem(403, "POST", "/actions/a/cancel", headers=headers)
    await api.problem(403, "POST", "/actions", {"handler": "a"}, headers=headers)
    assert [action.meta.revision for action in await app.list()] == [1]


async def test_a_browser_with_a_session_shows_that_a_page_of_ours_asks(app: App) -> None:
    tokens = Tokens(operator=OPERATOR)
    access = Access(tokens, secret=b"", clock=app.clock)
    session = access.session(Role.OPERATOR, "ann")
    scope = {"type": "http", "headers": [(b"cookie", f"{SESSION_COOKIE}={session}".encode())]}
    visitor = access.visitor(HTTPConnection(scope))
    assert visitor is not None
    await app.schedule("other", id="a", delay=timedelta(hours=1))
    async with calling(Guard(site(Desk(app, access)), only_local=False)) as api:
        api.client.cookies.set(SESSION_COOKIE, session)
        await api.get("/actions/a")
        problem = await api.problem(403, "POST", "/actions/a/cancel")
        assert "X-CSRF-Token" in problem["detail"]
        await api.problem(403, "POST", "/actions/a/cancel", headers={"X-CSRF-Token": "guessed"})
        await api.done("POST", "/actions/a/cancel", headers={"X-CSRF-Token": visitor.csrf})
    (entry,) = await audit_page(app)
    assert entry.who == "ann (127.0.0.1)"


async def test_without_tokens_only_a_name_of_this_machine_is_answered(app: App) -> None:
    async with calling(dashboard(app)) as api:
        answer = await api.client.get("http://matrixsched.example/api/v1/overview")
        problem_in(answer, 421)
    transport = httpx.ASGITransport(dashboard(app), client=("192.0.2.1", 5000))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        problem_in(await client.get("/api/v1/overview"), 403)


@pytest.mark.parametrize("header", ["X-Forwarded-For", "X-Real-IP", "Forwarded"])
async def test_without_tokens_nobody_changes_anything_through_a_proxy(app: App, header: str) -> None:
    await app.schedule("other", id="a", delay=timedelta(hours=1))
    async with calling(dashboard(app)) as api:
        problem = await api.problem(403, "POST", "/actions/a/run-now", headers={header: "203.0.113.9"})
    assert "MATRIXSCHED_WEB_OPERATOR_TOKEN" in problem["detail"]
    assert (await app.get("a")).meta.revision == 1
    async with calling(dashboard(app, operator_token=OPERATOR), bearer(OPERATOR)) as api:
        await api.done("POST", "/actions/a/run-now", headers={header: "203.0.113.9"})


# As a part of another application.


async def test_mounted_in_one_line_it_works_below_a_prefix_though_nobody_tells_it_when_it_begins(app: App) -> None:
    outer = FastAPI()
    outer.mount("/ops/jobs", dashboard(app, operator_token=OPERATOR))
    async with asking(outer, bearer(OPERATOR)) as api:
        for id in ("a/b", "api/v1/actions", "ä b"):
            made = await api.client.put(
                f"/ops/jobs/api/v1/actions/{segment(id)}", json={"handler": "other", "delay": "1h"}
            )
            assert (made.status_code, made.json()["id"]) == (201, id)
            assert made.headers["location"] == f"/ops/jobs/api/v1/actions/{segment(id)}"
            assert (await api.client.get(made.headers["location"])).json()["id"] == id
        document = (await api.client.get("/ops/jobs/api/v1/openapi.json")).json()
        assert document["servers"] == [{"url": "/ops/jobs/api/v1"}]
        problem_in(await api.client.get("/ops/jobs/api/v1/actions/nobody"), 404)
        problem_in(await api.client.get("/ops/jobs/api/v1/overview", headers=bearer("wrong")), 401)


@pytest.mark.parametrize("keeps", ["no raw path", "a raw path without the prefix", "a prefix that is encoded"])
async def test_whatever_a_server_tells_of_the_path_the_id_is_found(app: App, keeps: str) -> None:
    """Only where a server keeps nothing of what was sent, a slash in an id cannot be told from others."""
    await app.schedule("other", id="a b/c", delay=timedelta(hours=1))
    await app.schedule("other", id="a b", delay=timedelta(hours=1))
    ours = dashboard(app)

    async def outer(scope: Scope, receive: Receive, send: Send) -> None:
        told = dict(scope) | {"root_path": "/my jobs", "path": f"/my jobs{scope['path']}"}
        match keeps:
            case "no raw path":
                del told["raw_path"]
            case "a prefix that is encoded":
                told["raw_path"] = b"/my%20jobs" + told["raw_path"]
        await ours(told, receive, send)

    async with asking(outer) as api:
        id = "a b" if keeps == "no raw path" else "a b/c"
        assert (await api.get(f"/actions/{segment(id)}"))["id"] == id


# What the database does.


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (DatabaseUnavailable("gone"), 503, "try again"),
        (DatabaseBusy("locked"), 503, ""),
        (OutcomeUnknown("lost"), 504, "Idempotency-Key"),
    ],
)
def test_what_the_database_does_tells_whether_to_send_it_again(error: Any, status: int, words: str) -> None:
    refused = refusal_of(error)
    assert int(refused.status) == status
    assert words in refused.detail
    assert refused.headers == ({"Retry-After": "1"} if status == 503 else {})


async def test_a_change_that_takes_too_long_may_be_done_and_a_look_asked_for_less(app: App) -> None:
    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await app.clock.sleep(3600)

    async with asking(Guard(slow, only_local=True, request_max_s=0.01)) as api:
        assert "may be done" in (await api.problem(504, "POST", "/actions"))["detail"]
        assert "ask for less" in (await api.problem(503, "GET", "/actions"))["detail"]


async def test_a_mistake_of_ours_is_a_problem_that_tells_nothing(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*arguments: object, **options: object) -> None:
        raise RuntimeError("secret")

    async with calling(dashboard(app)) as api:
        await api.get("/actions")
        monkeypatch.setattr(app, "get", broken)
        with pytest.raises(RuntimeError, match="secret"):
            await api("GET", "/actions/a")
        quiet = httpx.ASGITransport(dashboard(app), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=quiet, base_url="http://127.0.0.1") as client:
            answer = await client.get("/api/v1/actions/a")
        problem_in(answer, 500)
        assert "secret" not in answer.text
