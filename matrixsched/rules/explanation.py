"""Why an action has not run yet, or what became of it: the reasons, the deciding one first, each with the next move.

What is finished, running, lost or not due yet has one reason. What is due waits for

    1. what nothing but a person or the time can open: its handler, its template, a limit that is closed
    2. a worker at all: none was heard of, or the lock of its shard stands
    3. its turn: in the incoming queue, as a suspect, for its quota, for the slots of its limits, behind others
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from matrixsched.rules.action import Action, State, parked_lane
from matrixsched.rules.gates import Bucket, QuotaNow, instant
from matrixsched.rules.lanes import ANY_KEY, is_gated, key_limit
from matrixsched.rules.limits import Closed, Limit
from matrixsched.rules.rates import Rate
from matrixsched.rules.retry import is_suspect
from matrixsched.rules.semaphore import semaphore_of
from matrixsched.rules.standing import BEFORE_COUNT_MAX, Standing, lane_to_pass
from matrixsched.rules.templates import Template
from matrixsched.rules.windows import is_inside, next_change, window_text, windows_of

QUIET_AFTER = timedelta(minutes=2)
"""Workers that run give a sign of life at least every half a minute, also when they have nothing to do."""
SILENT_AFTER = timedelta(seconds=10)
"""The default lease: a holder that was silent for longer has lost its shard to whoever asks."""


class Why(StrEnum):
    """The kind of a reason."""

    FINISHED = "finished"
    RUNNING = "running"
    LOST = "lost"
    """No row stands for it."""
    EXPIRED = "expired"
    NOT_DUE = "not_due"
    RETRY = "retry"
    BLOCKED = "blocked"
    """An attempt at an older version of it is under way."""
    NO_HANDLER = "no_handler"
    NO_TEMPLATE = "no_template"
    PAUSED = "paused"
    SLOWED = "slowed"
    NO_WORKER = "no_worker"
    STALE_LOCK = "stale_lock"
    INCOMING = "incoming"
    SUSPECT = "suspect"
    UNPLANNED = "unplanned"
    QUOTA = "quota"
    OUTSIDE = "outside"
    """Of the window of the recipient's day that its template is for."""
    TURN = "turn"
    """Others were there before it."""
    LIMIT = "limit"
    NO_ROOM = "no_room"
    """Whoever has its handler has as many under way as it may."""
    DUE = "due"
    EXPIRES = "expires"


@dataclass(frozen=True, slots=True)
class Move:
    """What may be done about it: in words and, mostly, as a command of `matrixsched`."""

    text: str
    command: str | None = None
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    why: Why
    text: str
    since: datetime | None = None
    until: datetime | None = None
    """When it is over, or looked at again, as far as that is known."""
    move: Move


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why an action has not run yet, or what became of it."""

    id: str
    handler: str
    state: State
    now: datetime
    """The database's time when it was asked."""
    due_at: datetime
    """Since when it is held, or when it comes due."""
    worker_seen_at: datetime | None
    """The last sign of life of any worker that runs actions."""
    reasons: tuple[Reason, ...]

    @property
    def reason(self) -> Reason:
        """The one that decides."""
        return self.reasons[0]


def explain(standing: Standing) -> Explanation:
    action = standing.action
    return Explanation(
        id=action.id,
        handler=action.spec.handler,
        state=action.status.state,
        now=standing.now,
        due_at=standing.due_at,
        worker_seen_at=standing.heard_at,
        reasons=tuple(_reasons(standing)),
    )


def _reasons(standing: Standing) -> Iterator[Reason]:
    if standing.action.status.state is not State.LIVE:
        yield _finished(standing.action)
        if standing.blocked_until is not None:
            yield _still_running(standing)
        return
    if standing.is_running:
        yield _running(standing)
        return
    if standing.is_lost:
        yield _lost(standing)
    elif (found := _untimely(standing)) is not None:
        yield found
    else:
        held = [*_shut(standing), *_unattended(standing), *_queued(standing), *_gated(standing)]
        yield from held or [_due(standing)]
    yield from _ending(standing)


# One reason says it all.


