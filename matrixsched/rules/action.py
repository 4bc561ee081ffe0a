"""The nouns: an action (meta, spec, status), an attempt at it.

schedule ──► live ──► done | failed | cancelled | expired | quarantined ──► (pruned)
              ▲                       │
              └─── run_now (redrive) ─┘        every change by a user gives the action a new guid
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

from matrixsched.rules.retry import Retry
from matrixsched.rules.schedule import Repeat

UNGATED = ""
"""The lane that all actions without a template or limit share."""
COMING = "coming"
"""Where those that have one wait until they are due: millions may be at one instant, and must not hide the others."""
EVENT = "event"
"""The lane of actions that nothing may hold up: they pass no gate, not even the limit of everything, and go first."""


def parked_lane(handler: str) -> str:
    """Where rows wait whose handler the worker that met them does not know; read only by workers that do."""
    return f"handler:{handler}"


def suspect_lane(handler: str) -> str:
    """Where rows wait that were interrupted repeatedly; each process runs one of them at a time."""
    return f"handler!{handler}"


class State(StrEnum):
    """Whether an action still runs, and if not, why not."""

    LIVE = "live"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    QUARANTINED = "quarantined"


class Outcome(StrEnum):
    """How an attempt ended, as it is recorded."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    RETRIED = "retried"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"
    EXPIRED = "expired"
    MISSED = "missed"
    QUARANTINED = "quarantined"
    SUPERSEDED = "superseded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The part of a spec that only workers read: how to retry, repeat and limit. None: as the handler says."""

    retry: Retry | None = None
    repeat: Repeat | None = None
    timeout: timedelta | None = None
    start_within: timedelta | None = None
    payload_version: int | None = None
    """None is version 1, so that rows from before anybody thought of versions have one."""
    trace: str | None = None
    """Where the action was scheduled, as a tracing library wrote it: W3C traceparent and, after a space, tracestate."""
    unreadable: str | None = None
    """Why these terms could not be read, as when a newer version of the library wrote them; the rest is None then."""


class Meta(NamedTuple):  # as those below: made for each action of a list, and tuples cost a third
    id: str
    guid: UUID
    version: int
    """Rises with every change, also across replacement: outside systems can compare it."""
    revision: int
    """1 when created, one more with every change."""
    shard: int
    created_at: datetime
    updated_at: datetime


class Spec(NamedTuple):
    handler: str
    payload: bytes
    terms: Terms
    priority: int
    template: str | None
    zone: str | None
    """Of the recipient; None: the template's."""
    limit: str | None
    """The key of the limit that the caller chose."""
    expires_at: datetime | None


class Status(NamedTuple):
    state: State
    scheduled_at: datetime
    """When it runs next, or ran last if it is finished."""
    running: bool
    tick: int
    succeeded: int
    failed: int
    interrupted: int
    missed: int
    deferred: int
    """Attempts that asked to be retried later, or to be cancelled."""
    consecutive_failures: int
    last_outcome: Outcome | None
    last_error: str | None
    last_started_at: datetime | None
    last_ended_at: datetime | None
    finished_at: datetime | None

    @property
    def attempts_started(self) -> int:
        return self.succeeded + self.failed + self.interrupted + self.deferred + self.running


class Action(NamedTuple):
    """An action as it stands in the database."""

    meta: Meta
    spec: Spec
    status: Status

    @property
    def id(self) -> str:
        return self.meta.id


@dataclass(frozen=True, slots=True, kw_only=True)
class PastAttempt:
    """An attempt that did not simply succeed, from the history."""

    guid: UUID
    attempt: int
    tick: int
    outcome: Outcome
    error: str | None
    started_at: datetime
    ended_at: datetime


class Claim(NamedTuple):  # as those below: made for each action that is run, and a tuple costs a fifth
    """The name of an attempt: whoever writes about it must still hold exactly this."""

    shard: int
    action_id: str
    guid: UUID
    attempt: int
    claimed_by: UUID


@dataclass(frozen=True, slots=True)
class Slot:
    """When a claimed action may start that had to pass a gate, and from when on it would need another slot."""

    starts_at: datetime
    void_at: datetime


class Attempt(NamedTuple):
    """A claimed action: the right and the duty to run it until the lease ends."""

    claim: Claim
    claimed_at: datetime
    """By the database's clock."""
    due_at: datetime
    handler: str
    payload: bytes
    terms: Terms
    version: int
    priority: int
    template: str | None
    zone: str | None
    expires_at: datetime | None
    tick: int
    tick_at: datetime
    tick_failures: int
    interruptions: int
    """Of this row since an outcome was last recorded."""
    limit: str | None = None
    """The key of the limit that the caller chose."""
    slot: Slot | None = None
    """None: it may start at once."""
