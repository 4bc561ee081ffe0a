"""Actions in JSON: as they are asked for, and as they are told."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, NotRequired
from uuid import UUID

from pydantic import ConfigDict, Field, JsonValue, RootModel, with_config
from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from matrixsched.app import App
from matrixsched.calls import PRIORITY_MAX, Call, Scheduled, ScheduledMany
from matrixsched.ops.actions import payload_for
from matrixsched.ops.explaining import move_text
from matrixsched.ops.web.api.rules import RepeatGiven, RepeatTold, RetryGiven, RetryTold, repeat_told, retry_told
from matrixsched.ops.web.api.values import (
    PAGE_DEFAULT,
    ConfidedFlag,
    Cursor,
    Duration,
    Given,
    Instant,
    Limit,
    Moment,
    Name,
    Number,
    Told,
    wording,
)
from matrixsched.payloads import VERSION_MAX
from matrixsched.rules.action import Action, Outcome, PastAttempt, State
from matrixsched.rules.explanation import Explanation, Reason, Why

BATCH_MAX = 1000
RUNS_MAX = 1000

# What is asked.


class Work(Given):
    """What is to be done, and when."""

    handler: Name = Field(description="By the name under which workers know it.", examples=["remind"])
    payload: JsonValue = Field(None, description="Any JSON that its handler takes.")
    at: Instant | None = Field(None, description="When it runs; without `at` and `delay` at once.")
    delay: Duration | None = Field(None, description="How long from now it runs.")
    repeat: RepeatGiven | None = Field(None, description="null: once.")
    retry: RetryGiven | None = Field(None, description="null: as its handler says.")
    timeout: Duration | None = Field(None, description="After that an attempt is cancelled; null: as its handler says.")
    start_within: Duration | None = Field(None, description="No attempt begins later than that after its time.")
    expires_at: Instant | None = Field(None, description="Ends the action.")
    priority: int = Field(0, ge=0, le=PRIORITY_MAX, description="0 comes first.")
    template: Name | None = Field(None, description="Whose message it is: its quota decides when it goes.")
    zone: Name | None = Field(None, description="With `template`: the recipient's time zone.")
    limit: Name | None = Field(None, description="A key: actions of one key together stay below its limit.")
    payload_version: int | None = Field(
        None, ge=1, le=VERSION_MAX, description="Of a payload whose handler this server does not know."
    )

    def call(self, app: App, *, id: str | None, request_id: str | None) -> Call:
        registered = app.handlers.find(self.handler)
        return Call(
            handler=self.handler,
            payload=self.payload if registered is None else payload_for(registered, self.payload),
            id=id,
            at=self.at,
            delay=self.delay,
            repeat=None if self.repeat is None else self.repeat.rule(),
            retry=None if self.retry is None else self.retry.rule(),
            timeout=self.timeout,
            start_within=self.start_within,
            expires_at=self.expires_at,
            priority=self.priority,
            template=self.template,
            zone=self.zone,
            limit=self.limit,
            payload_version=self.payload_version,
            request_id=request_id,
        )

    def wording(self, exists: str) -> str:
        """Of the same action it is the same, whether it is sent alone or in a batch."""
        return wording(self, exclude=("id", "request_id"), exists=exists)


Id = Annotated[Name, Field(description="Up to 256 bytes of UTF-8 without control characters.", examples=["remind:1"])]
Exists = Annotated[
    Literal["replace", "keep", "error"],
    Field(description="What becomes of an action of that id: it is replaced, kept as it is, or the request refused."),
]


class ActionGiven(Work):
    """An action to be scheduled."""

    id: Id | None = Field(None, description="null: one is made.")
    exists: Exists = "replace"


class BatchCall(Work):
    """One action of a batch."""

    id: Id | None = Field(None, description="null: one is made.")
    request_id: Name | None = Field(
        None,
        description="As Idempotency-Key, for this action alone; if it was used for something else, all are refused.",
    )


class BatchGiven(Given):
    """Actions to be scheduled together, each of another id."""

    calls: list[BatchCall] = Field(min_length=1, max_length=BATCH_MAX)
    exists: Exists = "replace"


class RescheduleGiven(Given):
    """When it runs next: `at` an instant or after a `delay`, one of the two."""

    at: Instant | None = None
    delay: Duration | None = None


class ActionsQuery(Given):
    state: State | None = Field(None, description="Only those in this state.")
    handler: Name | None = Field(None, description="Only those of this handler.")
    template: Name | None = Field(None, description="Only those of this template.")
    prefix: Name | None = Field(None, description="Only those whose id begins with this.")
    due_before: Instant | None = Field(None, description="Only those that are due before this instant.")
    payload: ConfidedFlag = Field(False, description="Tell payloads, too; they may hold secrets.")
    limit: Limit = PAGE_DEFAULT
    cursor: Cursor | None = None


class ActionQuery(Given):
    payload: ConfidedFlag = Field(False, description="Tell the payload, too; it may hold secrets.")


class RunsQuery(Given):
    count: Number = Field(5, ge=1, le=RUNS_MAX, description="How many.")


# What is told.


class ScheduledTold(Told):
    """What became of a request."""

    id: str
    guid: UUID = Field(description="Of the version that was written, or else of that which was found; for If-Match.")
    created: bool = Field(description="There was no action of that id before.")
    changed: bool = Field(description="Written now; false if it was kept, finished, or the same request done before.")
    running: bool = Field(
        description="An attempt is under way; it is not stopped, and a new version waits for its end."
    )


def scheduled_told(done: Scheduled) -> ScheduledTold:
    return ScheduledTold(id=done.id, guid=done.guid, created=done.created, changed=done.changed, running=done.running)


class BatchTold(Told):
    """How many there were, and what became of them."""

    total: int
    created: int
    replaced: int
    kept: int
    ids: list[str] = Field(description="Of all of them, in their order.")


def batch_told(many: ScheduledMany, ids: Sequence[str]) -> BatchTold:
    return BatchTold(total=many.total, created=many.created, replaced=many.replaced, kept=many.kept, ids=list(ids))


@with_config(ConfigDict(extra="forbid"))
class ActionTold(TypedDict):  # no model: those of a long list would take longer than all the rest
    """An action as it stands."""

    id: str
    guid: Annotated[UUID, Field(description="Another one with every change; for If-Match.")]
    version: Annotated[int, Field(description="Rises with every change, also across replacement.")]
    revision: Annotated[int, Field(description="1 when created, one more with every change.")]
    shard: int
    created_at: Moment
    updated_at: Moment
    handler: str
    payload_bytes: int
    payload_version: int
    payload: NotRequired[Annotated[Any, Field(description="Only if it was asked for.")]]
    payload_base64: NotRequired[
        Annotated[str, Field(description="Instead of `payload`, if what is stored is not JSON.")]
    ]
    priority: int
    template: str | None
    zone: str | None
    limit: str | None
    repeat: RepeatTold | None
    retry: Annotated[RetryTold | None, Field(description="null: as its handler says.")]
    timeout: Duration | None
    start_within: Duration | None
    expires_at: Moment | None
    state: State
    running: bool
    scheduled_at: Annotated[Moment, Field(description="When it runs next, or ran last if it is finished.")]
    tick: int
    attempts: Annotated[int, Field(description="How many were started.")]
    succeeded: int
    failed: int
    interrupted: Annotated[int, Field(description="Whose workers died.")]
    missed: int
    deferred: Annotated[int, Field(description="Which asked to be retried later, or to be cancelled.")]
    consecutive_failures: int
    last_outcome: Outcome | None
    last_error: str | None
    last_started_at: Moment | None
    last_ended_at: Moment | None
    finished_at: Moment | None


class OneActionTold(RootModel[ActionTold]):
    """An action as it stands."""


def action_told(action: Action, *, with_payload: bool) -> ActionTold:
    meta, spec, status, terms = action.meta, action.spec, action.status, action.spec.terms
    told: ActionTold = {
        "id": meta.id,
        "guid": meta.guid,
        "version": meta.version,
        "revision": meta.revision,
        "shard": meta.shard,
        "created_at": meta.created_at,
        "updated_at": meta.updated_at,
        "handler": spec.handler,
        "payload_bytes": len(spec.payload),
        "payload_version": terms.payload_version or 1,
        "priority": spec.priority,
        "template": spec.template,
        "zone": spec.zone,
        "limit": spec.limit,
        "repeat": None if terms.repeat is None else repeat_told(terms.repeat),
        "retry": None if terms.retry is None else retry_told(terms.retry),
        "timeout": terms.timeout,
        "start_within": terms.start_within,
        "expires_at": spec.expires_at,
        "state": status.state,
        "running": status.running,
        "scheduled_at": status.scheduled_at,
        "tick": status.tick,
        "attempts": status.attempts_started,
        "succeeded": status.succeeded,
        "failed": status.failed,
        "interrupted": status.interrupted,
        "missed": status.missed,
        "deferred": status.deferred,
        "consecutive_failures": status.consecutive_failures,
        "last_outcome": status.last_outcome,
        "last_error": status.last_error,
        "last_started_at": status.last_started_at,
        "last_ended_at": status.last_ended_at,
        "finished_at": status.finished_at,
    }
    if with_payload:
        _tell_payload(told, spec.payload)
    return told


def _tell_payload(told: ActionTold, stored: bytes) -> None:
    try:
        told["payload"] = json.loads(stored)
    except (ValueError, RecursionError):
        told["payload_base64"] = b64encode(stored).decode()


class ActionsTold(Told):
    """A page of actions, in an order that stays the same."""

    items: list[ActionTold]
    next_cursor: str | None = Field(description="For the next page; null: this is the last one.")


class AttemptTold(Told):
    guid: UUID
    attempt: int
    tick: int
    outcome: Outcome
    error: str | None
    started_at: Moment
    ended_at: Moment


class HistoryTold(Told):
    """Attempts that did not simply succeed, newest first."""

    items: list[AttemptTold]


def history_told(past: Sequence[PastAttempt]) -> HistoryTold:
    return HistoryTold(
        items=[AttemptTold(**{name: getattr(one, name) for name in AttemptTold.model_fields}) for one in past]
    )


class RunsTold(Told):
    """When it runs next."""

    items: list[Moment]


class ReasonTold(Told):
    reason: Why
    explained: str
    since: Moment | None
    until: Moment | None
    next_move: str


class ExplanationTold(Told):
    """Why it has not run yet, or what became of it: the reasons, the deciding one first."""

    id: str
    handler: str
    state: State
    asked_at: Moment
    due_at: Moment
    worker_seen_at: Moment | None = Field(description="The last sign of life of any worker that runs actions.")
    reasons: list[ReasonTold]


def explanation_told(found: Explanation) -> ExplanationTold:
    return ExplanationTold(
        id=found.id,
        handler=found.handler,
        state=found.state,
        asked_at=found.now,
        due_at=found.due_at,
        worker_seen_at=found.worker_seen_at,
        reasons=[_reason(reason) for reason in found.reasons],
    )


def _reason(reason: Reason) -> ReasonTold:
    return ReasonTold(
        reason=reason.why,
        explained=reason.text,
        since=reason.since,
        until=reason.until,
        next_move=move_text(reason.move, ""),
    )


def instants(runs: Sequence[datetime]) -> RunsTold:
    return RunsTold(items=list(runs))
