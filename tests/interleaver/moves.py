"""The moves: transitions as they are sent in a scene, by name."""

from __future__ import annotations

from interleaver import acting, gating, queueing
from interleaver.mending import MENDS
from interleaver.move import ALWAYS, Move, Waits, total
from matrixsched.store.values import Planned

_NOBODY = Waits.FOR_NOBODY
# To drop a dead row is no move of its own: `move`, `claim` and `sweep` do it wherever they meet one, in the scenes
# `stale`, `left-stale`, `finished-dead` and `cancelled-dead`.
MOVES = {
    made.name: made
    for made in (
        Move("schedule", acting.schedule, acting.written),
        Move("schedule-twice", acting.schedule_twice, acting.written, twin=False),
        Move("keep", acting.keep, acting.written),
        Move("schedule-two", acting.schedule_two, acting.written),
        Move("schedule-other", acting.schedule_other, acting.written),
        Move("replace", acting.replace_read, acting.written),
        Move("cancel", acting.cancel, acting.written),
        Move("cancel-read", acting.cancel_read, acting.written),
        Move("reschedule", acting.reschedule, acting.written),
        Move("run-now", acting.run_now, acting.written),
        Move("run-now-as-seen", acting.run_now_as_seen, acting.written, acting.is_none),
        Move("reschedule-named", acting.reschedule_named, acting.written_unless_called_off),
        Move("call-off", acting.call_off),
        Move("acquire", acting.acquire, acting.shard_taken, acting.has_no_shard, waits=_NOBODY),
        Move("beat", acting.beat),
        Move("release", acting.release),
        Move("close-fence", acting.close_fence),
        Move("move", acting.move, acting.attempts_handed, ALWAYS, acting.next_round, waits=_NOBODY),
        Move("move-free", acting.move_free, acting.attempts_handed, ALWAYS, acting.next_round_of_taker, waits=_NOBODY),
        Move("claim", acting.claim, acting.attempts_handed, ALWAYS, acting.next_round, waits=_NOBODY),
        Move("sync", acting.sync, acting.attempts_handed, ALWAYS, twin=False, whole=False, waits=Waits.FOR_WORKERS),
        Move("run", acting.run, total, ALWAYS, twin=False, whole=False, waits=Waits.FOR_WORKERS),
        Move("record", acting.record, again=acting.is_busy, waits=Waits.FOR_WORKERS),
        Move("record-retry", acting.record_retry, again=acting.is_busy, waits=Waits.FOR_WORKERS),
        Move("extend", acting.extend, again=acting.is_busy, waits=_NOBODY),
        Move("give-back", acting.give_back, total, lambda given: given == 0, waits=_NOBODY),
        Move("sweep", acting.sweep, acting.rows_gone, ALWAYS, waits=_NOBODY),
        Move("expire", acting.expire, acting.rows_gone, ALWAYS, waits=_NOBODY),
        Move("prune", acting.prune, total, ALWAYS, waits=_NOBODY),
        Move("prune-requests", acting.prune_requests, total, ALWAYS, waits=_NOBODY),
        Move("claim-gated", gating.claim_gated, gating.who_passed, ALWAYS, timed=True, waits=_NOBODY),
        Move("plan", gating.plan, again=lambda planned: planned is Planned.BUSY, timed=True, waits=_NOBODY),
        Move("pause", gating.pause),
        Move("resume", gating.resume),
        Move("stop-campaign", gating.stop_campaign, gating.how_many_cancelled, ALWAYS, twin=False, waits=_NOBODY),
        Move("set-limit", gating.set_limit),
        Move("slow-down", gating.slow_down),
        Move("remove-limit", gating.remove_limit),
        Move("relist", gating.relist, lambda answers: None, waits=_NOBODY),
        Move("enqueue", gating.enqueue),
        Move("let-go", gating.let_go),
        Move("let-all-go", gating.let_all_go),
        Move("renew", gating.renew),
        Move("step-back", gating.step_back),
        Move("step-back-late", gating.step_back_late),
        Move("resize", gating.resize, twin=False),
        Move(
            "balance", gating.balance, gating.what_changed, ALWAYS, gating.balance_if_marked, twin=False, waits=_NOBODY
        ),
        Move("put", queueing.put, queueing.how_many),
        Move("take", queueing.take, queueing.tasks_handed, ALWAYS, twin=False, waits=_NOBODY),
        Move("take-one", queueing.take_one, queueing.tasks_handed, lambda tasks: not tasks, twin=False, waits=_NOBODY),
        Move("done", queueing.done),
        Move("done-again", queueing.done_again),
        Move("done-late", queueing.done_late),
        Move("retry", queueing.retry),
        Move("extend-tasks", queueing.extend_tasks, again=ALWAYS, waits=_NOBODY),
        Move("set-aside", queueing.set_aside),
        Move("redrive", queueing.redrive, total, ALWAYS, waits=_NOBODY),
        Move("purge", queueing.purge, total, ALWAYS, waits=_NOBODY),
        Move("purge-dead", queueing.purge_dead, total, ALWAYS, waits=_NOBODY),
        Move("hasten", queueing.hasten, total, ALWAYS, waits=_NOBODY),
        Move("pause-queue", queueing.pause_queue),
        *MENDS,
    )
}
USERS = frozenset(
    (
        "schedule",
        "schedule-twice",
        "keep",
        "schedule-two",
        "schedule-other",
        "replace",
        "cancel",
        "cancel-read",
        "reschedule",
        "run-now",
        "run-now-as-seen",
        "reschedule-named",
    )
)
"""Whose transactions may stay open for long: they are the callers'."""
