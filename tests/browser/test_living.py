"""What the script does: it keeps pages fresh while somebody looks, says when it cannot, and gets in nobody's way."""

from __future__ import annotations

from datetime import timedelta

import pytest
from playwright.sync_api import Route, expect
from support.installed import Installed
from support.watching import Watched

from matrixsched.rules.action import State

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

FRAGMENT = "fragment="
PASSES_MS = 6_000
"""Longer than the rest between two looks."""


def test_a_page_shows_what_happens_without_being_opened_anew(page: Watched, own_place: Installed) -> None:
    page.page.clock.install()
    page.open(f"{own_place.at}/action?id=remind:40")
    assert "it is not due yet" in page.text
    own_place.ask(lambda app: app.cancel("remind:40"))
    page.page.clock.fast_forward(PASSES_MS)
    expect(page.page.get_by_text("it was cancelled")).to_be_visible()


def test_what_is_open_and_where_the_keyboard_is_stays_so(page: Watched, own_place: Installed) -> None:
    page.page.clock.install()
    page.open(own_place.at)
    page.page.get_by_text("The last hour as a table").click()
    page.page.get_by_role("link", name="win-back").focus()
    own_place.clock.advance(timedelta(seconds=30))
    page.page.clock.fast_forward(PASSES_MS)
    expect(page.page.get_by_text("42 s ago").first).to_be_visible()
    assert page.page.locator("#minutes").get_attribute("open") is not None
    assert page.focused() == "win-back"


def test_it_says_since_when_nobody_answers_and_asks_less_often(page: Watched, own_place: Installed) -> None:
    asked: list[str] = []

    def fail(route: Route) -> None:
        asked.append(route.request.url)
        route.abort()

    page.page.clock.install()
    page.open(own_place.at)
    page.page.route("**/*fragment=*", fail)
    page.page.clock.fast_forward(PASSES_MS)
    expect(page.page.locator("#stale")).to_contain_text("No answer since")
    known = len(asked)
    page.page.clock.fast_forward(4_000)
    assert len(asked) == known, "it waits longer after each failure"
    page.page.unroute("**/*fragment=*")
    page.page.clock.fast_forward(60_000)
    expect(page.page.locator("#stale")).to_be_hidden()
    page.forgive("ERR_FAILED")


def test_a_tab_that_nobody_sees_asks_for_nothing(page: Watched, own_place: Installed) -> None:
    page.page.add_init_script("Object.defineProperty(document, 'hidden', {get: () => Boolean(window.unseen)})")
    page.page.clock.install()
    page.open(own_place.at)
    asked: list[str] = []
    page.page.on("request", lambda request: asked.append(request.url) if FRAGMENT in request.url else None)
    page.page.evaluate("window.unseen = true")
    page.page.clock.fast_forward(60_000)
    page.page.clock.fast_forward(60_000)
    assert asked == []
    with page.page.expect_request("**/*fragment=all"):
        page.page.evaluate("window.unseen = false; document.dispatchEvent(new Event('visibilitychange'))")


def test_the_forecast_comes_by_itself(page: Watched, own_place: Installed) -> None:
    page.open(f"{own_place.at}/template?name=spring-sale")
    expect(page.page.get_by_text("4 an hour at most")).to_be_visible()


def test_everything_is_reached_by_the_keyboard(page: Watched, own_place: Installed) -> None:
    page.open(f"{own_place.at}/action?id=remind:40")
    page.press("Tab")
    assert page.focused() == "Skip to the content"
    reached = []
    while (now := page.focused()) != "Cancel…":
        assert len(reached) < 30, reached
        reached.append(now)
        page.press("Tab")
    assert reached[1:10] == [
        "matrixsched", "Overview", "Actions", "Shards", "Templates", "Limits", "Semaphores", "Queues", "Audit",
    ]  # fmt: skip

    page.press("Enter")
    expect(page.page.get_by_role("heading", name="Cancel this action?")).to_be_visible()
    expect(page.page.get_by_role("button", name="Cancel the action")).to_be_focused()
    page.press("Escape")
    expect(page.page.get_by_role("heading", name="remind:40")).to_be_visible()
    assert own_place.ask(lambda app: app.get("remind:40")).status.state is State.LIVE

    page.open(f"{own_place.at}/change/cancel?id=remind:40")
    expect(page.page.get_by_role("button", name="Cancel the action")).to_be_focused()
    page.press("Enter")
    expect(page.page.get_by_text("✓ done")).to_be_visible()
    assert own_place.ask(lambda app: app.get("remind:40")).status.state is State.CANCELLED


def test_where_the_keyboard_is_can_be_seen(page: Watched, own_place: Installed) -> None:
    page.open(f"{own_place.at}/actions")
    page.press("Tab", "Tab", "Tab")
    outline = page.page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
