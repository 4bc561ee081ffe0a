"""Cursors: where a list goes on. Whoever has one sends it back as it is; what is in it is nobody's business."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, NoReturn
from uuid import UUID

from matrixsched.errors import BadInput
from matrixsched.ops.bulk import GoesOn
from matrixsched.ops.web.problems import Refused
from matrixsched.rules.action import State
from matrixsched.rules.audit import AuditEntry, Via
from matrixsched.rules.names import SHARDS_MAX, check_name
from matrixsched.rules.times import check_integer
from matrixsched.store.looking import Place


def cursor_of(kind: str, *place: str | int | None) -> str:
    return base64.urlsafe_b64encode(json.dumps([kind, *place], ensure_ascii=False).encode()).decode().rstrip("=")


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


def place_cursor(kind: str, place: Place) -> str:
    ended = "" if place.finished_at is None else place.finished_at.isoformat()
    return cursor_of(kind, place.shard, place.id, ended)


def place_in(kind: str, cursor: str | None) -> Place | None:
    match _place(kind, cursor):
        case []:
            return None
        case [int(shard), str(action_id), str(ended)] if 0 <= shard < 2**31:
            try:
                check_name("id", action_id)
            except BadInput:
                _refuse()
            return Place(shard, action_id, _instant(ended) if ended else None)
    _refuse()


def _instant(text: str) -> datetime:
    try:
        at = datetime.fromisoformat(text)
        if at.tzinfo is not None:
            return at.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    _refuse()


def entry_cursor(entry: AuditEntry) -> str:
    return cursor_of("audit", entry.asked_at.isoformat(), str(entry.guid))


def entry_in(cursor: str | None) -> AuditEntry | None:
    """The last entry of the page before, as far as its place in the log goes."""
    match _place("audit", cursor):
        case []:
            return None
        case [str(asked_at), str(guid)]:
            at = _instant(asked_at)
            try:
                known = UUID(guid)
            except ValueError:
                _refuse()
            return AuditEntry(guid=known, who="", via=Via.API, verb="", subject="", before={}, asked_at=at, after={})
    _refuse()


def part_cursor(mark: str, goes_on: GoesOn) -> str:
    """Of a change of many; `mark` is of the request that it is for."""
    place = goes_on.place
    where = (None, None, None) if place is None else (place.shard, place.id, _text(place.finished_at))
    return cursor_of("part", mark, _text(goes_on.began_at), goes_on.state, *where, goes_on.named)


def part_in(mark: str, states: Sequence[State], cursor: str | None) -> GoesOn | None:
    """Only of the same request, one of these states."""
    match _place("part", cursor):
        case []:
            return None
        case [str(known), str(began), (None | str()) as state, shard, id, ended, int(named)] if known == mark:
            try:
                place = None if id is None else Place(_shard(shard), check_name("cursor", id), _moment(ended))
                known_state = None if state is None else states[states.index(State(state))]
                return GoesOn(_known(began), known_state, place, max(0, named))
            except (TypeError, ValueError, OverflowError):  # nobody but us makes one that gets here, and is right
                _refuse()
    _refuse()


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


def _moment(text: str | None) -> datetime | None:
    return None if text is None else _known(text)


def _known(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def _shard(number: int) -> int:
    return check_integer("cursor", number, least=0, most=SHARDS_MAX)


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
