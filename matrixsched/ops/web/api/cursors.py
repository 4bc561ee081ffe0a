"""Cursors: where a list goes on. Whoever has one sends it back as it is; what is in it is nobody's business."""

from __future__ import annotations

import base64
import json
from datetime import datetime
from http import HTTPStatus
from typing import Any, NoReturn
from uuid import UUID

from matrixsched.ops.web.problems import Refused
from matrixsched.rules.audit import AuditEntry, Via


def cursor_of(kind: str, *place: str | int) -> str:
    return base64.urlsafe_b64encode(json.dumps([kind, *place]).encode()).decode().rstrip("=")


def text_in(kind: str, cursor: str | None) -> str | None:
    """The name behind which a list goes on; None: at its beginning."""
    match _place(kind, cursor):
        case []:
            return None
        case [str(text)]:
            return text
    _refuse()


def number_in(kind: str, cursor: str | None) -> int:
    match _place(kind, cursor):
        case []:
            return 0
        case [int(number)]:
            return number
    _refuse()


def entry_cursor(entry: AuditEntry) -> str:
    return cursor_of("audit", entry.asked_at.isoformat(), str(entry.guid))


def entry_in(cursor: str | None) -> AuditEntry | None:
    """The last entry of the page before, as far as its place in the log goes."""
    match _place("audit", cursor):
        case []:
            return None
        case [str(asked_at), str(guid)]:
            try:
                at, known = datetime.fromisoformat(asked_at), UUID(guid)
            except ValueError:
                _refuse()
            if at.tzinfo is not None:
                return AuditEntry(
                    guid=known, who="", via=Via.API, verb="", subject="", before={}, asked_at=at, after={}
                )
    _refuse()


def _place(kind: str, cursor: str | None) -> list[Any]:
    if cursor is None:
        return []
    try:
        found = json.loads(base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True))
    except (ValueError, RecursionError):
        _refuse()
    if not isinstance(found, list) or found[:1] != [kind] or len(found) < 2:
        _refuse()
    return found[1:]


def _refuse() -> NoReturn:
    raise Refused(
        HTTPStatus.UNPROCESSABLE_ENTITY,
        "this cursor is not one of this list: send `next_cursor` of the page before as it is, or none to begin anew",
        errors=[{"parameter": "cursor", "detail": "is not one of this list"}],
    )
