"""Every page in a real browser: with data in it, in the light, in the dark and on a phone; nothing goes wrong in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser
from support.furnished import HOSTILE
from support.installed import Installed, installed
from support.watching import Watched, watched

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

PAGES = {
    "/": "Attempts per minute",
    "/actions": "remind:",
    "/actions?state=failed": "sms:order-1007",
    "/action?id=sms:order-1001": "it failed for good",
    "/shards": "worker-1:411",
    "/templates": "spring-sale",
    "/template?name=spring-sale": "Asia/Tokyo",
    "/limits": "HTTP 429 from the provider",
    "/semaphores": "accounts",
    "/semaphore?key=accounts": "account-4",
    "/queues": "emails",
    "/queue?queue=7": "the mailbox is full",
    "/audit": "ann (10.0.0.7)",
    "/change/bulk_cancel?q=remind": "Cancel all that fit?",
}
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light", "viewport": {"width": 1280, "height": 800}},
    "dark": {"color_scheme": "dark", "viewport": {"width": 1280, "height": 800}},
    "phone": {"color_scheme": "light", "viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True},
}


@pytest.mark.parametrize("look", LOOKS)
def test_every_page_is_shown_whole_and_without_a_complaint(chromium: Browser, place: Installed, look: str) -> None:
    with watched(chromium, **LOOKS[look]) as page:
        for path, expected in PAGES.items():
            assert page.open(place.at + path) == 200
            assert expected in page.text, path
            assert not page.overflows, path
            assert page.page.locator("h1").count() == 1
            assert page.page.title().endswith("matrixsched")


@pytest.fixture
def on_postgresql(postgres_dsn: str) -> Iterator[Installed]:
    yield from installed(postgres_dsn)


def test_the_same_on_postgresql(chromium: Browser, on_postgresql: Installed) -> None:
    with watched(chromium) as page:
        for path, expected in PAGES.items():
            assert page.open(on_postgresql.at + path) == 200
            assert expected in page.text, path


def test_what_wants_to_be_code_is_text(page: Watched, hostile_place: Installed) -> None:
    at, name = hostile_place.at, quote(HOSTILE[0])
    paths = [
        "/",
        "/actions?state=failed",
        "/actions?state=live",
        "/shards",
        "/templates",
        f"/template?name={name}",
        "/limits?keys=1",
        "/semaphores",
        f"/semaphore?key={quote(HOSTILE[1])}",
        "/queues",
        "/queue?queue=9",
        "/audit",
        "/action?id=hostile-payload&payload=1",
        "/change/bulk_redrive?state=failed",
        *(f"/action?id={quote(text)}" for text in HOSTILE),
        *(f"/actions?q={quote(text)}" for text in HOSTILE),
    ]
    shown = ""
    for path in paths:
        assert page.open(at + path) == 200, path
        page.page.locator("details").evaluate_all("all => all.forEach(one => one.open = true)")
        shown += page.text
        assert page.page.evaluate("document.querySelectorAll('script').length") == 1
    missing = [text for text in HOSTILE if text not in shown]
    assert not missing
    assert page.wrong == []


def test_a_hostile_address_is_text_as_well(page: Watched, place: Installed) -> None:
    for text in HOSTILE:
        for path in (f"/actions?q={quote(text)}", f"/actions?handler={quote(text)}&template={quote(text)}"):
            assert page.open(place.at + path) == 200
    for text in HOSTILE:
        assert page.open(f"{place.at}/action?id={quote(text)}") == 404
        assert "there is no action" in page.text
    # The browser itself notes each 404; nothing else.
    page.forgive("status of 404")
    assert page.wrong == []


def test_a_chart_tells_its_numbers_to_those_who_do_not_see_it(page: Watched, place: Installed) -> None:
    page.open(place.at)
    charts = page.page.get_by_role("img")
    told = [charts.nth(number).get_attribute("aria-label") or "" for number in range(charts.count())]
    assert len(told) == 3
    assert told[0].startswith("Attempts per minute: ")
    page.page.get_by_text("The last hour as a table").click()
    assert page.page.locator("#minutes tbody tr").count() == 60
