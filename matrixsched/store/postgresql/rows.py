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


def action_of(row: Row) -> Action:
    return Action(
        meta=Meta(
            id=row["action_id"],
            guid=row["action_guid"],
            version=row["version"],
            revision=row["revision"],
            shard=row["shard_id"],
            created_at=row["created_at"],
            updated_at=row["updated_at"],
        ),
        spec=Spec(
            handler=row["handler"],
            payload=bytes(row["payload"]),
            terms=decode_terms(row["terms"]),
            priority=row["priority"],
            template=row["template"],
            zone=row["zone"],
            limit=key_in(row["lane"]),
            expires_at=row["expires_at"],
        ),
        status=Status(
            state=State(row["state"]),
            scheduled_at=row["scheduled_at"],
            running=row["running"],
            tick=row["tick"],
            succeeded=row["succeeded"],
            failed=row["failed"],
            interrupted=row["interrupted"] + row["interrupted_uncounted"],
            missed=row["missed"],
            deferred=row["deferred"],
            consecutive_failures=row["consecutive_failures"],
            last_outcome=None if row["last_outcome"] is None else Outcome(row["last_outcome"]),
            last_error=row["last_error"],
            last_started_at=row["last_started_at"],
            last_ended_at=row["last_ended_at"],
            finished_at=row["finished_at"],
        ),
    )
