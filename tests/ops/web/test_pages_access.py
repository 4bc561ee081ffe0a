"""Who comes in, by which door, and where the dashboard is mounted."""

from __future__ import annotations

import hmac
import json
from base64 import b64encode
from collections.abc import AsyncIterator

import httpx
import pytest
from fastapi import FastAPI
from support.visits import BROWSER, Visitor, fields_of, visiting

from matrixsched import App
from matrixsched.config import origin_of, read_settings
from matrixsched.errors import ConfigurationError
from matrixsched.ops.web.access import SESSION_COOKIE, Tokens
from matrixsched.web import dashboard

pytestmark = pytest.mark.anyio

LOOK, CHANGE = "a token for looking", "a token for changes"
TOKENS = Tokens(viewer=LOOK, operator=CHANGE)


@pytest.fixture
async def stranger(app: App) -> AsyncIterator[Visitor]:
    async with visiting(app, TOKENS) as one:
        yield one


async def test_who_is_not_known_is_asked_to_sign_in_and_led_back(stranger: Visitor) -> None:
    sent = await stranger.open("/actions?state=failed&q=a%2Fb")
    assert sent.status_code == 303
    door = await stranger.read(sent.headers["location"])
    wanted = fields_of(door)["next"]
    led = await stranger.send("/sign-in", {"token": CHANGE, "name": "ann", "next": wanted})
    assert (led.status_code, led.headers["location"]) == (303, "/actions?state=failed&q=a%2Fb")
    assert "ann (127.0.0.1)" in await stranger.read(led.headers["location"])


@pytest.mark.parametrize(
    "wanted",
    ["https://evil.example/", "//evil.example", "/\\evil.example", "javascript:alert(1)", "", "/\nx", "actions"],
)
async def test_nobody_is_led_elsewhere(stranger: Visitor, wanted: str) -> None:
    led = await stranger.send("/sign-in", {"token": LOOK, "name": "", "next": wanted})
    assert led.headers["location"] == "/"


async def test_a_wrong_token_opens_nothing(stranger: Visitor) -> None:
    for token in ("", "wrong", f"{LOOK} ", "\U0001f4a5"):
        answer = await stranger.send("/sign-in", {"token": token})
        assert answer.status_code == 401
        assert "set-cookie" not in answer.headers
    assert (await stranger.open("/")).status_code == 303


async def test_the_session_is_kept_from_scripts_and_other_sites(stranger: Visitor) -> None:
    led = await stranger.send("/sign-in", {"token": LOOK, "name": "vera"})
    cookie = led.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    assert "Path=/;" in cookie
    assert LOOK not in cookie
    assert "Secure" not in cookie  # over plain http it would never come back


async def test_over_https_the_session_stays_there(stranger: Visitor) -> None:
    led = await stranger.client.post("https://127.0.0.1:8190/sign-in", data={"token": LOOK})
    assert "Secure" in led.headers["set-cookie"]


async def test_with_a_viewers_token_alone_nobody_changes_anything(app: App) -> None:
    """Every key there is can then be made of a token that every viewer knows."""
    await app.schedule("remind", id="a")
    tokens = Tokens(viewer=LOOK)
    async with visiting(app, tokens) as one:
        await one.send("/sign-in", {"token": LOOK, "name": "vera"})
        csrf = fields_of(await one.read("/actions"))["csrf"]
        own = one.client.cookies[SESSION_COOKIE]
        for session in (own, *forged_with(LOOK)):
            one.client.cookies.clear()
            one.client.cookies.set(SESSION_COOKIE, session)
            for proof in (csrf, old_proof(LOOK, session)):
                told = {"Accept": "application/json", "X-CSRF-Token": proof}
                answer = await one.client.post("/api/v1/actions/a/cancel", headers=told)
                assert answer.status_code in (401, 403), answer.text
                sent = await one.send("/change/cancel", {"id": "a", "csrf": proof})
                assert sent.status_code in (303, 403)
    assert (await app.get("a")).status.state == "live"


def forged_with(token: str) -> list[str]:
    """As sessions were signed before: with what is made of all tokens, of which this one is all."""
    facts = {"role": 2, "name": "boss", "until": 4_000_000_000.0}
    body = b64encode(json.dumps(facts).encode()).decode()
    return [f"{body}.{hmac.new(key, body.encode(), 'sha256').hexdigest()}" for key in (old_key(token), token.encode())]


def old_proof(token: str, session: str) -> str:
    return hmac.new(old_key(token), f"form {session}".encode(), "sha256").hexdigest()


def old_key(token: str) -> bytes:
    return hmac.new(f"{token}\n".encode(), b"matrixsched sessions", "sha256").digest()


