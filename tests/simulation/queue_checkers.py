"""What must be true of the queues after every commit of a run; a function each, which yields its objections."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

from matrixsched.rules.queues import NewItem, QueueSettings, StoredTask
from simulation.commit_checkers import Commit, Objections
from simulation.database import microseconds, moment
from simulation.faults import Noted
from simulation.queue_notes import SETTLED_AS, QueueNotes, TaskRow, deliveries_of, notes_of, receipts_of, starts_at

_SETTLES = tuple(SETTLED_AS)


def put_whole(commit: Commit) -> Objections:
    """A put adds all of its tasks as they were asked for, or none."""
    if asked := _asked(commit, "put_tasks"):
        wanted = [_new_row(item, commit.now) for item in asked.arguments[0]]
        yield from _compared(wanted, [_facts(row) for row in _appeared(notes_of(commit.world))])


def delivered_with_its_record(commit: Commit) -> Objections:
    """The commit that records attempts puts what these deliver, and nothing else."""
    if _asked(commit, "record_deliveries"):
        wanted = [_new_row(item, commit.now) for item in deliveries_of(commit)]
        yield from _compared(wanted, [_facts(row) for row in _appeared(notes_of(commit.world))])


def _new_row(item: NewItem, now: int) -> tuple[Any, ...]:
    start_at = starts_at(item.delay if item.at is None else item.at, now)
    return (item.queue, item.data, 0, None, now, start_at, start_at, None)


def _facts(row: TaskRow) -> tuple[Any, ...]:
    return (
        row.queue,
        row.data,
        row.attempts,
        row.previous_start_at,
        row.created_at,
        row.start_at,
        row.due_at,
        row.receipt,
    )


def _compared(wanted: list[tuple[Any, ...]], found: list[tuple[Any, ...]]) -> Objections:
    if wanted != found:
        missing, surplus = Counter(wanted) - Counter(found), Counter(found) - Counter(wanted)
        yield f"missing {[*missing.elements()]}, surplus {[*surplus.elements()]}, asked for were {len(wanted)}"


def put_once(commit: Commit) -> Objections:
    """What is put once becomes one task, however often the request is sent."""
    notes = notes_of(commit.world)
    for row in _appeared(notes):
        if row.id not in notes.before.dead and notes.created[row.data] > 1 and row.data in notes.put_of:
            yield f"{_name(row)} was there before as one of {sorted(notes.ids_of[row.data])}"


def redriven_as_new(commit: Commit) -> Objections:
    """A dead letter that comes back is as new: the same task without attempts, ready now, and no dead letter."""
    notes = notes_of(commit.world)
    for row in _appeared(notes):
        was = notes.before.dead.get(row.id)
        if was is None:
            continue
        expected = (was.queue, was.data, 0, None, was.created_at, commit.now, commit.now, None)
        if _facts(row) != expected or row.id in notes.after.dead:
            yield f"{_name(row)} came back as {_facts(row)}, not as {expected}"


def nothing_appears_or_goes(commit: Commit) -> Objections:
    """Tasks appear by a put, a delivery or a redrive, and go by being done, set aside or purged; none elsewhere."""
    notes, name = notes_of(commit.world), commit.transition.name
    appeared, gone = list(_appeared(notes)), list(_gone(notes))
    if name not in ("put_tasks", "record_deliveries", "redrive"):
        yield from (f"{_name(row)} appears" for row in appeared)
    if name == "redrive":
        yield from (f"{_name(row)} was no dead letter" for row in appeared if row.id not in notes.before.dead)
    if name not in ("done_tasks", "set_aside_tasks", "purge_tasks"):
        yield from (f"{_name(row)} is gone" for row in gone)
    if name == "purge_tasks":
        yield from (f"{_name(row)} was taken" for row in gone if row.receipt is not None and row.due_at > commit.now)


def dead_letters_are_kept(commit: Commit) -> Objections:
    """Dead letters are what was set aside, with all its bytes, until somebody redrives or purges them."""
    notes, name = notes_of(commit.world), commit.transition.name
    for id in sorted(notes.after.dead.keys() ^ notes.before.dead.keys()):
        if id in notes.after.dead:
            was = notes.before.tasks.get(id)
            if name != "set_aside_tasks" or was is None or was.data != notes.after.dead[id].data:
                yield f"the dead letter {id} is no task that was set aside"
        elif name not in ("redrive", "purge_dead"):
            yield f"the dead letter {id} is gone"
        elif name == "redrive" and id not in notes.after.tasks:
            yield f"the dead letter {id} was redriven, but is in no queue"
    if name == "set_aside_tasks":
        yield from (f"{_name(row)} is no dead letter" for row in _gone(notes) if row.id not in notes.after.dead)


# Taking.


def taken_when_due(commit: Commit) -> Objections:
    """A task is not taken before its start by the database's clock."""
    for task, was in _taken(commit):
        if was.receipt is None and was.due_at > commit.now:
            yield f"{_name(was)} starts only at {moment(was.due_at)}"
        if task.start_at > commit.world.clock.now():
            yield f"{_name(was)} is said to start only at {task.start_at}"


