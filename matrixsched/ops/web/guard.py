"""What every request passes first: it is of this machine where it must be, small, soon over, and of no other site.

Every answer gets headers by which browsers run no code but ours, show it in no frame and keep nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

import anyio
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from matrixsched.errors import shown
from matrixsched.ops.web.pages.errors import plain_page, wants_page
from matrixsched.ops.web.problems import Refused, problem

BODY_BYTES_MAX: Final = 8_000_000
REQUEST_MAX_S: Final = 30.0
PROXY_HEADERS: Final = ("forwarded", "x-real-ip")
PROXY_PREFIX: Final = "x-forwarded-"
"""What a reverse proxy adds: it is of this machine, and who asks it may be anybody."""
SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}


class Guard:
    def __init__(
        self,
        site: ASGIApp,
        *,
        only_local: bool,
        public_origin: str | None = None,
        body_bytes_max: int = BODY_BYTES_MAX,
        request_max_s: float = REQUEST_MAX_S,
    ) -> None:
        """`only_local`: requests of this machine alone, under a name of this machine, lest a page of somebody else's
        whose name is said to be here is let in. `public_origin`: where browsers find our pages, if a reverse proxy asks
        us by another name."""
        self._site = site
        self._public_origin = public_origin
        self._only_local = only_local
        self._body_bytes_max = body_bytes_max
        self._request_max_s = request_max_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._site(scope, receive, send)
            return
        answer = _Answer(send)
        headers = Headers(scope=scope)
        try:
            self._check(scope, headers)
            with anyio.fail_after(self._request_max_s):
                await self._site(scope, _Bounded(receive, headers, self._body_bytes_max), answer)
        except TimeoutError:
            await self._refuse(_too_late(scope["method"], self._request_max_s), scope, receive, answer)
        except Refused as refused:
            await self._refuse(refused, scope, receive, answer)

    async def _refuse(self, refused: Refused, scope: Scope, receive: Receive, answer: _Answer) -> None:
        if answer.has_begun:
            return
        request = Request(scope)
        told = plain_page(request, refused) if wants_page(request) else problem(refused, instance=scope["path"])
        await told(scope, receive, answer)

    def _check(self, scope: Scope, headers: Headers) -> None:
        if self._only_local:
            _check_local(scope, headers)
        if scope["method"] not in SAFE_METHODS:
            _check_same_site(headers, self._public_origin)


class _Answer:
    """Adds our headers to whatever is answered."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.has_begun = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.has_begun = True
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await self._send(message)


class _Bounded:
    """Reads a body up to a bound, whatever its header says."""

    def __init__(self, receive: Receive, headers: Headers, most: int) -> None:
        self._receive = receive
        self._most = most
        self._read = 0
        length = headers.get("content-length", "")
        if length.isdecimal() and int(length) > most:
            raise _too_large(most)

    async def __call__(self) -> Message:
        message = await self._receive()
        self._read += len(message.get("body", b""))
        if self._read > self._most:
            raise _too_large(self._most)
        return message


_GIVE_TOKENS: Final = (
    "set MATRIXSCHED_WEB_OPERATOR_TOKEN, or give dashboard() an operator_token, and show it with the request"
)


def _too_late(method: str, most_s: float) -> Refused:
    waited = f"this took longer than {most_s:g} s and was given up"
    if method in SAFE_METHODS:
        return Refused(HTTPStatus.SERVICE_UNAVAILABLE, f"{waited}: ask for less")
    return Refused(HTTPStatus.GATEWAY_TIMEOUT, f"{waited}: it may be done, or a part of it; look before you repeat it")


def _too_large(most: int) -> Refused:
    return Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body is larger than {most:,} bytes: send it in parts")


def _check_local(scope: Scope, headers: Headers) -> None:
    """Without tokens nobody else is let in, whoever passes the request on; nor who does not say who they are."""
    client = scope.get("client")
    host = urlsplit(f"//{headers.get('host', '')}").hostname or ""
    if client is None or not is_local(client[0]):
        raise Refused(HTTPStatus.FORBIDDEN, f"without tokens only this machine is answered: {_GIVE_TOKENS}")
    if any(name in PROXY_HEADERS or name.startswith(PROXY_PREFIX) for name in headers):
        raise Refused(
            HTTPStatus.FORBIDDEN, f"without tokens nobody is answered through a reverse proxy: {_GIVE_TOKENS}"
        )
    if not is_local(host):
        raise Refused(
            HTTPStatus.MISDIRECTED_REQUEST,
            "without tokens this answers only under a name of this machine, as in http://127.0.0.1:8190",
        )


def is_local(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _check_same_site(headers: Headers, public_origin: str | None) -> None:
    """Browsers say where a request comes from; programs say nothing."""
    site, origin, host = headers.get("sec-fetch-site"), headers.get("origin"), headers.get("host")
    if site is not None and site not in ("same-origin", "none"):
        raise Refused(HTTPStatus.FORBIDDEN, "a page of another site sent this: open the dashboard itself")
    if origin is None or origin == public_origin or urlsplit(origin).netloc == host:
        return
    detail = f"a page of {shown(origin)} sent this, and the header Host says that this is {shown(host or '')}"
    remedy = (
        "if that is another site, open the dashboard itself. If the dashboard lies there, behind a reverse proxy: let "
        "that pass on Host as it came (nginx: `proxy_set_header Host $host`), or set MATRIXSCHED_WEB_PUBLIC_URL, or "
        "the public_url of dashboard(), to what browsers ask for"
    )
    raise Refused(HTTPStatus.FORBIDDEN, f"{detail}: {remedy}")
