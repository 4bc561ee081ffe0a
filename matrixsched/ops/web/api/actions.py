"""Actions: schedule, replace, look at, change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from urllib.parse import quote

from matrixsched.app import App
from matrixsched.calls import Call, Scheduled, check_call, check_filter, id_of
from matrixsched.errors import BadInput
from matrixsched.ops import changes
from matrixsched.ops.web.access import Role
from matrixsched.ops.web.api.action_models import (
    ActionGiven,
    ActionQuery,
    ActionsQuery,
    ActionsTold,
    BatchCall,
    BatchGiven,
    BatchTold,
    ExplanationTold,
    HistoryTold,
    OneActionTold,
    RescheduleGiven,
    RunsQuery,
    RunsTold,
    ScheduledTold,
    Work,
    action_told,
    batch_told,
    explanation_told,
    history_told,
    instants,
    scheduled_told,
)
from matrixsched.ops.web.api.cursors import place_cursor, place_in
from matrixsched.ops.web.api.endpoint import CREATED, OK, Asked, Endpoint, Reply
from matrixsched.ops.web.api.remedies import refusal_of
from matrixsched.ops.web.api.values import wording
from matrixsched.ops.web.problems import Refused
from matrixsched.store.looking import order_of
from matrixsched.store.values import ActionFilter

LOOK_MAX = 2000
"""So many actions are looked at for a page at most, however few of them fit."""

NOT_FOUND, CONFLICT = HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT
CHANGED = HTTPStatus.PRECONDITION_FAILED


# Scheduling.


async def schedule_action(asked: Asked, body: ActionGiven) -> Reply[ScheduledTold]:
    """Schedule an action: now, at an instant or after a delay, once or repeatedly.

    201 if there was none of that id, 200 if there was: then it was replaced or kept, as `exists` says.

    If the answer is lost, or is 504, it may be written or not. Send it again with the same `Idempotency-Key`: it is
    done once, and answered with what became of it; with another body it is 422. Without a key, an `id` and
    `exists: keep` do as well, as long as nobody else uses that id; `exists: replace` would replace it once more.
    Without either, a second action is made.
    """
    call = body.call(asked.app, id=body.id, request_id=asked.request_id)
    sent = _sent(asked, body, body.exists)
    return _written(asked, await changes.schedule(asked.operator, call, exists=body.exists, asked=sent))


async def schedule_batch(asked: Asked, body: BatchGiven) -> BatchTold:
    """Schedule up to 1,000 actions, all or none, in one transaction.

    With `exists: error` nothing is written if one of them exists. If the answer is lost, send the same again: calls
    with a `request_id` are done once; those with an `id` are replaced once more, or stay with `exists: keep`.
    """
    calls = [_batch_call(asked.app, place, call) for place, call in enumerate(body.calls)]
    ids = [str(call.id) for call in calls]
    if len(set(ids)) < len(ids):
        twice = next(place for place, id in enumerate(ids) if id in ids[:place])
        raise Refused(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            "an id stands twice in one batch, and which of the two was meant is not known: leave out one of them",
            errors=[{"pointer": f"#/calls/{twice}/id", "detail": "is that of an earlier call"}],
        )
    sent = [call.wording(body.exists) if call.request_id is not None else "" for call in body.calls]
    return batch_told(await changes.schedule_many(asked.operator, calls, exists=body.exists, asked=sent), ids)


async def replace_action(asked: Asked, body: Work) -> Reply[ScheduledTold]:
    """Schedule an action under this id, or replace the one that has it.

    With `If-Match` only that very version is replaced, else it is 412: read it again, and decide anew. Sent again after
    an answer that was lost, a 412 then means that it was done the first time, or that somebody else was faster; GET
    tells. With an `Idempotency-Key` it is done once, and answered with what became of it.
    """
    call = body.call(asked.app, id=asked.path["id"], request_id=asked.request_id)
    sent = _sent(asked, body, "replace")
    done = await changes.schedule(asked.operator, call, expected_guid=asked.expected_guid, asked=sent)
    return _written(asked, done)


def _sent(asked: Asked, body: Work, exists: str) -> str | None:
    """Of a request with a name what it says."""
    return None if asked.request_id is None else body.wording(exists)


def _written(asked: Asked, done: Scheduled) -> Reply[ScheduledTold]:
    headers = {"ETag": f'"{done.guid}"', "Location": f"{asked.prefix}/actions/{quote(done.id, safe='')}"}
    return Reply(scheduled_told(done), CREATED if done.created else OK, headers)


def _batch_call(app: App, place: int, given: BatchCall) -> Call:
    """Checked one by one, so that it can be told which one is wrong."""
    with _at(f"#/calls/{place}"):
        call = given.call(app, id=given.id, request_id=given.request_id)
        check_call(call)
        return call._replace(id=id_of(call) or app.chance.guid().hex)


@contextmanager
def _at(pointer: str) -> Iterator[None]:
    try:
        yield
    except BadInput as error:
        refused = refusal_of(error)
        fault = {"pointer": pointer, "detail": str(error.args[0])}
        raise Refused(refused.status, f"{pointer}: {refused.detail}", errors=[fault]) from None


# Looking.


async def list_actions(asked: Asked, query: ActionsQuery) -> ActionsTold:
    """A page of the actions that fit, in an order that stays the same: with the `state` of finished ones newest first.

    At most 2,000 actions, about, are looked at for a page. So one may be short, or empty, and yet have a `next_cursor`:
    the list is at its end when that is null. A cursor is for the same query.
    """
    wanted = check_filter(
        ActionFilter(
            state=query.state,
            handler=query.handler,
            template=query.template,
            id_prefix=query.prefix,
            due_before=query.due_before,
        )
    )
    kind = f"actions {order_of(wanted)}"
    after = place_in(kind, query.cursor)
    do = asked.app.store.transitions
    look = await asked.app.store.run(do.page_bounded(wanted, after=after, limit=query.limit, look_max=LOOK_MAX))
    # Not checked: it was made here, and of a thousand that takes longer than to read them.
    return ActionsTold.model_construct(
        items=[action_told(action, with_payload=query.payload) for action in look.actions],
        next_cursor=None if look.goes_on is None else place_cursor(kind, look.goes_on),
    )


async def get_action(asked: Asked, query: ActionQuery) -> Reply[OneActionTold]:
    """An action as it stands. ETag is its guid, for If-Match."""
    action = await asked.app.get(asked.path["id"])
    told = OneActionTold(action_told(action, with_payload=query.payload))
    return Reply(told, headers={"ETag": f'"{action.meta.guid}"'})


async def explain_action(asked: Asked) -> ExplanationTold:
    """Why an action has not run yet, or what became of it."""
    return explanation_told(await asked.app.explain(asked.path["id"]))


async def get_history(asked: Asked) -> HistoryTold:
    """The last attempts that failed, timed out, were interrupted or superseded; newest first."""
    await asked.app.get(asked.path["id"])
    return history_told(await asked.app.history(asked.path["id"]))


async def get_next_runs(asked: Asked, query: RunsQuery) -> RunsTold:
    """When an action runs next, then by its rule, without jitter; a finished one has no runs."""
    return instants(await asked.app.next_runs(asked.path["id"], query.count))


# Changing.


async def cancel_action(asked: Asked) -> Reply[ScheduledTold]:
    """End a live action. An attempt under way is not stopped: `running` tells.

    Sent again it does nothing more: what is finished stays so, and `changed` is false.
    """
    return _changed(
        await changes.cancel(
            asked.operator, asked.path["id"], expected_guid=asked.expected_guid, request_id=asked.request_id
        )
    )


async def reschedule_action(asked: Asked, body: RescheduleGiven) -> Reply[ScheduledTold]:
    """Move the next run of a live action; a repeating one goes on from there.

    Sent again with `at` it comes to the same; with `delay` send an `Idempotency-Key`, or the time is counted anew.
    """
    if (body.at is None) == (body.delay is None):
        raise Refused(HTTPStatus.UNPROCESSABLE_ENTITY, "send either `at` or `delay`. Nothing was changed")
    return _changed(
        await changes.reschedule(
            asked.operator,
            asked.path["id"],
            at=body.at,
            delay=body.delay,
            expected_guid=asked.expected_guid,
            request_id=asked.request_id,
            asked=wording(body),
        )
    )


async def run_action_now(asked: Asked) -> Reply[ScheduledTold]:
    """Make an action due at once; a finished one is run again, without the end that it had.

    Sent again after an answer that was lost it may run a second time, unless both have the same `Idempotency-Key`.
    """
    return _changed(
        await changes.run_now(
            asked.operator, asked.path["id"], expected_guid=asked.expected_guid, request_id=asked.request_id
        )
    )


def _changed(done: Scheduled) -> Reply[ScheduledTold]:
    return Reply(scheduled_told(done), headers={"ETag": f'"{done.guid}"'})


ENDPOINTS = (
    Endpoint(
        "POST",
        "/actions",
        schedule_action,
        succeeds=(OK, CREATED),
        refuses=(CONFLICT, NOT_FOUND),
        takes_request_id=True,
        has_guid=True,
    ),
    Endpoint("POST", "/bulk/actions/schedule", schedule_batch, refuses=(CONFLICT, NOT_FOUND)),
    Endpoint("GET", "/actions", list_actions, Role.VIEWER),
    Endpoint("GET", "/actions/{id}", get_action, Role.VIEWER, has_guid=True),
    Endpoint(
        "PUT",
        "/actions/{id}",
        replace_action,
        succeeds=(OK, CREATED),
        refuses=(CHANGED,),
        takes_guid=True,
        takes_request_id=True,
        has_guid=True,
    ),
    Endpoint("GET", "/actions/{id}/explain", explain_action, Role.VIEWER),
    Endpoint("GET", "/actions/{id}/history", get_history, Role.VIEWER),
    Endpoint("GET", "/actions/{id}/next-runs", get_next_runs, Role.VIEWER),
    *(
        Endpoint(
            "POST",
            f"/actions/{{id}}/{verb}",
            function,
            refuses=(CHANGED, CONFLICT),
            takes_guid=True,
            takes_request_id=True,
            has_guid=True,
        )
        for verb, function in (
            ("cancel", cancel_action),
            ("reschedule", reschedule_action),
            ("run-now", run_action_now),
        )
    ),
)
