"""A page of a browser, with an eye on all that must not happen: dialogs, errors, refused code, foreign hosts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, Dialog, Page

TELL_VIOLATIONS = """
addEventListener("securitypolicyviolation", (event) => {
  console.error(`content security policy: ${event.violatedDirective} ${event.blockedURI}`);
});
"""


class Watched:
    def __init__(self, page: Page) -> None:
        self.page = page
        self._told: list[str] = []
        self._forgiven: list[str] = []
        page.on("dialog", self._dialog)
        page.on("pageerror", lambda error: self._told.append(f"error: {error}"))
        page.on("console", lambda told: self._told.append(f"{told.type}: {told.text}") if told.type != "log" else None)
        page.on("request", lambda request: self._asked(request.url))

    def _dialog(self, dialog: Dialog) -> None:
        self._told.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _asked(self, url: str) -> None:
        if urlsplit(url).hostname not in ("127.0.0.1", None):
            self._told.append(f"asked another host: {url}")

    @property
    def wrong(self) -> list[str]:
        """What went wrong, but for what the test asked for."""
        return [one for one in self._told if not any(known in one for known in self._forgiven)]

    def forgive(self, *known: str) -> None:
        """Browsers note every refusal of a server, also those that are wanted."""
        self._forgiven += known

    def open(self, url: str) -> int:
        answer = self.page.goto(url)
        assert answer is not None
        return answer.status

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def click(self, name: str, role: Any = "link") -> None:
        self.page.get_by_role(role, name=name, exact=True).first.click()

    @property
    def text(self) -> str:
        return self.page.locator("body").inner_text()

    @property
    def overflows(self) -> bool:
        """Whether it is wider than the window: then half of it is hidden on a phone."""
        return bool(self.page.evaluate("document.documentElement.scrollWidth > innerWidth"))

    def focused(self) -> str:
        """The words on what the keyboard is at."""
        return str(self.page.evaluate("(document.activeElement.innerText || document.activeElement.name || '').trim()"))


@contextmanager
def watched(chromium: Browser, **options: Any) -> Iterator[Watched]:
    context = chromium.new_context(**options)
    context.add_init_script(TELL_VIOLATIONS)
    one = Watched(context.new_page())
    yield one
    context.close()
    assert not one.wrong, one.wrong
