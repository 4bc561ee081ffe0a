#!/usr/bin/env python3
"""Pictures of the dashboard for the documents: `.venv/bin/python tools/screenshots.py`; the same each time.

They go to docs/screenshots/, in the light, in the dark and as on a phone; smaller where pngquant is installed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]  # for support, which fills an installation and drives the browser

import anyio  # noqa: E402
from playwright.sync_api import Browser  # noqa: E402
from support.browser import BrowserUnavailable, browser  # noqa: E402
from support.furnished import furnish  # noqa: E402
from support.serving import served  # noqa: E402

from matrixsched import App  # noqa: E402
from matrixsched.calls import call  # noqa: E402
from matrixsched.clock import ManualClock, SeededChance  # noqa: E402
from matrixsched.web import dashboard  # noqa: E402
from matrixsched.worker import Worker  # noqa: E402

TARGET = ROOT / "docs" / "screenshots"
BYTES_MAX = 150_000
SENT = 40
"""Messages of a campaign of one a second."""
NOW = datetime(2030, 1, 15, 14, 37, 20, tzinfo=UTC)
URL = "sqlite:///shop.db"

WIDE: dict[str, Any] = {"viewport": {"width": 1200, "height": 760}, "color_scheme": "light"}
TALL = {**WIDE, "viewport": {"width": 1200, "height": 1150}}
DARK = {**WIDE, "color_scheme": "dark"}
PHONE = {"viewport": {"width": 390, "height": 844}, "color_scheme": "light", "is_mobile": True, "has_touch": True}
PICTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "overview-light": ("/", WIDE),
    "overview-dark": ("/", DARK),
    "overview-phone": ("/", PHONE),
    "actions-light": ("/actions?state=failed", WIDE),
    "action-dark": ("/action?id=orphan:1", DARK),
    "action-phone": ("/action?id=sms:order-1001", PHONE),
    "shards-light": ("/shards", WIDE),
    "templates-light": ("/templates", WIDE),
    "template-light": ("/template?name=spring-sale", TALL),
    "limits-dark": ("/limits", DARK),
    "semaphores-light": ("/semaphores", WIDE),
    "semaphore-dark": ("/semaphore?key=accounts", DARK),
    "queues-light": ("/queues", WIDE),
    "queue-phone": ("/queue?queue=7", PHONE),
    "audit-light": ("/audit", WIDE),
    "confirm-phone": ("/change/cancel?id=remind:40", PHONE),
    "confirm-many-light": ("/change/bulk_cancel?state=live&handler=remind", WIDE),
    "sign-in-dark": ("/sign-in", DARK),
}


async def fill(clock: ManualClock) -> None:
    app = App(URL, clock=clock, chance=SeededChance(1))
    await app.init(shards=8)
    async with app:
        await furnish(app, clock)
        await app.templates.set("spring-sale", max_speed="60/min")
        evening = "Asia/Tashkent"  # now in one of the windows of that template
        await app.schedule_many(
            call("remind", id=f"sale-now:{number}", template="spring-sale", zone=evening) for number in range(90)
        )
        worker = Worker(app)
        for _ in range(SENT):
            clock.advance(timedelta(seconds=1))
            await worker.run_due()


def take(chromium: Browser, address: str, options: dict[str, Any], target: Path) -> None:
    context = chromium.new_context(**options)
    page = context.new_page()
    page.goto(address)
    page.locator(".waiting-for").wait_for(state="detached")
    if "/audit" in address:
        page.locator("summary").nth(2).click()
    page.screenshot(path=target, animations="disabled")
    context.close()


def shrunk(picture: Path) -> None:
    if shutil.which("pngquant") is not None:
        subprocess.run(["pngquant", "--force", "--skip-if-larger", "--output", str(picture), str(picture)], check=True)
    if picture.stat().st_size > BYTES_MAX:
        sys.exit(f"{picture.name} has {picture.stat().st_size:,} bytes: install pngquant, or show less in it")


def main() -> None:
    TARGET.mkdir(parents=True, exist_ok=True)
    clock = ManualClock(NOW)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        anyio.run(fill, clock)
        clock.advance(timedelta(seconds=12))
        site = dashboard(App(URL, clock=clock, chance=SeededChance(2)))
        with served(site) as at, browser() as chromium:
            for name, (path, options) in PICTURES.items():
                take(chromium, at + path, options, TARGET / f"{name}.png")
                shrunk(TARGET / f"{name}.png")
                print(f"docs/screenshots/{name}.png")


if __name__ == "__main__":
    try:
        main()
    except BrowserUnavailable as error:
        sys.exit(str(error))
