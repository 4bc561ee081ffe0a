"""What can be done to one action."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Literal

from matrixsched.calls import Scheduled
from matrixsched.errors import GuidMismatch
from matrixsched.ops import actions, changes
from matrixsched.ops.operator import Operator
from matrixsched.ops.render import Facts
from matrixsched.ops.web.pages.changing import Changes, Given, Happened, Proposal, check_seen, seen
from matrixsched.ops.web.pages.visit import Visit
from matrixsched.ops.web.pages.words import moment
from matrixsched.ops.web.problems import Refused
from matrixsched.rules.action import Action, State
from matrixsched.rules.durations import duration_text, parse_duration


async def propose_cancel(visit: Visit, given: Given) -> Proposal:
    action = await visit.app.get(given.text("id"))
    says = ["It ends as cancelled: nothing of it starts any more. It can be run again later."]
    if action.status.running:
        says.append("An attempt is under way now: it comes to its end.")
    if action.status.state is not State.LIVE:
        return _nothing_to_do(visit, action, f"It is finished ({action.status.state}): there is nothing to cancel.")
    return _proposal(visit, action, "Cancel this action?", says, "Cancel the action", is_grave=True)


async def propose_run_now(visit: Visit, given: Given) -> Proposal:
    action = await visit.app.get(given.text("id"))
    if action.status.state is State.LIVE:
        says = ["It becomes due at once. Gates still apply; what repeats goes on by its rule from there."]
    else:
        says = [f"It is finished ({action.status.state}) and is run once more."]
        if action.spec.expires_at is not None:
            says.append("The end that it had is taken away, else it would not come far.")
    if action.status.running:
        says.append("An attempt is under way now: the new one waits for its end.")
    return _proposal(visit, action, "Run this action now?", says, "Run it now", sends=seen(_begun(action)))


def _begun(action: Action) -> Facts:
    """What changes when an attempt at it begins or ends."""
    status = action.status
    return {"state": status.state.value, "running": status.running, "last_ended_at": status.last_ended_at}


async def propose_reschedule(visit: Visit, given: Given) -> Proposal:
    action = await visit.app.get(given.text("id"))
    if action.status.state is not State.LIVE:
        return _nothing_to_do(visit, action, f"It is finished ({action.status.state}): run it once more instead.")
    at, delay = read_when(given)
    when = f"at {moment(at)} UTC" if at is not None else f"{duration_text(delay or timedelta(0))} from now"
    says = [f"Its next run is moved to {when}; before it was {moment(action.status.scheduled_at)} UTC."]
    sends = {"when": given.text("when")}
    return _proposal(visit, action, "Reschedule this action?", says, "Reschedule it", sends=sends)


def read_when(given: Given) -> tuple[datetime | None, timedelta | None]:
    """An instant (2026-03-29T09:00, in UTC unless it says otherwise), or a duration from now (90s, 2h)."""
    text = given.text("when").strip()
    if text[:4].isdecimal() and "-" in text:
        try:
            at = datetime.fromisoformat(text)
        except ValueError:
            raise Refused(
                HTTPStatus.UNPROCESSABLE_ENTITY, "the time must be as in 2026-03-29T09:00 (UTC), or a duration as in 2h"
            ) from None
        return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)), None
    return None, parse_duration(text, "the time from now")


def _proposal(
    visit: Visit,
    action: Action,
    title: str,
    says: list[str],
    button: str,
    *,
    is_grave: bool = False,
    sends: dict[str, str] | None = None,
) -> Proposal:
    return Proposal(
        title=title,
        says=[*says, "It is done only if the action is still as it is shown here."],
        facts={**actions.row(action), "guid": str(action.meta.guid)},
        sends={"id": action.id, "guid": str(action.meta.guid), **(sends or {})},
        button=button,
        is_grave=is_grave,
        back=visit.to("action", id=action.id),
    )


def _nothing_to_do(visit: Visit, action: Action, why: str) -> Proposal:
    return Proposal(
        title="There is nothing to do", says=[why], facts=actions.row(action), back=visit.to("action", id=action.id)
    )


async def cancel(visit: Visit, operator: Operator, given: Given) -> Happened:
    done = await changes.cancel(operator, given.text("id"), expected_guid=given.guid("guid"))
    return await _happened(visit, done, "Cancelled: nothing of it starts any more.")


async def run_now(visit: Visit, operator: Operator, given: Given) -> Happened:
    return await _run_as_seen(visit, operator, given, "run_now")


async def redrive(visit: Visit, operator: Operator, given: Given) -> Happened:
    return await _run_as_seen(visit, operator, given, "redrive")


async def _run_as_seen(visit: Visit, operator: Operator, given: Given, verb: Literal["run_now", "redrive"]) -> Happened:
    action, shown = await visit.app.get(given.text("id")), given.guid("guid")
    if action.meta.guid != shown:
        raise GuidMismatch(action.id, shown, action.meta.guid)
    check_seen(given, _begun(action))
    done = await changes.run_as_seen(operator, action, verb)
    return await _happened(
        visit, done, "It is due now: a worker takes it as soon as it has room and its gates are open."
    )


async def reschedule(visit: Visit, operator: Operator, given: Given) -> Happened:
    at, delay = read_when(given)
    done = await changes.reschedule(operator, given.text("id"), at=at, delay=delay, expected_guid=given.guid("guid"))
    return await _happened(visit, done, "Its next run is moved.")


async def _happened(visit: Visit, done: Scheduled, said: str) -> Happened:
    action = await visit.app.get(done.id)
    says = [said if done.changed else "Nothing was changed: it had come to its end meanwhile."]
    if done.running:
        says.append("An attempt that began before is still under way.")
    facts: Facts = actions.row(action)
    return Happened(
        title="Done" if done.changed else "Nothing was done",
        says=says,
        facts=facts,
        back=visit.to("action", id=done.id),
        is_done=done.changed,
    )


ACTION_CHANGES: Changes = {
    "cancel": (propose_cancel, cancel),
    "run_now": (propose_run_now, run_now),
    "redrive": (propose_run_now, redrive),
    "reschedule": (propose_reschedule, reschedule),
}
