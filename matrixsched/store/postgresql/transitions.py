"""The protocol on PostgreSQL: each transition is one statement, or says why not; the text is in sql/postgresql/."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from matrixsched.clock import Clock
from matrixsched.rules.action import (
    COMING,
    EVENT,
    UNGATED,
    Action,
    Attempt,
    Claim,
    Outcome,
    PastAttempt,
)
from matrixsched.rules.lanes import escaped
from matrixsched.rules.retry import INTERRUPTIONS_BEFORE_SUSPICION
from matrixsched.store.postgresql.conversing import (
    answers_of,
    changed,
    columns_of_change,
    columns_of_claims,
    columns_of_new_actions,
    columns_of_outcomes,
    columns_of_replacement,
    columns_of_rescheduling,
    milliseconds,
    written,
)
from matrixsched.store.postgresql.fleet import PostgresFleet
from matrixsched.store.postgresql.fsck import PostgresFsck
from matrixsched.store.postgresql.gating import PostgresGating
from matrixsched.store.postgresql.hygiene import PostgresHygiene
from matrixsched.store.postgresql.looking import PostgresLooking
from matrixsched.store.postgresql.operators import PostgresOperators
from matrixsched.store.postgresql.planning import PostgresPlanning
from matrixsched.store.postgresql.queues import PostgresQueues
from matrixsched.store.postgresql.reports import PostgresReports
from matrixsched.store.postgresql.rows import action_of, attempt_of
from matrixsched.store.postgresql.semaphores import PostgresSemaphores
from matrixsched.store.postgresql.stock import PostgresStock
from matrixsched.store.transition import Ask, Conversation, Row, transition
from matrixsched.store.values import (
    GATED_LANES_MAX,
    Acquired,
    ActionFilter,
    Answer,
    Backlog,
    Change,
    Claimed,
    Ended,
    Extension,
    Holding,
    Installation,
    NewAction,
    ShardReport,
    Taking,
    Turn,
    WaitingRow,
    Written,
    noted_guids,
)


def channel_of(installation: str) -> str:
    """The NOTIFY channel of an installation."""
    return f"matrixsched_{installation}"


class PostgresTransitions(
    PostgresFleet,
    PostgresFsck,
    PostgresHygiene,
    PostgresGating,
    PostgresLooking,
    PostgresOperators,
    PostgresPlanning,
    PostgresQueues,
    PostgresReports,
    PostgresSemaphores,
    PostgresStock,
):
    def __init__(self, installation: str, *, clock: Clock | None = None) -> None:
        """`clock` replaces the database's own; for tests."""
        super().__init__(installation, clock=clock)
        self._channel = channel_of(installation)

    @transition
    def schedule(
        self,
        batch: Sequence[NewAction],
        request_guid: UUID,
        *,
        replace: bool,
        only_if_new: bool = False,
        lock_timeout: timedelta | None,
        tell: bool,
    ) -> Conversation[list[Written]]:
        rows = yield self._ask(
            "schedule",
            **columns_of_new_actions(batch, request_guid),
            replace=replace,
            noted=noted_guids(batch, replace=replace),
            only_if_new=only_if_new,
            lock_timeout=milliseconds(lock_timeout),
            channel=self._channel if tell else None,
        )
        return [written(row) for row in rows]

    @transition
    def replace_expected(
        self,
        new: NewAction,
        request_guid: UUID,
        expected_guid: UUID,
        *,
        lock_timeout: timedelta | None = None,
        tell: bool,
    ) -> Conversation[Written | None]:
        rows = yield self._ask(
            "replace_expected",
            **columns_of_replacement(new, request_guid, expected_guid),
            lock_timeout=milliseconds(lock_timeout),
            channel=self._channel if tell else None,
        )
        return written(rows[0]) if rows else None

    @transition
    def reschedule(
        self, change: Change, *, revive: bool, lock_timeout: timedelta | None = None, tell: bool
    ) -> Conversation[Written | None]:
        rows = yield self._ask(
            "reschedule",
            **columns_of_rescheduling(change, revive=revive),
            lock_timeout=milliseconds(lock_timeout),
            channel=self._channel if tell else None,
        )
        return changed(rows)

    @transition
    def cancel(self, change: Change, *, lock_timeout: timedelta | None = None) -> Conversation[Written | None]:
        rows = yield self._ask("cancel", **columns_of_change(change), lock_timeout=milliseconds(lock_timeout))
        return changed(rows)

    @transition
    def find(self, keys: Sequence[tuple[int, str]]) -> Conversation[list[Action]]:
        rows = yield self._ask("find", shard_ids=[shard for shard, _ in keys], action_ids=[id for _, id in keys])
        return [action_of(row) for row in rows]

    @transition
    def page(self, wanted: ActionFilter, *, after: tuple[int, str] | None, limit: int) -> Conversation[list[Action]]:
        after_shard, after_id = after or (-1, "")
        rows = yield self._ask(
            "page",
            after_shard=after_shard,
            after_id=after_id,
            state=wanted.state,
            handler=wanted.handler,
            template=wanted.template,
            id_prefix=wanted.id_prefix,
            due_before=wanted.due_before,
            limit=limit,
        )
        return [action_of(row) for row in rows]

    @transition
    def history(self, shard: int, action_id: str) -> Conversation[list[PastAttempt]]:
        rows = yield self._ask("history", shard_id=shard, action_id=action_id)
        return [
            PastAttempt(
                guid=row["action_guid"],
                attempt=row["attempt"],
                tick=row["tick"],
                outcome=Outcome(row["outcome"]),
                error=row["error"],
                started_at=row["started_at"],
                ended_at=row["ended_at"],
            )
            for row in rows
        ]

    @transition
    def waiting_row(self, shard: int, action_id: str, guid: UUID) -> Conversation[WaitingRow | None]:
        rows = yield self._ask("waiting_row", shard_id=shard, action_id=action_id, action_guid=guid)
        return WaitingRow(rows[0]["lane"], rows[0]["scheduled_at"], rows[0]["is_new"]) if rows else None

    @transition
    def installation(self) -> Conversation[Installation]:
        (row,) = yield self._ask("installation")
        return Installation(
            shard_count=row["shard_count"],
            schema_version=row["schema_version"],
            oldest_library=row["oldest_library"],
            now=row["now"],
            is_distributed=row["is_distributed"],
        )

    @transition
    def now(self) -> Conversation[datetime]:
        (row,) = yield self._ask("now")
        now: datetime = row["now"]
        return now

    def asking_now(self) -> Ask:
        return self._ask("now")

    @transition
    def wake(self) -> Conversation[None]:
        yield self._ask("wake", channel=self._channel)

    @transition
    def acquire_shard(
        self,
        *,
        sync_guid: UUID,
        holder: str,
        lease: timedelta,
        lanes: Sequence[str],
        gated_handlers: Sequence[str] = (),
        ahead: timedelta = timedelta(0),
        turn: Turn = Turn.OLDEST,
        only_events: bool = False,
    ) -> Conversation[Acquired]:
        (row,) = yield self._ask(
            "acquire_shard",
            sync_guid=sync_guid,
            holder=holder,
            lease=lease,
            lanes=lanes,
            gated_handlers=[escaped(name) for name in gated_handlers],
            ahead=ahead,
            lanes_max=GATED_LANES_MAX,
            turn=turn.value,
            only_events=only_events,
        )
        if row["shard_id"] is None:
            return Acquired(now=row["now"], shard=None, holds=row["holds"], next_due_at=row["next_due_at"])
        due_lanes = ((EVENT, row["event"]), (UNGATED, row["due"]), (COMING, row["coming"]))
        due = [lane for lane, is_due in due_lanes if is_due]
        return Acquired(
            now=row["now"],
            shard=row["shard_id"],
            incoming=row["incoming"],
            incoming_events=row["incoming_events"],
            lanes=(*due, *row["lanes"]),
            gated_lanes=tuple(row["gated_lanes"]),
            holds=row["holds"],
        )

    @transition
    def beat_shard(self, shard: int, sync_guid: UUID) -> Conversation[bool]:
        rows = yield self._ask("beat_shard", shard_id=shard, sync_guid=sync_guid)
        return bool(rows)

    @transition
    def release_shard(self, shard: int, sync_guid: UUID, *, tell: bool = False) -> Conversation[bool]:
        channel = self._channel if tell else None
        rows = yield self._ask("release_shard", shard_id=shard, sync_guid=sync_guid, channel=channel)
        return bool(rows)

    @transition
    def close_fence(self, shard: int, sync_guid: UUID, fresh_guid: UUID) -> Conversation[bool]:
        rows = yield self._ask("close_fence", shard_id=shard, sync_guid=sync_guid, fresh_guid=fresh_guid)
        return bool(rows)

    @transition
    def claim(
        self,
        shard: int,
        sync_guid: UUID,
        *,
        lane: str,
        handlers: Sequence[str],
        limit: int,
        claim_limit: int | None = None,
        attempt_lease: timedelta,
    ) -> Conversation[Claimed]:
        rows = yield self._ask(
            "claim",
            shard_id=shard,
            sync_guid=sync_guid,
            lanes=[lane],
            takes=[limit],
            claim_limit=limit if claim_limit is None else claim_limit,
            gated=False,
            handlers=handlers,
            attempt_lease=attempt_lease,
            suspect_from=INTERRUPTIONS_BEFORE_SUSPICION,
            suspect_room=0,
        )
        return _claimed(rows, shard, sync_guid)

    @transition
    def move(
        self,
        shard: int,
        sync_guid: UUID,
        *,
        handlers: Sequence[str],
        move_limit: int,
        claim_limit: int,
        attempt_lease: timedelta,
        only_events: bool = False,
        taking: Taking | None = None,
    ) -> Conversation[Claimed]:
        rows = yield self._ask(
            "move",
            shard_id=shard,
            sync_guid=sync_guid,
            handlers=handlers,
            move_limit=move_limit,
            claim_limit=claim_limit,
            attempt_lease=attempt_lease,
            only_events=only_events,
            holder=taking and taking.holder,
            not_after=taking and taking.not_after,
        )
        return _claimed(rows, shard, sync_guid, took_shard=rows[0]["took_shard"])

    @transition
    def claimed_by(
        self, shard: int, sync_guid: UUID, *, lanes: Sequence[str], attempt_lease: timedelta
    ) -> Conversation[list[Attempt]]:
        rows = yield self._ask(
            "claimed_by", shard_id=shard, sync_guid=sync_guid, lanes=lanes, attempt_lease=attempt_lease
        )
        return [attempt_of(row, shard, sync_guid) for row in rows]

    @transition
    def extend(self, held: Sequence[Holding], *, attempt_lease: timedelta) -> Conversation[Mapping[UUID, Extension]]:
        rows = yield self._ask(
            "extend",
            **columns_of_claims([holding.claim for holding in held]),
            longest=[holding.longest for holding in held],
            attempt_lease=attempt_lease,
        )
        return {row["action_guid"]: Extension(row["answer"]) for row in rows}

    @transition
    def give_back(self, unstarted: Sequence[Attempt]) -> Conversation[int]:
        rows = yield self._ask(
            "give_back",
            **columns_of_claims([attempt.claim for attempt in unstarted]),
            due_at=[attempt.due_at for attempt in unstarted],
        )
        given = {row["action_guid"] for row in rows}
        if claims := [attempt.claim for attempt in unstarted if attempt.claim.guid in given]:
            yield self._unblock(claims)
        return len(rows)

    @transition
    def record(self, ended: Sequence[Ended], *, history_max: int) -> Conversation[Mapping[UUID, Answer]]:
        rows = yield self._ask("record", **columns_of_outcomes(ended), history_max=history_max)
        answers = answers_of(rows)
        if superseded := [one.claim for one in ended if answers[one.claim.guid] is Answer.SUPERSEDED]:
            yield self._unblock(superseded)
        return answers

    def _unblock(self, claims: Sequence[Claim]) -> Ask:
        return self._ask(
            "unblock",
            shard_ids=[claim.shard for claim in claims],
            action_ids=[claim.action_id for claim in claims],
        )

    @transition
    def shards(self, *, count_max: int) -> Conversation[list[ShardReport]]:
        rows = yield self._ask("shards", count_max=count_max)
        return [
            ShardReport(
                shard=row["shard_id"],
                locked=row["locked"],
                lock_guid=row["last_lock_guid"],
                locked_by=row["last_locked_by"],
                locked_at=row["last_processing_start_at"],
                heartbeat_at=row["last_heartbeat_at"],
                heartbeat_age=row["now"] - row["last_heartbeat_at"],
                incoming=row["incoming"],
                processing=row["processing"],
                oldest_due_at=row["oldest_due_at"],
            )
            for row in rows
        ]

    @transition
    def backlog(self, *, count_max: int) -> Conversation[Backlog]:
        (row,) = yield self._ask("backlog", count_max=count_max)
        return Backlog(
            now=row["now"],
            due=row["due"],
            oldest_due_at=row["oldest_due_at"],
            oldest_open_at=row["oldest_open_at"],
            oldest_parked_at=row["oldest_parked_at"],
        )


def _each_once(attempts: list[Attempt]) -> list[Attempt]:
    """An attempt is handed out once, also where several rows came for it: a fault that `fsck` finds, too."""
    by_id = {attempt.claim.action_id: attempt for attempt in attempts}
    return attempts if len(by_id) == len(attempts) else list(by_id.values())


def _claimed(rows: Sequence[Row], shard: int, sync_guid: UUID, *, took_shard: bool = False) -> Claimed:
    first = rows[0]
    attempts = [] if first["action_id"] is None else [attempt_of(row, shard, sync_guid) for row in rows]
    return Claimed(first["seen"], _each_once(attempts), tuple(first["gated_lanes"] or ()), first["parked"], took_shard)