def taken_alone(commit: Commit) -> Objections:
    """A task is not taken while another receipt of it is good, by what was promised to whoever has that."""
    notes = notes_of(commit.world)
    for task, was in _taken(commit):
        for other in notes.takings_of[task.id][:-1]:
            if other.is_valid(commit.now):
                yield f"{_name(was)} is held by {other.host} until {moment(other.valid_until)}"


def taken_unless_paused(commit: Commit) -> Objections:
    """Nothing of a paused queue is taken."""
    notes = notes_of(commit.world)
    yield from (f"{_name(was)} is paused" for _, was in _taken(commit) if notes.before.is_paused(was.queue))


def taken_longest_ready_first(commit: Commit) -> Objections:
    """As many as were asked for are taken of a queue, and none stays that was ready before one of them."""
    asked = _asked(commit, "take_tasks")
    if not asked:
        return
    queue, count = asked.arguments[:2]
    ready = sorted(
        (row.due_at, row.id)
        for row in notes_of(commit.world).before.tasks.values()
        if row.queue == queue and row.due_at <= commit.now
    )
    taken = sorted(task.id for task in commit.answer)
    if taken != sorted(id for _, id in ready[:count]):
        yield f"taken were {taken} of queue {queue}, to be taken were {count} of {[id for _, id in ready]}"


def held_as_asked(commit: Commit) -> Objections:
    """Who takes or extends a task holds it from now on as long as was asked for."""
    notes, asked = notes_of(commit.world), _asked(commit, "take_tasks", "extend_tasks")
    if not asked:
        return
    until = commit.now + asked.options["visibility"] // timedelta(microseconds=1)
    stays = notes.before.tasks if asked.options.get("only_longer") else {}
    if asked.name == "take_tasks":
        held = {task.id: str(task.receipt.guid) for task in commit.answer}
    else:
        held = {one.task_id: str(one.guid) for one in receipts_of(asked) if one.task_id in commit.answer}
    for id, receipt in held.items():
        row = notes.after.tasks.get(id)
        expected = max(until, stays[id].due_at) if id in stays else until
        if row is None or row.receipt != receipt or row.due_at != expected:
            yield f"task {id} is to be held until {moment(expected)}, but is {row}"


def counted_as_the_table_says(commit: Commit) -> Objections:
    """Attempts rise by one at each return, by retry or by timeout, and the start before is kept; else nothing moves."""
    notes, asked = notes_of(commit.world), _asked(commit, "take_tasks", "retry_tasks", "retry_now")
    when = {}
    if asked and asked.name == "retry_tasks":
        when = {one.receipt.task_id: starts_at(one.when, commit.now) for one in asked.arguments[0]}
    for id, row in notes.after.tasks.items():
        was = notes.before.tasks.get(id)
        if was is None or was == row:
            continue
        expected: tuple[int, int | None, int] = (was.attempts, was.previous_start_at, was.start_at)
        if asked and asked.name == "take_tasks" and was.receipt is not None:
            expected = (was.attempts + 1, was.start_at, was.due_at)
        elif asked and asked.name == "retry_tasks":
            expected = (was.attempts + 1, was.start_at, when.get(id, was.start_at))
        elif asked and asked.name == "retry_now":
            expected = (was.attempts, was.previous_start_at, commit.now)
        if (row.attempts, row.previous_start_at, row.start_at) != expected or row.data != was.data:
            yield f"{_name(was)} became {row}, expected (attempts, start before, start) {expected}"


def handed_out_as_stored(commit: Commit) -> Objections:
    """What a worker gets of a task is what is stored of it."""
    notes = notes_of(commit.world)
    for task, _ in _taken(commit):
        row, before = notes.after.tasks[task.id], task.previous_start_at
        told = (
            task.queue,
            task.data,
            task.attempts,
            None if before is None else microseconds(before),
            microseconds(task.created_at),
            microseconds(task.start_at),
            row.due_at,
            str(task.receipt.guid),
        )
        if told != _facts(row):
            yield f"{_name(row)} is handed out as {told}"


# Settling.


