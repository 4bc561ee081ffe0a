"""The protocol on SQLite: each transition is a few statements in one transaction; the text is in sql/sqlite/.

PostgreSQL judges and writes in one statement. SQLite has no data-changing CTEs, but only one writer: so a transition
first reads with a judgement, then writes what follows from it by exact key, sets of rows as one JSON array. Reading
first also means that a transition with nothing to do never asks to write.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

from matrixsched.clock import Clock
from matrixsched.rules.action import (
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
    parked_lane,
    suspect_lane,
)
from matrixsched.rules.retry import INTERRUPTIONS_BEFORE_SUSPICION
from matrixsched.store.codec import decode_terms, encode_terms
from matrixsched.store.statements import load
from matrixsched.store.transition import Ask, Conversation, Row, transition
from matrixsched.store.values import (
    Acquired,
    ActionFilter,
    Answer,
    Change,
    Claimed,
    Ended,
    Extension,
    Holding,
    Installation,
    NewAction,
    ShardReport,
    SweepPosition,
    Swept,
    Written,
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_WENT_WRONG = frozenset({Outcome.FAILED, Outcome.TIMED_OUT, Outcome.INTERRUPTED})


class SqliteTransitions:
    def __init__(self, installation: str, *, clock: Clock) -> None:
        self._statements = load("sqlite", installation)
        self._clock = clock

    def _ask(self, name: str, **parameters: object) -> Ask:
        return Ask(self._statements[name], parameters)

    def _now(self) -> int:
        """Read once in a conversation, which begins inside its transaction: a wait for the lock does not age it."""
        return in_microseconds(self._clock.now())

    @transition
    def schedule(
        self,
        batch: Sequence[NewAction],
        request_guid: UUID,
        *,
        replace: bool,
        lock_timeout: timedelta | None,
        tell: bool,
    ) -> Conversation[list[Written]]:
        now = self._now()
        guids = [str(new.request_guid or request_guid) for new in batch]
        requests = yield self._ask("schedule.request", request_guids=_json(guids), now=now)
        fresh = {row["request_guid"] for row in requests}
        rows: list[Row] = []
        keys: list[tuple[int, str]] = []
        for new, guid in zip(batch, guids, strict=True):
            if guid not in fresh:
                continue
            written = yield self._ask("schedule.write", **_new_action(new, now), replace=int(replace), now=now)
            if written:
                rows.append(written[0])
                keys.append((new.shard, new.id))
        if keys:
            yield self._ask("schedule.queue", written=_json(keys), now=now)
        return [_written(row) for row in rows]

    @transition
    def replace_expected(
        self, new: NewAction, request_guid: UUID, expected_guid: UUID, *, tell: bool
    ) -> Conversation[Written | None]:
        now = self._now()
        request = str(new.request_guid or request_guid)
        fresh = yield self._ask("replace_expected.request", request_guid=request, now=now)
        if not fresh:
            return None
        rows = yield self._ask(
            "replace_expected.write", **_new_action(new, now), expected_guid=str(expected_guid), now=now
        )
        if not rows:
            return None
        yield self._ask("replace_expected.queue", shard_id=new.shard, action_id=new.id, now=now)
        return _written(rows[0])

    @transition
    def reschedule(self, change: Change, *, revive: bool, tell: bool) -> Conversation[Written | None]:
        now = self._now()
        fresh = yield self._ask("reschedule.request", request_guid=str(change.request_guid), now=now)
        if not fresh:
            return None
        rows = yield self._ask(
            "reschedule.write",
            **_change(change),
            scheduled_at=_begins_at(change.at, change.delay, now),
            revive=int(revive),
            now=now,
        )
        if not rows:
            return None
        yield self._ask("reschedule.queue", shard_id=change.shard, action_id=change.id, now=now)
        return _changed(rows[0])

    @transition
    def cancel(self, change: Change) -> Conversation[Written | None]:
        now = self._now()
        fresh = yield self._ask("cancel.request", request_guid=str(change.request_guid), now=now)
        if not fresh:
            return None
        rows = yield self._ask("cancel.write", **_change(change), now=now)
        return _changed(rows[0]) if rows else None

    @transition
    def find(self, keys: Sequence[tuple[int, str]]) -> Conversation[list[Action]]:
        rows = yield self._ask("find", keys=_json(keys), now=self._now())
        return [_action(row) for row in rows]

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
            due_before=_in_microseconds_or_none(wanted.due_before),
            limit=limit,
            now=self._now(),
        )
        return [_action(row) for row in rows]

    @transition
    def history(self, shard: int, action_id: str) -> Conversation[list[PastAttempt]]:
        rows = yield self._ask("history", shard_id=shard, action_id=action_id)
        return [
            PastAttempt(
                guid=UUID(row["action_guid"]),
                attempt=row["attempt"],
                tick=row["tick"],
                outcome=Outcome(row["outcome"]),
                error=row["error"],
                started_at=_moment(row["started_at"]),
                ended_at=_moment(row["ended_at"]),
            )
            for row in rows
        ]

    @transition
    def installation(self) -> Conversation[Installation]:
        (row,) = yield self._ask("installation", now=self._now())
        return Installation(row["shard_count"], row["schema_version"], row["oldest_library"], _moment(row["now"]))

    @transition
    def now(self) -> Conversation[datetime]:
        (row,) = yield self._ask("now", now=self._now())
        return _moment(row["now"])

    @transition
    def wake(self) -> Conversation[None]:
        """Nothing: workers watch the database's change counter."""
        yield from ()

    @transition
    def acquire_shard(
        self, *, sync_guid: UUID, holder: str, lease: timedelta, lanes: Sequence[str]
    ) -> Conversation[Acquired]:
        now = self._now()
        chosen = yield self._ask("acquire_shard.choose", lease=_span(lease), lanes=_json(lanes), now=now)
        if not chosen:
            (row,) = yield self._ask("acquire_shard.next_due", now=now)
            return Acquired(now=_moment(now), shard=None, next_due_at=_moment_or_none(row["next_due_at"]))
        shard = chosen[0]["shard_id"]
        yield self._ask("acquire_shard.take", shard_id=shard, sync_guid=str(sync_guid), holder=holder, now=now)
        due = (UNGATED,) if chosen[0]["due"] else ()
        return Acquired(
            now=_moment(now),
            shard=shard,
            incoming=bool(chosen[0]["incoming"]),
            lanes=(*due, *json.loads(chosen[0]["lanes"])),
        )

    @transition
    def beat_shard(self, shard: int, sync_guid: UUID) -> Conversation[bool]:
        rows = yield self._ask("beat_shard", shard_id=shard, sync_guid=str(sync_guid), now=self._now())
        return bool(rows)

    @transition
    def release_shard(self, shard: int, sync_guid: UUID) -> Conversation[bool]:
        rows = yield self._ask("release_shard", shard_id=shard, sync_guid=str(sync_guid))
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
        attempt_lease: timedelta,
    ) -> Conversation[Claimed]:
        now, guid = self._now(), str(sync_guid)
        rows = yield self._ask(
            "claim.judge",
            shard_id=shard,
            sync_guid=guid,
            lane=lane,
            handlers=_json(handlers),
            limit=limit,
            suspect_from=INTERRUPTIONS_BEFORE_SUSPICION,
            now=now,
        )
        if dead := [(row["action_id"], row["action_guid"]) for row in rows if row["verdict"] == "dead"]:
            yield self._ask("claim.drop", shard_id=shard, dead=_json(dead))
        if interrupted := [_interruption(row) for row in rows if row["claimed_by"] is not None]:
            yield self._ask("claim.remember", shard_id=shard, interrupted=_json(interrupted), now=now)
        lease_end = now + _span(attempt_lease)
        if settled := [_settlement(row, lane, lease_end) for row in rows if row["verdict"] != "dead"]:
            yield self._ask("claim.settle", shard_id=shard, sync_guid=guid, settled=_json(settled), now=now)
        claimed = [row for row in rows if row["verdict"] == "claimed"]
        return Claimed(
            len(rows), [_attempt(row, shard, sync_guid, row["attempt"] + 1, _moment(now)) for row in claimed]
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
    ) -> Conversation[Claimed]:
        now, guid = self._now(), str(sync_guid)
        rows = yield self._ask(
            "move.judge", shard_id=shard, sync_guid=guid, handlers=_json(handlers), move_limit=move_limit, now=now
        )
        if not rows:
            return Claimed(0, [])
        taken = [(row["created_at"], row["action_id"], row["action_guid"]) for row in rows]
        yield self._ask("move.remove", shard_id=shard, taken=_json(taken))
        claimable = [row for row in rows if row["verdict"] == "claimable"]
        claimed = sorted(claimable, key=lambda row: row["due_at"])[:claim_limit]
        claimed_guids = {row["action_guid"] for row in claimed}
        lease_end = now + _span(attempt_lease)
        moved = [
            _moved(row, row["action_guid"] in claimed_guids, lease_end) for row in rows if row["verdict"] != "dead"
        ]
        present = yield self._ask("move.insert", shard_id=shard, sync_guid=guid, moved=_json(moved), now=now)
        inserted = {row["action_guid"] for row in present}
        ours = [row for row in claimed if row["action_guid"] in inserted]
        return Claimed(len(rows), [_attempt(row, shard, sync_guid, row["attempt"], _moment(now)) for row in ours])

    @transition
    def claimed_by(
        self, shard: int, sync_guid: UUID, *, lanes: Sequence[str], attempt_lease: timedelta
    ) -> Conversation[list[Attempt]]:
        rows = yield self._ask(
            "claimed_by",
            shard_id=shard,
            sync_guid=str(sync_guid),
            lanes=_json(lanes),
            attempt_lease=_span(attempt_lease),
            now=self._now(),
        )
        return [_attempt(row, shard, sync_guid, row["attempt"], _moment(row["claimed_at"])) for row in rows]

    @transition
    def extend(self, held: Sequence[Holding], *, attempt_lease: timedelta) -> Conversation[Mapping[UUID, Extension]]:
        named = [(*_claim(holding.claim), _span(holding.longest)) for holding in held]
        rows = yield self._ask("extend", held=_json(named), attempt_lease=_span(attempt_lease), now=self._now())
        extended = {UUID(row["action_guid"]) for row in rows}
        guids = [holding.claim.guid for holding in held]
        return {guid: Extension.EXTENDED if guid in extended else Extension.LOST for guid in guids}

    @transition
    def give_back(self, unstarted: Sequence[Attempt]) -> Conversation[int]:
        named = [(*_claim(attempt.claim), in_microseconds(attempt.due_at)) for attempt in unstarted]
        rows = yield self._ask("give_back", held=_json(named), now=self._now())
        return len(rows)

    @transition
    def record(self, ended: Sequence[Ended], *, history_max: int) -> Conversation[Mapping[UUID, Answer]]:
        now = self._now()
        claims = [_claim(one.claim) for one in ended]
        found = yield self._ask("record.judge", ended=_json(claims))
        judged = [(ended[row["number"]], row, _answer(row)) for row in found]
        held = [(one, row, answer) for one, row, answer in judged if row["held"]]
        recorded = [(one, row) for one, row, answer in held if answer is Answer.RECORDED]
        superseded = [one for one, _, answer in held if answer is Answer.SUPERSEDED]
        over = [one for one, _ in recorded if one.verdict.state is not State.LIVE]
        if removed := [_key(one.claim) for one in (*superseded, *over)]:
            yield self._ask("record.remove", removed=_json(removed))
        if superseded:
            yield self._ask("record.unblock", superseded=_json([_key(one.claim) for one in superseded]))
        if again := [_again(one, row, now) for one, row in recorded if one.verdict.state is State.LIVE]:
            yield self._ask("record.again", again=_json(again), now=now)
        if recorded:
            yield self._ask("record.record", recorded=_json([_record(one, row, now) for one, row in recorded]), now=now)
        if went_wrong := [_key(one.claim) for one in ended if one.verdict.outcome in _WENT_WRONG]:
            yield self._ask("record.forget", went_wrong=_json(went_wrong), history_max=history_max)
        if remembered := [memory for one, row, answer in held for memory in _memory(one, row, answer)]:
            yield self._ask("record.remember", remembered=_json(remembered), now=now)
        return {one.claim.guid: answer for one, _, answer in judged}

    @transition
    def shards(self, *, count_max: int) -> Conversation[list[ShardReport]]:
        rows = yield self._ask("shards", count_max=count_max, now=self._now())
        return [
            ShardReport(
                shard=row["shard_id"],
                locked=bool(row["locked"]),
                lock_guid=UUID(row["last_lock_guid"]),
                locked_by=row["last_locked_by"],
                locked_at=_moment(row["last_processing_start_at"]),
                heartbeat_at=_moment(row["last_heartbeat_at"]),
                heartbeat_age=timedelta(microseconds=row["now"] - row["last_heartbeat_at"]),
                incoming=row["incoming"],
                processing=row["processing"],
                oldest_due_at=_moment_or_none(row["oldest_due_at"]),
            )
            for row in rows
        ]

    @transition
    def prune_actions(self, *, keep: timedelta, limit: int) -> Conversation[int]:
        rows = yield self._ask("prune_actions.choose", keep=_span(keep), limit=limit, now=self._now())
        if rows:
            old = _json([(row["shard_id"], row["action_id"]) for row in rows])
            yield self._ask("prune_actions.history", old=old)
            yield self._ask("prune_actions.actions", old=old)
        return len(rows)

    @transition
    def prune_requests(self, *, keep: timedelta, limit: int) -> Conversation[int]:
        rows = yield self._ask("prune_requests.choose", keep=_span(keep), limit=limit, now=self._now())
        if rows:
            yield self._ask("prune_requests.delete", old=_json([row["request_guid"] for row in rows]))
        return len(rows)

    @transition
    def sweep_dead(self, position: SweepPosition, *, limit: int) -> Conversation[Swept]:
        rows = yield self._ask(
            "sweep_dead.look",
            after_shard=position.shard,
            after_id=position.action_id,
            after_guid=str(position.guid),
            limit=limit,
            now=self._now(),
        )
        dead = [(row["shard_id"], row["action_id"], row["action_guid"]) for row in rows if row["dead"]]
        if dead:
            yield self._ask("sweep_dead.delete", dead=_json(dead))
        if len(rows) < limit:
            return Swept(len(dead), SweepPosition())
        last = rows[-1]
        return Swept(len(dead), SweepPosition(last["shard_id"], last["action_id"], UUID(last["action_guid"])))


