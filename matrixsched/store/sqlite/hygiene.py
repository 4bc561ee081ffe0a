"""Hygiene on SQLite: each transition reads what there is to do and, only if there is any, writes it.

The text is in sql/sqlite/. Reading and writing are one transaction, so nothing changes in between.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from uuid import UUID

from matrixsched.rules.action import State
from matrixsched.rules.outcome import EXPIRED_UNSTARTED
from matrixsched.store.chores import decode_position, encode_position
from matrixsched.store.sqlite.asking import SqliteAsking
from matrixsched.store.sqlite.rows import ACTION, KEY, REMEMBERED, as_json, interruption_of, span
from matrixsched.store.transition import Conversation, Row, transition
from matrixsched.store.values import Expiry, SweepPosition, Swept, TidyPosition, mark_of, took_effect


class SqliteHygiene(SqliteAsking):
    @transition
    def prune_actions(self, state: State, *, keep: timedelta, limit: int) -> Conversation[int]:
        rows = yield self._ask("prune_actions.choose", state=state.value, keep=span(keep), limit=limit, now=self._now())
        if keys := [_key(row) for row in rows]:
            yield self._each("prune_actions.history", ACTION, [(shard, action_id) for shard, action_id, _ in keys])
            yield self._each("prune_actions.actions", KEY, keys)
        return len(rows)

    @transition
    def count_old(self, state: State, *, keep: timedelta, count_max: int) -> Conversation[int]:
        (row,) = yield self._ask("count_old", state=state.value, keep=span(keep), count_max=count_max, now=self._now())
        return int(row["old"])

    @transition
    def prune_requests(self, *, keep: timedelta, limit: int) -> Conversation[int]:
        rows = yield self._ask("prune_requests.choose", keep=span(keep), limit=limit, now=self._now())
        if rows:
            yield self._each("prune_requests.delete", ("request_guid",), [(row["request_guid"],) for row in rows])
        return len(rows)

    @transition
    def carried_out(self, guids: Sequence[UUID]) -> Conversation[set[UUID]]:
        asked = as_json([str(guid) for guid in (*guids, *map(mark_of, guids))])
        rows = yield self._ask("carried_out.ask", guids=asked)
        return took_effect(guids, {UUID(row["request_guid"]) for row in rows})

    @transition
    def bind_requests(
        self, asked: Mapping[UUID, UUID], *, lock_timeout: timedelta | None = None
    ) -> Conversation[set[UUID]]:
        now = self._now()
        rows = yield self._ask("bind_requests", request_guids=as_json([str(guid) for guid in asked]), now=now)
        first = {UUID(row["request_guid"]) for row in rows}
        if first:
            yield self._note_changes([asked[guid] for guid in first], now)
        return first

    @transition
    def call_off(self, shard: int, change_guid: UUID) -> Conversation[None]:
        mark = str(mark_of(change_guid))
        yield self._ask("call_off", change_guid=str(change_guid), mark=mark, now=self._now())

    @transition
    def sweep_dead(self, position: SweepPosition, *, limit: int, reach: timedelta) -> Conversation[Swept]:
        now = self._now()
        rows = yield self._ask(
            "sweep_dead.look",
            after_shard=position.shard,
            after_id=position.action_id,
            after_guid=str(position.guid),
            limit=limit,
            reach=span(reach),
            now=now,
        )
        if dead := [_key(row) for row in rows if row["dead"]]:
            yield self._each("sweep_dead.delete", KEY, dead)
        if stranded := [(*_key(row), now + span(reach)) for row in rows if row["stranded"]]:
            yield self._each("sweep_dead.shorten", (*KEY, "lease_end"), stranded)
        if len(rows) < limit:
            return Swept(len(dead), SweepPosition(), len(stranded))
        shard, action_id, guid = _key(rows[-1])
        return Swept(len(dead), SweepPosition(shard, action_id, UUID(guid)), len(stranded))

    @transition
    def sweep_history(self, position: SweepPosition, *, limit: int, history_max: int) -> Conversation[Swept]:
        rows = yield self._ask(
            "sweep_history.look", after_shard=position.shard, after_id=position.action_id, limit=limit
        )
        kept = [(row, history_max if row["present"] else 0) for row in rows]
        if excess := [(row, keep) for row, keep in kept if row["remembered"] > keep]:
            forgotten = [(row["shard_id"], row["action_id"], keep) for row, keep in excess]
            yield self._each("sweep_history.forget", (*ACTION, "keep"), forgotten)
        gone = sum(row["remembered"] - keep for row, keep in excess)
        if sum(row["looked"] for row in rows) < limit:
            return Swept(gone, SweepPosition())
        return Swept(gone, SweepPosition(rows[-1]["shard_id"], rows[-1]["action_id"]))

    @transition
    def expire_waiting(self, *, limit: int) -> Conversation[Expiry]:
        now = self._now()
        rows = yield self._ask("expire_waiting.look", limit=limit, now=now)
        if rows:
            yield self._each("expire_waiting.delete", KEY, [_key(row) for row in rows])
        if live := [row for row in rows if row["verdict"] == "expired"]:
            recorded = [(*_key(row), row["interrupted"], EXPIRED_UNSTARTED, now) for row in live]
            yield self._each("expire_waiting.record", (*KEY, "interrupted", "error", "now"), recorded)
        if interrupted := [interruption_of(row, row["shard_id"], now) for row in live if row["claimed_by"] is not None]:
            yield self._each("claim.remember", REMEMBERED, interrupted)
        templates = Counter(row["template"] for row in live if row["template"] is not None)
        return Expiry(len(rows), len(rows), len(live), dict(templates))

    @transition
    def take_chore(
        self, name: str, holder: UUID, *, lease: timedelta, every: timedelta
    ) -> Conversation[TidyPosition | None]:
        now, guid = self._now(), str(holder)
        rows = yield self._ask(
            "take_chore.look", chore=name, holder=guid, lease=span(lease), every=span(every), now=now
        )
        if not rows:
            return None
        yield self._ask("take_chore.take", chore=name, holder=guid, lease=span(lease), now=now)
        return decode_position(rows[0]["position"])

    @transition
    def keep_chore(self, name: str, holder: UUID, position: TidyPosition, *, lease: timedelta) -> Conversation[bool]:
        rows = yield self._ask(
            "keep_chore",
            chore=name,
            holder=str(holder),
            position=encode_position(position),
            lease=span(lease),
            now=self._now(),
        )
        return bool(rows)

    @transition
    def leave_chore(self, name: str, holder: UUID) -> Conversation[bool]:
        rows = yield self._ask("leave_chore", chore=name, holder=str(holder))
        return bool(rows)

    @transition
    def end_chore(self, name: str, holder: UUID, position: TidyPosition) -> Conversation[bool]:
        rows = yield self._ask(
            "end_chore", chore=name, holder=str(holder), position=encode_position(position), now=self._now()
        )
        return bool(rows)


def _key(row: Row) -> tuple[int, str, str]:
    return row["shard_id"], row["action_id"], row["action_guid"]