def settled_by_good_receipts(commit: Commit) -> Objections:
    """Done, retry, dead letter and extend change only tasks whose receipts they name, and these must be good."""
    notes, asked = notes_of(commit.world), _asked(commit, *_SETTLES, "extend_tasks")
    named = {(one.task_id, str(one.guid)) for one in receipts_of(asked)} if asked else set()
    if asked or commit.transition.name in _SETTLES:
        for was in _touched(notes):
            if (was.id, was.receipt) not in named or was.due_at <= commit.now:
                yield f"{_name(was)} bears {was.receipt} until {moment(was.due_at)}"


def answered_truly(commit: Commit) -> Objections:
    """Whoever settles or extends is told which tasks were, and all that bore a good receipt were."""
    notes, asked = notes_of(commit.world), _asked(commit, *_SETTLES, "extend_tasks")
    if not asked:
        return
    good = set()
    for receipt in receipts_of(asked):
        was = notes.before.tasks.get(receipt.task_id)
        if was is not None and was.receipt == str(receipt.guid) and was.due_at > commit.now:
            good.add(receipt.task_id)
    told = set(commit.answer)
    if asked.options.get("again"):
        told &= good  # those that are not there any more count, whoever finished them
    if told != good:
        yield f"{asked.name} is said to have reached {sorted(told)}, good were the receipts of {sorted(good)}"


# Managing.


def told_by_the_manager(commit: Commit) -> Objections:
    """Only who has the chore tells workers what to work on, and no worker more than it has processors for; but for one
    each that stands by for a limited queue."""
    asked = _asked(commit, "assign_processors")
    if not asked:
        return
    notes, holder = notes_of(commit.world), str(asked.arguments[1])
    if notes.manager(commit.now) != holder:
        yield f"{holder} has not the chore, {notes.manager(commit.now)} has"
    limited = {
        str(row.queue) for _, rows in notes.settings_since for row in rows.values() if row.processors_max is not None
    }
    for worker in notes.workers():
        assigned = json.loads(worker.assignment or "{}")
        told = sum(count for queue, count in assigned.items() if count > 1 or queue not in limited)
        if told > worker.processors_max:
            yield f"{worker.name} has {worker.processors_max} processors, but {told} are assigned"


# Helpers.


def set_as_asked(commit: Commit) -> Objections:
    """A queue that is paused, resumed or given other settings is then as it was asked to be."""
    asked, notes = _asked(commit, "pause_queue", "resume_queue", "change_queue_settings"), notes_of(commit.world)
    if asked is None:
        return
    queue: int = asked.arguments[0]
    before, after = notes.before, notes.after
    was = QueueSettings(queue=queue, paused=before.is_paused(queue), processors_max=before.processors_max(queue))
    match asked.name:
        case "pause_queue":
            wanted = replace(was, paused=True)
        case "resume_queue":
            wanted = replace(was, paused=False)
        case _:
            wanted = asked.arguments[1](was)
    if (wanted.paused, wanted.processors_max) != (after.is_paused(queue), after.processors_max(queue)):
        yield f"queue {queue} was to be {wanted}, but is {after.settings.get(queue)}"


def _asked(commit: Commit, *names: str) -> Noted[Any] | None:
    asked = commit.transition
    return asked if isinstance(asked, Noted) and asked.name in names else None


def _taken(commit: Commit) -> Iterator[tuple[StoredTask, TaskRow]]:
    """The tasks that a commit hands out, and how they were before."""
    if _asked(commit, "take_tasks"):
        before = notes_of(commit.world).before.tasks
        for task in commit.answer:
            yield task, before[task.id]


def _appeared(notes: QueueNotes) -> Iterator[TaskRow]:
    yield from (notes.after.tasks[id] for id in sorted(notes.after.tasks.keys() - notes.before.tasks.keys()))


def _gone(notes: QueueNotes) -> Iterator[TaskRow]:
    yield from (notes.before.tasks[id] for id in sorted(notes.before.tasks.keys() - notes.after.tasks.keys()))


def _touched(notes: QueueNotes) -> Iterator[TaskRow]:
    """Tasks that a commit changed or removed, as they were before."""
    for id, was in notes.before.tasks.items():
        if notes.after.tasks.get(id) != was:
            yield was


def _name(row: TaskRow) -> str:
    return f"task {row.id} of queue {row.queue}"


AT_EVERY_COMMIT: tuple[Callable[[Commit], Objections], ...] = (
    put_whole,
    delivered_with_its_record,
    put_once,
    redriven_as_new,
    nothing_appears_or_goes,
    dead_letters_are_kept,
    taken_when_due,
    taken_alone,
    taken_unless_paused,
    taken_longest_ready_first,
    held_as_asked,
    counted_as_the_table_says,
    handed_out_as_stored,
    settled_by_good_receipts,
    answered_truly,
    told_by_the_manager,
    set_as_asked,
)
