"""PostgreSQL's rows, and what they stand for."""

from __future__ import annotations

from operator import itemgetter
from typing import TypeVar
from uuid import UUID

from matrixsched.rules.action import Action, Attempt, Claim, Meta, Outcome, Spec, State, Status
from matrixsched.rules.lanes import key_in
from matrixsched.store.codec import decode_terms
from matrixsched.store.transition import Row

T = TypeVar("T")


def column(values: list[T]) -> list[T]:
    """A column of a batch that is never null: if all are alike, one stands for all.

    Of an array asyncpg looks at each value, for others inside of it, which takes longer than most other things here.
    """
    return values[:1] if values and values.count(values[0]) == len(values) else values


def sparse_column(values: list[T | None]) -> list[T | None] | None:
    """A column of a batch in which most often all are null: then null stands for the column."""
    return None if values.count(None) == len(values) else values


_CLAIM = itemgetter("action_id", "action_guid", "attempt")
_BEFORE_TERMS = itemgetter("claimed_at", "due_at", "handler", "payload")
_AFTER_TERMS = itemgetter(
    *("version", "priority", "template", "zone", "expires_at", "tick", "tick_at", "tick_failures", "interrupted")
)


def attempt_of(row: Row, shard: int, sync_guid: UUID) -> Attempt:
    # By position, in the order of the fields: this is done for each action that is run.
    claim = Claim._make((shard, *_CLAIM(row), sync_guid))
    return Attempt._make((claim, *_BEFORE_TERMS(row), decode_terms(row["terms"]), *_AFTER_TERMS(row), None, None))


_META = itemgetter("action_id", "action_guid", "version", "revision", "shard_id", "created_at", "updated_at")
_SPEC = itemgetter("priority", "template", "zone")
_COUNTED = itemgetter("scheduled_at", "running", "tick", "succeeded", "failed")
_NOT_RUN = itemgetter("missed", "deferred", "consecutive_failures")
_ENDED = itemgetter("last_error", "last_started_at", "last_ended_at", "finished_at")


_STATES = {state.value: state for state in State}
_OUTCOMES = {outcome.value: outcome for outcome in Outcome}


def action_of(row: Row) -> Action:
    # By position as well: of a list there may be ten thousand.
    terms, limit, outcome = decode_terms(row["terms"]), key_in(row["lane"]), row["last_outcome"]
    interrupted = row["interrupted"] + row["interrupted_uncounted"]
    return Action(
        Meta._make(_META(row)),
        Spec._make((row["handler"], bytes(row["payload"]), terms, *_SPEC(row), limit, row["expires_at"])),
        Status._make(
            (
                _STATES[row["state"]],
                *_COUNTED(row),
                interrupted,
                *_NOT_RUN(row),
                None if outcome is None else _OUTCOMES[outcome],
                *_ENDED(row),
            )
        ),
    )
