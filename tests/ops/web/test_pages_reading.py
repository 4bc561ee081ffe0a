"""Every page shows what is there, as text, and changes nothing."""

from __future__ import annotations

import re
from datetime import timedelta
from html import escape, unescape
from html.parser import HTMLParser
from urllib.parse import quote

import pytest
from support.furnished import HOSTILE, furnish_hostile
from support.visits import Visitor

from matrixsched import App
from matrixsched.clock import ManualClock

pytestmark = pytest.mark.anyio

PAGES = {
    "/": ["Look at this: ", "worker-2:97", "win-back", "Attempts per minute", "handler:send_sms"],
    "/actions": ["remind:", "Next page"],
    "/actions?q=sms": ["sms:order-1001", "429 Too Many Requests"],
    "/actions?state=failed": ["sms:order-1007", "Redrive all that fit"],
    "/actions?template=spring-sale&state=live": ["sale:39"],
    "/action?id=sms:order-1001": ["it failed for good", "change/redrive?id=sms", "429 Too Many Requests"],
    "/action?id=remind:40": ["it is not due yet", "to run it now", "Reschedule"],
    "/action?id=daily-report": ["--every 1d", "2030-01-02 01:00:00"],
    "/shards": ["4 shards", "worker-1:411", "Release…"],
    "/templates": ["spring-sale", "10:00-12:00, 18:00-20:00", "paused", "Europe/Berlin"],
    "/template?name=spring-sale": ["Asia/Tokyo", "Stop campaign", "Work out the forecast"],
    "/template?name=spring-sale&forecast=1": ["an hour at most", "finishes at"],
    "/limits": ["handler:send_sms", "HTTP 429 from the provider", "Resume…", "10000/min"],
    "/semaphores": ["accounts", "3 of 3"],
    "/semaphore?key=accounts": ["account-4", "account-11", "Release…"],
    "/queues": ["emails", "number 7"],
    "/queue?queue=7": ["the mailbox is full", "Redrive all…"],
    "/audit": ["ann (10.0.0.7)", "set limit", "remind:88", "20/s"],
    "/sign-in": ["Token"],
}
CHANGES = (
    "cancel?id=remind:40",
    "run_now?id=remind:40",
    "redrive?id=sms:order-1001",
    "reschedule?id=remind:40&when=2h",
    "bulk_cancel?q=remind",
    "bulk_run_now?q=remind",
    "bulk_redrive?state=failed",
    "release_shard?shard=2",
    "pause_template?name=spring-sale",
    "pause_template?name=spring-sale&until=30m",
    "resume_template?name=win-back",
    "stop_template?name=spring-sale",
    "remove_template?name=receipts",
    "set_limit?name=global&rate=5/s&pool=3",
    "remove_limit?name=global",
    "resume_limit?name=handler:send_sms",
    "update_semaphore?key=accounts&active=5",
    "release_task?key=accounts&task=account-4",
    "pause_queue?queue=7",
    "resume_queue?queue=7",
    "redrive_queue?queue=7",
    "purge_queue_dead?queue=7",
)


@pytest.mark.timeout(120)
async def test_every_page_shows_what_is_there(furnished: Visitor) -> None:
    for path, expected in PAGES.items():
        answer = await furnished.open(path)
        assert answer.status_code == 200, f"{path}: {answer.text}"
        text = unescape(answer.text)
        assert not [one for one in expected if one not in text], path
        assert answer.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
        if path != "/sign-in":
            assert re.fullmatch(r"total;dur=\d+\.\d", answer.headers["server-timing"])


async def test_opening_pages_and_questions_changes_nothing(furnished: Visitor) -> None:
    async def everything() -> list[object]:
        app = furnished.app
        return [
            await app.list(limit=1000),
            await app.limits.list(),
            await app.templates.list(),
            [shard.lock_guid for shard in await app.shards()],
            await furnished.audited(),
        ]

    before = await everything()
    for path in (*PAGES, *(f"/change/{change}" for change in CHANGES)):
        assert (await furnished.open(path)).status_code == 200, path
    assert await everything() == before


