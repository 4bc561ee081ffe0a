"""The dashboard, asked without a server: as a browser of this machine asks it, or one with a token."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from html import unescape

import httpx

from matrixsched import App
from matrixsched.ops.operator import audit_page
from matrixsched.ops.web.access import Access, Tokens
from matrixsched.ops.web.desk import Desk
from matrixsched.ops.web.guard import Guard
from matrixsched.ops.web.site import site
from matrixsched.rules.audit import AuditEntry

HERE = "http://127.0.0.1:8190"
BROWSER = {"Accept": "text/html,application/xhtml+xml"}


@dataclass
class Visitor:
    """Somebody with a browser, but without a script."""

    client: httpx.AsyncClient
    app: App

    async def open(self, path: str) -> httpx.Response:
        return await self.client.get(path)

    async def read(self, path: str) -> str:
        answer = await self.open(path)
        assert answer.status_code == 200, answer.text
        return answer.text

    async def send(self, path: str, fields: dict[str, str]) -> httpx.Response:
        return await self.client.post(path, data=fields)

    async def confirm(self, path: str) -> httpx.Response:
        """Open the page that asks, and say yes."""
        asked = await self.read(path)
        return await self.send(path.partition("?")[0], fields_of(asked))

    async def audited(self) -> list[AuditEntry]:
        return await audit_page(self.app)


def fields_of(page: str) -> dict[str, str]:
    """The hidden fields of the form that asks."""
    form = page.rpartition('<form method="post" action="')[2].partition("</form>")[0]
    found = re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)">', form)
    return {name: unescape(value) for name, value in found}


@asynccontextmanager
async def visiting(app: App, tokens: Tokens | None = None, **options: object) -> AsyncIterator[Visitor]:
    desk = Desk(app, Access(tokens or Tokens(), secret=b"a secret", clock=app.clock))
    guarded = Guard(site(desk), only_local=tokens is None)
    transport = httpx.ASGITransport(guarded, client=("127.0.0.1", 4711))
    async with httpx.AsyncClient(transport=transport, base_url=HERE, headers=BROWSER, **options) as client:  # type: ignore[arg-type]
        try:
            yield Visitor(client, app)
        finally:
            await desk.close()
