"""Many actions at once: all that are named, or all that fit."""

from __future__ import annotations

from http import HTTPStatus

import anyio
from pydantic import Field

from matrixsched.calls import check_filter
from matrixsched.ops import bulk, changes
from matrixsched.ops.bulk import ALLOWED, FINISHED_BADLY, Selection, Tally, Verb
from matrixsched.ops.web.api.action_models import BATCH_MAX, Id
from matrixsched.ops.web.api.endpoint import Asked, Endpoint
from matrixsched.ops.web.api.values import Given, Instant, Name, Told
from matrixsched.ops.web.problems import Refused
from matrixsched.rules.action import State
from matrixsched.rules.names import check_name
from matrixsched.store.values import ActionFilter

WORK_S = 20.0
"""So long one request works at most; what is left is for the next one."""
COUNT_MAX = 10_000


class BulkGiven(Given):
    """Which actions: those of these `ids`, or all that fit the filters; not both, and never all there are."""

    ids: list[Id] = Field([], max_length=BATCH_MAX)
    state: list[State] = Field([], max_length=len(State), description="Only those in one of these states.")
    handler: Name | None = None
    prefix: Name | None = Field(None, description="Only those whose id begins with this.")
    due_before: Instant | None = None
    finished_since: Instant | None = Field(None, description="Only those that ended then or later.")
    dry_run: bool = Field(False, description="Change nothing, and tell how many there are.")


class BulkTold(Told):
    """What became of them; in a dry run, what there is."""

    dry_run: bool
    complete: bool = Field(description="false: there are more. Send the same again; a dry run stops counting there.")
    matched: int
    changed: int
    running: int = Field(description="Attempts under way, which are not stopped.")
    skipped: int = Field(description="In another state, or changed by others meanwhile.")


async def cancel_actions(asked: Asked, body: BulkGiven) -> BulkTold:
    """Cancel live actions: those named, or all that fit.

    It works for 20 seconds at most; with `complete: false` send the same again. A dry run counts to 10,000.
    """
    return await _change(asked, "cancel", body, usual=(State.LIVE,))


async def run_actions_now(asked: Asked, body: BulkGiven) -> BulkTold:
    """Make actions due at once: those named, or all live ones that fit, or those in the states that are given.

    As for the others. Who is named is run again also if it is finished; sent twice it may run twice.
    """
    return await _change(asked, "run_now", body, usual=(State.LIVE,))


async def redrive_actions(asked: Asked, body: BulkGiven) -> BulkTold:
    """Run actions again that failed, were quarantined or expired: those named, or all that fit.

    It works for 20 seconds at most; with `complete: false` send the same again. A dry run counts to 10,000.
    """
    return await _change(asked, "redrive", body, usual=FINISHED_BADLY)


async def _change(asked: Asked, verb: Verb, body: BulkGiven, usual: tuple[State, ...]) -> BulkTold:
    selection = _selection(verb, body, usual)
    if body.dry_run or body.ids:
        # Of those that are named all must be there before the first is changed.
        counted = await bulk.count(asked.app, verb, selection, count_max=COUNT_MAX)
        if body.dry_run:
            return _told(counted, dry_run=True, complete=counted.matched < COUNT_MAX)
    tally = Tally(verb)
    with anyio.move_on_after(WORK_S) as working:
        await changes.change_many(asked.operator, verb, selection, tally)
    return _told(tally, dry_run=False, complete=not working.cancelled_caught)


def _told(tally: Tally, *, dry_run: bool, complete: bool) -> BulkTold:
    return BulkTold(
        dry_run=dry_run,
        complete=complete,
        matched=tally.matched,
        changed=tally.changed,
        running=tally.running,
        skipped=tally.skipped,
    )


def _selection(verb: Verb, body: BulkGiven, usual: tuple[State, ...]) -> Selection:
    filters = (body.state, body.handler, body.prefix, body.due_before, body.finished_since)
    if bool(body.ids) == any(filters):
        raise _refusal("send either `ids` or at least one filter: nobody who forgot them means all there are")
    if strange := [state for state in body.state if state not in ALLOWED[verb]]:
        raise _refusal(f"actions that are {strange[0]} are not changed by this: leave out that state")
    for id in body.ids:
        check_name("ids", id)
    wanted = check_filter(ActionFilter(handler=body.handler, id_prefix=body.prefix, due_before=body.due_before))
    return Selection(
        ids=body.ids,
        states=tuple(dict.fromkeys(body.state)) or usual,
        handler=wanted.handler,
        prefix=wanted.id_prefix,
        due_before=wanted.due_before,
        finished_since=body.finished_since,
    )


def _refusal(why: str) -> Refused:
    return Refused(HTTPStatus.UNPROCESSABLE_ENTITY, f"{why}. Nothing was changed")


ENDPOINTS = (
    Endpoint("POST", "/bulk/actions/cancel", cancel_actions, refuses=(HTTPStatus.NOT_FOUND,)),
    Endpoint("POST", "/bulk/actions/run-now", run_actions_now, refuses=(HTTPStatus.NOT_FOUND,)),
    Endpoint("POST", "/bulk/actions/redrive", redrive_actions, refuses=(HTTPStatus.NOT_FOUND,)),
)
