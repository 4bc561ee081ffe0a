"""The protocol on SQLite: each transition is a few statements in one transaction; the text is in sql/sqlite/.

PostgreSQL judges and writes in one statement. SQLite has no data-changing CTEs, but only one writer: so a transition
first reads with a judgement, then writes what follows from it, row by row by exact key. Whatever is asked often reads
first, so that with nothing to do it never asks to write.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from matrixsched.rules.action import (
    COMING,
    EVENT,
    UNGATED,
    Action,
    Attempt,
    Outcome,
    PastAttempt,
    State,
    parked_lane,
)
from matrixsched.rules.lanes import escaped
from matrixsched.store.sqlite.fleet import SqliteFleet
from matrixsched.store.sqlite.fsck import SqliteFsck
from matrixsched.store.sqlite.gating import SqliteGating, gated_lanes_of, has_parked
from matrixsched.store.sqlite.hygiene import SqliteHygiene
from matrixsched.store.sqlite.looking import SqliteLooking
from matrixsched.store.sqlite.operators import SqliteOperators
from matrixsched.store.sqlite.planning import SqlitePlanning
from matrixsched.store.sqlite.queues import SqliteQueues
from matrixsched.store.sqlite.reports import SqliteReports
from matrixsched.store.sqlite.rows import (
    ACTION,
    AGAIN,
    KEY,
    RECORDED,
    REMEMBERED,
    action_of,
    again_of,
    as_json,
    attempt_of,
    backlog_of,
    begins_at,
    changed_of,
    columns_of_change,
    columns_of_claim,
    columns_of_new,
    columns_of_seen,
    in_microseconds,
    in_microseconds_or_none,
    key_of,
    memory_of,
    moment_of,
    moment_or_none,
    past_attempt_of,
    recorded_of,
    row_key,
    shard_report_of,
    span,
    written_of,
)
from matrixsched.store.sqlite.semaphores import SqliteSemaphores
from matrixsched.store.sqlite.stock import SqliteStock
from matrixsched.store.transition import Conversation, Row, transition
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

_CLAIM = ("attempt", "claimed_by", "claimed_at")
_MOVED = (*KEY, "lane", "scheduled_at", "expires_at", *_CLAIM, "created_at", "sync_guid", "now")
_WENT_WRONG = frozenset({Outcome.FAILED, Outcome.TIMED_OUT, Outcome.INTERRUPTED})


class SqliteTransitions(
    SqliteFleet,
    SqliteFsck,
    SqliteHygiene,
    SqliteGating,
    SqliteLooking,
    SqliteOperators,
    SqlitePlanning,
    SqliteQueues,
    SqliteReports,
    SqliteSemaphores,
    SqliteStock,
):
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
        now = self._now()
        guids = [str(new.request_guid or request_guid) for new in batch]
        if only_if_new:
            found = yield self._ask("schedule.judge", keys=as_json([(new.shard, new.id) for new in batch]), now=now)
            if any(row["action_guid"] is not None for row in found):
                return []
        requests = yield self._ask("schedule.request", request_guids=as_json(guids), now=now)
        fresh = {row["request_guid"] for row in requests}
        asked = [new for new, guid in zip(batch, guids, strict=True) if guid in fresh]
        found = yield self._ask("schedule.judge", keys=as_json([(new.shard, new.id) for new in asked]), now=now)
        given = [(asked[row["number"]], row) for row in found]
        # Over itself a version is never written: it would be queued twice.
        wanted = [
            (new, row)
            for new, row in given
            if row["action_guid"] is None or (replace and row["action_guid"] != str(new.guid))
        ]
        for new, _ in wanted:
            yield self._ask("schedule.write", **columns_of_new(new, now), now=now)
        if wanted:
            yield self._ask("schedule.queue", written=as_json([(new.shard, new.id) for new, _ in wanted]), now=now)
        if noted := noted_guids([new for new, _ in wanted], replace=replace):
            yield self._note_changes(noted, now)
        return [
            Written(new.id, new.guid, created=row["action_guid"] is None, running=bool(row["running"]))
            for new, row in wanted
        ]

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
        now = self._now()
        request = str(new.request_guid or request_guid)
        fresh = yield self._ask(
            "replace_expected.request",
            request_guid=request,
            shard_id=new.shard,
            action_id=new.id,
            expected_guid=str(expected_guid),
            now=now,
        )
        if not fresh:
            return None
        rows = yield self._ask("replace_expected.write", **columns_of_new(new, now), now=now)
        yield self._ask("replace_expected.queue", shard_id=new.shard, action_id=new.id, now=now)
        yield self._note_changes([new.guid], now)
        return written_of(rows[0])

    @transition
    def reschedule(
        self, change: Change, *, revive: bool, lock_timeout: timedelta | None = None, tell: bool
    ) -> Conversation[Written | None]:
        now = self._now()
        request, columns = str(change.request_guid), columns_of_change(change)
        wanted = columns | columns_of_seen(change.seen) | {"request_guid": request, "revive": int(revive)}
        fresh = yield self._ask("reschedule.request", **wanted, now=now)
        if not fresh:
            return None
        scheduled_at = begins_at(change.at, change.delay, now)
        rows = yield self._ask("reschedule.write", **columns, scheduled_at=scheduled_at, now=now)
        yield self._ask("reschedule.queue", shard_id=change.shard, action_id=change.id, now=now)
        yield self._note_changes([change.guid], now)
        return changed_of(rows[0])

    @transition
    def cancel(self, change: Change, *, lock_timeout: timedelta | None = None) -> Conversation[Written | None]:
        now = self._now()
        columns = columns_of_change(change)
        fresh = yield self._ask("cancel.request", **columns, request_guid=str(change.request_guid), now=now)
        if not fresh:
            return None
        rows = yield self._ask("cancel.write", **columns, now=now)
        yield self._note_changes([change.guid], now)
        return changed_of(rows[0])

    @transition
    def find(self, keys: Sequence[tuple[int, str]]) -> Conversation[list[Action]]:
        rows = yield self._ask("find", keys=as_json(keys), now=self._now())
        return [action_of(row) for row in rows]

    @transition
    def page(self, wanted: ActionFilter, *, after: tuple[int, str] | None, limit: int) -> Conversation[list[Action]]:
        after_shard, after_id = after or (-1, "")
        rows = yield self._ask(
            "page",
            after_shard=after_shard,
            after_id=after_id,
            state=None if wanted.state is None else wanted.state.value,
            handler=wanted.handler,
            template=wanted.template,
            id_prefix=wanted.id_prefix,
            due_before=in_microseconds_or_none(wanted.due_before),
            limit=limit,
            now=self._now(),
        )
        return [action_of(row) for row in rows]

    @transition
    def history(self, shard: int, action_id: str) -> Conversation[list[PastAttempt]]:
        rows = yield self._ask("history", shard_id=shard, action_id=action_id)
        return [past_attempt_of(row) for row in rows]

    @transition
    def waiting_row(self, shard: int, action_id: str, guid: UUID) -> Conversation[WaitingRow | None]:
        rows = yield self._ask("waiting_row", shard_id=shard, action_id=action_id, action_guid=str(guid))
        if not rows:
            return None
        (row,) = rows
        return WaitingRow(row["lane"], moment_or_none(row["scheduled_at"]), bool(row["is_new"]))

    @transition
    def installation(self) -> Conversation[Installation]:
        (row,) = yield self._ask("installation", now=self._now())
        return Installation(row["shard_count"], row["schema_version"], row["oldest_library"], moment_of(row["now"]))

    @transition
    def now(self) -> Conversation[datetime]:
        (row,) = yield self._ask("now", now=self._now())
        return moment_of(row["now"])

    @transition
    def wake(self) -> Conversation[None]:
        """Nothing: workers watch the database's change counter."""
        yield from ()

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
        now = self._now()
        gating = {
            "gated_handlers": as_json([escaped(name) for name in gated_handlers]),
            "ahead": span(ahead),
            "lease": span(lease),
        }
        chosen = yield self._ask(
            "acquire_shard.choose",
            lanes=as_json(lanes),
            lanes_max=GATED_LANES_MAX,
            turn=turn.value,
            only_events=only_events,
            **gating,
            now=now,
        )
        if not chosen:
            (row,) = yield self._ask("acquire_shard.next_due", **gating, now=now)
            named = ("event_at", "ungated_at", "coming_at", "gated_at", "free_at")
            instants = [row[name] for name in named if row[name] is not None]
            next_due_at = moment_of(min(instants)) if instants else None
            return Acquired(now=moment_of(now), shard=None, holds=bool(row["holds"]), next_due_at=next_due_at)
        shard = chosen[0]["shard_id"]
        yield self._ask("acquire_shard.take", shard_id=shard, sync_guid=str(sync_guid), holder=holder, now=now)
        due_lanes = ((EVENT, chosen[0]["event"]), (UNGATED, chosen[0]["due"]), (COMING, chosen[0]["coming"]))
        due = [lane for lane, is_due in due_lanes if is_due]
        return Acquired(
            now=moment_of(now),
            shard=shard,
            incoming=bool(chosen[0]["incoming"]),
            incoming_events=bool(chosen[0]["incoming_events"]),
            lanes=(*due, *json.loads(chosen[0]["lanes"])),
            gated_lanes=tuple(json.loads(chosen[0]["gated_lanes"])),
            holds=bool(chosen[0]["holds"]),
        )

    @transition
    def beat_shard(self, shard: int, sync_guid: UUID) -> Conversation[bool]:
        rows = yield self._ask("beat_shard", shard_id=shard, sync_guid=str(sync_guid), now=self._now())
        return bool(rows)

    @transition
    def release_shard(self, shard: int, sync_guid: UUID, *, tell: bool = False) -> Conversation[bool]:
        rows = yield self._ask("release_shard", shard_id=shard, sync_guid=str(sync_guid))
        return bool(rows)

    @transition
    def close_fence(self, shard: int, sync_guid: UUID, fresh_guid: UUID) -> Conversation[bool]:
        rows = yield self._ask("close_fence", shard_id=shard, sync_guid=str(sync_guid), fresh_guid=str(fresh_guid))
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
        work = yield self._ask("claim.probe", shard_id=shard, sync_guid=str(sync_guid), lane=lane, now=self._now())
        if not work:
            return Claimed(0, [])
        room = limit if claim_limit is None else claim_limit
        return (
            yield from self._claim(shard, sync_guid, lane, limit, room, handlers=handlers, attempt_lease=attempt_lease)
        )

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
        now, guid = self._now(), str(sync_guid)
        if taking is None:
            work = yield self._ask("move.probe", shard_id=shard, sync_guid=guid)
        else:
            work = yield self._ask(
                "move.probe_free", shard_id=shard, sync_guid=guid, not_after=in_microseconds(taking.not_after), now=now
            )
        if not work:
            return Claimed(0, [])
        if taking is not None:
            yield self._ask("acquire_shard.take", shard_id=shard, sync_guid=guid, holder=taking.holder, now=now)
        rows = yield self._ask(
            "move.judge",
            shard_id=shard,
            handlers=as_json(handlers),
            move_limit=move_limit,
            only_events=only_events,
            now=now,
        )
        # The first of each version: that several came is a fault that `fsck` finds, and stops nobody.
        by_version = {row["action_guid"]: row for row in reversed(rows) if row["verdict"] != "dead"}
        live = list(reversed(by_version.values()))
        claimable = [row for row in live if row["verdict"] == "claimable"]
        first = sorted(claimable, key=lambda row: (not row["is_event"], int(row["due_at"])))[:claim_limit]
        claimed = {row["action_guid"] for row in first}
        lease_end = now + span(attempt_lease)
        taken = [(shard, *row_key(row), row["created_at"]) for row in rows]
        yield self._each("move.remove", (*KEY, "created_at"), taken)
        yield from self._end_late(shard, rows, now)
        if changed := [(shard, *row_key(row)) for row in live if row["revision"] > 1]:
            yield self._each("move.drop", KEY, changed)
        moved = [_moved(row, shard, guid, lease_end, now, claimed=row["action_guid"] in claimed) for row in live]
        if moved:
            yield self._each("move.insert", _MOVED, moved)
        attempts = [attempt_of(row, shard, sync_guid, 1, moment_of(now)) for row in first]
        return Claimed(len(rows), attempts, gated_lanes_of(rows), has_parked(rows), took_shard=taking is not None)

    @transition
    def claimed_by(
        self, shard: int, sync_guid: UUID, *, lanes: Sequence[str], attempt_lease: timedelta
    ) -> Conversation[list[Attempt]]:
        rows = yield self._ask(
            "claimed_by",
            shard_id=shard,
            sync_guid=str(sync_guid),
            lanes=as_json(lanes),
            attempt_lease=span(attempt_lease),
            now=self._now(),
        )
        return [attempt_of(row, shard, sync_guid, row["attempt"], moment_of(row["claimed_at"])) for row in rows]

    @transition
    def extend(self, held: Sequence[Holding], *, attempt_lease: timedelta) -> Conversation[Mapping[UUID, Extension]]:
        named = [(*columns_of_claim(holding.claim), span(holding.longest)) for holding in held]
        rows = yield self._ask("extend", held=as_json(named), attempt_lease=span(attempt_lease), now=self._now())
        extended = {UUID(row["action_guid"]) for row in rows}
        guids = [holding.claim.guid for holding in held]
        return {guid: Extension.EXTENDED if guid in extended else Extension.LOST for guid in guids}

    @transition
    def give_back(self, unstarted: Sequence[Attempt]) -> Conversation[int]:
        named = [(*columns_of_claim(attempt.claim), in_microseconds(attempt.due_at)) for attempt in unstarted]
        rows = yield self._ask("give_back", held=as_json(named), now=self._now())
        given = {row["action_guid"] for row in rows}
        if claims := [attempt.claim for attempt in unstarted if str(attempt.claim.guid) in given]:
            yield self._each("record.unblock", ACTION, [(claim.shard, claim.action_id) for claim in claims])
        return len(rows)

    @transition
    def record(self, ended: Sequence[Ended], *, history_max: int) -> Conversation[Mapping[UUID, Answer]]:
        now = self._now()
        found = yield self._ask("record.judge", ended=as_json([columns_of_claim(one.claim) for one in ended]))
        judged = [(ended[row["number"]], row, _answer(row)) for row in found]
        forgotten = [
            (one.claim.shard, one.claim.action_id, _kept(one, answer, history_max))
            for one, row, answer in judged
            if _forgets(one, row, answer)
        ]
        if forgotten:
            yield self._each("record.forget", (*ACTION, "keep"), forgotten)
        if superseded := [(one, row) for one, row, answer in judged if row["held"] and answer is Answer.SUPERSEDED]:
            yield from self._supersede(superseded, now)
        if recorded := [(one, row) for one, row, answer in judged if answer is Answer.RECORDED]:
            yield from self._record(recorded, now)
        return {one.claim.guid: answer for one, _, answer in judged}

    def _supersede(self, ended: Sequence[tuple[Ended, Row]], now: int) -> Conversation[None]:
        keys = [key_of(one.claim) for one, _ in ended]
        yield self._each("record.remove", KEY, keys)
        yield self._each("record.unblock", ACTION, [(shard, action_id) for shard, action_id, _ in keys])
        remembered = [
            memory_of(one.claim, row, one.verdict.tick, Outcome.SUPERSEDED, one.verdict.outcome.value, now)
            for one, row in ended
        ]
        yield self._each("record.remember", REMEMBERED, remembered)

    def _record(self, ended: Sequence[tuple[Ended, Row]], now: int) -> Conversation[None]:
        if over := [key_of(one.claim) for one, _ in ended if one.verdict.state is not State.LIVE]:
            yield self._each("record.remove", KEY, over)
        if again := [again_of(one, row, now) for one, row in ended if one.verdict.state is State.LIVE]:
            yield self._each("record.again", AGAIN, again)
        yield self._each("record.record", RECORDED, [recorded_of(one, row, now) for one, row in ended])
        remembered = [
            memory_of(one.claim, row, row["tick"], one.verdict.outcome, one.verdict.error, now)
            for one, row in ended
            if one.verdict.outcome in _WENT_WRONG
        ]
        if remembered:
            yield self._each("record.remember", REMEMBERED, remembered)

    @transition
    def shards(self, *, count_max: int) -> Conversation[list[ShardReport]]:
        rows = yield self._ask("shards", count_max=count_max, now=self._now())
        return [shard_report_of(row) for row in rows]

    @transition
    def backlog(self, *, count_max: int) -> Conversation[Backlog]:
        (row,) = yield self._ask("backlog", count_max=count_max, now=self._now())
        return backlog_of(row)


