"""The protocol on PostgreSQL in distributed form; the text is in sql/distributed/, or that of sql/postgresql/ said of
one shard.

Outcomes and actions of several shards are written shard after shard in one transaction, all or none. Nobody waits in it
but for callers' locks, in the order of (shard, id).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg

from matrixsched.clock import SeededChance
from matrixsched.rules.action import Attempt, Claim
from matrixsched.rules.lanes import escaped
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
from matrixsched.store.postgresql.distributed.grouping import by_shard
from matrixsched.store.postgresql.distributed.hygiene import DistributedHygiene
from matrixsched.store.postgresql.distributed.reports import DistributedReports
from matrixsched.store.postgresql.transitions import PostgresTransitions
from matrixsched.store.statements import Statement, load_distributed
from matrixsched.store.transition import Ask, Conversation, Row, Transaction, Transition, transaction, transition
from matrixsched.store.values import (
    GATED_LANES_MAX,
    Acquired,
    Answer,
    Change,
    Ended,
    Extension,
    Holding,
    NewAction,
    Turn,
    Written,
    noted_guids,
)

SHARDS_TRIED_MAX = 8
"""So many shards with work are tried, one after the other, before it is looked for anew."""
SHARDS_OF_A_TIME = 16
"""So many shards have their leases prolonged by one time that was asked. By that of the first, the last of hundreds
would be too late at each turn, and their attempts would be run a second time."""
LOOK_ANEW = timedelta(milliseconds=10)
"""When to look anew after others took all of them."""


class DistributedTransitions(DistributedHygiene, DistributedReports, PostgresTransitions):
    def _load(self, installation: str) -> Mapping[str, Statement]:
        return load_distributed(installation)

    def _ask(self, name: str, **parameters: object) -> Ask:
        return super()._ask(name, **parameters, late_at=None)  # tests own the clock, or `timed` says it

    # What users change.

    @transaction
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
        shards = list(by_shard(batch, _shard_of_new))
        yield from self._be_patient(lock_timeout)
        if only_if_new and (yield from self._is_any_there(shards)):
            return []
        rows: list[Row] = []
        shards_written = []
        for shard, actions in shards:
            found = yield self._ask(
                "schedule.write",
                **columns_of_new_actions(actions, request_guid),
                shard_id=shard,
                replace=replace,
                noted=noted_guids(actions, replace=replace),
            )
            if found:
                rows += found
                shards_written.append(shard)
        if tell:
            yield from self._tell(shards_written)
        return [written(row) for row in rows]

    def _is_any_there(self, shards: Sequence[tuple[int, Sequence[NewAction]]]) -> Conversation[bool]:
        for shard, actions in shards:
            if (yield self._ask("schedule.taken", shard_id=shard, action_ids=[new.id for new in actions])):
                return True
        return False

    @transaction
    def replace_expected(
        self,
        new: NewAction,
        request_guid: UUID,
        expected_guid: UUID,
        *,
        lock_timeout: timedelta | None = None,
        tell: bool,
    ) -> Conversation[Written | None]:
        yield from self._be_patient(lock_timeout)
        rows = yield self._ask("replace_expected", **columns_of_replacement(new, request_guid, expected_guid))
        if tell and rows:
            yield from self._tell([new.shard])
        return written(rows[0]) if rows else None

    @transaction
    def reschedule(
        self, change: Change, *, revive: bool, lock_timeout: timedelta | None = None, tell: bool
    ) -> Conversation[Written | None]:
        yield from self._be_patient(lock_timeout)
        rows = yield self._ask("reschedule", **columns_of_rescheduling(change, revive=revive))
        if tell and rows:
            yield from self._tell([change.shard])
        return changed(rows)

    @transaction
    def cancel(self, change: Change, *, lock_timeout: timedelta | None = None) -> Conversation[Written | None]:
        yield from self._be_patient(lock_timeout)
        return changed((yield self._ask("cancel", **columns_of_change(change))))

    def _be_patient(self, lock_timeout: timedelta | None) -> Conversation[None]:
        """As long as is said, in a transaction of our own. In a caller's nothing is said, and it stays as it is."""
        if lock_timeout is not None:
            yield self._ask("patience", lock_timeout=milliseconds(lock_timeout))

    def _tell(self, shards: Sequence[int]) -> Conversation[None]:
        """Of something new in these shards."""
        if shards:
            told = f"actions:{shards[0]}" if len(shards) == 1 else "actions"
            yield self._ask("tell", channel=self._channel, told=told)

    # Taking a shard.

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
        (clock,) = yield self.asking_now()
        if not clock["takes_writes"]:
            # Who finds nothing to take only reads, and a demoted server would go on to answer that.
            raise asyncpg.ReadOnlySQLTransactionError
        (gates,) = yield self._ask(
            "acquire_shard.gates",
            gated_handlers=[escaped(name) for name in gated_handlers],
            ahead=ahead,
            lanes_max=GATED_LANES_MAX,
        )
        wanted: dict[str, object] = {
            "lease": lease,
            "lanes": lanes,
            "ready_lanes": gates["lanes"],
            "only_events": only_events,
        }
        (found,) = yield self._ask(
            "acquire_shard.look",
            priorities=gates["priorities"],
            turn=turn.value,
            shards_max=SHARDS_TRIED_MAX,
            **wanted,
        )
        holds = gates["are_listed"] or found["are_held"]
        for shard in as_tried(found["shards"], found["ranks"], sync_guid):
            rows = yield self._ask("acquire_shard.take", shard_id=shard, sync_guid=sync_guid, holder=holder, **wanted)
            if rows:
                return _acquired(rows[0], gates, found["priority"], holds=holds)
        next_due_at = None if only_events else (yield from self._next_due_at(gates, found))
        contended = bool(found["shards"])
        return Acquired(now=found["now"], shard=None, holds=holds, next_due_at=next_due_at, contended=contended)

    def _next_due_at(self, gates: Row, found: Row) -> Conversation[datetime | None]:
        (rest,) = yield self._ask("acquire_shard.rest")
        instants = [rest["next_due_at"], gates["next_due_at"], found["lapses_at"]]
        if gates["lanes"]:
            # What is ready is with somebody else at this moment: took it just now, or holds the shard.
            instants.append(found["now"] + timedelta(milliseconds=50 if found["priority"] is None else 10))
        if found["shards"]:
            instants.append(found["now"] + LOOK_ANEW)
        return min((instant for instant in instants if instant is not None), default=None)

    @transition
    def release_shard(self, shard: int, sync_guid: UUID, *, tell: bool = False) -> Conversation[bool]:
        rows = yield self._ask("release_shard", shard_id=shard, sync_guid=sync_guid)
        if tell and rows:
            yield self._ask("wake", channel=self._channel)
        return bool(rows)

    # Attempts.

    @transition
    def extend(self, held: Sequence[Holding], *, attempt_lease: timedelta) -> Conversation[Mapping[UUID, Extension]]:
        answers: dict[UUID, Extension] = {}
        for number, (shard, ours) in enumerate(by_shard(held, _shard_of_holding)):
            if number % SHARDS_OF_A_TIME == 0:
                yield self.asking_now()
            rows = yield self._ask(
                "extend",
                **columns_of_claims([holding.claim for holding in ours]),
                shard_id=shard,
                longest=[holding.longest for holding in ours],
                attempt_lease=attempt_lease,
            )
            answers |= {row["action_guid"]: Extension(row["answer"]) for row in rows}
        return answers

    @transition
    def give_back(self, unstarted: Sequence[Attempt]) -> Conversation[int]:
        given = 0
        for shard, ours in by_shard(unstarted, _shard_of_attempt):
            rows = yield self._ask(
                "give_back",
                **columns_of_claims([attempt.claim for attempt in ours]),
                shard_id=shard,
                due_at=[attempt.due_at for attempt in ours],
            )
            guids = {row["action_guid"] for row in rows}
            yield from self._unblock_in(shard, [one.claim for one in ours if one.claim.guid in guids])
            given += len(rows)
        return given

    def record(self, ended: Sequence[Ended], *, history_max: int) -> Transition[Mapping[UUID, Answer]]:
        """A transaction if it is about several shards: begun again after a conflict, it would else not know what it
        recorded the first time."""
        shards = list(by_shard(ended, _shard_of_ended))
        kind: type[Transition[Any]] = Transition if len(shards) == 1 else Transaction
        return kind("record", lambda: self._record(shards, history_max))

    def _record(
        self, shards: Sequence[tuple[int, Sequence[Ended]]], history_max: int
    ) -> Conversation[Mapping[UUID, Answer]]:
        answers: dict[UUID, Answer] = {}
        for shard, ours in shards:
            rows = yield self._ask("record", **columns_of_outcomes(ours), shard_id=shard, history_max=history_max)
            found = answers_of(rows)
            yield from self._unblock_in(
                shard, [one.claim for one in ours if found[one.claim.guid] is Answer.SUPERSEDED]
            )
            answers |= found
        return answers

    def _unblock_in(self, shard: int, claims: Sequence[Claim]) -> Conversation[None]:
        if claims:
            yield self._ask(
                "unblock",
                shard_id=shard,
                shard_ids=[shard] * len(claims),
                action_ids=[claim.action_id for claim in claims],
            )


