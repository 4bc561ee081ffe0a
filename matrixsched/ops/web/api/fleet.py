"""The fleet: how it is, who works, which shards are held by whom, who changed what."""

from __future__ import annotations

from http import HTTPStatus
from math import isfinite
from typing import Any
from uuid import UUID

from pydantic import Field

from matrixsched.errors import BadInput
from matrixsched.ops import changes
from matrixsched.ops.fleet import DUE_COUNT_MAX, Overview, WorkerAtWork
from matrixsched.ops.operator import audit_page
from matrixsched.ops.shards import COUNT_MAX
from matrixsched.ops.web.access import Role
from matrixsched.ops.web.api.cursors import entry_cursor, entry_in
from matrixsched.ops.web.api.endpoint import Asked, Endpoint
from matrixsched.ops.web.api.values import PAGE_DEFAULT, Cursor, Duration, Given, Limit, Moment, Number, Told
from matrixsched.ops.web.problems import Refused
from matrixsched.rules.action import Outcome
from matrixsched.rules.audit import AuditEntry, AuditOutcome, Via
from matrixsched.rules.gates import Gate
from matrixsched.rules.minutes import LATE_BOUNDS_S, FleetMinute
from matrixsched.rules.names import SHARDS_MAX
from matrixsched.store.values import ShardReport

DIGITS_MAX = len(str(SHARDS_MAX))
_LATE = f"In seconds, up to a bound; {LATE_BOUNDS_S[-1]} stands for that or more. null: there were no attempts."

# The overview.


class MinuteTold(Told):
    minute: Moment
    attempts: int
    went_wrong: int
    outcomes: dict[Outcome, int]
    due: int | None
    oldest_due_s: float | None
    late_p50_s: float | None = Field(description=_LATE)
    late_p99_s: float | None = Field(description=_LATE)


class HeldTold(Told):
    """How many actions are due and wait before gates."""

    gate: Gate | None = Field(description="What holds them back; null: nothing any more.")
    template: str | None
    count: int


class WorkerTold(Told):
    name: str
    started_at: Moment
    seen_at: Moment
    slots: int
    running: int
    handlers: list[str]
    attempts: int = Field(description="In the last minutes.")
    went_wrong: int


class OverviewTold(Told):
    """The whole fleet at a glance, asked of the database every two seconds at most."""

    now: Moment
    shard_count: int
    due: int = Field(description=f"Due and not under way; counting stops at {DUE_COUNT_MAX:,}.")
    oldest_due_at: Moment | None
    oldest_open_at: Moment | None = Field(description="Of what no gate holds back and no worker has put aside.")
    oldest_parked_at: Moment | None = Field(description="Of what waits for a handler that workers which met it lack.")
    throughput: float = Field(description="Attempts per second, in the last minutes.")
    went_wrong: int = Field(description="Attempts in the last minutes.")
    late_p50_s: float | None = Field(description=_LATE)
    late_p99_s: float | None = Field(description=_LATE)
    workers: list[WorkerTold]
    held: list[HeldTold]
    slots_left: dict[str, int] = Field(description="How many could start at this very moment, by limit.")
    slowed: list[str] = Field(description="Limits that were told to slow down.")
    paused: list[str] = Field(description="Templates.")
    minutes: list[MinuteTold] = Field(description="The last hour, oldest first; the last one has not ended yet.")


async def get_overview(asked: Asked) -> OverviewTold:
    """The whole fleet at a glance: what is due, how late it is, who works on it, what is held back."""
    return _overview(await asked.desk.overview())


def _overview(seen: Overview) -> OverviewTold:
    return OverviewTold(
        now=seen.now,
        shard_count=seen.shard_count,
        due=seen.due.value,
        oldest_due_at=seen.oldest_due_at,
        oldest_open_at=seen.oldest_open_at,
        oldest_parked_at=seen.oldest_parked_at,
        throughput=seen.throughput,
        went_wrong=seen.went_wrong,
        late_p50_s=_bounded(seen.late_s(0.5)),
        late_p99_s=_bounded(seen.late_s(0.99)),
        workers=[_worker(one) for one in seen.workers],
        held=[
            HeldTold(gate=gate, template=template, count=count)
            for (gate, template), count in sorted(seen.gates.held.items(), key=lambda one: -one[1])
        ],
        slots_left=dict(seen.gates.slots_left),
        slowed=sorted(seen.gates.slowed),
        paused=sorted(seen.gates.paused),
        minutes=[_minute(one) for one in seen.minutes],
    )


def _minute(one: FleetMinute) -> MinuteTold:
    return MinuteTold(
        minute=one.minute,
        attempts=one.attempts,
        went_wrong=one.went_wrong,
        outcomes=dict(one.outcomes),
        due=one.due,
        oldest_due_s=one.oldest_due_s,
        late_p50_s=_bounded(one.late_s(0.5)),
        late_p99_s=_bounded(one.late_s(0.99)),
    )


