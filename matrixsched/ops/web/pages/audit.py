"""What operators did, newest first."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from uuid import UUID

from starlette.responses import Response

from matrixsched.ops.render import title
from matrixsched.ops.web.pages.visit import Visit
from matrixsched.ops.web.pages.words import joined
from matrixsched.ops.web.problems import Refused
from matrixsched.rules.audit import AuditEntry, Via

PAGE = 50


async def show_audit(visit: Visit) -> Response:
    do = visit.app.store.transitions
    found = await visit.app.store.run(do.audit_page(read_cursor(visit.asked("before")), limit=PAGE))
    rows = [{"entry": entry, "changes": differences(entry.before, entry.after)} for entry in found]
    older = visit.to("audit", before=cursor_of(found[-1])) if len(found) == PAGE else None
    return visit.show("audit.html", page="audit", rows=rows, older=older, is_first=not visit.asked("before"))


def differences(before: Mapping[str, object], after: Mapping[str, object]) -> list[tuple[str, str | None, str | None]]:
    """Each field as it was and as it is; None where it was not told. What stayed as it was comes last."""
    rows = [
        (
            title(name),
            joined(before[name]) if name in before else None,
            joined(after[name]) if name in after else None,
        )
        for name in dict.fromkeys([*after, *before])
    ]
    return sorted(rows, key=lambda row: row[2] is None or row[1] == row[2])


def cursor_of(entry: AuditEntry) -> str:
    return f"{entry.asked_at.isoformat()}~{entry.guid}"


def read_cursor(text: str) -> AuditEntry | None:
    """The entry below which the page begins, as far as the database asks for it."""
    if not text:
        return None
    moment, _, guid = text.partition("~")
    try:
        return AuditEntry(
            guid=UUID(guid),
            asked_at=datetime.fromisoformat(moment).astimezone(UTC),
            who="",
            via=Via.DASHBOARD,
            verb="",
            subject="",
            before={},
            after={},
        )
    except (ValueError, OverflowError):
        raise Refused(HTTPStatus.BAD_REQUEST, "the address of this page is damaged: begin from the newest") from None
