"""Moves of those who change actions, run them, and tidy up behind them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

from asyncpg import UniqueViolationError
from support.interleaving import HANDLER, LEASE, an_action

from interleaver.facts import plain
from interleaver.move import HOUR, errors_in, total
from interleaver.stage import Side
from matrixsched.rules.action import UNGATED, Attempt, Outcome, State
from matrixsched.rules.outcome import Verdict
from matrixsched.store.transition import Conversation, Transition
from matrixsched.store.values import (
    Acquired,
    Answer,
    Change,
    Claimed,
    Ended,
    Extension,
    GatedClaim,
    Holding,
    NewAction,
    Seen,
    SweepPosition,
    Taking,
)

CALLED_OFF, NAMED = UUID(int=0xCA11ED0FF), UUID(int=0x4E414D45D)
"""The guid of a change that may be called off, and its request."""

# Users.


def _action(side: Side) -> NewAction:
    return an_action(side.now)._replace(guid=side.guid())


def schedule(side: Side) -> Transition[Any]:
    return _writing(side, replace_it=True)


def keep(side: Side) -> Transition[Any]:
    return _writing(side, replace_it=False)


def _writing(side: Side, *, replace_it: bool) -> Transition[Any]:
    request = side.guid()
    return side.do.schedule([_action(side)], request, replace=replace_it, lock_timeout=None, tell=True)


def schedule_two(side: Side) -> Transition[Any]:
    """In one statement, which goes in the order of the ids, whatever order they are given in."""
    request = side.guid()
    batch = [_action(side), _action(side)._replace(id="b")]
    if side.index % 2:
        batch.reverse()
    return side.do.schedule(batch, request, replace=True, lock_timeout=None, tell=False)


def schedule_other(side: Side) -> Transition[Any]:
    request = side.guid()
    batch = [_action(side)._replace(id="b")]
    return side.do.schedule(batch, request, replace=True, lock_timeout=None, tell=False)


def schedule_twice(side: Side) -> Transition[Any]:
    """The same request, sent again because no answer came."""
    sent = schedule(side)

    def begin() -> Conversation[Any]:
        first = yield from sent.begin()
        return first + (yield from sent.begin())

    return Transition("schedule_twice", begin)


def replace_read(side: Side) -> Transition[Any]:
    request = side.guid()
    return side.do.replace_expected(_action(side), request, side.facts.version, tell=False)


def _change(side: Side, *, at: timedelta = timedelta(0)) -> Change:
    return Change(shard=0, id="a", guid=side.guid(), request_guid=side.guid(), expected_guid=None, at=side.now + at)


def cancel(side: Side) -> Transition[Any]:
    return side.do.cancel(_change(side))


def cancel_read(side: Side) -> Transition[Any]:
    return side.do.cancel(replace(_change(side), expected_guid=side.facts.version))


def reschedule(side: Side) -> Transition[Any]:
    return side.do.reschedule(_change(side, at=HOUR), revive=False, tell=True)


def run_now(side: Side) -> Transition[Any]:
    return side.do.reschedule(_change(side), revive=True, tell=True)


def run_now_as_seen(side: Side) -> Transition[Any]:
    """If nobody began it since, which was live and had never ended."""
    change = replace(_change(side), expected_guid=side.facts.version, seen=Seen(State.LIVE, None))
    return side.do.reschedule(change, revive=True, tell=True)


def is_none(answer: Any) -> bool:
    return answer is None


def written(answers: Sequence[Any]) -> Any:
    """Whether an attempt was under way is said as the statement's snapshot shows it: a claim that commits while it is
    under way may be missed, and the handler is told by its lease all the same."""
    answer = answers[-1]
    if isinstance(answer, Exception) or answer is None:
        return plain(answer)
    found = answer if isinstance(answer, list) else [answer]
    return sorted(f"{one.id} {one.guid} {'created' if one.created else 'changed'}" for one in found)


def reschedule_named(side: Side) -> Transition[Any]:
    """By the name of a request; its caller has heard nothing and has sent it again, so somebody may call it off."""
    change = replace(_change(side, at=HOUR), guid=CALLED_OFF, request_guid=NAMED)
    return side.do.reschedule(change, revive=True, tell=False)


def call_off(side: Side) -> Transition[Any]:
    return side.do.call_off(0, CALLED_OFF)


def written_unless_called_off(answers: Sequence[Any]) -> Any:
    """To find its guid there at the very end, or at the beginning, is the same to it: nobody hears of either."""
    return written([None if isinstance(answer, UniqueViolationError) else answer for answer in answers])


# Workers.


def _holder(side: Side) -> Any:
    return side.facts.holders.get(0)


def acquire(side: Side) -> Transition[Any]:
    return side.do.acquire_shard(
        sync_guid=side.guid(), holder=side.name, lease=LEASE, lanes=(), gated_handlers=[HANDLER]
    )


def beat(side: Side) -> Transition[Any]:
    return side.do.beat_shard(0, _holder(side))


def release(side: Side) -> Transition[Any]:
    return side.do.release_shard(0, _holder(side))


def close_fence(side: Side) -> Transition[Any]:
    return side.do.close_fence(0, _holder(side), side.guid())


def move(side: Side) -> Transition[Any]:
    return _moving(side, _holder(side))


def _moving(side: Side, holder: Any) -> Transition[Any]:
    return side.do.move(0, holder, handlers=[HANDLER], move_limit=9, claim_limit=9, attempt_lease=LEASE)


def _taker(side: Side) -> UUID:
    """Under which guid this side takes a shard by a move."""
    return UUID(int=0xF4EE_0000 + side.index)


def move_free(side: Side) -> Transition[Any]:
    """Move under a shard that nobody holds, and hold it from then on."""
    return side.do.move(
        0,
        _taker(side),
        handlers=[HANDLER],
        move_limit=9,
        claim_limit=9,
        attempt_lease=LEASE,
        taking=Taking(side.name, side.now + HOUR),
    )


def claim(side: Side) -> Transition[Any]:
    return _claiming(side, _holder(side))


def _claiming(side: Side, holder: Any) -> Transition[Any]:
    return side.do.claim(0, holder, lane=UNGATED, handlers=[HANDLER], limit=9, attempt_lease=LEASE)


def next_round(side: Side) -> Transition[Any]:
    """What the holder of a shard does next: claim, then move."""
    return Transition("next_round", partial(_round, side, _holder(side)))


def next_round_of_taker(side: Side) -> Transition[Any]:
    """The same of whoever took it by a move, and if that did not succeed, a whole iteration."""

    def begin() -> Conversation[list[Any]]:
        attempts = yield from _round(side, _taker(side))
        return [*attempts, *(yield from sync(side).begin())]

    return Transition("next_round_of_taker", begin)


def _round(side: Side, holder: Any) -> Conversation[list[Any]]:
    claimed = yield from _claiming(side, holder).begin()
    moved = yield from _moving(side, holder).begin()
    return [*claimed.attempts, *moved.attempts]


def run(side: Side) -> Transition[Any]:
    """Move, and record what was claimed in passing at once; in two transactions."""

    def begin() -> Conversation[int]:
        moved = yield from move(side).begin()
        if not moved.attempts:
            return 0
        done = [Ended(one.claim, _success(one)) for one in moved.attempts]
        answers = yield from side.do.record(done, history_max=50).begin()
        return sum(answer is Answer.RECORDED for answer in answers.values())

    return Transition("run", begin)


def sync(side: Side) -> Transition[Any]:
    """A whole iteration: take a shard that has work, claim, move, let it go; each in a transaction of its own."""
    do, guid = side.do, side.guid()

    def begin() -> Conversation[list[Any]]:
        acquiring = do.acquire_shard(sync_guid=guid, holder=side.name, lease=LEASE, lanes=())
        acquired = yield from acquiring.begin()
        if acquired.shard is None:
            return []
        shard = acquired.shard
        attempts: list[Attempt] = []
        for lane in acquired.lanes:
            claiming = do.claim(shard, guid, lane=lane, handlers=[HANDLER], limit=9, attempt_lease=LEASE)
            attempts += (yield from claiming.begin()).attempts
        if acquired.incoming:
            moving = do.move(shard, guid, handlers=[HANDLER], move_limit=9, claim_limit=9, attempt_lease=LEASE)
            attempts += (yield from moving.begin()).attempts
        yield from do.release_shard(shard, guid).begin()
        return attempts

    return Transition("sync", begin)


def shard_taken(answers: Sequence[Any]) -> Any:
    """Which shard, in the end. What work it is told of are hints."""
    return [plain(answer) if isinstance(answer, Exception) else answer.shard for answer in answers][-1]


def has_no_shard(answer: Any) -> bool:
    return isinstance(answer, Acquired) and answer.shard is None


def attempts_in(answers: Sequence[Any]) -> Iterator[Any]:
    """All that were handed out."""
    for answer in answers:
        found = answer.attempts if isinstance(answer, Claimed | GatedClaim) else answer
        if isinstance(found, list | tuple):
            yield from (one for one in found if hasattr(one, "claim"))


def attempts_handed(answers: Sequence[Any]) -> Any:
    return errors_in(answers) + sorted(
        f"{one.claim.action_id} {one.claim.guid} {one.claim.attempt} {one.claim.claimed_by} {one.interruptions}"
        for one in attempts_in(answers)
    )


# Attempts.


def record(side: Side) -> Transition[Any]:
    return _recording(side, Outcome.SUCCEEDED, State.DONE, None)


def record_retry(side: Side) -> Transition[Any]:
    return _recording(side, Outcome.FAILED, State.LIVE, HOUR)


def _recording(side: Side, outcome: Outcome, state: State, delay: timedelta | None) -> Transition[Any]:
    attempt = side.facts.held_attempt()
    verdict = Verdict(outcome=outcome, state=state, tick=attempt.tick, tick_at=attempt.tick_at, delay=delay)
    return side.do.record([Ended(attempt.claim, verdict)], history_max=50)


def _success(attempt: Attempt) -> Verdict:
    return Verdict(outcome=Outcome.SUCCEEDED, state=State.DONE, tick=attempt.tick, tick_at=attempt.tick_at)


def extend(side: Side) -> Transition[Any]:
    return side.do.extend([Holding(side.facts.held_attempt().claim, timedelta(minutes=1))], attempt_lease=LEASE)


def give_back(side: Side) -> Transition[Any]:
    return side.do.give_back([side.facts.held_attempt()])


def is_busy(answer: Any) -> bool:
    return isinstance(answer, dict) and any(one in (Answer.BUSY, Extension.BUSY) for one in answer.values())


# Tidying.


def sweep(side: Side) -> Transition[Any]:
    return side.do.sweep_dead(SweepPosition(), limit=99, reach=2 * LEASE)


def expire(side: Side) -> Transition[Any]:
    return side.do.expire_waiting(limit=99)


def prune(side: Side) -> Transition[Any]:
    return side.do.prune_actions(side.facts.pruned, keep=HOUR, limit=99)


def prune_requests(side: Side) -> Transition[Any]:
    return side.do.prune_requests(keep=HOUR, limit=99)


def rows_gone(answers: Sequence[Any]) -> Any:
    return total([getattr(answer, "gone", answer) for answer in answers])