def in_microseconds(moment: datetime) -> int:
    """Since 1970 in UTC, exactly."""
    return (moment - _EPOCH) // _MICROSECOND


def _in_microseconds_or_none(moment: datetime | None) -> int | None:
    return None if moment is None else in_microseconds(moment)


def _moment(microseconds: int) -> datetime:
    return _EPOCH + timedelta(microseconds=microseconds)


def _moment_or_none(microseconds: int | None) -> datetime | None:
    return None if microseconds is None else _moment(microseconds)


def _span(duration: timedelta) -> int:
    return duration // _MICROSECOND


def _begins_at(at: datetime | None, delay: timedelta, now: int) -> int:
    return now + _span(delay) if at is None else in_microseconds(at)


def _json(rows: Iterable[object]) -> str:
    return json.dumps(rows, ensure_ascii=False, separators=(",", ":"))


def _new_action(new: NewAction, now: int) -> dict[str, object]:
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
        "expires_at": _in_microseconds_or_none(new.expires_at),
        "scheduled_at": _begins_at(new.at, new.delay, now),
    }


def _change(change: Change) -> dict[str, object]:
    return {
        "shard_id": change.shard,
        "action_id": change.id,
        "action_guid": str(change.guid),
        "expected_guid": None if change.expected_guid is None else str(change.expected_guid),
    }