@pytest.mark.parametrize(("url", "is_kept"), [("https://jobs.example/", True), ("http://jobs.example", False)])
async def test_behind_a_proxy_that_ends_https_the_session_stays_there(app: App, url: str, is_kept: bool) -> None:
    site = dashboard(app, operator_token=CHANGE, public_url=url)
    transport = httpx.ASGITransport(site, client=("127.0.0.1", 1))
    sent = {"Origin": url.strip("/"), "Sec-Fetch-Site": "same-origin"}
    async with httpx.AsyncClient(transport=transport, base_url="http://upstream:8190", headers=BROWSER) as client:
        led = await client.post("/sign-in", data={"token": CHANGE, "name": "ann"}, headers=sent)
    assert led.status_code == 303
    assert ("Secure" in led.headers["set-cookie"]) == is_kept


@pytest.mark.parametrize(
    "url",
    ["", "jobs.example", "ftp://jobs.example", "https://", "https://jobs.example/jobs", "https://a:b@jobs.example"],
)
async def test_a_public_url_that_is_none_is_refused(app: App, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    with pytest.raises(ConfigurationError, match="public_url: "):
        dashboard(app, operator_token=CHANGE, public_url=url)
    monkeypatch.setenv("MATRIXSCHED_WEB_PUBLIC_URL", url)
    assert bool(read_settings().faults) == bool(url)  # an empty variable is none


async def test_a_public_url_is_read_as_browsers_write_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MATRIXSCHED_WEB_PUBLIC_URL", "HTTPS://Jobs.Example:443/")
    assert read_settings().settings.web_public_url == "https://jobs.example"
    assert origin_of("http://[::1]:8190") == "http://[::1]:8190"


async def test_who_signs_out_is_not_known_any_more(stranger: Visitor) -> None:
    await stranger.send("/sign-in", {"token": CHANGE, "name": "ann"})
    assert (await stranger.send("/sign-out", {"csrf": "wrong"})).status_code == 403
    fields = fields_of(await stranger.read("/"))
    assert (await stranger.send("/sign-out", fields)).status_code == 303
    assert (await stranger.open("/")).status_code == 303


async def test_a_part_of_a_page_is_refused_plainly_so_that_the_script_knows(stranger: Visitor) -> None:
    answer = await stranger.open("/?fragment=all")
    assert answer.status_code == 401
    assert "<html" not in answer.text


async def test_a_form_of_another_site_does_nothing(visitor: Visitor) -> None:
    await visitor.app.schedule("remind", id="a")
    fields = fields_of(await visitor.read("/change/cancel?id=a"))
    for header in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        answer = await visitor.client.post("/change/cancel", data=fields, headers=header)
        assert answer.status_code == 403
    assert (await visitor.app.get("a")).status.state == "live"


async def test_who_is_not_let_in_is_told_so_on_a_page(visitor: Visitor) -> None:
    answer = await visitor.client.get("/", headers={"Host": "rebound.example"})
    assert (answer.status_code, answer.headers["content-type"]) == (421, "text/html; charset=utf-8")
    assert "a name of this machine" in answer.text


async def test_a_form_that_is_no_form_is_refused(visitor: Visitor) -> None:
    assert (await visitor.client.post("/change/cancel", json={"id": "a"})).status_code == 415
    odd = {"Content-Type": "application/x-www-form-urlencoded"}
    assert (await visitor.client.post("/change/cancel", content=b"\xff", headers=odd)).status_code == 400
    many = "&".join(f"a{number}=1" for number in range(200))
    assert (await visitor.client.post("/change/cancel", content=many, headers=odd)).status_code == 400


async def test_below_a_prefix_every_link_and_form_stays_there(app: App) -> None:
    await app.schedule("remind", id="a/b")
    outer = FastAPI()
    outer.mount("/ops/jobs", dashboard(app, operator_token=CHANGE))
    transport = httpx.ASGITransport(outer, client=("10.0.0.5", 1))
    async with httpx.AsyncClient(transport=transport, base_url="https://jobs.example", headers=BROWSER) as client:
        inside = Visitor(client, app)
        sent = await inside.open("/ops/jobs/actions")
        assert sent.headers["location"].startswith("/ops/jobs/sign-in?next=%2Fops%2Fjobs%2Factions")
        led = await inside.send("/ops/jobs/sign-in", {"token": CHANGE, "name": "ann", "next": "/elsewhere"})
        assert led.headers["location"] == "/ops/jobs/"
        assert "Path=/ops/jobs;" in led.headers["set-cookie"]
        for path in ("/", "/actions", "/action?id=a%2Fb", "/shards", "/audit", "/change/cancel?id=a%2Fb"):
            page = await inside.read(f"/ops/jobs{path}")
            links = [
                part.partition('"')[0] for name in ("href", "src", "action") for part in page.split(f'{name}="')[1:]
            ]
            assert links
            assert not [link for link in links if not link.startswith(("/ops/jobs/", "#"))]
        done = await inside.confirm("/ops/jobs/change/cancel?id=a%2Fb")
        assert "Cancelled" in done.text
        (entry,) = await inside.audited()
        assert entry.who == "ann (10.0.0.5)"
