"""Errors as pages, with the same words as the problems that programs get."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response

from matrixsched.ops.web.desk import desk_of
from matrixsched.ops.web.pages.visit import Links, Visit, environment
from matrixsched.ops.web.problems import Refused


def wants_page(request: Request) -> bool:
    """Whether a person looks at the answer: browsers say that they take HTML, programs do not."""
    accepted = request.headers.get("accept", "")
    return "text/html" in accepted and not request.url.path.startswith(f"{Links(request).root}/api/")


def error_page(request: Request, refused: Refused) -> Response:
    to = Links(request)
    if request.query_params.get("fragment"):
        return PlainTextResponse(refused.detail, refused.status, headers=refused.headers)
    if refused.status is HTTPStatus.UNAUTHORIZED:
        here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        wanted = here if request.method == "GET" else ""
        return RedirectResponse(to("sign-in", next=wanted), HTTPStatus.SEE_OTHER)
    visitor = desk_of(request).access.visitor(request)
    facts: dict[str, Any] = {"refused": refused, "searched": request.query_params.get("id", "")}
    if visitor is None:
        return plain_page(request, refused)
    answer = Visit(request, visitor).show("error.html", status=refused.status, **facts)
    answer.headers.update(refused.headers)
    return answer


def plain_page(request: Request, refused: Refused) -> Response:
    """For whoever is not known, or did not even come in."""
    text = environment().get_template("refused.html").render(to=Links(request), refused=refused)
    return HTMLResponse(text, status_code=refused.status, headers=refused.headers)