def _key(claim: Claim) -> tuple[int, str, str]:
    return claim.shard, claim.action_id, str(claim.guid)


def _claim(claim: Claim) -> tuple[int, str, str, int, str]:
    return claim.shard, claim.action_id, str(claim.guid), claim.attempt, str(claim.claimed_by)


def _written(row: Row) -> Written:
    return Written(
        row["action_id"], UUID(row["action_guid"]), created=row["revision"] == 1, running=bool(row["running"])
    )


def _changed(row: Row) -> Written:
    return Written(row["action_id"], UUID(row["action_guid"]), created=False, running=bool(row["running"]))


def _interruption(row: Row) -> tuple[object, ...]:
    """A row of claim.remember."""
    outcome = Outcome.SUPERSEDED if row["verdict"] == "dead" else Outcome.INTERRUPTED
    attempt, tick = row["attempt"], row["tick"] or 0
    return row["action_id"], row["action_guid"], attempt, tick, outcome, row["claimed_by"], row["claimed_at"]


def _settlement(row: Row, lane: str, lease_end: int) -> tuple[object, ...]:
    """A row of claim.settle: where and when the row waits from here on, and whether it is claimed."""
    key, interrupted = (row["action_id"], row["action_guid"]), row["interrupted"]
    match row["verdict"]:
        case "claimed":
            return *key, lease_end, lane, interrupted, 1
        case "blocked":
            return *key, row["blocked_until"], lane, interrupted, 0
        case "foreign":
            return *key, row["due_at"], parked_lane(row["handler"]), interrupted, 0
        case _:
            return *key, row["due_at"], suspect_lane(row["handler"]), interrupted, 0


