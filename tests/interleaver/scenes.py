"""The scenes: small states of the tables, and which moves are worth playing in each.

All happens at one instant, by a clock that stands still. In a scene with a `late` time the clock goes on by so much
when the first of those begins who may have from then on what another one has until then.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import count
from typing import Any

from support.interleaving import HANDLER, LEASE, an_action

from interleaver.move import HOLD, HOUR, POOL, QUEUE, SECOND
from interleaver.stage import Setting
from matrixsched.rules.action import Outcome, State
from matrixsched.rules.lanes import Lane
from matrixsched.rules.outcome import Verdict
from matrixsched.rules.queues import NewItem
from matrixsched.rules.rates import parse_rate
from matrixsched.rules.semaphore import Semaphore
from matrixsched.rules.templates import TemplateChange
from matrixsched.store.queues import Letter
from matrixsched.store.semaphores import NewTask
from matrixsched.store.values import Change, Ended, NewAction

USERS = (
    "schedule",
    "keep",
    "schedule-two",
    "replace",
    "cancel",
    "cancel-read",
    "reschedule",
    "run-now",
)
SHARD = ("acquire", "beat", "release", "close-fence")
WORK = ("move", "claim", "run")
ATTEMPT = ("record", "record-retry", "extend", "give-back")
TIDY = ("sweep", "expire", "prune", "prune-requests")
LIMITS = ("claim-gated", "set-limit", "slow-down", "remove-limit", "relist", "sweep", "cancel", "schedule", "claim")
QUOTA = ("claim-gated", "plan", "pause", "resume", "stop-campaign", "relist", "cancel", "schedule", "move", "expire")
SEMAPHORE = ("balance", "enqueue", "let-go", "let-all-go", "renew", "step-back", "resize")
RECEIPT = ("done", "done-again", "retry", "extend-tasks", "set-aside")
TASKS = ("put", "take", "take-one", "done-late", "redrive", "purge", "purge-dead", "hasten", "pause-queue")

MINUTE = timedelta(minutes=1)
MX = Lane(handler=HANDLER, key="mx")
PROMO = Lane(handler=HANDLER, template="promo")
LATE = ("claim", "move", "run", "sync", "sweep", "expire", "take", "take-one", "purge")
"""Who plays after the end of a lease, where the scene has one that ends."""

Builder = Callable[[Setting], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Scene:
    name: str
    build: Builder
    moves: tuple[str, ...]
    late: timedelta = timedelta(0)


# Actions.


async def write(setting: Setting, **options: Any) -> NewAction:
    new = replace(an_action(setting.now), **({"guid": setting.guid()} | options))
    await setting.world.run(
        setting.world.do.schedule([new], setting.guid(), replace=True, lock_timeout=None, tell=False)
    )
    if new.id == "a":
        setting.facts.version = new.guid
    return new


async def hold(setting: Setting, shard: int = 0) -> Any:
    """A worker has the shard; its guid."""
    guid = setting.facts.holders[shard] = setting.guid()
    await setting.sql(
        "update matrixsched.shard_locks set locked = true, last_lock_guid = $2, last_locked_by = 'w', "
        "last_heartbeat_at = $3 where shard_id = $1",
        shard,
        guid,
        setting.now,
    )
    return guid


async def move_in(setting: Setting, *, claims: bool, shard: int = 0) -> Any:
    """From incoming to processing; what was claimed."""
    do = setting.world.do
    moved = await setting.world.run(
        do.move(
            shard,
            setting.facts.holders[shard],
            handlers=[HANDLER],
            move_limit=9,
            claim_limit=9 if claims else 0,
            attempt_lease=LEASE,
        )
    )
    return moved.attempts


async def run_it(setting: Setting, **options: Any) -> None:
    """Somebody claims it; then another worker has the shard."""
    await write(setting, **options)
    await hold(setting)
    (setting.facts.attempt,) = await move_in(setting, claims=True)
    await hold(setting)


async def nothing(setting: Setting) -> None:
    await hold(setting)


async def new(setting: Setting) -> None:
    await write(setting)
    await hold(setting)


async def free(setting: Setting) -> None:
    """One row is new, another one waits; nobody has the shard."""
    await write(setting, id="b")
    await hold(setting)
    await move_in(setting, claims=False)
    await write(setting)
    await setting.sql("update matrixsched.shard_locks set locked = false")


async def free_lapsed(setting: Setting) -> None:
    await lapsed(setting)
    await setting.sql("update matrixsched.shard_locks set locked = false")


async def free_replaced(setting: Setting) -> None:
    await replaced(setting)
    await setting.sql("update matrixsched.shard_locks set locked = false")


async def free_blocked(setting: Setting) -> None:
    await blocked(setting)
    await setting.sql("update matrixsched.shard_locks set locked = false")


async def left(setting: Setting) -> None:
    """As `free`, but somebody who does not beat any more believes that he has it."""
    await free(setting)
    await hold(setting)
    setting.later(LEASE + SECOND)


async def waiting(setting: Setting) -> None:
    await new(setting)
    await move_in(setting, claims=False)


async def claimed(setting: Setting) -> None:
    await run_it(setting)


async def lapsed(setting: Setting) -> None:
    await run_it(setting)
    setting.later(LEASE + SECOND)
    await hold(setting)


async def lapsing(setting: Setting) -> None:
    """Its lease ends in a microsecond."""
    await run_it(setting)
    setting.later(LEASE - timedelta.resolution)
    await hold(setting)


async def lapsing_late(setting: Setting) -> None:
    """As `lapsing`, and it expires before that."""
    await run_it(setting, expires_at=setting.now + SECOND)
    setting.later(LEASE - timedelta.resolution)
    await hold(setting)


async def replaced(setting: Setting) -> None:
    """A version is run, the next one is new."""
    await run_it(setting)
    await write(setting)


async def blocked(setting: Setting) -> None:
    """A version is run, the next one waits for its end."""
    await replaced(setting)
    await move_in(setting, claims=True)


async def replaced_lapsing(setting: Setting) -> None:
    """As `replaced`, but the lease of the first ends in a microsecond."""
    await replaced(setting)
    setting.later(LEASE - timedelta.resolution)
    await hold(setting)


async def blocked_lapsing(setting: Setting) -> None:
    await blocked(setting)
    setting.later(LEASE - timedelta.resolution)
    await hold(setting)


async def unblocked(setting: Setting) -> None:
    """As `blocked`, but the lease of the first is over."""
    await blocked(setting)
    setting.later(LEASE + SECOND)
    await hold(setting)


async def stale(setting: Setting) -> None:
    """A version that waits for a far day, replaced by one that is new."""
    await write(setting, at=setting.now + HOUR)
    await hold(setting)
    await move_in(setting, claims=False)
    await write(setting)


async def cancelled(setting: Setting) -> None:
    """While it was run."""
    await run_it(setting)
    change = Change(shard=0, id="a", guid=setting.guid(), request_guid=setting.guid(), expected_guid=None)
    await setting.world.run(setting.world.do.cancel(change))


async def finished(setting: Setting) -> None:
    """Long ago."""
    await run_it(setting)
    attempt = setting.facts.held_attempt()
    verdict = Verdict(outcome=Outcome.SUCCEEDED, state=State.DONE, tick=attempt.tick, tick_at=attempt.tick_at)
    await setting.world.run(setting.world.do.record([Ended(attempt.claim, verdict)], history_max=50))
    setting.later(2 * HOUR)
    await hold(setting)


async def expired(setting: Setting) -> None:
    """While it waited."""
    await write(setting, expires_at=setting.now + SECOND)
    await hold(setting)
    await move_in(setting, claims=False)
    setting.later(2 * SECOND)
    await hold(setting)


async def expired_lapsed(setting: Setting) -> None:
    """While it was run by somebody who does not report back."""
    await run_it(setting, expires_at=setting.now + SECOND)
    setting.later(LEASE + SECOND)
    await hold(setting)


# Gates.


async def before_gates(setting: Setting, lane: Lane) -> None:
    """Two rows in each of two shards; `a` is the first. No two are due at the same instant: one is always the first."""
    setting.facts.lanes = (lane.name,)
    instants = count()
    for shard, ids in enumerate((("a", "b"), ("c", "d"))):
        await hold(setting, shard)
        for id in ids:
            at = setting.now - SECOND + next(instants) * timedelta.resolution
            await write(setting, id=id, shard=shard, lane=lane.name, template=lane.template, at=at)
        await move_in(setting, claims=False, shard=shard)
    await setting.sql(
        "insert into matrixsched.held_lanes (lane, priority, handler, ready_at) values ($1, 0, $2, $3)",
        lane.name,
        HANDLER,
        setting.now,
    )


async def one_token(setting: Setting) -> None:
    await setting.world.run(setting.world.do.set_limit("key:mx", parse_rate("1/s"), pool=0))
    await setting.sql("update matrixsched.limits set next_slot_ns = 0")
    await before_gates(setting, MX)
    setting.facts.tokens = 1


async def unplanned(setting: Setting) -> None:
    """Messages of a template wait, and the window is not planned."""
    await setting.world.run(setting.world.do.put_template("promo", TemplateChange()))
    await before_gates(setting, PROMO)


async def one_grant(setting: Setting) -> None:
    await unplanned(setting)
    await setting.sql(
        "insert into matrixsched.quota_windows (begins_at, ends_at, planned_at, planned_by, templates) "
        "values ($1, $2, $1, 'w', 1)",
        setting.now,
        setting.now + MINUTE,
    )
    await setting.sql(
        "insert into matrixsched.quota_grants (begins_at, template, priority, inside, zones, waiting, granted) "
        "values ($1, 'promo', 0, false, '[]', 4, 1)",
        setting.now,
    )
    setting.facts.tokens = 1


# The semaphore.


async def pool(setting: Setting, *, held: bool, **options: Any) -> None:
    do = setting.world.do
    await setting.world.run(do.make_semaphore(Semaphore(key=POOL, active=1, try_release=1, **options)))
    tasks = [NewTask(id, priority, setting.guid()) for id, priority in (("x", 1.0), ("y", 2.0), ("z", 1.5))]
    for task in tasks if not held else tasks[:1]:
        await setting.world.run(do.enqueue_tasks(POOL, [task], setting.guid(), change_guid=setting.guid(), tell=False))
    if held:
        await setting.world.run(do.balance(POOL, setting.guid, shards=1))
        for task in tasks[1:]:
            await setting.world.run(
                do.enqueue_tasks(POOL, [task], setting.guid(), change_guid=setting.guid(), tell=False)
            )


async def place_free(setting: Setting) -> None:
    await pool(setting, held=False)


async def place_held(setting: Setting) -> None:
    """By the least important task, whom nobody has asked for it yet."""
    await pool(setting, held=True)


async def place_asked(setting: Setting) -> None:
    await pool(setting, held=True)
    await setting.world.run(setting.world.do.balance(POOL, setting.guid, shards=1))


async def place_late(setting: Setting) -> None:
    """Whoever holds it did not renew it."""
    await pool(setting, held=True, hold_for=LEASE)
    setting.later(LEASE + SECOND)


# Queues.


async def tasks(setting: Setting) -> None:
    """One each: ready, taken, lapsed, delayed, dead."""
    do, run = setting.world.do, setting.world.run
    await setting.sql("alter sequence matrixsched.queue_tasks_id_seq restart")
    await run(do.change_queue_settings(QUEUE, lambda one: one))

    async def put(data: str, **options: Any) -> None:
        await run(do.put_tasks([NewItem(queue=QUEUE, data=data.encode(), **options)], setting.guid(), tell=False))

    await put("dead")
    (doomed,) = await run(do.take_tasks(QUEUE, 9, setting.guid(), visibility=HOLD))
    await run(do.set_aside_tasks([Letter(doomed.receipt, "no use")], setting.guid()))
    await put("lapsed")
    (setting.facts.lapsed,) = await run(do.take_tasks(QUEUE, 9, setting.guid(), visibility=HOLD))
    setting.later(HOLD)
    await put("taken", at=setting.now - HOUR)
    (setting.facts.taken,) = await run(do.take_tasks(QUEUE, 1, setting.guid(), visibility=HOLD))
    await put("ready")
    await put("delayed", delay=HOUR)


async def taken_lapsing(setting: Setting) -> None:
    """A task is taken for another microsecond."""
    do, run = setting.world.do, setting.world.run
    await run(do.put_tasks([NewItem(queue=QUEUE, data=b"taken")], setting.guid(), tell=False))
    (setting.facts.taken,) = await run(do.take_tasks(QUEUE, 9, setting.guid(), visibility=HOLD))
    setting.later(HOLD - timedelta.resolution)


async def everything(setting: Setting) -> None:
    """Something of all at once, for moves that have little to do with each other."""
    await tasks(setting)
    await place_held(setting)
    await one_grant(setting)
    await setting.world.run(setting.world.do.set_limit("key:mx", parse_rate("1/s"), pool=0))
    await setting.sql("delete from matrixsched.scheduled_actions where action_id = 'a'")
    await setting.sql("delete from matrixsched.processing_queue where action_id = 'a'")
    await run_it(setting)
    await hold(setting, 1)


RUN = USERS + SHARD + WORK + ATTEMPT + ("sweep",)
ALL = tuple(dict.fromkeys((*USERS, *SHARD, *WORK, *ATTEMPT, *TIDY, *LIMITS, *QUOTA, *SEMAPHORE, *RECEIPT, *TASKS)))
_NO_HOLDER = tuple(name for name in RUN if name not in ("beat", "release", "close-fence", *WORK, *ATTEMPT))

SCENES = {
    scene.name: scene
    for scene in (
        Scene("nothing", nothing, (*USERS, "schedule-twice", "schedule-other", "move")),
        Scene("new", new, (*USERS, "schedule-twice", "schedule-other", *SHARD, *WORK, "sweep")),
        Scene("free", free, (*_NO_HOLDER, "sync")),
        Scene("free-lapsed", free_lapsed, (*USERS, *ATTEMPT, "sweep", "sync")),
        Scene("free-replaced", free_replaced, (*USERS, *ATTEMPT, "sweep", "sync")),
        Scene("free-blocked", free_blocked, (*USERS, *ATTEMPT, "sweep", "sync")),
        Scene("left", left, (*USERS, *SHARD, *WORK, "sync")),
        Scene("waiting", waiting, (*USERS, *SHARD, *WORK, "sweep")),
        Scene("claimed", claimed, RUN),
        Scene("lapsed", lapsed, RUN),
        Scene("lapsing", lapsing, (*USERS, *WORK, *ATTEMPT, "sweep"), late=SECOND),
        Scene("lapsing-late", lapsing_late, (*USERS, *WORK, *ATTEMPT, "expire", "sweep"), late=SECOND),
        Scene("replaced-lapsing", replaced_lapsing, (*WORK, *ATTEMPT, "sweep", "schedule", "cancel"), late=SECOND),
        Scene("blocked-lapsing", blocked_lapsing, (*WORK, *ATTEMPT, "sweep", "schedule", "cancel"), late=SECOND),
        Scene("replaced", replaced, RUN),
        Scene("blocked", blocked, RUN),
        Scene("unblocked", unblocked, RUN),
        Scene("stale", stale, (*USERS, *WORK, "sweep", "release", "close-fence")),
        Scene("cancelled", cancelled, RUN),
        Scene("finished", finished, (*USERS, *ATTEMPT, *TIDY, "move")),
        Scene("expired", expired, (*USERS, *WORK, *TIDY)),
        Scene("expired-lapsed", expired_lapsed, (*USERS, *WORK, *ATTEMPT, *TIDY)),
        Scene("one-token", one_token, LIMITS),
        Scene("one-grant", one_grant, QUOTA),
        Scene("unplanned", unplanned, QUOTA),
        Scene("place-free", place_free, SEMAPHORE),
        Scene("place-held", place_held, SEMAPHORE),
        Scene("place-asked", place_asked, SEMAPHORE),
        Scene("place-late", place_late, SEMAPHORE),
        Scene("tasks", tasks, RECEIPT + TASKS),
        Scene("taken-lapsing", taken_lapsing, (*RECEIPT, "take", "take-one", "purge"), late=SECOND),
        Scene("everything", everything, ALL),
    )
}
"""The scene of every pair of moves is `everything`, if no other is."""


ALIKE = {
    frozenset((*USERS, "schedule-twice", "schedule-other")): ("nothing", "new", "claimed", "finished", "cancelled"),
    frozenset((*USERS, *SHARD)): ("new", "free", "left"),
    frozenset((*USERS, *SHARD, *TIDY)): ("new", "claimed", "stale", "finished", "expired", "expired-lapsed"),
}
"""Moves among which it makes no difference what becomes of attempts: these scenes show all there is to see."""


def scenes_of(pair: Iterable[str]) -> list[Scene]:
    """Where all of these moves are worth playing; `everything` only where there is no better one."""
    names = set(pair)
    fitting = [scene for scene in SCENES.values() if names <= set(scene.moves)]
    alike = next((scenes for moves, scenes in ALIKE.items() if names <= moves), None)
    chosen = [scene for scene in fitting if scene.name != "everything" and (alike is None or scene.name in alike)]
    return chosen or fitting[-1:]