def _finished(action: Action) -> Reason:
    state = action.status.state
    # It would not come far with an end that has passed; so to run it again takes its end away.
    endless = "" if action.spec.expires_at is None else ", without an end"
    if state in (State.FAILED, State.QUARANTINED, State.EXPIRED):
        move = Move(f"to run it again{endless}", "actions redrive", (action.id,))
    else:
        move = Move(f"to run it once more{endless}", "actions run-now", (action.id,))
    ended = {
        State.DONE: "it is done",
        State.FAILED: "it failed for good",
        State.CANCELLED: "it was cancelled",
        State.EXPIRED: "it expired before it could start",
        State.QUARANTINED: "it was quarantined: it cannot be run as it is",
    }
    return Reason(why=Why.FINISHED, text=ended[state], since=action.status.finished_at, move=move)


def _running(standing: Standing) -> Reason:
    assert standing.row is not None
    return Reason(
        why=Why.RUNNING,
        text="an attempt is under way",
        since=standing.row.claimed_at,
        move=Move("wait: if it does not end, its time limit ends it; if its worker is gone, another begins anew"),
    )


def _lost(standing: Standing) -> Reason:
    return Reason(
        why=Why.LOST,
        text="no row stands for it in the queues: it would never run. Nothing that works leaves that behind",
        since=standing.action.meta.updated_at,
        move=Move("put its row back", "fsck --repair"),
    )


def _still_running(standing: Standing) -> Reason:
    return Reason(
        why=Why.RUNNING,
        text="an attempt that began before is still under way; how it ends changes nothing",
        until=standing.blocked_until,
        move=Move("wait for its end"),
    )


def _untimely(standing: Standing) -> Reason | None:
    """What is too late, or too early."""
    status, spec, now = standing.action.status, standing.action.spec, standing.now
    run_now = Move("to run it now", "actions run-now", (standing.action.id,))
    if spec.expires_at is not None and spec.expires_at <= now:
        return Reason(
            why=Why.EXPIRED,
            text="it expired before it could start; a worker records that when it tidies up",
            since=spec.expires_at,
            move=Move("schedule it again with a later end, or leave it"),
        )
    if status.scheduled_at > now:
        if status.consecutive_failures:
            failures = "once" if status.consecutive_failures == 1 else f"{status.consecutive_failures} times"
            text = f"it failed {failures} in a row and waits for the next try"
            return Reason(why=Why.RETRY, text=text, since=status.last_ended_at, until=status.scheduled_at, move=run_now)
        return Reason(why=Why.NOT_DUE, text="it is not due yet", until=status.scheduled_at, move=run_now)
    pushed = standing.due_at if standing.due_at > now else None
    if (until := standing.blocked_until or pushed) is not None:
        return Reason(
            why=Why.BLOCKED,
            text="an attempt that began before it was changed is under way, and there is one at a time",
            since=status.scheduled_at,
            until=until,
            move=Move("wait: it starts when that attempt ends"),
        )
    return None


def _due(standing: Standing) -> Reason:
    return Reason(
        why=Why.DUE,
        text="it is due and nothing holds it: a worker takes it as soon as it has room",
        since=standing.due_at,
        move=Move("see what workers do", "shards list"),
    )


def _ending(standing: Standing) -> Iterator[Reason]:
    expires_at = standing.action.spec.expires_at
    if expires_at is not None and expires_at > standing.now:
        never = expires_at <= standing.action.status.scheduled_at
        yield Reason(
            why=Why.EXPIRES,
            text="it expires before it is due, and so never runs"
            if never
            else "it ends unsent unless it starts before",
            until=expires_at,
            move=Move("to change that, schedule it again with a later end"),
        )


# What nothing but a person or the time can open.


def _shut(standing: Standing) -> Iterator[Reason]:
    spec, now = standing.action.spec, standing.now
    yield from _unknown_handler(standing)
    if spec.template is not None:
        yield from _shut_template(standing, spec.template)
    for limit in _limits(standing):
        if isinstance(closed := limit.effective(now), Closed):
            yield _slowed(limit, "is closed", closed.until)


