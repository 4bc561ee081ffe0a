"""PostgreSQL's rows, and what they stand for."""

from __future__ import annotations

from uuid import UUID

from matrixsched.rules.action import Action, Attempt, Claim, Meta, Outcome, Spec, State, Status
from matrixsched.rules.lanes import key_in
from matrixsched.store.codec import decode_terms
from matrixsched.store.transition import Row


def attempt_of(row: Row, shard: int, sync_guid: UUID) -> Attempt:
    return Attempt(
        claim=Claim(shard, row["action_id"], row["action_guid"], row["attempt"], sync_guid),
        claimed_at=row["claimed_at"],
        due_at=row["due_at"],
        handler=row["handler"],
        payload=row["payload"],
        terms=decode_terms(row["terms"]),
        version=row["version"],
        priority=row["priority"],
        template=row["template"],
        zone=row["zone"],
        expires_at=row["expires_at"],
        tick=row["tick"],
        tick_at=row["tick_at"],
        tick_failures=row["tick_failures"],
        interruptions=row["interrupted"],
    )


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