def _moved(row: Row, claimed: bool, lease_end: int) -> tuple[object, ...]:
    """A row of move.insert."""
    verdict = row["verdict"]
    lane = parked_lane(row["handler"]) if verdict == "foreign" else row["lane"]
    scheduled_at = lease_end if claimed else row["blocked_until"] if verdict == "blocked" else row["due_at"]
    key = (row["created_at"], row["action_id"], row["action_guid"])
    return *key, lane, scheduled_at, row["expires_at"], int(claimed)


def _answer(row: Row) -> Answer:
    if row["state"] is None:
        return Answer.SUPERSEDED
    # Finished at this very guid: by a twin of this outcome.
    return Answer.RECORDED if row["held"] and row["state"] == State.LIVE else Answer.LOST


def _next_at(one: Ended, now: int) -> int | None:
    verdict = one.verdict
    if verdict.state is not State.LIVE:
        return None
    return _begins_at(verdict.next_at, verdict.delay or timedelta(0), now)


def _again(one: Ended, row: Row, now: int) -> tuple[object, ...]:
    """A row of record.again."""
    return *_key(one.claim), _next_at(one, now), row["lane"], str(one.claim.claimed_by)


def _record(one: Ended, row: Row, now: int) -> tuple[object, ...]:
    """A row of record.record."""
    verdict = one.verdict
    return (
        *_key(one.claim),
        verdict.state,
        _next_at(one, now),
        verdict.tick,
        in_microseconds(verdict.tick_at),
        verdict.tick_failures,
        verdict.outcome,
        verdict.error,
        row["interrupted"],
        row["claimed_at"],
    )


