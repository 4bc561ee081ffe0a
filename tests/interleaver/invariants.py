"""What must be true after every schedule: a sentence and a function each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from interleaver.acting import CALLED_OFF, attempts_in
from interleaver.stage import Saved, Tables
from matrixsched.rules.queues import StoredTask
from matrixsched.store.values import Answer, Extension, GatedClaim, Written, took_effect


@dataclass(frozen=True, slots=True)
class Play:
    """A schedule that came to its end."""

    scene: Saved
    moves: tuple[str, ...]
    senders: Sequence[str]
    """Twins have the same one."""
    answers: Mapping[str, Sequence[Any]]
    """By player, all that were given."""
    tables: Tables
    now: datetime

    def answers_to(self, *names: str) -> list[Any]:
        found = zip(self.moves, self.answers.values(), strict=True)
        return [answer for name, answers in found if name in names for answer in answers]

    @property
    def has_twins(self) -> bool:
        return len(set(self.senders)) < len(self.moves)

    @property
    def actions(self) -> dict[str, Mapping[str, Any]]:
        return {row["action_id"]: row for row in self.tables["scheduled_actions"]}

    @property
    def running(self) -> list[Mapping[str, Any]]:
        """Rows that are claimed, and whose lease goes on."""
        rows = self.tables["processing_queue"]
        return [row for row in rows if row["claimed_by"] and instant(row["scheduled_at"]) > self.now]


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text)


Wrong = Iterator[str]


def one_live_row(play: Play) -> Wrong:
    queued, before = _rows_by_version(play.tables), _rows_by_version(play.scene.tables)
    damaged = {
        (row["action_id"], row["action_guid"])
        for row in play.scene.tables["scheduled_actions"]
        if row["state"] == "live" and before[row["action_id"], row["action_guid"]] != 1
    }
    for id, action in play.actions.items():
        version = (id, action["action_guid"])
        as_before = version in damaged and queued[version] == before[version]
        if action["state"] == "live" and queued[version] != 1 and not as_before:
            yield f"{id} has {queued[version]}"


def _rows_by_version(tables: Tables) -> Counter[tuple[str, str]]:
    return Counter(
        (row["action_id"], row["action_guid"])
        for table in ("incoming_queue", "processing_queue")
        for row in tables[table]
    )


def called_off_or_written(play: Play) -> Wrong:
    kept = {UUID(row["request_guid"]) for row in play.tables["requests"]}
    is_written = any(isinstance(answer, Written) for answer in play.answers_to("reschedule-named"))
    if "prune-requests" not in play.moves and is_written != bool(took_effect([CALLED_OFF], kept)):
        yield f"the change was {'' if is_written else 'not '}written, and is kept otherwise"


def run_as_seen(play: Play) -> Wrong:
    version = play.scene.facts.version
    before = play.scene.facts.attempt
    started = [
        one.claim.attempt
        for answers in play.answers.values()
        for one in attempts_in(answers)
        if one.claim.guid == version and (before is None or one.claim != before.claim)
    ]
    if started and any(isinstance(answer, Written) for answer in play.answers_to("run-now-as-seen")):
        yield f"attempt {started} was started, and it was run once more"


def one_attempt(play: Play) -> Wrong:
    for id, rows in Counter(row["action_id"] for row in play.running).items():
        if rows > 1:
            yield f"{id} is run {rows} times at once"


def handed_out_once(play: Play) -> Wrong:
    handed = Counter(
        (str(one.claim.action_id), str(one.claim.guid), one.claim.attempt)
        for answers in play.answers.values()
        for one in attempts_in(answers)
    )
    for (id, _, attempt), times in handed.items():
        if times > 1:
            yield f"attempt {attempt} of {id} was handed out {times} times"


def handed_out_is_held(play: Play) -> Wrong:
    held = {(row["action_guid"], row["attempt"], row["claimed_by"]) for row in play.running}
    for answers in play.answers.values():
        for one in attempts_in(answers):
            if (str(one.claim.guid), one.claim.attempt, str(one.claim.claimed_by)) not in held:
                yield f"{one.claim.action_id} was handed out, and its row is not held"


def recorded_by_holder(play: Play) -> Wrong:
    attempt = play.scene.facts.attempt
    if attempt is None:
        return
    held = [row for row in play.running if row["action_guid"] == str(attempt.claim.guid)]
    recorded = [one for one in _answers_of_attempt(play, "record", "record-retry") if one is Answer.RECORDED]
    given = sum(given for given in play.answers_to("give-back") if isinstance(given, int))
    if len(recorded) + given > 1:
        yield f"the attempt has ended {len(recorded)} times, and was given back {given} times"
    if recorded and any(row["attempt"] == attempt.claim.attempt for row in held):
        yield "the attempt is recorded, and its row is held all the same"
    extended = [one for one in _answers_of_attempt(play, "extend") if one is Extension.EXTENDED]
    if extended and any(row["attempt"] > attempt.claim.attempt for row in held) and not (recorded or given):
        yield "the lease was extended, and somebody else has the row"


def counted(play: Play) -> Wrong:
    attempt = play.scene.facts.attempt
    if attempt is None:
        return
    before = {row["action_id"]: row for row in play.scene.tables["scheduled_actions"]}
    action, old = play.actions.get(attempt.claim.action_id), before.get(attempt.claim.action_id)
    if (
        action is None
        or old is None
        or {"schedule", "schedule-two", "schedule-twice", "replace", "keep", "mend-counters"} & set(play.moves)
    ):
        return
    recorded = [one for one in _answers_of_attempt(play, "record", "record-retry") if one is Answer.RECORDED]
    more = sum(action[column] - old[column] for column in ("succeeded", "failed"))
    told = len(recorded) + sum(ran for ran in play.answers_to("run") if isinstance(ran, int))
    if more != told:
        yield f"{told} outcomes were recorded, and {more} counted"


def _answers_of_attempt(play: Play, *names: str) -> list[Any]:
    return [one for answer in play.answers_to(*names) if isinstance(answer, dict) for one in answer.values()]


def gates_hold(play: Play) -> Wrong:
    changed = {"set-limit", "remove-limit", "plan"} & set(play.moves)
    passed = [
        one for answer in play.answers_to("claim-gated") if isinstance(answer, GatedClaim) for one in answer.attempts
    ]
    tokens = play.scene.facts.tokens
    if tokens and not changed and len(passed) > tokens:
        yield f"{len(passed)} passed, and there was room for {tokens}"
    sent = Counter((one.template, one.priority) for one in passed)
    counted = _used(play.tables)
    counted.subtract(_used(play.scene.tables))
    for kind in {*sent, *counted}:
        if kind[0] is not None and sent[kind] != counted[kind]:
            yield f"{sent[kind]} of {kind} were sent, {counted[kind]} counted"
    for grant in play.tables["quota_grants"]:
        if grant["used"] > grant["granted"]:
            yield f"{grant['used']} were counted, {grant['granted']} granted"


def _used(tables: Tables) -> Counter[tuple[str | None, int]]:
    """Of all grants in all windows, by template and priority."""
    used: Counter[tuple[str | None, int]] = Counter()
    for grant in tables["quota_grants"]:
        used[(grant["template"], grant["priority"])] += grant["used"]
    return used


def places_hold(play: Play) -> Wrong:
    held = Counter(row["semaphore"] for row in play.tables["semaphore_tasks"] if row["state"] != "waiting")
    for pool in play.tables["semaphores"]:
        if held[pool["key"]] > pool["active"] and "resize" not in play.moves:
            yield f"{held[pool['key']]} hold places, of which there are {pool['active']}"


def best_hold(play: Play) -> Wrong:
    """With nothing left to do, and nobody who could have been asked and was not."""
    if "resize" in play.moves:
        return
    at_work = {row["semaphore"] for row in play.tables["semaphore_changes"]}
    for pool in play.tables["semaphores"]:
        tasks = [row for row in play.tables["semaphore_tasks"] if row["semaphore"] == pool["key"]]
        best = sorted(tasks, key=lambda row: (-row["priority"], row["enqueued_at"], row["task_id"]))[: pool["active"]]
        makes_room = any(row["state"] == "asked" for row in tasks)
        for task in best if pool["key"] not in at_work and not makes_room else ():
            if task["state"] == "waiting":
                yield f"{task['task_id']} waits for a place that is free, or held by less important ones unasked"


def tasks_kept(play: Play) -> Wrong:
    places = ("queue_tasks", "queue_dead_letters")
    before = Counter(row["data"] for table in places for row in play.scene.tables[table])
    after = Counter(row["data"] for table in places for row in play.tables[table])
    put = Counter("\\x" + f"of {player}".encode().hex() for player in _who(play, "put"))
    ended = sum(len(answer) for answer in play.answers_to("done") if isinstance(answer, set))
    ended += sum(answer for answer in play.answers_to("purge", "purge-dead") if isinstance(answer, int))
    ended += sum(len(answer) for answer in play.answers_to("mend-task-twice") if isinstance(answer, list))
    gone = sum((before + put - after).values())
    if "done-again" not in play.moves and gone != ended:
        yield f"{gone} are gone, and {ended} were ended"
    if twice := [data for data, times in after.items() if times > 1 >= before[data]]:
        yield f"{twice} are there twice"


def _who(play: Play, name: str) -> set[str]:
    return {sender for sender, move in zip(play.senders, play.moves, strict=True) if move == name}


def one_receipt(play: Play) -> Wrong:
    taken = Counter(
        task.id
        for answers in play.answers.values()
        for answer in answers
        if isinstance(answer, list)
        for task in answer
        if isinstance(task, StoredTask)
    )
    for task, times in taken.items():
        if times > 1:
            yield f"task {task} was handed out {times} times"


def receipts_end_once(play: Play) -> Wrong:
    ended = Counter(
        id for answer in play.answers_to("done", "retry", "set-aside") if isinstance(answer, set) for id in answer
    )
    for task, times in ended.items():
        if times > 1 and not play.has_twins:  # who are told the same
            yield f"task {task} was settled {times} times under one receipt"
    if any(play.answers_to("done-late")):
        yield "a void receipt was good"


INVARIANTS: Mapping[str, Callable[[Play], Wrong]] = {
    "every live action has exactly one row": one_live_row,
    "a change that is called off is not written": called_off_or_written,
    "what is run now as it was seen was not started since": run_as_seen,
    "an action has one attempt at a time": one_attempt,
    "an attempt is handed out once": handed_out_once,
    "who was handed an attempt holds its row": handed_out_is_held,
    "only the holder of a row writes about its attempt": recorded_by_holder,
    "counters say what was answered": counted,
    "no more pass a gate than it lets through": gates_hold,
    "no more hold places than there are": places_hold,
    "a semaphore at rest has the best in its places": best_hold,
    "no task is lost or doubled": tasks_kept,
    "a task is in one hand": one_receipt,
    "a task is settled once, under a good receipt": receipts_end_once,
}
