"""What transitions give to their statements, by the names of parameters, and what they read from the answers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from matrixsched.rules.action import Claim
from matrixsched.store.codec import encode_terms
from matrixsched.store.postgresql.rows import column, sparse_column
from matrixsched.store.transition import Row
from matrixsched.store.values import Answer, Change, Ended, NewAction, Written

_ANSWERS = {answer.value: answer for answer in Answer}


def columns_of_new_actions(batch: Sequence[NewAction], request_guid: UUID) -> dict[str, object]:
    # By position, in the order of the fields: this is done for each call.
    columns = map(list, zip(*batch, strict=True)) if batch else ([] for _ in NewAction._fields)
    shards, ids, guids, named, handlers, payloads, terms, lanes, priorities, *rare, delays = columns
    templates, zones, expires_at, ats = map(sparse_column, rare)
    return {
        "shard_ids": shards,
        "action_ids": ids,
        "action_guids": guids,
        "request_guids": column([guid or request_guid for guid in named]),
        "handlers": column(handlers),
        "payloads": payloads,
        "terms": column([encode_terms(one) for one in terms]),
        "lanes": column(lanes),
        "priorities": column(priorities),
        "templates": templates,
        "zones": zones,
        "expires_at": expires_at,
        "ats": ats,
        "delays": column(delays),
    }


def columns_of_replacement(new: NewAction, request_guid: UUID, expected_guid: UUID) -> dict[str, object]:
    return {
        "shard_id": new.shard,
        "action_id": new.id,
        "action_guid": new.guid,
        "request_guid": new.request_guid or request_guid,
        "expected_guid": expected_guid,
        "handler": new.handler,
        "payload": new.payload,
        "terms": encode_terms(new.terms),
        "lane": new.lane,
        "priority": new.priority,
        "template": new.template,
        "zone": new.zone,
        "expires_at": new.expires_at,
        "at": new.at,
        "delay": new.delay,
    }


def columns_of_change(change: Change) -> dict[str, object]:
    return {
        "shard_id": change.shard,
        "action_id": change.id,
        "action_guid": change.guid,
        "request_guid": change.request_guid,
        "expected_guid": change.expected_guid,
    }


def columns_of_rescheduling(change: Change, *, revive: bool) -> dict[str, object]:
    seen = change.seen
    return columns_of_change(change) | {
        "at": change.at,
        "delay": change.delay,
        "revive": revive,
        "seen_state": None if seen is None else seen.state,
        "seen_ended_at": None if seen is None else seen.last_ended_at,
    }


def columns_of_claims(claims: Sequence[Claim]) -> dict[str, object]:
    return {
        "shard_ids": [claim.shard for claim in claims],
        "action_ids": [claim.action_id for claim in claims],
        "action_guids": [claim.guid for claim in claims],
        "attempts": [claim.attempt for claim in claims],
        "claimed_by": [claim.claimed_by for claim in claims],
    }


def columns_of_outcomes(ended: Sequence[Ended]) -> dict[str, object]:
    verdicts = [one.verdict for one in ended]
    return {
        "shard_ids": column([one.claim.shard for one in ended]),
        "action_ids": [one.claim.action_id for one in ended],
        "action_guids": [one.claim.guid for one in ended],
        "attempts": column([one.claim.attempt for one in ended]),
        "claimed_by": column([one.claim.claimed_by for one in ended]),
        "outcomes": column([verdict.outcome for verdict in verdicts]),
        "states": column([verdict.state for verdict in verdicts]),
        "ticks": column([verdict.tick for verdict in verdicts]),
        "tick_at": column([verdict.tick_at for verdict in verdicts]),
        "tick_failures": column([verdict.tick_failures for verdict in verdicts]),
        "next_at": sparse_column([verdict.next_at for verdict in verdicts]),
        "delays": sparse_column([verdict.delay for verdict in verdicts]),
        "errors": sparse_column([verdict.error for verdict in verdicts]),
    }


def answers_of(rows: Sequence[Row]) -> dict[UUID, Answer]:
    """What `record` answers, by the guids of the versions."""
    return {row["action_guid"]: _ANSWERS[row["answer"]] for row in rows}


def written(row: Row) -> Written:
    return Written(row["action_id"], row["action_guid"], created=row["revision"] == 1, running=row["running"])


def milliseconds(lock_timeout: timedelta | None) -> str | None:
    return None if lock_timeout is None else f"{lock_timeout / timedelta(milliseconds=1):.0f}ms"


def changed(rows: Sequence[Row]) -> Written | None:
    if not rows:
        return None
    return Written(rows[0]["action_id"], rows[0]["action_guid"], created=False, running=rows[0]["running"])
