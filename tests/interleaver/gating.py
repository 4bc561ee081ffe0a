"""Moves about gates and semaphores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from support.interleaving import LEASE

from interleaver.acting import attempts_in
from interleaver.move import HOUR, POOL, errors_in, total
from interleaver.stage import Side
from matrixsched.rules.rates import parse_rate
from matrixsched.store.semaphores import Balanced, NewTask, TaskName
from matrixsched.store.transition import Conversation, Transition

# Gates.


def claim_gated(side: Side) -> Transition[Any]:
    """Each in a shard of its own."""
    shard = side.index % len(side.facts.holders)
    return side.do.claim_gated(
        shard,
        side.facts.holders[shard],
        listed=side.facts.lanes,
        filled=(),
        room=9,
        suspect_room=1,
        attempt_lease=LEASE,
        ahead=timedelta(0),
    )


def plan(side: Side) -> Transition[Any]:
    return side.do.plan_window(side.name)


def pause(side: Side) -> Transition[Any]:
    return side.do.pause_template("promo", None)


def resume(side: Side) -> Transition[Any]:
    return side.do.resume_template("promo")


def stop_campaign(side: Side) -> Transition[Any]:
    return side.do.cancel_template_batch("promo", guids=[side.guid() for _ in range(9)], after=(-1, ""))


def set_limit(side: Side) -> Transition[Any]:
    return side.do.set_limit("key:mx", parse_rate("2/s"), pool=0)


def slow_down(side: Side) -> Transition[Any]:
    return side.do.slow_down("key:mx", HOUR, rate=None, reason="429")


def remove_limit(side: Side) -> Transition[Any]:
    return side.do.remove_limit("key:mx")


def relist(side: Side) -> Transition[Any]:
    return side.do.relist_lanes(every=timedelta(0))


def who_passed(answers: Sequence[Any]) -> Any:
    """Who may start, and when."""
    return errors_in(answers) + sorted(
        f"{one.claim.action_id} {one.claim.attempt} {one.slot.starts_at if one.slot else ''}"
        for one in attempts_in(answers)
    )


def how_many_cancelled(answers: Sequence[Any]) -> Any:
    return total([getattr(answer, "cancelled", answer) for answer in answers])


# The semaphore.


def enqueue(side: Side) -> Transition[Any]:
    tasks = [NewTask("w", 3.0 + side.index, side.guid())]
    return side.do.enqueue_tasks(POOL, tasks, side.guid(), change_guid=side.guid(), tell=True)


def let_go(side: Side) -> Transition[Any]:
    return side.do.release_tasks(POOL, [TaskName("x")], side.guid(), change_guid=side.guid(), tell=True)


def let_all_go(side: Side) -> Transition[Any]:
    names = [TaskName("x"), TaskName("y")]
    return side.do.release_tasks(POOL, names, side.guid(), change_guid=side.guid(), missing_ok=True, tell=False)


def renew(side: Side) -> Transition[Any]:
    return side.do.renew_tasks(POOL, [TaskName("x")])


def step_back(side: Side) -> Transition[Any]:
    return side.do.step_back(
        POOL, TaskName("x"), side.guid(), priority=0.5, guid=side.guid(), change_guid=side.guid(), tell=False
    )


def step_back_late(side: Side) -> Transition[Any]:
    """Of a place that it has given up, and holds again or not."""
    return side.do.step_back(
        POOL,
        TaskName("x", side.guid()),
        side.guid(),
        priority=0.5,
        guid=side.guid(),
        change_guid=side.guid(),
        tell=False,
    )


def resize(side: Side) -> Transition[Any]:
    return side.do.update_semaphore(POOL, lambda one: replace(one, active=2 - one.active, try_release=0), side.guid())


def balance(side: Side) -> Transition[Any]:
    return side.do.balance(POOL, side.passing_guid, shards=1)


def balance_if_marked(side: Side) -> Transition[Any]:
    """What workers do: they look whether anything changed."""

    def begin() -> Conversation[Balanced | None]:
        found = yield from side.do.changed_semaphores(told_of=[POOL]).begin()
        return (yield from balance(side).begin()) if POOL in (*found.changed, *found.late) else None

    return Transition("balance_if_marked", begin)


def what_changed(answers: Sequence[Any]) -> Any:
    """What all rounds changed."""
    done = [answer for answer in answers if isinstance(answer, Balanced)]
    return errors_in(answers) + [
        sorted(id for one in done for id in getattr(one, what)) for what in ("acquired", "asked", "kept", "lapsed")
    ]