@pytest.mark.timeout(120)
async def test_what_others_wrote_is_shown_as_text(app: App, clock: ManualClock, visitor: Visitor) -> None:
    await furnish_hostile(app, clock)
    hostile = quote(HOSTILE[0])
    paths = [
        "/", "/actions", "/actions?state=failed", "/shards", "/templates", f"/template?name={hostile}&forecast=1",
        "/limits?keys=1", "/semaphores", f"/semaphore?key={quote(HOSTILE[1])}", "/queues", "/queue?queue=9", "/audit",
        "/action?id=hostile-payload&payload=1", f"/actions?q={quote(HOSTILE[3])}",
        *(f"/action?id={quote(text)}" for text in HOSTILE), *(f"/change/run_now?id={quote(text)}" for text in HOSTILE),
        f"/change/bulk_redrive?state=failed&handler={quote('<script>alert(' + repr('handler') + ')</script>')}",
        f"/change/pause_template?name={hostile}", f"/change/set_limit?name={quote('handler:' + HOSTILE[2])}&rate=2/s",
    ]  # fmt: skip
    seen = ""
    for path in paths:
        page = await visitor.read(path)
        assert harmless(page), path
        seen += page
    # What could command a terminal or turn the text round is shown by its code.
    assert not [
        text for text in HOSTILE if escape(text).replace("&#x27;", "&#39;").replace("&quot;", "&#34;") not in seen
    ]


class _Elements(HTMLParser):
    """What a browser makes of a page: its elements and their attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, {name: value or "" for name, value in attrs}))


def harmless(page: str) -> bool:
    """There is no code in it but our own file, and nothing that leads elsewhere."""
    elements = _Elements()
    elements.feed(page)
    for tag, attributes in elements.found:
        if tag in ("iframe", "base", "style", "img", "object", "embed"):
            return False
        if tag == "script" and not attributes.get("src", "").startswith("/static/live.js"):
            return False
        if any(name == "style" or name.startswith("on") for name in attributes):
            return False
        if any(not attributes.get(name, "/").startswith(("/", "#")) for name in ("href", "src", "action")):
            return False
    return True


async def test_a_part_of_a_page_is_had_alone(furnished: Visitor) -> None:
    part = await furnished.read("/?fragment=all")
    assert "<html" not in part
    assert "Attempts per minute" in part
    assert "matrixsched" not in part.partition("<section")[0]
    answer = await furnished.open("/?fragment=nothing")
    assert answer.status_code == 404
    assert "<html" not in answer.text


async def test_the_id_itself_comes_before_those_that_begin_so(app: App, visitor: Visitor) -> None:
    for id in ("a", "a1", "a2", "b"):
        await app.schedule("remind", id=id, delay=timedelta(hours=1))
    page = await visitor.read("/actions?q=a")
    assert page.index("this very id") < page.index(">a1<")
    assert ">b<" not in page


async def test_many_actions_are_shown_page_by_page_none_twice(app: App, visitor: Visitor) -> None:
    for number in range(120):
        await app.schedule("remind", id=f"many:{number:03}", delay=timedelta(hours=1))
    seen: list[str] = []
    path = "/actions?q=many"
    while path:
        page = await visitor.read(path)
        seen += re.findall(r">(many:\d+)</a>", page)
        following = re.search(r'rel="next" href="([^"]+)"', page)
        path = unescape(following[1]) if following else ""
    assert sorted(seen) == [f"many:{number:03}" for number in range(120)]


async def test_what_is_not_there_is_said_with_a_search(visitor: Visitor) -> None:
    answer = await visitor.open("/action?id=nope%3Cb%3E")
    assert answer.status_code == 404
    assert "there is no action" in unescape(answer.text)
    assert 'name="q" value="nope&lt;b&gt;"' in answer.text
    for path, status in (
        ("/nowhere", 404),
        ("/template?name=nope", 404),
        ("/semaphore?key=nope", 404),
        ("/queue?queue=99", 422),
        ("/queue", 400),
        ("/actions?state=odd", 400),
        ("/actions?after=odd", 400),
        ("/audit?before=odd", 400),
        ("/change/odd", 404),
        ("/change/cancel", 400),
        ("/change/set_limit?name=global&rate=odd", 422),
        ("/change/bulk_cancel", 400),
        ("/static/../site.py", 404),
        ("/static/nothing.css", 404),
    ):
        answer = await visitor.open(path)
        assert answer.status_code == status, path
        assert "<h1>" in answer.text, path


async def test_programs_get_problems_instead_of_pages(visitor: Visitor) -> None:
    answer = await visitor.client.get("/action?id=nope", headers={"Accept": "application/json"})
    assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")


async def test_files_are_kept_by_browsers_until_they_change(visitor: Visitor) -> None:
    page = await visitor.read("/")
    for name, kind in (("style.css", "text/css"), ("live.js", "javascript"), ("icon.svg", "image/svg+xml")):
        (path,) = re.findall(rf'"(/static/{re.escape(name)}\?v=\w+)"', page)
        answer = await visitor.open(path)
        assert kind in answer.headers["content-type"]
        assert "immutable" in answer.headers["cache-control"]
