"""Many actions at once: all that are named, or all that fit."""

from __future__ import annotations

from datetime import timedelta
from hashlib import sha256
from http import HTTPStatus

from pydantic import Field

from matrixsched.calls import check_filter
from matrixsched.errors import DatabaseError
from matrixsched.ops import bulk, changes
from matrixsched.ops.bulk import ALLOWED, FINISHED_BADLY, Part, Selection, Tally, Verb
from matrixsched.ops.web.api.action_models import BATCH_MAX, Id
from matrixsched.ops.web.api.cursors import part_cursor, part_in
from matrixsched.ops.web.api.endpoint import Asked, Endpoint
from matrixsched.ops.web.api.values import Cursor, Given, Instant, Name, Told
from matrixsched.ops.web.problems import Refused
from matrixsched.rules.action import State
from matrixsched.rules.names import check_name
from matrixsched.store.values import ActionFilter

WORK_FOR = timedelta(seconds=20)
"""So long one request works at most, and ends what it has in hand; what is left is for the next one."""
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
    cursor: Cursor | None = Field(None, description="Of the answer before, to the same request; null: begin anew.")


class BulkTold(Told):
    """What became of them by this request; in a dry run, what there is."""

    dry_run: bool
    complete: bool = Field(description="false: there may be more. Send the same again with `next_cursor` as `cursor`.")
    next_cursor: str | None = Field(description="Where the next request goes on; null: all were seen.")
    matched: int
    changed: int
    running: int = Field(description="Attempts under way, which are not stopped.")
    skipped: int = Field(
        description="In another state, started or changed by others meanwhile, or left because they run."
    )
    left_running: int = Field(description="Of those skipped: left as they are because they run already (run-now).")


async def cancel_actions(asked: Asked, body: BulkGiven) -> BulkTold:
    """Cancel live actions: those named, or all that fit.

    It works for 20 seconds at most, and ends as well where the database goes away when some are done. With `complete:
    false` send the same again with `next_cursor` as `cursor`: it goes on with those that were not seen. A dry run
    counts to 10,000.
    """
    return await _change(asked, "cancel", body, usual=(State.LIVE,))


async def run_actions_now(asked: Asked, body: BulkGiven) -> BulkTold:
    """Make actions due at once: those named, or all live ones that fit, or those in the states that are given.

    As for the others. Who is named is run again also if it is finished. Actions of which an attempt is under way are
    left as they are: `left_running` tells how many; so are those that are started between the look and the change. If
    the answer is lost and the same is sent again, what was made due and ran may run twice.
    """
    return await _change(asked, "run_now", body, usual=(State.LIVE,))


async def redrive_actions(asked: Asked, body: BulkGiven) -> BulkTold:
    """Run actions again that failed, were quarantined or expired: those named, or all that fit.

    As for the others. What ends badly after the first request, perhaps once more, is left for another one that begins
    anew.
    """
    return await _change(asked, "redrive", body, usual=FINISHED_BADLY)


async def _change(asked: Asked, verb: Verb, body: BulkGiven, usual: tuple[State, ...]) -> BulkTold:
    mark = _mark(verb, body)
    selection = _selection(verb, body, usual)
    part = Part(selection, WORK_FOR, part_in(mark, selection.states, body.cursor))
    leaves_running = verb == "run_now"
    if body.dry_run:
        counted = await bulk.count(asked.app, verb, part, count_max=COUNT_MAX, leaves_running=leaves_running)
        return _told(counted, part, mark, dry_run=True)
    if body.ids and body.cursor is None:
        # All must be there before the first is changed.
        await bulk.count(asked.app, verb, part.selection)
    tally = Tally(verb, leaves_running)
    try:
        await changes.change_many(asked.operator, verb, part, tally)
    except DatabaseError:
        if not tally.changed:
            raise
    return _told(tally, part, mark, dry_run=False)


def _told(tally: Tally, part: Part, mark: str, *, dry_run: bool) -> BulkTold:
    return BulkTold(
        dry_run=dry_run,
        complete=part.is_complete,
        next_cursor=None if part.goes_on is None else part_cursor(mark, part.goes_on),
        matched=tally.matched,
        changed=tally.changed,
        running=tally.running,
        skipped=tally.skipped,
        left_running=tally.left_running,
    )


def _mark(verb: Verb, body: BulkGiven) -> str:
    """Of what is asked for: a cursor of anything else would skip what nobody saw."""
    asked = body.model_dump_json(exclude={"cursor"})
    return sha256(f"{verb} {asked}".encode()).hexdigest()[:16]


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
