"""Every change, clicked through by hand: asked, confirmed, told, done, and in the audit log."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta

import pytest
from playwright.sync_api import Browser
from support.installed import Installed
from support.watching import Watched, watched
from support.web_api import OPERATOR, VIEWER

from matrixsched import App
from matrixsched.ops.operator import audit_page
from matrixsched.ops.queues import storage_of
from matrixsched.rules.action import State

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

Seen = Callable[[App], Awaitable[object]]


@dataclass(frozen=True)
class Click:
    page: str
    link: str
    """What leads to the question; an input that has to be filled before stands in `typed`."""
    button: str
    verb: str
    seen: Seen
    after: object
    typed: tuple[tuple[str, str], ...] = ()
    role: str = "link"


async def state(app: App, id: str) -> State:
    return (await app.get(id)).status.state


async def paused(app: App, name: str) -> bool:
    return (await app.templates.get(name)).is_paused(app.clock.now())


async def is_due(app: App, id: str) -> bool:
    return (await app.get(id)).status.scheduled_at <= app.clock.now()


async def away(app: App, id: str) -> timedelta:
    return (await app.get(id)).status.scheduled_at - app.clock.now()


async def cancelled(app: App, prefix: str) -> int:
    return len(await app.list(state=State.CANCELLED, id_prefix=prefix, limit=1000))


async def failed(app: App) -> int:
    return len(await app.list(state=State.FAILED, limit=1000))


async def held(app: App, shard: int) -> bool:
    return (await app.shards())[shard].locked


async def templates(app: App) -> bool:
    return "receipts" in [one.name for one in await app.templates.list()]


async def limit(app: App, name: str) -> str | None:
    return next((str(one.rate) for one in await app.limits.list() if one.name == name), None)


async def slowed(app: App) -> bool:
    return (await app.limits.get("handler:send_sms")).is_slowed(app.clock.now())


async def active(app: App) -> int:
    return (await app.semaphores.settings("accounts")).active


async def holds(app: App) -> bool:
    return "account-4" in [one.id for one in await (await app.semaphores.get("accounts")).holders()]


async def queue_paused(app: App) -> bool:
    return next(one.paused for one in await storage_of(app).settings() if one.queue == 7)


async def dead(app: App) -> int:
    return (await storage_of(app).stat())[7].dead


CLICKS = [
    Click(
        "/action?id=remind:40",
        "Cancel…",
        "Cancel the action",
        "cancel",
        lambda app: state(app, "remind:40"),
        "cancelled",
    ),
    Click("/action?id=remind:41", "Run now…", "Run it now", "run_now", lambda app: is_due(app, "remind:41"), True),
    Click(
        "/action?id=remind:40", "Run once more…", "Run it now", "run_now", lambda app: state(app, "remind:40"), "live"
    ),
    Click(
        "/action?id=sms:order-1001",
        "Redrive…",
        "Run it now",
        "redrive",
        lambda app: state(app, "sms:order-1001"),
        "live",
    ),
    Click(
        "/action?id=remind:42",
        "Reschedule…",
        "Reschedule it",
        "reschedule",
        lambda app: away(app, "remind:42"),
        timedelta(hours=2),
        (("when", "2h"),),
        "button",
    ),
    Click(
        "/actions?q=remind:5",
        "Cancel all that fit…",
        "Cancel them",
        "cancel",
        lambda app: cancelled(app, "remind:5"),
        10,
    ),
    Click("/actions?q=remind:6", "Run all now…", "Run them now", "run_now", lambda app: is_due(app, "remind:69"), True),
    Click("/actions?state=failed", "Redrive all that fit…", "Redrive them", "redrive", failed, 0),
    Click("/shards", "Release…", "Release the shard", "release_shard", lambda app: held(app, 2), False),
    Click(
        "/template?name=newsletter",
        "Pause…",
        "Pause the template",
        "pause_template",
        lambda app: paused(app, "newsletter"),
        True,
    ),
    Click(
        "/template?name=newsletter",
        "Resume…",
        "Resume it",
        "resume_template",
        lambda app: paused(app, "newsletter"),
        False,
    ),
    Click(
        "/template?name=newsletter",
        "Pause…",
        "Pause the template",
        "pause_template",
        lambda app: paused(app, "newsletter"),
        True,
        (("until", "30m"),),
        "button",
    ),
    Click(
        "/template?name=spring-sale",
        "Stop campaign…",
        "Cancel all its messages",
        "stop_template",
        lambda app: app.templates.count("spring-sale"),
        0,
    ),
    Click("/template?name=receipts", "Remove…", "Remove the template", "remove_template", templates, False),
    Click(
        "/limits",
        "Set…",
        "Set the limit",
        "set_limit",
        lambda app: limit(app, "handler:remind"),
        "7/s",
        (("name", "handler:remind"), ("rate", "7/s"), ("pool", "2")),
        "button",
    ),
    Click("/limits", "Resume…", "End the slow-down", "resume_limit", slowed, False),
    Click("/limits", "Remove…", "Remove the limit", "remove_limit", lambda app: limit(app, "global"), None),
    Click(
        "/semaphore?key=accounts", "Change…", "Change it", "update_semaphore", active, 5, (("active", "5"),), "button"
    ),
    Click("/semaphore?key=accounts", "Release…", "Release the task", "release_tasks", holds, False),
    Click("/queue?queue=7", "Pause…", "Pause the queue", "pause_queue", queue_paused, True),
    Click("/queue?queue=7", "Resume…", "Resume the queue", "resume_queue", queue_paused, False),
    Click("/queue?queue=7", "Redrive…", "Redrive", "redrive_queue", dead, 2),
    Click("/queue?queue=7", "Purge…", "Delete for good", "purge_queue_dead", dead, 1),
    Click("/queue?queue=7", "Redrive all…", "Redrive", "redrive_queue", dead, 0),
]


def test_every_change_is_clicked_through(page: Watched, own_place: Installed) -> None:
    for click in CLICKS:
        carry_out(page, own_place, click)


def carry_out(page: Watched, place: Installed, click: Click) -> None:
    place.clock.advance(timedelta(seconds=1))  # so that the entries of the log have an order
    before = place.ask(click.seen)
    assert before != click.after, click
    page.open(place.at + click.page)
    for name, text in click.typed:
        page.page.locator(f"[name={name}]:visible").fill(text)
    page.click(click.link, click.role)
    assert "No, go back" in page.text, click
    page.click("No, go back")
    assert place.ask(click.seen) == before, "who says no changes nothing"
    page.page.go_back()
    page.click(click.button, "button")
    assert "✓ done" in page.text, page.text
    assert place.ask(click.seen) == click.after, click
    page.click("Audit log")
    assert page.page.locator("tbody tr").count() >= 1
    latest = place.ask(lambda app: audit_page(app, limit=1))[0]
    assert (latest.verb, latest.who) == (click.verb, "local (127.0.0.1)")


def test_it_works_without_a_script(chromium: Browser, own_place: Installed) -> None:
    with watched(chromium, java_script_enabled=False) as page:
        carry_out(page, own_place, CLICKS[0])
        page.open(f"{own_place.at}/template?name=spring-sale")
        page.click("Work out the forecast")
        assert "an hour at most" in page.text


def test_what_changed_meanwhile_is_told_and_left_alone(page: Watched, own_place: Installed) -> None:
    page.open(f"{own_place.at}/change/cancel?id=remind:40")
    own_place.ask(lambda app: app.reschedule("remind:40", delay=timedelta(hours=3)))
    page.click("Cancel the action", "button")
    assert "412" in page.text
    assert own_place.ask(lambda app: state(app, "remind:40")) is State.LIVE
    page.forgive("status of 412")


def test_signing_in_looking_and_signing_out(page: Watched, closed_place: Installed) -> None:
    page.open(f"{closed_place.at}/action?id=remind:40")
    page.page.get_by_label("Token").fill("wrong")
    page.click("Sign in", "button")
    assert "not the token" in page.text
    page.forgive("status of 401")
    page.page.get_by_label("Token").fill(VIEWER)
    page.page.get_by_label("Your name").fill("vera")
    page.click("Sign in", "button")
    assert "it is not due yet" in page.text
    assert "vera" in page.text
    assert page.page.get_by_role("link", name="Cancel…").count() == 0
    page.click("Sign out", "button")
    page.page.get_by_label("Token").fill(OPERATOR)
    page.click("Sign in", "button")
    page.open(f"{closed_place.at}/action?id=remind:40")
    page.click("Cancel…")
    page.click("Cancel the action", "button")
    assert "✓ done" in page.text
