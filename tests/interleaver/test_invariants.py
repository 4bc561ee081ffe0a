"""Each invariant objects to what it is there for, and to nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from interleaver.acting import CALLED_OFF
from interleaver.facts import Facts
from interleaver.invariants import INVARIANTS, Play
from interleaver.stage import TABLES, Rows, Saved
from matrixsched.clock import ManualClock
from matrixsched.rules.action import Attempt, Claim, Terms
from matrixsched.rules.queues import Receipt, StoredTask
from matrixsched.store.values import Answer, Claimed, Extension, GatedClaim, Written, mark_of

NOW = ManualClock().now()
LATER = (NOW + timedelta(seconds=5)).isoformat()
GUID, OTHER, SYNC = UUID(int=1), UUID(int=2), UUID(int=3)
ATTEMPT = Attempt(
    claim=Claim(0, "a", GUID, 1, SYNC),
    claimed_at=NOW,
    due_at=NOW,
    handler="greet",
    payload=b"",
    terms=Terms(),
    version=1,
    priority=0,
    template="promo",
    zone=None,
    expires_at=None,
    tick=0,
    tick_at=NOW,
    tick_failures=0,
    interruptions=0,
)
TASK = StoredTask(
    id=1,
    queue=1,
    data=b"x",
    attempts=0,
    created_at=NOW,
    start_at=NOW,
    previous_start_at=None,
    receipt=Receipt(1, GUID),
)
ACTION = {"action_id": "a", "action_guid": str(GUID), "state": "live", "succeeded": 0, "failed": 0}
HELD = {
    "action_id": "a",
    "action_guid": str(GUID),
    "attempt": 1,
    "claimed_by": str(SYNC),
    "scheduled_at": LATER,
}
POOL = {"key": "pool", "active": 1}
GRANT = {"template": "promo", "priority": 0, "used": 1, "granted": 1}
QUEUED = {"data": "\\x78"}


def a_task(id: str, state: str, priority: float) -> dict[str, Any]:
    return {"semaphore": "pool", "task_id": id, "state": state, "priority": priority, "enqueued_at": LATER}


def a_play(moves: Sequence[str], answers: Sequence[Any], before: dict[str, Rows] | None = None, **after: Rows) -> Play:
    empty: dict[str, Rows] = {table: [] for table in TABLES}
    facts = Facts(version=GUID, attempt=ATTEMPT, tokens=1)
    scene = Saved(0, facts, NOW, {**empty, **(before or {})})
    given = {letter: [answer] for letter, answer in zip("AB", answers, strict=False)}
    return Play(scene, tuple(moves), "AB"[: len(moves)], given, {**empty, **after}, NOW)


PASSED = GatedClaim(attempts=[ATTEMPT])
RECORDED = {GUID: Answer.RECORDED}
WRONG = {
    "every live action has exactly one row": a_play([], [], scheduled_actions=[ACTION]),
    "what is run now as it was seen was not started since": a_play(
        ["run-now-as-seen", "claim"],
        [Written("a", OTHER, False, False), Claimed(1, [ATTEMPT._replace(claim=ATTEMPT.claim._replace(attempt=2))])],
        processing_queue=[{**HELD, "attempt": 2}],
    ),
    "a change that is called off is not written": a_play(
        ["reschedule-named", "call-off"],
        [Written("a", CALLED_OFF, created=False, running=False), None],
        requests=[{"request_guid": str(guid)} for guid in (CALLED_OFF, mark_of(CALLED_OFF))],
    ),
    "an action has one attempt at a time": a_play([], [], processing_queue=[HELD, {**HELD, "action_guid": "x"}]),
    "an attempt is handed out once": a_play(["claim", "claim"], [Claimed(1, [ATTEMPT])] * 2, processing_queue=[HELD]),
    "who was handed an attempt holds its row": a_play(["claim"], [Claimed(1, [ATTEMPT])]),
    "only the holder of a row writes about its attempt": a_play(
        ["extend"], [{GUID: Extension.EXTENDED}], processing_queue=[{**HELD, "attempt": 2}]
    ),
    "counters say what was answered": a_play(
        ["record"], [RECORDED], {"scheduled_actions": [ACTION]}, scheduled_actions=[{**ACTION, "state": "done"}]
    ),
    "no more pass a gate than it lets through": a_play(
        ["claim-gated"],
        [GatedClaim(attempts=[ATTEMPT, ATTEMPT._replace(claim=ATTEMPT.claim._replace(guid=OTHER))])],
        processing_queue=[HELD, {**HELD, "action_id": "b", "action_guid": str(OTHER)}],
    ),
    "no more hold places than there are": a_play(
        [], [], semaphores=[POOL], semaphore_tasks=[a_task("x", "acquired", 1), a_task("y", "acquired", 2)]
    ),
    "a semaphore at rest has the best in its places": a_play(
        [], [], semaphores=[POOL], semaphore_tasks=[a_task("x", "acquired", 1), a_task("y", "waiting", 2)]
    ),
    "no task is lost or doubled": a_play(["take"], [[]], {"queue_tasks": [QUEUED]}),
    "a task is in one hand": a_play(["take", "take"], [[TASK], [TASK]]),
    "a task is settled once, under a good receipt": a_play(["done", "retry"], [{1}, {1}], {"queue_tasks": [QUEUED]}),
}


@pytest.mark.parametrize("sentence", INVARIANTS)
def test_an_invariant_objects_to_what_it_is_there_for_and_the_others_do_not(sentence: str):
    play = WRONG[sentence]
    assert [name for name, check in INVARIANTS.items() if list(check(play))] == [sentence]


@pytest.mark.parametrize(
    ("play", "sentence"),
    [
        (
            a_play(["record", "give-back"], [RECORDED, 1]),
            "only the holder of a row writes about its attempt",
        ),
        (
            a_play(["record"], [RECORDED], processing_queue=[HELD]),
            "only the holder of a row writes about its attempt",
        ),
        (
            a_play(["claim-gated"], [PASSED], quota_grants=[{**GRANT, "used": 0}]),
            "no more pass a gate than it lets through",
        ),
        (
            a_play(["claim-gated"], [PASSED], quota_grants=[{**GRANT, "priority": 5}]),
            "no more pass a gate than it lets through",
        ),
        (
            a_play([], [], {"quota_grants": [GRANT]}, quota_grants=[{**GRANT, "granted": 0}]),
            "no more pass a gate than it lets through",
        ),
        (
            a_play([], [], semaphores=[{**POOL, "key": "first"}, POOL], semaphore_tasks=[a_task("x", "waiting", 1)]),
            "a semaphore at rest has the best in its places",
        ),
        (a_play([], [], queue_tasks=[QUEUED], queue_dead_letters=[QUEUED]), "no task is lost or doubled"),
        (a_play(["done-late"], [{1}]), "a task is settled once, under a good receipt"),
    ],
)
def test_an_invariant_objects_to_its_other_cases(play: Play, sentence: str):
    assert list(INVARIANTS[sentence](play))
