"""Every change in two steps: a page that says what will be done and asks, and a form in it that does it.

The first step is a GET and changes nothing. The form carries what was shown (a guid, mostly): if that is not so any
more, nothing is done. It also carries a proof that it is a form of ours, made for whoever sends it.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from uuid import UUID

from starlette.responses import Response

from matrixsched.ops.operator import Operator
from matrixsched.ops.render import Facts, differences, plain
from matrixsched.ops.web.desk import telling_what_is_done
from matrixsched.ops.web.pages.visit import Visit
from matrixsched.ops.web.problems import Refused

CSRF_FIELD = "csrf"
INTEGER_DIGITS_MAX = 18


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """What would be done."""

    title: str
    says: Sequence[str]
    goes_on_counting: bool = False
    """There is more to say, for which somebody who wants to read it need not wait: it is asked for as a part."""
    facts: Facts = field(default_factory=dict)
    sample: Sequence[Facts] = ()
    """Some of many."""
    sends: Mapping[str, str] = field(default_factory=dict)
    button: str | None = None
    """None: there is nothing to do."""
    is_grave: bool = False
    """It cannot be undone, or stops work that goes on."""
    back: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Happened:
    """What was done."""

    title: str
    says: Sequence[str]
    facts: Facts = field(default_factory=dict)
    back: str
    is_done: bool = True
    next_step: tuple[str, str] | None = None
    """Address and name of what may follow."""


class Given:
    """What the address or the form says, read as what it must be."""

    def __init__(self, fields: Mapping[str, str]) -> None:
        self._fields = fields

    def text(self, name: str) -> str:
        found = self._fields.get(name, "")
        if not found:
            raise Refused(HTTPStatus.BAD_REQUEST, f"the field {name!r} is missing: go back and fill it in")
        return found

    def text_or_none(self, name: str) -> str | None:
        return self._fields.get(name, "").strip() or None

    def integer(self, name: str) -> int:
        found = self.text(name).strip()
        if len(found) > INTEGER_DIGITS_MAX or not found.isascii() or not found.isdecimal():
            raise Refused(HTTPStatus.BAD_REQUEST, f"the field {name!r} must be a whole number: go back and correct it")
        return int(found)

    def integer_or_none(self, name: str) -> int | None:
        return None if self.text_or_none(name) is None else self.integer(name)

    def moment(self, name: str) -> datetime:
        try:
            return datetime.fromisoformat(self.text(name)).astimezone(UTC)
        except (ValueError, OverflowError):
            raise Refused(HTTPStatus.BAD_REQUEST, f"the field {name!r} must be a time: open the page again") from None

    def guid(self, name: str) -> UUID:
        try:
            return UUID(self.text(name))
        except ValueError:
            raise Refused(HTTPStatus.BAD_REQUEST, f"the field {name!r} must be a guid: open the page again") from None


SEEN_FIELD = "seen"


def seen(facts: Facts) -> dict[str, str]:
    """What the form carries of what was shown, so that nobody confirms what they have not seen."""
    return {SEEN_FIELD: json.dumps(plain(facts))}


def check_seen(given: Given, facts: Facts) -> None:
    """Refused if it is not any more as it was shown."""
    try:
        before = json.loads(given.text(SEEN_FIELD))
    except ValueError:
        before = None
    now = plain(facts)
    if not isinstance(before, dict) or before.keys() != now.keys():
        raise Refused(HTTPStatus.BAD_REQUEST, f"the field {SEEN_FIELD!r} is damaged: open the page again")
    if changed := differences(before, now):
        raise Refused(
            HTTPStatus.CONFLICT,
            f"nothing was done: it was changed since it was shown to you, {changed}. Open the page again, and decide",
        )


Propose = Callable[[Visit, Given], Awaitable[Proposal]]
CarryOut = Callable[[Visit, Operator, Given], Awaitable[Happened]]
Changes = Mapping[str, tuple[Propose, CarryOut]]


def change_page(changes: Changes) -> Callable[[Visit], Awaitable[Response]]:
    async def show_change(visit: Visit) -> Response:
        verb = visit.request.path_params["verb"]
        if verb not in changes:
            raise Refused(HTTPStatus.NOT_FOUND, "there is no such change: begin from the page of what is to be changed")
        propose, carry_out = changes[verb]
        if visit.request.method == "POST":
            return await _carried_out(visit, carry_out)
        visit.operator()  # who may only look is told so here, not after the form
        proposal = await propose(visit, Given(visit.request.query_params))
        return visit.show("change.html", page="", proposal=proposal, verb=verb)

    return show_change


async def _carried_out(visit: Visit, carry_out: CarryOut) -> Response:
    fields = await visit.form()
    check_form(visit, fields)
    operator = visit.operator()
    with telling_what_is_done(operator):
        happened = await carry_out(visit, operator, Given(fields))
    return visit.show("happened.html", page="", happened=happened)


def check_form(visit: Visit, fields: Mapping[str, str]) -> None:
    """Refused if it is no form that this site made for this visitor."""
    if not visit.desk.access.is_genuine(visit.visitor, fields.get(CSRF_FIELD, "")):
        raise Refused(
            HTTPStatus.FORBIDDEN, "nothing was done: the form is not from this page, or too old. Open the page again"
        )
