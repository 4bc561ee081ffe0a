"""What every request passes first, and what every answer says to a browser."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import httpx
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from matrixsched.ops.web.guard import HEADERS, Guard

pytestmark = pytest.mark.anyio

HERE = "http://127.0.0.1:8190"


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    body = await Request(scope, receive).body()
    await PlainTextResponse(f"{scope['method']} {len(body)}")(scope, receive, send)


def client(guard: Guard, *, base_url: str = HERE, address: str = "127.0.0.1") -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(guard, client=(address, 1)), base_url=base_url)


async def test_every_answer_tells_browsers_to_run_and_keep_nothing_of_others() -> None:
    async with client(Guard(echo, only_local=True)) as browser:
        for answer in (await browser.get("/"), await browser.post("/", headers={"origin": "http://evil"})):
            assert {name: answer.headers[name] for name in HEADERS} == dict(HEADERS)
    assert "unsafe" not in HEADERS["Content-Security-Policy"]


@pytest.mark.parametrize(
    ("base_url", "address", "status"),
    [
        (HERE, "127.0.0.1", 200),
        ("http://localhost", "::1", 200),
        ("http://[::1]:8190", "127.0.0.9", 200),
        ("http://rebound.example", "127.0.0.1", 421),
        ("http://127.0.0.1.example", "127.0.0.1", 421),
        (HERE, "10.0.0.7", 403),
        (HERE, "not an address", 403),
    ],
)
async def test_without_tokens_only_this_machine_is_answered(base_url: str, address: str, status: int) -> None:
    async with client(Guard(echo, only_local=True), base_url=base_url, address=address) as browser:
        answer = await browser.get("/")
    assert answer.status_code == status
    if status != 200:
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["status"] == status
        assert "without tokens" in answer.json()["detail"]


PROXY_HEADERS = [
    {"X-Forwarded-For": "203.0.113.9"},
    {"X-Forwarded-Host": "127.0.0.1"},
    {"X-Forwarded-Proto": "https"},
    {"X-Real-IP": "127.0.0.1"},
    {"Forwarded": "for=203.0.113.9"},
]


@pytest.mark.parametrize("headers", PROXY_HEADERS, ids=lambda headers: next(iter(headers)))
async def test_without_tokens_nobody_is_answered_through_a_proxy(headers: dict[str, str]) -> None:
    """To us it is the proxy that asks, which is of this machine."""
    async with client(Guard(echo, only_local=True)) as browser:
        answer = await browser.post("/", headers=headers)
    assert answer.status_code == 403
    assert "operator_token" in answer.json()["detail"]
    async with client(Guard(echo, only_local=False)) as browser:
        assert (await browser.post("/", headers=headers)).status_code == 200


async def test_who_does_not_say_where_they_are_is_not_of_this_machine() -> None:
    guard = Guard(echo, only_local=True)

    async def unknown(scope: Scope, receive: Receive, send: Send) -> None:
        await guard(dict(scope) | {"client": None}, receive, send)

    transport = httpx.ASGITransport(unknown)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as browser:
        answer = await browser.get("/")
    assert answer.status_code == 403
    assert "operator_token" in answer.json()["detail"]


async def test_with_tokens_everybody_is_heard() -> None:
    guard = Guard(echo, only_local=False)
    async with client(guard, base_url="https://jobs.example", address="10.0.0.7") as browser:
        assert (await browser.get("/")).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
    ],
)
async def test_a_page_of_another_site_changes_nothing(headers: dict[str, str]) -> None:
    async with client(Guard(echo, only_local=True)) as browser:
        assert (await browser.post("/", headers=headers)).status_code == 403
        assert (await browser.delete("/", headers=headers)).status_code == 403
        assert (await browser.get("/", headers=headers)).status_code == 200


@pytest.mark.parametrize("headers", [{}, {"origin": HERE, "sec-fetch-site": "same-origin"}, {"sec-fetch-site": "none"}])
async def test_our_own_pages_and_programs_may_change_things(headers: dict[str, str]) -> None:
    async with client(Guard(echo, only_local=True)) as browser:
        assert (await browser.post("/", headers=headers)).status_code == 200


PUBLIC = "https://jobs.example"


async def test_behind_a_proxy_that_asks_by_another_name_our_own_pages_change_things() -> None:
    """As nginx does unless it is told otherwise: Host is that of the server behind it."""
    sent = {"origin": PUBLIC, "sec-fetch-site": "same-origin"}
    async with client(Guard(echo, only_local=False, public_origin=PUBLIC)) as browser:
        assert (await browser.post("/", headers=sent)).status_code == 200
        assert (await browser.post("/", headers={"origin": HERE})).status_code == 200
        for origin in ("http://jobs.example", "https://jobs.example:8443", "https://jobs.example.evil", "null", ""):
            assert (await browser.post("/", headers={"origin": origin})).status_code == 403
        assert (await browser.post("/", headers=sent | {"sec-fetch-site": "cross-site"})).status_code == 403
    async with client(Guard(echo, only_local=False)) as browser:
        told = (await browser.post("/", headers=sent)).json()["detail"]
    assert "'https://jobs.example' sent this, and the header Host says that this is '127.0.0.1:8190'" in told
    assert "MATRIXSCHED_WEB_PUBLIC_URL" in told
    assert "proxy_set_header Host $host" in told


async def test_a_body_that_is_too_large_is_refused_whether_it_says_so_or_not() -> None:
    async def in_pieces() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield b"12345"

    async with client(Guard(echo, only_local=True, body_bytes_max=10)) as browser:
        assert (await browser.post("/", content=b"1234567890")).text == "POST 10"
        for body in (b"12345678901", in_pieces()):
            answer = await browser.post("/", content=body)
            assert answer.status_code == 413
            assert "10 bytes" in answer.json()["detail"]


async def test_what_takes_too_long_is_given_up() -> None:
    async def never(scope: Scope, receive: Receive, send: Send) -> None:
        await anyio.sleep_forever()

    async with client(Guard(never, only_local=True, request_max_s=0.01)) as browser:
        answer = await browser.get("/")
    assert answer.status_code == 503
    assert "given up" in answer.json()["detail"]
