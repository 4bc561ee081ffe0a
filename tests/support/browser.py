"""A real browser for tests: Debian's chromium, driven through playwright."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--disable-quic",
]
APT_MAX_S = 300.0


class BrowserUnavailable(Exception):
    """There is none, and it cannot be had; the message says why."""


@contextmanager
def browser() -> Iterator[Browser]:
    program = found() or installed()
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=ARGUMENTS)
        try:
            yield chromium
        finally:
            chromium.close()


def found() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser")


def installed() -> str:
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        raise BrowserUnavailable("chromium is not here, and only root can fetch it: apt-get install chromium")
    for arguments in (["update"], ["install", "--yes", "--no-install-recommends", "chromium"]):
        done = subprocess.run(
            ["apt-get", "--quiet", *arguments],
            capture_output=True,
            text=True,
            timeout=APT_MAX_S,
            env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"},
        )
    program = found()
    if program is None:
        raise BrowserUnavailable(f"Debian's chromium cannot be had: {done.stderr.strip()[-200:]}")
    return program
