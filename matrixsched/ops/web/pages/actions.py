"""Actions: finding them among millions, and all there is to know about one."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http import HTTPStatus

from starlette.responses import Response

from matrixsched.app import App
from matrixsched.calls import check_filter
from matrixsched.errors import ActionNotFound, InvalidId
from matrixsched.ops import actions
from matrixsched.ops.bulk import FINISHED_BADLY
from matrixsched.ops.explaining import move_text
from matrixsched.ops.web.confided import check_confided
from matrixsched.ops.web.pages.visit import Links, Visit
from matrixsched.ops.web.problems import Refused
from matrixsched.rules.action import Action, State
from matrixsched.rules.explanation import Move, Reason
from matrixsched.store.looking import Found, Place, is_by_end
from matrixsched.store.values import ActionFilter

PAGE = 50
LOOK_FIRST = 1_000
LOOK_MAX = 10_000
"""At so many actions a request looks, however few of them fit; first at a few, because mostly that is enough."""
RUNS = 5
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Search:
    """What is looked for, as the address says it."""

    text: str
    state: State | None
    handler: str | None
    template: str | None

    @property
    def wanted(self) -> ActionFilter:
        return check_filter(
            ActionFilter(state=self.state, handler=self.handler, template=self.template, id_prefix=self.text or None)
        )

    @property
    def query(self) -> dict[str, str | None]:
        return {
            "q": self.text,
            "state": None if self.state is None else self.state.value,
            "handler": self.handler,
            "template": self.template,
        }

    @property
    def is_empty(self) -> bool:
        return not any(self.query.values())

    @property
    def in_words(self) -> str:
        said = {"state": self.state, "handler": self.handler, "template": self.template, "id begins with": self.text}
        return ", ".join(f"{name} {value}" for name, value in said.items() if value) or "all actions"


def read_search(given: Sequence[tuple[str, str]] | dict[str, str]) -> Search:
    fields = dict(given)
    state = fields.get("state", "").strip()
    try:
        known = State(state) if state else None
    except ValueError:
        raise Refused(HTTPStatus.BAD_REQUEST, f"there is no such state: choose one of {', '.join(State)}") from None
    return Search(
        fields.get("q", "").strip(),
        known,
        fields.get("handler", "").strip() or None,
        fields.get("template", "").strip() or None,
    )


async def look(app: App, search: Search, after: Place | None, *, limit: int = PAGE) -> Found:
    do, wanted = app.store.transitions, search.wanted
    first = await app.store.run(do.page_bounded(wanted, after=after, limit=limit, look_max=max(LOOK_FIRST, limit)))
    left = limit - len(first.actions)
    if first.goes_on is None or left <= 0:
        return first
    more = await app.store.run(do.page_bounded(wanted, after=first.goes_on, limit=left, look_max=LOOK_MAX))
    return Found([*first.actions, *more.actions], more.goes_on)


async def show_actions(visit: Visit) -> Response:
    search, after = read_search(list(visit.request.query_params.items())), read_place(visit.asked("after"))
    exact = await exact_match(visit.app, search.text) if search.text and after is None else None
    found = await look(visit.app, search, after)
    others = [action for action in found.actions if exact is None or action.id != exact.id]
    goes_on = found.goes_on
    return visit.show(
        "actions.html",
        page="actions",
        search=search,
        exact=exact,
        actions=others,
        states=list(State),
        by_end=is_by_end(search.wanted),
        is_first=after is None,
        first=visit.to("actions", **search.query),
        goes_on=None if goes_on is None else visit.to("actions", **search.query, after=place_text(goes_on)),
        is_short=goes_on is not None and len(found.actions) < PAGE,
        look_max=LOOK_MAX,
        bulk=bulk_links(visit.to, search),
    )


async def exact_match(app: App, text: str) -> Action | None:
    with suppress(ActionNotFound, InvalidId):
        return await app.get(text)
    return None


def bulk_links(to: Links, search: Search) -> list[tuple[str, str]]:
    """What may be done with all that fit."""
    if search.is_empty:
        return []
    offered = []
    if search.state in (None, State.LIVE):
        offered = [("bulk_cancel", "Cancel all that fit…"), ("bulk_run_now", "Run all now…")]
    elif search.state in FINISHED_BADLY:
        offered = [("bulk_redrive", "Redrive all that fit…")]
    return [(to(f"change/{verb}", **search.query), text) for verb, text in offered]


def place_text(place: Place) -> str:
    ended = "" if place.finished_at is None else (place.finished_at - _EPOCH) // _MICROSECOND
    return f"{place.shard}.{ended}.{place.id}"


def read_place(text: str) -> Place | None:
    if not text:
        return None
    shard, _, rest = text.partition(".")
    ended, _, action_id = rest.partition(".")
    try:
        finished_at = _EPOCH + int(ended) * _MICROSECOND if ended else None
        if not action_id or "\x00" in action_id or not 0 <= int(shard) < 2**31:
            raise ValueError(text)
        return Place(int(shard), action_id, finished_at)
    except (ValueError, OverflowError):
        raise Refused(HTTPStatus.BAD_REQUEST, "the address of this page is damaged: begin the search anew") from None


# One of them.


async def show_action(visit: Visit) -> Response:
    action_id = visit.request.query_params.get("id", "")
    if not action_id:
        raise Refused(HTTPStatus.BAD_REQUEST, "which action? Its id is missing in the address: search for it")
    with_payload = bool(visit.asked("payload"))
    if with_payload:
        check_confided(visit.visitor)
    action = await visit.app.get(action_id)
    sections = await actions.shown(visit.app, action_id, runs=RUNS, with_payload=False)
    explanation = await visit.app.explain(action_id)
    state = action.status.state
    return visit.show(
        "action.html",
        page="actions",
        action=action,
        sections=sections,
        reasons=[(reason, next_step(visit.to, reason)) for reason in explanation.reasons],
        at=explanation.now,
        payload=actions.payload_text(action) if with_payload else None,
        verbs=verbs_of(state),
        is_live=state is State.LIVE,
    )


def verbs_of(state: State) -> list[tuple[str, str]]:
    if state is State.LIVE:
        return [("run_now", "Run now…"), ("cancel", "Cancel…")]
    return [("redrive", "Redrive…")] if state in FINISHED_BADLY else [("run_now", "Run once more…")]


@dataclass(frozen=True, slots=True)
class Step:
    """What may be done about a reason: in words, with a link or a command where there is one."""

    text: str
    link: str | None = None
    command: str | None = None


def next_step(to: Links, reason: Reason) -> Step:
    move = reason.move
    link = _link_of(to, move)
    command = None
    if link is None and move.command is not None:
        command = move_text(Move("", move.command, move.arguments), "").removeprefix(": ").strip("`")
    return Step(move.text, link, command)


def _link_of(to: Links, move: Move) -> str | None:
    subject = move.arguments[0] if move.arguments else ""
    match move.command:
        case "actions redrive":
            return to("change/redrive", id=subject)
        case "actions run-now":
            return to("change/run_now", id=subject)
        case "actions show":
            return to("action", id=subject)
        case "shards list":
            return to("shards")
        case "shards release":
            return to("change/release_shard", shard=subject)
        case "templates resume":
            return to("change/resume_template", name=subject)
        case "limits resume":
            return to("change/resume_limit", name=subject)
        case "templates set":
            return to("templates")
        case "limits list" | "limits set":
            return to("limits")
        case "plan":
            return to("templates")
    return None
