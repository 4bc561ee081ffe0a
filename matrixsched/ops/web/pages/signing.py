"""Signing in with a token, and out again. The browser keeps a session, not the token."""

from __future__ import annotations

from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from matrixsched.ops.web.access import SESSION_COOKIE, SESSION_S, Role
from matrixsched.ops.web.desk import desk_of
from matrixsched.ops.web.pages.changing import check_form
from matrixsched.ops.web.pages.visit import Links, Visit, environment, read_form


async def show_sign_in(request: Request) -> Response:
    return _form(request, local_path(request, request.query_params.get("next", "")))


async def sign_in(request: Request) -> Response:
    fields = await read_form(request)
    wanted = local_path(request, fields.get("next", ""))
    access = desk_of(request).access
    role = access.tokens.role_of(fields.get("token", ""))
    if role is None:
        return _form(request, wanted, "This is not the token of a viewer or an operator.", HTTPStatus.UNAUTHORIZED)
    answer = RedirectResponse(wanted, HTTPStatus.SEE_OTHER)
    answer.set_cookie(
        SESSION_COOKIE,
        access.session(Role(role), fields.get("name", "")),
        max_age=SESSION_S,
        path=Links(request).root or "/",
        httponly=True,
        samesite="strict",
        secure=desk_of(request).is_over_https(request),
    )
    return answer


async def sign_out(visit: Visit) -> Response:
    check_form(visit, await visit.form())
    answer = RedirectResponse(visit.to("sign-in"), HTTPStatus.SEE_OTHER)
    answer.delete_cookie(SESSION_COOKIE, path=visit.to.root or "/", httponly=True, samesite="strict")
    return answer


def local_path(request: Request, wanted: str) -> str:
    """Where to go after signing in: a page of this site, whatever somebody put into the address."""
    root = Links(request).root
    is_ours = wanted.startswith(f"{root}/") and not wanted.startswith("//")
    is_plain = wanted.isprintable() and "\\" not in wanted
    return wanted if is_ours and is_plain else f"{root}/"


def _form(request: Request, wanted: str, said: str = "", status: HTTPStatus = HTTPStatus.OK) -> Response:
    text = environment().get_template("sign_in.html").render(to=Links(request), wanted=wanted, said=said)
    return HTMLResponse(text, status_code=status)
