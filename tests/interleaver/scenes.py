"""The scenes: small states of the tables, and which moves are worth playing in each.

All happens at one instant, by a clock that stands still. In a scene with a `late` time the clock goes on by so much
when the first of those begins who may have from then on what another one has until then.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta

from support.interleaving import LEASE

from interleaver import building
from interleaver import building_damage as damage
from interleaver import building_gates as gates
from interleaver.move import HOUR, SECOND
from interleaver.stage import Setting

USERS = (
    "schedule",
    "keep",
    "schedule-two",
    "replace",
    "cancel",
    "cancel-read",
    "reschedule",
    "run-now",
    "run-now-as-seen",
    "reschedule-named",
)
SHARD = ("acquire", "beat", "release", "close-fence")
WORK = ("move", "move-free", "claim", "run")
ATTEMPT = ("record", "record-retry", "extend", "give-back")
TIDY = ("sweep", "expire", "prune", "prune-requests", "call-off")
LIMITS = ("claim-gated", "set-limit", "slow-down", "remove-limit", "relist", "sweep", "cancel", "schedule", "claim")
QUOTA = ("claim-gated", "plan", "pause", "resume", "stop-campaign", "relist", "cancel", "schedule", "move", "expire")
SENT = ("plan", "claim-gated", "acquire", "release", *WORK, *ATTEMPT, "sweep", "schedule", "replace", "cancel")
SEMAPHORE = ("balance", "enqueue", "let-go", "let-all-go", "renew", "step-back", "step-back-late", "resize")
RECEIPT = ("done", "done-again", "retry", "extend-tasks", "set-aside")
TASKS = ("put", "take", "take-one", "done-late", "redrive", "purge", "purge-dead", "hasten", "pause-queue")

LATE = ("claim", "move", "move-free", "run", "sync", "sweep", "expire", "take", "take-one", "purge", "plan")
"""Who plays after the end of a lease, where the scene has one that ends."""

Builder = Callable[[Setting], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Scene:
    name: str
    build: Builder
    moves: tuple[str, ...]
    late: timedelta = timedelta(0)
    mend: str | None = None
    """What is wrong in it is mended by this move; without that it is not worth playing in."""


async def everything(setting: Setting) -> None:
    """Something of all at once, for moves that have little to do with each other: each finds something to do."""
    await building.finished(setting, id="old")
    await gates.templates(setting)
    await gates.one_slot(setting)
    await gates.before_gates(setting, gates.PROMO, (("p", "q"), ("r", "s")))
    await gates.before_gates(setting, gates.MX, (("m",), ("n",)))
    setting.later(LEASE + SECOND)  # who has shard 1 does not beat any more
    await gates.tasks(setting)
    await gates.place_held(setting)
    await building.run_it(setting)
    await building.write(setting, id="stale", at=setting.now + HOUR)
    await building.write(setting, id="waiting")
    await building.move_in(setting, claims=False)
    await building.write(setting, id="stale", at=setting.now + HOUR)
    setting.later(SECOND)


RUN = USERS + SHARD + WORK + ATTEMPT + ("sweep",)
ALL = tuple(dict.fromkeys((*USERS, *SHARD, *WORK, *ATTEMPT, *TIDY, *LIMITS, *QUOTA, *SEMAPHORE, *RECEIPT, *TASKS)))
FREE = (*USERS, *ATTEMPT, "acquire", "sweep", "sync", "move-free")
AT_WORK = ("schedule", "cancel", "reschedule", "run-now", "move", "claim", "sweep", "expire")
STRANDED = ("cancel", "reschedule", "run-now", "move", "claim", "sweep", "expire")
_NO_HOLDER = tuple(name for name in RUN if name not in ("beat", "release", "close-fence", *WORK, *ATTEMPT))

SCENES = {
    scene.name: scene
    for scene in (
        Scene("nothing", building.nothing, (*USERS, "call-off", "schedule-twice", "schedule-other", "move")),
        Scene("new", building.new, (*USERS, "call-off", "schedule-twice", "schedule-other", *SHARD, *WORK, "sweep")),
        Scene("free", building.free, (*_NO_HOLDER, "sync", "move-free")),
        Scene("free-lapsed", building.free_lapsed, FREE),
        Scene("free-replaced", building.free_replaced, FREE),
        Scene("free-blocked", building.free_blocked, FREE),
        Scene("left", building.left, (*USERS, *SHARD, *WORK, "sync")),
        Scene("waiting", building.waiting, (*USERS, *SHARD, *WORK, "sweep")),
        Scene("claimed", building.claimed, RUN),
        Scene("lapsed", building.lapsed, RUN),
        Scene("lapsing", building.lapsing, (*USERS, *WORK, *ATTEMPT, "sweep"), late=SECOND),
        Scene("lapsing-late", building.lapsing_late, (*USERS, *WORK, *ATTEMPT, "expire", "sweep"), late=SECOND),
        Scene(
            "replaced-lapsing", building.replaced_lapsing, (*WORK, *ATTEMPT, "sweep", "schedule", "cancel"), late=SECOND
        ),
        Scene(
            "blocked-lapsing", building.blocked_lapsing, (*WORK, *ATTEMPT, "sweep", "schedule", "cancel"), late=SECOND
        ),
        Scene("replaced", building.replaced, RUN),
        Scene("blocked", building.blocked, RUN),
        Scene("unblocked", building.unblocked, RUN),
        Scene("stale", building.stale, (*USERS, *WORK, "sweep", "release", "close-fence")),
        Scene("left-stale", building.left_stale, ("acquire", *WORK, "sweep", "schedule", "cancel")),
        Scene("cancelled", building.cancelled, RUN),
        Scene("finished", building.finished, (*USERS, *ATTEMPT, *TIDY, "move")),
        Scene("finished-dead", building.finished_dead, (*USERS, *WORK, *ATTEMPT, *TIDY)),
        Scene("cancelled-dead", building.cancelled_dead, (*USERS, *WORK, *ATTEMPT, *TIDY)),
        Scene("expired", building.expired, (*USERS, *WORK, *TIDY)),
        Scene("expired-lapsed", building.expired_lapsed, (*USERS, *WORK, *ATTEMPT, *TIDY)),
        Scene("one-token", gates.one_token, LIMITS),
        Scene("one-grant", gates.one_grant, QUOTA),
        Scene("unplanned", gates.unplanned, QUOTA),
        Scene("unsettled", gates.unsettled, QUOTA),
        Scene("sent", gates.sent, SENT),
        Scene("window-ending", gates.window_ending, QUOTA, late=SECOND),
        Scene("place-free", gates.place_free, SEMAPHORE),
        Scene("place-held", gates.place_held, SEMAPHORE),
        Scene("place-asked", gates.place_asked, SEMAPHORE),
        Scene("place-late", gates.place_late, SEMAPHORE),
        Scene("tasks", gates.tasks, RECEIPT + TASKS),
        Scene("taken-lapsing", gates.taken_lapsing, (*RECEIPT, "take", "take-one", "purge"), late=SECOND),
        Scene("lost", damage.lost, (*AT_WORK, "mend-lost"), mend="mend-lost"),
        Scene("twice", damage.twice, (*AT_WORK, "mend-twice"), mend="mend-twice"),
        Scene("twice-new", damage.twice_new, (*AT_WORK, "mend-twice"), mend="mend-twice"),
        Scene("early", damage.early, (*AT_WORK, "mend-time"), mend="mend-time"),
        Scene("early-new", damage.early_new, (*AT_WORK, "mend-time"), mend="mend-time"),
        Scene("astray", damage.astray, (*AT_WORK, "mend-lane"), mend="mend-lane"),
        Scene("stranded", damage.stranded, (*AT_WORK, *ATTEMPT, "mend-lease"), mend="mend-lease"),
        Scene("miscounted", damage.miscounted, (*AT_WORK, *ATTEMPT, "mend-counters"), mend="mend-counters"),
        Scene("litter-new", building.stale, (*AT_WORK, "mend-dead"), mend="mend-dead"),
        Scene("litter", building.finished_dead, (*AT_WORK, *ATTEMPT, "mend-dead"), mend="mend-dead"),
        Scene("litter-run", building.replaced, (*AT_WORK, *ATTEMPT, "mend-dead"), mend="mend-dead"),
        Scene("forgotten", damage.forgotten, ("schedule", "prune", "mend-forgotten"), mend="mend-forgotten"),
        Scene("misplaced", damage.misplaced, (*STRANDED, "mend-misplaced"), mend="mend-misplaced"),
        Scene("misplaced-new", damage.misplaced_new, (*STRANDED, "mend-misplaced"), mend="mend-misplaced"),
        Scene("misplaced-run", damage.misplaced_run, (*STRANDED, *ATTEMPT, "mend-misplaced"), mend="mend-misplaced"),
        Scene(
            "misplaced-lapsing",
            damage.misplaced_lapsing,
            ("move", "claim", *ATTEMPT, "mend-misplaced"),
            late=SECOND,
            mend="mend-misplaced",
        ),
        Scene(
            "misplaced-home",
            damage.misplaced_home,
            ("schedule", "keep", "cancel", "run-now", "move", "mend-misplaced-home"),
            mend="mend-misplaced-home",
        ),
        Scene("misplaced-twice", damage.misplaced_twice, (*STRANDED, "mend-misplaced"), mend="mend-misplaced"),
        Scene("no-lock", damage.no_lock, (*SHARD, "move", "move-free", "mend-no-lock"), mend="mend-no-lock"),
        Scene("extra-lock", damage.extra_lock, ("acquire", "sync", "mend-extra-lock"), mend="mend-extra-lock"),
        # Without `move-free`: it passes over a lock that is being mended, and takes the shard later under another guid.
        Scene("lock-time", damage.lock_time, ("acquire", "sync", "mend-lock-time"), mend="mend-lock-time"),
        Scene(
            "lock-time-held", damage.lock_time_held, (*SHARD, "move", "claim", "mend-lock-time"), mend="mend-lock-time"
        ),
        Scene("chores", damage.chores, ("plan", "relist", "claim-gated", "mend-chore"), mend="mend-chore"),
        Scene("no-quota", damage.no_quota, ("mend-quota",), mend="mend-quota"),
        Scene("unbalanced", damage.unbalanced, (*SEMAPHORE, "mend-unbalanced"), mend="mend-unbalanced"),
        Scene("task-lease", damage.task_lease, (*RECEIPT, "take", "purge", "mend-task-lease"), mend="mend-task-lease"),
        Scene(
            "task-twice",
            damage.task_twice,
            ("take", "purge", "redrive", "purge-dead", "mend-task-twice"),
            mend="mend-task-twice",
        ),
        Scene("everything", everything, ALL),
    )
}
"""The scene of every pair of moves is `everything`, if no other is."""


ALIKE = {
    frozenset((*USERS, "schedule-twice", "schedule-other")): ("nothing", "new", "claimed", "finished", "cancelled"),
    frozenset((*USERS, *SHARD)): ("new", "free", "left"),
    frozenset((*USERS, *SHARD, *TIDY)): (
        *(
            "new",
            "claimed",
            "stale",
            "left-stale",
            "finished",
            "finished-dead",
            "cancelled-dead",
            "expired",
            "expired-lapsed",
        ),
    ),
}
"""Moves among which it makes no difference what becomes of attempts: these scenes show all there is to see."""


def scenes_of(pair: Iterable[str]) -> list[Scene]:
    """Where all of these moves are worth playing; `everything` only where there is no better one."""
    names = set(pair)
    fitting = [
        scene for scene in SCENES.values() if names <= set(scene.moves) and (scene.mend is None or scene.mend in names)
    ]
    alike = next((scenes for moves, scenes in ALIKE.items() if names <= moves), None)
    chosen = [scene for scene in fitting if scene.name != "everything" and (alike is None or scene.name in alike)]
    return chosen or fitting[-1:]
