"""From a request to its endpoint, and from what that returns to an answer."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote, unquote, unquote_to_bytes

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from matrixsched.errors import MatrixSchedError
from matrixsched.ops.web.access import Access, Role, Visitor
from matrixsched.ops.web.api.endpoint import Asked, Endpoint, Reply
from matrixsched.ops.web.api.reading import JSON, read_body, read_guid, read_query, read_request_id
from matrixsched.ops.web.api.remedies import refusal_of
from matrixsched.ops.web.api.table import ENDPOINTS, PREFIX
from matrixsched.ops.web.confided import check_confided
from matrixsched.ops.web.desk import desk_of, operator_of, telling_what_is_done, visitor_of
from matrixsched.ops.web.problems import Refused
from matrixsched.rules.audit import Via

CSRF_HEADER: Final = "x-csrf-token"


def api_routes() -> list[BaseRoute]:
    api = Api(ENDPOINTS)
    return [Route(PREFIX, api), Route(f"{PREFIX}/{{rest:path}}", api)]


class Api:
    """All endpoints, as one application: it looks at the path as it was sent, which Starlette's own routes do not."""

    def __init__(self, endpoints: tuple[Endpoint, ...]) -> None:
        self._by_path: dict[tuple[str, ...], dict[str, Endpoint]] = {}
        for endpoint in endpoints:
            self._by_path.setdefault(endpoint.segments, {})[endpoint.method] = endpoint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            response = await self._answer(request)
        except MatrixSchedError as error:
            raise refusal_of(error) from error
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        visitor = visitor_of(request)  # nobody learns anything before it is known who asks
        prefix, segments = _split(request.scope)
        endpoint, path = self._find(request.method, segments)
        desk = desk_of(request)
        who = operator_of(request, Via.API) if endpoint.role is Role.OPERATOR else None
        if endpoint.is_change and visitor.has_session:
            _check_genuine(desk.access, visitor, request)
        asked = Asked(
            desk=desk,
            who=who,
            path=path,
            prefix=prefix,
            expected_guid=read_guid(request.headers) if endpoint.takes_guid else None,
            request_id=read_request_id(request.headers) if endpoint.takes_request_id else None,
        )
        given: dict[str, Any] = {}
        query = read_query(request, endpoint.query)
        if any(getattr(query, name) for name in endpoint.confided):
            check_confided(visitor)
        if endpoint.query is not None:
            given["query"] = query
        if endpoint.is_change:
            body = await read_body(request, endpoint.body)
            if endpoint.body is not None:
                given["body"] = body
        async with desk.open():
            with telling_what_is_done(who):
                return respond(await endpoint.function(asked, **given))

    def _find(self, method: str, segments: tuple[str, ...]) -> tuple[Endpoint, Mapping[str, str]]:
        known = next((known for known in self._by_path if _fits(known, segments)), None)
        if known is None:
            raise Refused(
                HTTPStatus.NOT_FOUND, f"there is no such path: GET {PREFIX}/openapi.json tells which there are"
            )
        here = self._by_path[known]
        endpoint = here.get("GET" if method == "HEAD" else method)
        if endpoint is None:
            allowed = ", ".join(sorted({*here, *(["HEAD"] if "GET" in here else [])}))
            raise Refused(HTTPStatus.METHOD_NOT_ALLOWED, f"this path knows {allowed}", headers={"Allow": allowed})
        places = zip(known, segments, strict=True)
        return endpoint, {name.strip("{}"): _text(raw) for name, raw in places if name[:1] == "{"}


def _fits(known: tuple[str, ...], segments: tuple[str, ...]) -> bool:
    """No two paths fit the same segments: whatever may be an id is no word of ours in its place."""
    return len(known) == len(segments) and all(
        mine == theirs or (mine[:1] == "{" and theirs) for mine, theirs in zip(known, segments, strict=True)
    )


def _check_genuine(access: Access, visitor: Visitor, request: Request) -> None:
    if not access.is_genuine(visitor, request.headers.get(CSRF_HEADER, "")):
        raise Refused(
            HTTPStatus.FORBIDDEN,
            "a browser that is signed in proves by the header X-CSRF-Token that a page of ours asks for this",
        )


def _split(scope: Scope) -> tuple[str, tuple[str, ...]]:
    """What stands before our paths, and the segments of ours, as they were sent: %2F divides none."""
    root = scope.get("root_path", "").rstrip("/") + PREFIX
    raw: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
    sent = raw.decode("latin-1").split("/")
    for before in (root, PREFIX):  # some servers tell the path without what they serve us under
        count = before.count("/") + 1
        if unquote("/".join(sent[:count])) == before:
            return quote(root), tuple(sent[count:])
    return quote(root), tuple(quote(segment) for segment in scope["path_params"].get("rest", "").split("/"))


def _text(segment: str) -> str:
    try:
        return unquote_to_bytes(segment).decode()
    except UnicodeDecodeError:
        raise Refused(HTTPStatus.BAD_REQUEST, "the path is not UTF-8, percent-encoded: encode it as such") from None


def respond(returned: BaseModel | Reply[Any] | None) -> Response:
    if returned is None:
        return Response(status_code=HTTPStatus.NO_CONTENT)
    reply = returned if isinstance(returned, Reply) else Reply(returned)
    # What was not asked for is not set, and not told: payloads.
    content = reply.answer.model_dump_json(exclude_unset=True)
    return Response(content, status_code=reply.status, headers=dict(reply.headers), media_type=JSON)
