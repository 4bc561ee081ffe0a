"""Errors as answers: problem details as of RFC 9457, which say what is wrong and what to do, and no secret."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Final

from starlette.responses import JSONResponse

from matrixsched.errors import (
    ActionExists,
    ActionFinished,
    ActionNotAsSeen,
    BadInput,
    DatabaseBusy,
    DatabaseUnavailable,
    GuidMismatch,
    MatrixSchedError,
    OutcomeUnknown,
    PayloadTooLarge,
    RowMissing,
    SchemaMismatch,
    SchemaMissing,
    TaskTooLarge,
    TemplateInUse,
    UnknownQueue,
    UnknownTemplate,
)

MEDIA_TYPE: Final = "application/problem+json"

_STATUS: Final[tuple[tuple[type[MatrixSchedError], HTTPStatus], ...]] = (
    (PayloadTooLarge, HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
    (TaskTooLarge, HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
    (UnknownTemplate, HTTPStatus.NOT_FOUND),
    (UnknownQueue, HTTPStatus.NOT_FOUND),
    (BadInput, HTTPStatus.UNPROCESSABLE_ENTITY),
    (GuidMismatch, HTTPStatus.PRECONDITION_FAILED),
    (ActionExists, HTTPStatus.CONFLICT),
    (ActionFinished, HTTPStatus.CONFLICT),
    (ActionNotAsSeen, HTTPStatus.CONFLICT),
    (TemplateInUse, HTTPStatus.CONFLICT),
    (OutcomeUnknown, HTTPStatus.GATEWAY_TIMEOUT),
    (DatabaseBusy, HTTPStatus.SERVICE_UNAVAILABLE),
    (DatabaseUnavailable, HTTPStatus.SERVICE_UNAVAILABLE),
    (SchemaMissing, HTTPStatus.SERVICE_UNAVAILABLE),
    (SchemaMismatch, HTTPStatus.SERVICE_UNAVAILABLE),
    (RowMissing, HTTPStatus.SERVICE_UNAVAILABLE),
)
"""The first that fits; whatever was looked up and is not there is not found, and anything else is our fault."""


class Refused(Exception):
    """A request that is answered by a problem, wherever that is found out."""

    def __init__(
        self,
        status: HTTPStatus,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        errors: Sequence[Mapping[str, str]] = (),
    ) -> None:
        """`errors` tell what is wrong with which part of the request, where there may be several."""
        super().__init__(detail)
        self.status, self.detail, self.headers, self.errors = status, detail, dict(headers or {}), list(errors)


def status_of(error: MatrixSchedError) -> HTTPStatus:
    for kind, status in _STATUS:
        if isinstance(error, kind):
            return status
    return HTTPStatus.NOT_FOUND if isinstance(error, LookupError) else HTTPStatus.INTERNAL_SERVER_ERROR


def refusal_of(error: MatrixSchedError) -> Refused:
    status = status_of(error)
    headers = {"Retry-After": "1"} if status is HTTPStatus.SERVICE_UNAVAILABLE else {}
    return Refused(status, str(error), headers=headers)


def half_way(done: Sequence[Mapping[str, object]], error: MatrixSchedError) -> Refused:
    """An error after something was done already: that stays, and nobody may be told that nothing was."""
    said = "; ".join(", ".join(f"{name} {value}" for name, value in one.items()) for one in done if one)
    return Refused(
        HTTPStatus.GATEWAY_TIMEOUT,
        f"this stopped half-way. What is done stays done{f' ({said})' if said else ''}: see how it stands, and send "
        f"the same again to go on. It was stopped by: {error}",
    )


def problem(refused: Refused, *, instance: str = "") -> JSONResponse:
    """`type` is about:blank: the status tells the kind, `detail` what is wrong here and what to do."""
    body: dict[str, object] = {
        "type": "about:blank",
        "title": refused.status.phrase,
        "status": int(refused.status),
        "detail": refused.detail,
    }
    body |= ({"instance": instance} if instance else {}) | ({"errors": refused.errors} if refused.errors else {})
    return JSONResponse(body, status_code=refused.status, headers=refused.headers, media_type=MEDIA_TYPE)
