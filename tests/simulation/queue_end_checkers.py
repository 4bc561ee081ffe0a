"""What must be true of the queues of a whole run; a function each, which yields its objections."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

from matrixsched.store.values import Answer
from matrixsched.worker.managing import FRESH
from simulation.commit_checkers import Objections
from simulation.database import moment
from simulation.history import Operation, RecordNote, Reply
from simulation.queue_notes import Planned, QueueNotes, SettingsRow, Taking, notes_of

if TYPE_CHECKING:
    from simulation.world import World

JUNK = b"\xc1junk "
"""What begins so cannot be read."""


def tasks_lost(world: World) -> Objections:
    """Whatever was acknowledged is in its queue, or was done, set aside or purged."""
    notes = notes_of(world)
    there = notes.after.tasks.keys() | notes.after.dead.keys() | notes.ended.keys()
    for put in notes.puts:
        if put.reply is not Reply.OK:
            continue
        for data, id in zip(put.items, put.ids, strict=True):
            if notes.ids_of[data] != {id}:
                yield f"{data!r} was acknowledged as task {id}, but was {sorted(notes.ids_of[data])}"
            elif id not in there:
                yield f"task {id} was acknowledged and is nowhere"


def tasks_unexpected(world: World) -> Objections:
    """No task is there that nobody asked for, nor one whose caller was told that nothing was done."""
    notes = notes_of(world)
    delivered = set(notes.delivery_of.values())
    for data in notes.created:
        put = notes.put_of.get(data)
        if put is None and data not in delivered:
            yield f"{data!r} was never put"
        elif put is not None and put.reply is Reply.FAILED:
            yield f"{data!r} is there although {put.by} was told that nothing was done"


def handled_once(world: World) -> Objections:
    """A receipt is handed to one call of a handler, on the worker that took the task."""
    notes = notes_of(world)
    yield from (f"{handling.host} handles task {handling.task.id} that it never took" for handling in notes.strange)
    for taking in notes.takings.values():
        if len(taking.handlings) > 1 or any(handling.host != taking.host for handling in taking.handlings):
            hosts = [handling.host for handling in taking.handlings]
            yield f"{_name(taking)} was handled by {hosts}"


def handled_early(world: World) -> Objections:
    """No handler gets a task before the time its caller named, unless somebody hastened it."""
    notes = notes_of(world)
    for taking in notes.takings.values():
        put = notes.put_of.get(taking.task.data)
        for handling in taking.handlings:
            if put is not None and handling.at < min(put.not_before, notes.first_at.get(taking.task.data, _NEVER)):
                yield f"{_name(taking)} was handled at {handling.at}, to start at {put.not_before}"


_NEVER = datetime.max.replace(tzinfo=moment(0).tzinfo)


def unsettled_by_a_fault(world: World) -> Objections:
    """What is taken is settled under that receipt, unless its worker was hit by a fault, or its handler left it."""
    notes = notes_of(world)
    for taking in notes.takings.values():
        if taking.settled_as is not None or any(handling.is_left for handling in taking.handlings):
            continue
        until = taking.next_at or moment(taking.valid_until)
        if not world.history.is_explained(taking.host, taking.asked_at, until):
            yield f"{_name(taking)} came back without a fault"


def settled_as_said(world: World) -> Objections:
    """What becomes of a task is what its handler said; what was not shown to one, or cancelled, comes back at once."""
    for taking in notes_of(world).takings.values():
        if taking.settled_as is not None and taking.settled_as not in _allowed(taking):
            yield f"{_name(taking)} is {taking.settled_as}, its handler said {_allowed(taking)}"


def _allowed(taking: Taking) -> set[str]:
    said = {one for handling in taking.handlings for one in handling.said}
    if not taking.handlings and taking.task.data.startswith(JUNK):
        return {"set aside"}
    is_given_back = all(handling.is_cancelled for handling in taking.handlings) and taking.retried_for == timedelta(0)
    return said | ({"retry"} if is_given_back else set())


def delivered_once(world: World) -> Objections:
    """An action that becomes a task does so once, or once for each tick and each time that it is run again by hand."""
    notes, delivered, succeeded = notes_of(world), _delivered_by(world), Counter[bytes]()
    for data in {
        (record.claim.guid, tick): delivered[record.claim.guid] for record, tick in _successes(world)
    }.values():
        succeeded[data] += 1
    for data in notes.delivery_of.values():
        if notes.created[data] != succeeded[data]:
            yield f"{data!r} was delivered {notes.created[data]} times, to be so were {succeeded[data]}"
    for action in world.last_seen.values():
        last = delivered.get(UUID(action.guid))
        if last is not None and notes.created[last] != action.succeeded:
            yield f"{action.id} is {action.state}, succeeded {action.succeeded} times, delivered {notes.created[last]}"


def _delivered_by(world: World) -> dict[UUID, bytes]:
    """What the versions of actions are to put; not of those of another kind."""
    notes, found = notes_of(world), {}
    for guids in world.versions.values():
        data: bytes | None = None
        for guid in map(UUID, guids):
            operation: Operation | None = world.history.operation_of.get(guid)
            if operation is None or not operation.keeps_counters:
                data = None if operation is None else notes.delivery_of.get(operation)
            if data is not None:
                found[guid] = data
    return found


def _successes(world: World) -> Iterator[tuple[RecordNote, int]]:
    """Recorded successes of such actions, with their ticks."""
    delivering = _delivered_by(world)
    for record in world.history.records:
        claim = record.claim
        if record.answer is Answer.RECORDED and record.verdict.outcome == "succeeded" and claim.guid in delivering:
            yield record, world.history.claims[claim.guid, claim.attempt, claim.claimed_by].attempt.tick


def planned_within_the_most(world: World) -> Objections:
    """No plan gives a queue more processors than it may have, by its settings while the plan was made."""
    notes = notes_of(world)
    for planned in notes.plans:
        for queue, count in planned.plan.processors.items():
            most = [_most(rows.get(queue)) for rows in _settings_meanwhile(notes, planned)]
            if count > max(most):
                yield f"{planned.host} gives {count} to queue {queue} at {planned.at}, which may have {max(most):g}"


def _settings_meanwhile(notes: QueueNotes, planned: Planned) -> Iterator[dict[int, SettingsRow]]:
    """Those that were in force at some time of planning."""
    began = planned.at - timedelta(seconds=planned.plan.took_s)
    for place, (since, rows) in enumerate(notes.settings_since):
        is_over = place + 1 < len(notes.settings_since) and notes.settings_since[place + 1][0] < began
        if since <= planned.at and not is_over:
            yield rows
    if not notes.settings_since or began <= notes.settings_since[0][0]:
        yield {}


def _most(settings: SettingsRow | None) -> float:
    if settings is None:
        return float("inf")
    return 0 if settings.paused else float("inf") if settings.processors_max is None else settings.processors_max


# At rest.


def unrest(world: World) -> Objections:
    """What is not at rest: tasks that could be taken, or are held; processors at work; too many of them."""
    notes, now = notes_of(world), world.database.now()
    state = notes.read()
    for row in state.tasks.values():
        if row.receipt is not None and row.due_at > now:
            yield f"task {row.id} is held until {moment(row.due_at)}"
        elif row.due_at <= now and state.is_served(row.queue):
            yield f"task {row.id} of queue {row.queue} is ready since {moment(row.due_at)}"
    for process in world.processes.values():
        processors = process.worker.processors
        if processors.running or len(processors.batches):
            yield f"{process.host} still holds {len(processors.batches)} batches"
    fresh = now - FRESH // timedelta(microseconds=1)
    assigned = sum((Counter(_told(one.assignment)) for one in notes.workers() if one.seen_at >= fresh), Counter[int]())
    for queue, count in assigned.items():
        if count > (most := _most(state.settings.get(queue))):
            yield f"queue {queue} has {count} processors, and may have {most:g}"


def _told(assignment: str | None) -> dict[int, int]:
    return {int(queue): count for queue, count in json.loads(assignment or "{}").items()}


def _name(taking: Taking) -> str:
    return f"task {taking.task.id}, attempt {taking.task.attempts}, taken by {taking.host} at {taking.at:%M:%S.%f}"


AT_THE_END: tuple[Callable[[World], Objections], ...] = (
    tasks_lost,
    tasks_unexpected,
    handled_once,
    handled_early,
    unsettled_by_a_fault,
    settled_as_said,
    delivered_once,
    planned_within_the_most,
)