def _bounded(late_s: float | None) -> float | None:
    """JSON knows no infinity."""
    return late_s if late_s is None or isfinite(late_s) else LATE_BOUNDS_S[-1]


def _worker(one: WorkerAtWork) -> WorkerTold:
    return WorkerTold(**{name: getattr(one, name) for name in WorkerTold.model_fields})


class WorkersTold(Told):
    items: list[WorkerTold]


async def list_workers(asked: Asked) -> WorkersTold:
    """The workers that gave a sign of life lately, by name."""
    return WorkersTold(items=[_worker(one) for one in (await asked.desk.overview()).workers])


# Shards.


class ShardsQuery(Given):
    count_max: Number = Field(100, ge=1, le=COUNT_MAX, description="Where counting stops, for each shard.")


class ShardTold(Told):
    """A shard, and who holds its lock; null where nobody does."""

    shard: int
    holder: str | None
    guid: UUID | None = Field(description="Of the lock, to release it.")
    since: Moment | None
    heartbeat_age: Duration | None
    incoming: int
    processing: int
    oldest_due_at: Moment | None


class ShardsTold(Told):
    items: list[ShardTold]


async def list_shards(asked: Asked, query: ShardsQuery) -> ShardsTold:
    """Every shard lock with its queues; counts stop at `count_max`."""
    return ShardsTold(items=[_shard(one) for one in await asked.app.shards(count_max=query.count_max)])


def _shard(report: ShardReport) -> ShardTold:
    return ShardTold(
        shard=report.shard,
        holder=report.locked_by if report.locked else None,
        guid=report.lock_guid if report.locked else None,
        since=report.locked_at if report.locked else None,
        heartbeat_age=report.heartbeat_age if report.locked else None,
        incoming=report.incoming,
        processing=report.processing,
        oldest_due_at=report.oldest_due_at,
    )


class ShardReleaseGiven(Given):
    guid: UUID = Field(description="Of the lock, as GET /shards tells it.")


class ShardReleasedTold(Told):
    shard: int
    released: bool = Field(description="false: nobody held it.")


async def release_shard(asked: Asked, body: ShardReleaseGiven) -> ShardReleasedTold:
    """Free the lock of a shard, if it is still held under that guid. Its holder notices, and writes nothing more.

    412 if it changed hands meanwhile. Workers take over silent locks by themselves: this is for who cannot wait.
    """
    text = asked.path["shard"]
    try:
        if not text.isascii() or not text.isdecimal() or len(text) > DIGITS_MAX:
            raise BadInput("it is no number of a shard")
        found = await changes.release_shard(asked.operator, int(text), body.guid)
    except BadInput as error:
        raise Refused(HTTPStatus.NOT_FOUND, f"{error.args[0]}. GET /shards tells which there are") from None
    if found.verdict == "lost":
        raise Refused(
            HTTPStatus.PRECONDITION_FAILED,
            f"nothing was done: the lock of shard {text} is held under another guid. GET /shards tells which",
        )
    return ShardReleasedTold(shard=found.report.shard, released=found.verdict == "released")


# Who changed what.


class AuditQuery(Given):
    limit: Limit = PAGE_DEFAULT
    cursor: Cursor | None = None


class EntryTold(Told):
    """One change by an operator."""

    guid: UUID
    asked_at: Moment
    ended_at: Moment | None
    who: str
    via: Via
    verb: str
    subject: str
    outcome: AuditOutcome = Field(
        description="`begun` for ever: nobody told how it ended. `unchanged`: there was nothing to change."
    )
    before: dict[str, Any]
    after: dict[str, Any]


class AuditTold(Told):
    items: list[EntryTold]
    next_cursor: str | None = Field(description="For the next page; null: this is the last one.")


async def list_audit(asked: Asked, query: AuditQuery) -> AuditTold:
    """What operators changed, newest first."""
    entries = await audit_page(asked.app, entry_in(query.cursor), limit=query.limit)
    is_last = len(entries) < query.limit
    return AuditTold(items=[_entry(one) for one in entries], next_cursor=None if is_last else entry_cursor(entries[-1]))


def _entry(entry: AuditEntry) -> EntryTold:
    facts: dict[str, Any] = {name: getattr(entry, name) for name in EntryTold.model_fields}
    return EntryTold(**facts | {"before": dict(entry.before), "after": dict(entry.after)})


ENDPOINTS = (
    Endpoint("GET", "/overview", get_overview, Role.VIEWER),
    Endpoint("GET", "/workers", list_workers, Role.VIEWER),
    Endpoint("GET", "/shards", list_shards, Role.VIEWER),
    Endpoint("POST", "/shards/{shard}/release", release_shard, refuses=(HTTPStatus.PRECONDITION_FAILED,)),
    Endpoint("GET", "/audit", list_audit, Role.VIEWER),
)
