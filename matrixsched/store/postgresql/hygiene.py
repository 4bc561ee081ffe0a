"""Hygiene on PostgreSQL: each transition is one statement; the text is in sql/postgresql/."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from uuid import UUID

from matrixsched.rules.action import State
from matrixsched.rules.outcome import EXPIRED_UNSTARTED
from matrixsched.store.chores import decode_position, encode_position
from matrixsched.store.postgresql.asking import PostgresAsking
from matrixsched.store.postgresql.conversing import milliseconds
from matrixsched.store.transition import Conversation, transition
from matrixsched.store.values import Expiry, SweepPosition, Swept, TidyPosition, mark_of, took_effect


class PostgresHygiene(PostgresAsking):
    @transition
    def prune_actions(self, state: State, *, keep: timedelta, limit: int) -> Conversation[int]:
        (row,) = yield self._ask("prune_actions", state=state, keep=keep, limit=limit)
        return int(row["gone"])

    @transition
    def count_old(self, state: State, *, keep: timedelta, count_max: int) -> Conversation[int]:
        (row,) = yield self._ask("count_old", state=state, keep=keep, count_max=count_max)
        return int(row["old"])

    @transition
    def prune_requests(self, *, keep: timedelta, limit: int) -> Conversation[int]:
        (row,) = yield self._ask("prune_requests", keep=keep, limit=limit)
        return int(row["gone"])

    @transition
    def carried_out(self, guids: Sequence[UUID]) -> Conversation[set[UUID]]:
        rows = yield self._ask("carried_out", guids=[*guids, *map(mark_of, guids)])
        return took_effect(guids, {row["request_guid"] for row in rows})

    @transition
    def bind_requests(
        self, asked: Mapping[UUID, UUID], *, lock_timeout: timedelta | None = None
    ) -> Conversation[set[UUID]]:
        rows = yield self._ask(
            "bind_requests",
            request_guids=list(asked),
            asks_for=list(asked.values()),
            lock_timeout=milliseconds(lock_timeout),
        )
        return {row["request_guid"] for row in rows}

    @transition
    def call_off(self, shard: int, change_guid: UUID) -> Conversation[None]:
        yield self._ask("call_off", shard_id=shard, change_guid=change_guid, mark=mark_of(change_guid))

    @transition
    def sweep_dead(self, position: SweepPosition, *, limit: int, reach: timedelta) -> Conversation[Swept]:
        (row,) = yield self._ask(
            "sweep_dead",
            after_shard=position.shard,
            after_id=position.action_id,
            after_guid=position.guid,
            limit=limit,
            reach=reach,
        )
        if row["looked"] < limit:
            return Swept(row["gone"], SweepPosition(), row["shortened"])
        following = SweepPosition(row["shard_id"], row["action_id"], row["action_guid"])
        return Swept(row["gone"], following, row["shortened"])

    @transition
    def sweep_history(self, position: SweepPosition, *, limit: int, history_max: int) -> Conversation[Swept]:
        (row,) = yield self._ask(
            "sweep_history",
            after_shard=position.shard,
            after_id=position.action_id,
            limit=limit,
            history_max=history_max,
        )
        if row["looked"] < limit:
            return Swept(row["gone"], SweepPosition())
        return Swept(row["gone"], SweepPosition(row["shard_id"], row["action_id"]))

    @transition
    def expire_waiting(self, *, limit: int) -> Conversation[Expiry]:
        (row,) = yield self._ask("expire_waiting", limit=limit, error=EXPIRED_UNSTARTED)
        return Expiry(row["late"], row["gone"], row["expired"], dict(Counter(row["templates"])))

    @transition
    def take_chore(
        self, name: str, holder: UUID, *, lease: timedelta, every: timedelta
    ) -> Conversation[TidyPosition | None]:
        rows = yield self._ask("take_chore", chore=name, holder=holder, lease=lease, every=every)
        return decode_position(rows[0]["position"]) if rows else None

    @transition
    def keep_chore(self, name: str, holder: UUID, position: TidyPosition, *, lease: timedelta) -> Conversation[bool]:
        stored = encode_position(position)
        rows = yield self._ask("keep_chore", chore=name, holder=holder, position=stored, lease=lease)
        return bool(rows)

    @transition
    def leave_chore(self, name: str, holder: UUID) -> Conversation[bool]:
        rows = yield self._ask("leave_chore", chore=name, holder=holder)
        return bool(rows)

    @transition
    def end_chore(self, name: str, holder: UUID, position: TidyPosition) -> Conversation[bool]:
        rows = yield self._ask("end_chore", chore=name, holder=holder, position=encode_position(position))
        return bool(rows)