def as_tried(shards: Sequence[int], ranks: Sequence[int], sync_guid: UUID) -> list[int]:
    """The first, whose turn it is; then the others by their rank, equals as the lot falls.

    With a lot of its own for everybody: those that found the same shards would else all wait to lose each of them.
    """
    lots = SeededChance(sync_guid.int)
    others = sorted((rank, lots.random(), shard) for rank, shard in zip(ranks[1:], shards[1:], strict=True))
    return [*shards[:1], *(shard for _, _, shard in others)]


def _acquired(row: Row, gates: Row, priority: int | None, *, holds: bool) -> Acquired:
    lanes = zip(gates["lanes"], gates["priorities"], strict=True)
    return Acquired(
        now=row["now"],
        shard=row["shard_id"],
        incoming=row["incoming"],
        incoming_events=row["incoming_events"],
        lanes=tuple(row["lanes"]),
        gated_lanes=tuple(lane for lane, its in lanes if priority is None or its <= priority),
        holds=holds,
    )


def _shard_of_new(new: NewAction) -> int:
    return new.shard


def _shard_of_holding(holding: Holding) -> int:
    return holding.claim.shard


def _shard_of_attempt(attempt: Attempt) -> int:
    return attempt.claim.shard


def _shard_of_ended(ended: Ended) -> int:
    return ended.claim.shard