def _unknown_handler(standing: Standing) -> Iterator[Reason]:
    handler, row, there = standing.action.spec.handler, standing.row, standing.workers_there
    is_parked = row is not None and row.lane == parked_lane(handler)
    if standing.able_workers or not (is_parked or there):
        return
    nobody = {0: "no worker that met it has", 1: "the only worker that is there does not have"}.get(
        len(there), f"none of the {len(there)} workers that are there has"
    )
    yield Reason(
        why=Why.NO_HANDLER,
        text=f"{nobody} the handler {handler!r}",
        since=standing.due_at,
        move=Move("start a worker whose App registers it", "worker", ("MODULE:APP",)),
    )


def _shut_template(standing: Standing, name: str) -> Iterator[Reason]:
    template = standing.template
    if template is None:
        yield Reason(
            why=Why.NO_TEMPLATE,
            text=f"its template {name!r} does not exist any more",
            since=standing.due_at,
            move=Move("create it again", "templates set", (name,)),
        )
    elif template.is_paused(standing.now):
        yield Reason(
            why=Why.PAUSED,
            text=f"its template {name!r} is paused"
            + (" until somebody resumes it" if template.paused_until is None else ""),
            since=template.paused_at,
            until=template.paused_until,
            move=Move("to let it go on", "templates resume", (name,)),
        )


def _slowed(limit: Limit, how: str, until: datetime) -> Reason:
    because = f", because: {limit.slow_reason}" if limit.slow_reason else ""
    return Reason(
        why=Why.SLOWED,
        text=f"the limit {limit.name} {how}: it was told to slow down{because}",
        until=until,
        move=Move("to end that early", "limits resume", (limit.name,)),
    )


def _limits(standing: Standing) -> Iterator[Limit]:
    """Those that it is under; a key without a limit of its own goes by key:*."""
    if semaphore_of(standing.action.spec.handler) is not None:
        return  # an event passes no gate
    lane, there = lane_to_pass(standing.action.spec), standing.limits
    any_key = there.get(ANY_KEY)
    for name in lane.limits:
        if name in there:
            yield there[name].under(any_key) if lane.key is not None and name == key_limit(lane.key) else there[name]


# Somebody must be there to do it.


def _unattended(standing: Standing) -> Iterator[Reason]:
    seen, lock, shard = standing.heard_at, standing.shard, standing.action.meta.shard
    start = Move("start a worker", "worker", ("MODULE:APP",))
    if seen is None or standing.now - seen > QUIET_AFTER:
        who = (
            "no worker that runs actions"
            if any(one.is_there(standing.now) for one in standing.workers)
            else "no worker"
        )
        text = f"{who} has ever run here" if seen is None else f"{who} has been heard of lately"
        yield Reason(why=Why.NO_WORKER, text=text, since=seen, move=start)
    if lock.is_locked and standing.now - lock.heartbeat_at > SILENT_AFTER:
        yield Reason(
            why=Why.STALE_LOCK,
            text=f"the lock of its shard {shard} stands without a heartbeat of its holder, {lock.locked_by}; "
            "a worker takes it over by itself",
            since=lock.heartbeat_at,
            move=Move("to free it now", "shards release", (str(shard),)),
        )


# It has to wait for its turn.


def _queued(standing: Standing) -> Iterator[Reason]:
    row, lock, shard = standing.row, standing.shard, standing.action.meta.shard
    if row is None:
        holder = f"is held by {lock.locked_by}" if lock.is_locked else "has no holder now"
        yield Reason(
            why=Why.INCOMING,
            text=f"no worker has looked into the incoming queue of shard {shard} since; the shard {holder}",
            since=standing.due_at,
            move=Move("wait a second or two; then see what workers do", "shards list"),
        )
    elif is_suspect(row.interrupted + row.is_claimed):
        yield Reason(
            why=Why.SUSPECT,
            text=f"its attempts were interrupted {row.interrupted + row.is_claimed} times: it may be what kills its "
            "worker, so a process runs one such action at a time",
            since=standing.due_at,
            move=Move("see how its attempts ended", "actions show", (standing.action.id,)),
        )
    yield from _crowded(standing)


