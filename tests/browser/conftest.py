"""A real browser before the dashboard of an installation with something of everything in it.

The browser's driver keeps an event loop in its thread: so it is closed at the end of a module, before other tests want
the thread.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser
from support.browser import BrowserUnavailable, browser
from support.installed import Installed, installed
from support.watching import Watched, watched
from support.web_api import OPERATOR, VIEWER


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    reason = ""
    try:
        with browser() as one:
            yield one
    except BrowserUnavailable as error:
        reason = str(error)
    if reason:
        left_out(reason)


def left_out(reason: str) -> None:
    """For a newcomer without a browser; where a suite without them would pass for a whole one it is a failure."""
    if os.environ.get("MATRIXSCHED_REQUIRE_TOOLS") == "1":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    yield from installed(f"sqlite:///{tmp_path_factory.mktemp('browser')}/test.db")


@pytest.fixture(scope="module")
def hostile_place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    yield from installed(f"sqlite:///{tmp_path_factory.mktemp('hostile')}/test.db", hostile=True)


@pytest.fixture
def own_place(tmp_path: Path) -> Iterator[Installed]:
    """One that a test may change as it likes."""
    yield from installed(f"sqlite:///{tmp_path}/test.db")


@pytest.fixture
def closed_place(tmp_path: Path) -> Iterator[Installed]:
    """One that asks for a token."""
    yield from installed(f"sqlite:///{tmp_path}/test.db", viewer_token=VIEWER, operator_token=OPERATOR)


@pytest.fixture
def page(chromium: Browser) -> Iterator[Watched]:
    """At the end nothing may have gone wrong in it that the test does not know of."""
    with watched(chromium) as one:
        yield one