def _moved(row: Row, shard: int, sync_guid: str, lease_end: int, now: int, *, claimed: bool) -> tuple[object, ...]:
    """A row of _MOVED."""
    lane, scheduled_at = EVENT if row["is_event"] else UNGATED, row["due_at"]
    claim: tuple[object, ...] = (0, None, None)
    if claimed:
        scheduled_at, claim = lease_end, (1, sync_guid, now)
    elif row["verdict"] == "blocked":
        scheduled_at = min(row["blocked_until"], lease_end)
    elif row["verdict"] == "waiting" and row["has_gate"] and not row["is_event"]:
        lane = COMING
    elif row["verdict"] == "foreign":
        lane = parked_lane(row["handler"])
    elif row["verdict"] == "gated":
        lane = row["gated_lane"]
    return shard, *row_key(row), lane, scheduled_at, row["expires_at"], *claim, row["created_at"], sync_guid, now


def _answer(row: Row) -> Answer:
    if row["state"] is None:
        return Answer.SUPERSEDED
    # Finished at this very guid: by a twin of this outcome.
    return Answer.RECORDED if row["held"] and row["state"] == State.LIVE else Answer.LOST


def _forgets(one: Ended, row: Row, answer: Answer) -> bool:
    """Whether the history of its action has grown, now or by claims that found it interrupted."""
    if answer is Answer.SUPERSEDED:
        return bool(row["held"])
    return answer is Answer.RECORDED and (one.verdict.outcome in _WENT_WRONG or row["interrupted"] > 0)


def _kept(one: Ended, answer: Answer, history_max: int) -> int:
    """How many of the past attempts stay beside the one that may be remembered now."""
    remembered = answer is Answer.SUPERSEDED or one.verdict.outcome in _WENT_WRONG
    return history_max - int(remembered)