def _crowded(standing: Standing) -> Iterator[Reason]:
    """Nobody who could do it has room for it, as far as they were heard of lately."""
    able = standing.able_workers
    if able and all(worker.running >= worker.slots for worker in able):
        running = sum(worker.running for worker in able)
        whoever = "the worker that has" if len(able) == 1 else f"all {len(able)} workers that have"
        yield Reason(
            why=Why.NO_ROOM,
            text=f"{whoever} its handler had no slot free when last heard of: {running:,} handlers under way",
            since=standing.due_at,
            move=Move("wait; or start more workers, or give them more --concurrency", "worker", ("MODULE:APP",)),
        )


def _gated(standing: Standing) -> Iterator[Reason]:
    template, quota, row, now = standing.template, standing.quota, standing.row, standing.now
    if template is not None and quota is not None and not quota.is_paused:
        yield from _quota(standing, template, quota)
    paced = [(limit, rate) for limit in _limits(standing) if isinstance(rate := limit.effective(now), Rate)]
    if row is not None and row.before and is_gated(row.lane) and (paced or quota is not None):
        yield _behind(standing, row.before, paced)
    for limit, rate in paced:
        next_slot = instant(Bucket(limit, now).next_slot_ns)
        if next_slot > now and limit.is_slowed(now):
            yield _slowed(limit, f"is at {rate} with no slot left", next_slot)
        elif next_slot > now:
            yield _used_up(limit, rate, standing.due_at, next_slot)


def _behind(standing: Standing, before: int, paced: Sequence[tuple[Limit, Rate]]) -> Reason:
    """The next slots are for those who were there before."""
    text = f"{BEFORE_COUNT_MAX:,} or more" if before >= BEFORE_COUNT_MAX else f"{before:,}"
    text += f" of the same kind {'was' if before == 1 else 'were'} due before it"
    until = None
    if paced:
        limit, rate = max(paced, key=lambda pair: pair[1].period_ns)
        text += f", and the limit {limit.name} is {rate}"
        # At the earliest. Where a quota has its own say in it, nobody can tell.
        if standing.quota is None:
            next_slot = max(standing.now, instant(Bucket(limit, standing.now).next_slot_ns))
            until = next_slot + timedelta(microseconds=before * rate.period_ns // 1000)
    return Reason(
        why=Why.TURN,
        text=text,
        since=standing.due_at,
        until=until,
        move=Move("wait; see how fast they may go", "limits list"),
    )


def _used_up(limit: Limit, rate: Rate, since: datetime, next_slot: datetime) -> Reason:
    pool = f" with a pool of {limit.pool:,}" if limit.pool else ""
    return Reason(
        why=Why.LIMIT,
        text=f"the limit {limit.name} is {rate}{pool} and has no slot left at this moment",
        since=since,
        until=next_slot,
        move=Move("wait, or let it go faster", "limits set", (limit.name, "RATE")),
    )


def _quota(standing: Standing, template: Template, quota: QuotaNow) -> Iterator[Reason]:
    see = Move("see how it goes on", "plan")
    if quota.window is None:
        yield Reason(
            why=Why.UNPLANNED,
            text="the present window of the quota is not planned yet; the next worker that looks does it",
            since=standing.due_at,
            move=see,
        )
        return
    allowance = quota.allowance(lane_to_pass(standing.action.spec))
    if allowance is not None and allowance.left > 0:
        return
    if allowance is None or not allowance.granted:
        text = f"the template {template.name!r} has no share for it in the present window of the quota"
    else:
        text = f"the share of the template {template.name!r} in the present window of the quota is used up "
        text += f"({allowance.used:,} of {allowance.granted:,})"
    yield Reason(why=Why.QUOTA, text=text, since=standing.due_at, until=quota.window[1], move=see)
    yield from _outside(standing, template)


def _outside(standing: Standing, template: Template) -> Iterator[Reason]:
    windows, zone = windows_of(template, standing.settings), standing.action.spec.zone or template.zone
    if not windows or is_inside(windows, zone, standing.now):
        return
    hours = ", ".join(map(window_text, windows))
    yield Reason(
        why=Why.OUTSIDE,
        text=f"it is outside of the hours of its template, {hours} in {zone}, where it has priority",
        until=next_change(windows, zone, standing.now),
        move=Move("wait, or give the template other hours", "templates set", (template.name,)),
    )
