"""A request for a page: who asks, what for, and how the answer is rendered."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from matrixsched.app import App
from matrixsched.ops.operator import Operator
from matrixsched.ops.web.access import Role, Visitor
from matrixsched.ops.web.desk import Desk, desk_of, operator_of, visitor_of
from matrixsched.ops.web.pages import words
from matrixsched.ops.web.problems import Refused
from matrixsched.rules.audit import Via

WEB: Final = Path(__file__).parent.parent
STATIC: Final = WEB / "static"
FIELDS_MAX: Final = 100
NAVIGATION: Final = (
    ("", "Overview"),
    ("actions", "Actions"),
    ("shards", "Shards"),
    ("templates", "Templates"),
    ("limits", "Limits"),
    ("semaphores", "Semaphores"),
    ("queues", "Queues"),
    ("audit", "Audit"),
)


@cache
def environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(WEB / "templates", encoding="utf-8"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters.update(
        age=words.age,
        clock=words.clock_text,
        late=words.late_text,
        moment=words.moment,
        number=words.number,
        shown=words.shown,
        title=words.title,
        visible=words.visible,
    )
    return made


@cache
def static_version() -> str:
    """New with every change of a file, so that browsers may keep them for good."""
    files = sorted(path for path in STATIC.iterdir() if path.is_file())
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:12]


class Links:
    """Addresses of this site, wherever it is mounted."""

    def __init__(self, request: Request) -> None:
        self.root = str(request.scope.get("root_path", "")).rstrip("/")

    def __call__(self, page: str, **query: object) -> str:
        given = {name: str(value) for name, value in query.items() if value is not None and value != ""}
        return f"{self.root}/{page}" + (f"?{urlencode(given)}" if given else "")

    def static(self, name: str) -> str:
        return self(f"static/{name}", v=static_version())


class Visit:
    def __init__(self, request: Request, visitor: Visitor) -> None:
        self.request = request
        self.visitor = visitor
        self.desk: Desk = desk_of(request)
        self.app: App = self.desk.app
        self.to = Links(request)
        self._began = self.app.clock.monotonic()

    @property
    def now(self) -> datetime:
        return self.app.clock.now()

    @property
    def may_change(self) -> bool:
        return self.visitor.role >= Role.OPERATOR

    def asked(self, name: str) -> str:
        """What was asked for in the address; empty if nothing."""
        return self.request.query_params.get(name, "").strip()

    def asked_or_none(self, name: str) -> str | None:
        return self.asked(name) or None

    @property
    def fragment(self) -> str:
        return self.asked("fragment")

    async def form(self) -> Mapping[str, str]:
        return await read_form(self.request)

    def operator(self) -> Operator:
        return operator_of(self.request, Via.DASHBOARD)

    def show(self, file: str, /, *, status: HTTPStatus = HTTPStatus.OK, page: str = "", **facts: Any) -> Response:
        """The page, or the part of it that was asked for."""
        made = environment().get_template(file)
        fragment = self.fragment
        if fragment and f"live_{fragment}" not in made.blocks:
            raise Refused(HTTPStatus.NOT_FOUND, "this page has no such part: open it anew")
        layout = "fragment.html" if fragment else "base.html"
        text = made.render({**self.common(page), **facts, "layout": layout, "fragment": fragment})
        took = f"total;dur={(self.app.clock.monotonic() - self._began) * 1000:.1f}"
        return HTMLResponse(text, status_code=status, headers={"Server-Timing": took})

    def common(self, page: str) -> dict[str, Any]:
        now = self.now
        return {
            "to": self.to,
            "page": page,
            "navigation": NAVIGATION,
            "visitor": self.visitor,
            "has_tokens": bool(self.desk.access.tokens),
            "may_change": self.may_change,
            "installation": self.app.installation,
            "database": self.app.store.description,
            "now": now,
            "from_now": lambda at, since=now: words.from_now(at, since),
            "here": self.request.url.path + (f"?{self.request.url.query}" if self.request.url.query else ""),
        }


async def read_form(request: Request) -> Mapping[str, str]:
    """Fields as browsers send them; the last one of a name counts."""
    if not request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "this takes a form of the dashboard: open the page itself")
    try:
        return dict(parse_qsl((await request.body()).decode(), keep_blank_values=True, max_num_fields=FIELDS_MAX))
    except ValueError:
        raise Refused(HTTPStatus.BAD_REQUEST, "the form cannot be read: open the page again") from None


Look = Callable[[Visit], Awaitable[Response]]


def visited(look: Look) -> Callable[[Request], Awaitable[Response]]:
    """Whoever asks must be known, and the database be there."""

    async def endpoint(request: Request) -> Response:
        visitor = visitor_of(request)
        visit = Visit(request, visitor)
        async with visit.desk.open():
            return await look(visit)

    return endpoint