def _memory(one: Ended, row: Row, answer: Answer) -> Iterable[tuple[object, ...]]:
    """The row of record.remember about an attempt, if it is worth one."""
    claim, verdict = one.claim, one.verdict
    held = (str(claim.claimed_by), row["claimed_at"])
    if answer is Answer.SUPERSEDED:
        yield *_key(claim), claim.attempt, verdict.tick, Outcome.SUPERSEDED, verdict.outcome, *held
    elif answer is Answer.RECORDED and verdict.outcome in _WENT_WRONG:
        yield *_key(claim), claim.attempt, row["tick"], verdict.outcome, verdict.error, *held


def _attempt(row: Row, shard: int, sync_guid: UUID, attempt: int, claimed_at: datetime) -> Attempt:
    return Attempt(
        claim=Claim(shard, row["action_id"], UUID(row["action_guid"]), attempt, sync_guid),
        claimed_at=claimed_at,
        due_at=_moment(row["due_at"]),
        handler=row["handler"],
        payload=row["payload"],
        terms=decode_terms(row["terms"]),
        version=row["version"],
        priority=row["priority"],
        template=row["template"],
        zone=row["zone"],
        expires_at=_moment_or_none(row["expires_at"]),
        tick=row["tick"],
        tick_at=_moment(row["tick_at"]),
        tick_failures=row["tick_failures"],
        interruptions=row["interrupted"],
    )


def _action(row: Row) -> Action:
    return Action(
        meta=Meta(
            id=row["action_id"],
            guid=UUID(row["action_guid"]),
            version=row["version"],
            revision=row["revision"],
            shard=row["shard_id"],
            created_at=_moment(row["created_at"]),
            updated_at=_moment(row["updated_at"]),
        ),
        spec=Spec(
            handler=row["handler"],
            payload=row["payload"],
            terms=decode_terms(row["terms"]),
            priority=row["priority"],
            template=row["template"],
            zone=row["zone"],
            expires_at=_moment_or_none(row["expires_at"]),
        ),
        status=Status(
            state=State(row["state"]),
            scheduled_at=_moment(row["scheduled_at"]),
            running=bool(row["running"]),
            tick=row["tick"],
            succeeded=row["succeeded"],
            failed=row["failed"],
            interrupted=row["interrupted"] + row["interrupted_uncounted"],
            missed=row["missed"],
            consecutive_failures=row["consecutive_failures"],
            last_outcome=None if row["last_outcome"] is None else Outcome(row["last_outcome"]),
            last_error=row["last_error"],
            last_started_at=_moment_or_none(row["last_started_at"]),
            last_ended_at=_moment_or_none(row["last_ended_at"]),
            finished_at=_moment_or_none(row["finished_at"]),
        ),
    )
