"""SQLite's rows, and what they stand for: times are integer microseconds since 1970 UTC, guids are text."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from uuid import UUID

from matrixsched.rules.action import (
    EVENT,
    UNGATED,
    Action,
    Attempt,
    Claim,
    Meta,
    Outcome,
    PastAttempt,
    Spec,
    State,
    Status,
)
from matrixsched.rules.lanes import key_in
from matrixsched.store.codec import decode_terms, encode_terms
from matrixsched.store.transition import Row
from matrixsched.store.values import Backlog, Change, Ended, NewAction, Seen, ShardReport, Written

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

# The columns of tuples, in their order.
ACTION = ("shard_id", "action_id")
KEY = (*ACTION, "action_guid")
AGAIN = (*KEY, "scheduled_at", "lane", "claimed_by", "now")
"""A row that waits for another run."""
_TICK = ("tick", "tick_at", "tick_failures")
RECORDED = (*KEY, "state", "scheduled_at", *_TICK, "outcome", "error", "interrupted", "claimed_at", "now")
"""What is recorded in the action."""
REMEMBERED = (*KEY, "attempt", "tick", "outcome", "error", "claimed_by", "claimed_at", "now")
"""A past attempt for the history."""


def in_microseconds(moment: datetime) -> int:
    """Since 1970 in UTC, exactly."""
    return (moment - _EPOCH) // _MICROSECOND


def in_microseconds_or_none(moment: datetime | None) -> int | None:
    return None if moment is None else in_microseconds(moment)


def moment_of(microseconds: int) -> datetime:
    return _EPOCH + timedelta(microseconds=microseconds)


def moment_or_none(microseconds: int | None) -> datetime | None:
    return None if microseconds is None else moment_of(microseconds)


def span(duration: timedelta) -> int:
    return duration // _MICROSECOND


def begins_at(at: datetime | None, delay: timedelta, now: int) -> int:
    return now + span(delay) if at is None else in_microseconds(at)


def as_json(rows: Iterable[object]) -> str:
    return json.dumps(rows, ensure_ascii=False, separators=(",", ":"))


def columns_of_new(new: NewAction, now: int) -> dict[str, object]:
    return {
        "shard_id": new.shard,
        "action_id": new.id,
        "action_guid": str(new.guid),
        "handler": new.handler,
        "payload": new.payload,
        "terms": encode_terms(new.terms),
        "lane": new.lane,
        "priority": new.priority,
        "template": new.template,
        "zone": new.zone,
        "expires_at": in_microseconds_or_none(new.expires_at),
        "scheduled_at": (now if new.at is None else in_microseconds(new.at)) + span(new.delay),
        "tick_at": begins_at(new.at, new.delay, now),
    }


def columns_of_change(change: Change) -> dict[str, object]:
    return {
        "shard_id": change.shard,
        "action_id": change.id,
        "action_guid": str(change.guid),
        "expected_guid": None if change.expected_guid is None else str(change.expected_guid),
    }


def columns_of_seen(seen: Seen | None) -> dict[str, object]:
    if seen is None:
        return {"seen_state": None, "seen_ended_at": None}
    return {"seen_state": seen.state.value, "seen_ended_at": in_microseconds_or_none(seen.last_ended_at)}


def key_of(claim: Claim) -> tuple[int, str, str]:
    return claim.shard, claim.action_id, str(claim.guid)


def row_key(row: Row) -> tuple[str, str]:
    return row["action_id"], row["action_guid"]


def columns_of_claim(claim: Claim) -> tuple[int, str, str, int, str]:
    return claim.shard, claim.action_id, str(claim.guid), claim.attempt, str(claim.claimed_by)


def interruption_of(row: Row, shard: int, now: int) -> tuple[object, ...]:
    """A row of REMEMBERED."""
    outcome = Outcome.SUPERSEDED if row["verdict"] == "dead" else Outcome.INTERRUPTED
    error = "its worker did not report back"
    held = (row["claimed_by"], row["claimed_at"])
    return shard, *row_key(row), row["attempt"], row["tick"] or 0, outcome.value, error, *held, now


def memory_of(claim: Claim, row: Row, tick: int, outcome: Outcome, error: str | None, now: int) -> tuple[object, ...]:
    """A row of REMEMBERED."""
    held = (str(claim.claimed_by), row["claimed_at"])
    return *key_of(claim), claim.attempt, tick, outcome.value, error, *held, now


def _next_at(one: Ended, now: int) -> int:
    return begins_at(one.verdict.next_at, one.verdict.delay or timedelta(0), now)


def again_of(one: Ended, row: Row, now: int) -> tuple[object, ...]:
    """A row of AGAIN."""
    lane = EVENT if row["lane"] == EVENT else UNGATED
    return *key_of(one.claim), _next_at(one, now), lane, str(one.claim.claimed_by), now


def recorded_of(one: Ended, row: Row, now: int) -> tuple[object, ...]:
    """A row of RECORDED."""
    verdict = one.verdict
    return (
        *key_of(one.claim),
        verdict.state.value,
        _next_at(one, now) if verdict.state is State.LIVE else None,
        verdict.tick,
        in_microseconds(verdict.tick_at),
        verdict.tick_failures,
        verdict.outcome.value,
        verdict.error,
        row["interrupted"],
        row["claimed_at"],
        now,
    )


def written_of(row: Row) -> Written:
    return Written(
        row["action_id"], UUID(row["action_guid"]), created=row["revision"] == 1, running=bool(row["running"])
    )


def changed_of(row: Row) -> Written:
    return Written(row["action_id"], UUID(row["action_guid"]), created=False, running=bool(row["running"]))


def attempt_of(row: Row, shard: int, sync_guid: UUID, attempt: int, claimed_at: datetime) -> Attempt:
    return Attempt(
        claim=Claim(shard, row["action_id"], UUID(row["action_guid"]), attempt, sync_guid),
        claimed_at=claimed_at,
        due_at=moment_of(row["due_at"]),
        handler=row["handler"],
        payload=row["payload"],
        terms=decode_terms(row["terms"]),
        version=row["version"],
        priority=row["priority"],
        template=row["template"],
        zone=row["zone"],
        expires_at=moment_or_none(row["expires_at"]),
        tick=row["tick"],
        tick_at=moment_of(row["tick_at"]),
        tick_failures=row["tick_failures"],
        interruptions=row["interrupted"],
    )


def action_of(row: Row) -> Action:
    return Action(
        meta=Meta(
            id=row["action_id"],
            guid=UUID(row["action_guid"]),
            version=row["version"],
            revision=row["revision"],
            shard=row["shard_id"],
            created_at=moment_of(row["created_at"]),
            updated_at=moment_of(row["updated_at"]),
        ),
        spec=Spec(
            handler=row["handler"],
            payload=row["payload"],
            terms=decode_terms(row["terms"]),
            priority=row["priority"],
            template=row["template"],
            zone=row["zone"],
            limit=key_in(row["lane"]),
            expires_at=moment_or_none(row["expires_at"]),
        ),
        status=Status(
            state=State(row["state"]),
            scheduled_at=moment_of(row["scheduled_at"]),
            running=bool(row["running"]),
            tick=row["tick"],
            succeeded=row["succeeded"],
            failed=row["failed"],
            interrupted=row["interrupted"] + row["interrupted_uncounted"],
            missed=row["missed"],
            deferred=row["deferred"],
            consecutive_failures=row["consecutive_failures"],
            last_outcome=None if row["last_outcome"] is None else Outcome(row["last_outcome"]),
            last_error=row["last_error"],
            last_started_at=moment_or_none(row["last_started_at"]),
            last_ended_at=moment_or_none(row["last_ended_at"]),
            finished_at=moment_or_none(row["finished_at"]),
        ),
    )


def past_attempt_of(row: Row) -> PastAttempt:
    return PastAttempt(
        guid=UUID(row["action_guid"]),
        attempt=row["attempt"],
        tick=row["tick"],
        outcome=Outcome(row["outcome"]),
        error=row["error"],
        started_at=moment_of(row["started_at"]),
        ended_at=moment_of(row["ended_at"]),
    )


def shard_report_of(row: Row) -> ShardReport:
    return ShardReport(
        shard=row["shard_id"],
        locked=bool(row["locked"]),
        lock_guid=UUID(row["last_lock_guid"]),
        locked_by=row["last_locked_by"],
        locked_at=moment_of(row["last_processing_start_at"]),
        heartbeat_at=moment_of(row["last_heartbeat_at"]),
        heartbeat_age=timedelta(microseconds=row["now"] - row["last_heartbeat_at"]),
        incoming=row["incoming"],
        processing=row["processing"],
        oldest_due_at=moment_or_none(row["oldest_due_at"]),
    )


def backlog_of(row: Row) -> Backlog:
    return Backlog(
        now=moment_of(row["now"]),
        due=row["due"],
        oldest_due_at=moment_or_none(row["oldest_due_at"]),
        oldest_open_at=moment_or_none(row["oldest_open_at"]),
        oldest_parked_at=moment_or_none(row["oldest_parked_at"]),
    )
