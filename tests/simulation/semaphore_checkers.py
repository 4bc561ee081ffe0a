"""What must be true of semaphores at every commit of a run; a function each, which yields its objections."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from matrixsched.store.semaphores import Balanced, TaskName
from simulation.commit_checkers import Commit, Objections
from simulation.database import moment
from simulation.faults import Noted
from simulation.parts import notes_taken
from simulation.semaphore_notes import SemaphoreNotes, SemaphoreRow, State, TaskRow

if TYPE_CHECKING:
    from simulation.world import World


def notes_of(world: World) -> SemaphoreNotes:
    return notes_taken(world, SemaphoreNotes)


# Places.


def within_active(commit: Commit) -> Objections:
    """A place is given only as long as no more are held than there are: fewer places drain, none is ever added."""
    notes = notes_of(commit.world)
    for key in {task.semaphore for task in notes.given}:
        held, active = len(notes.after.holders(key)), notes.after.semaphores[key].active
        if held > active:
            yield f"{held} hold a place of {key}, which has {active}"


def best_first(commit: Commit) -> Objections:
    """Whoever gets a place is more important, or was enqueued earlier, than all who still wait."""
    notes = notes_of(commit.world)
    for task in notes.given:
        better = [other.id for other in notes.after.waiting(task.semaphore) if other.order < task.order]
        if better:
            yield f"{_name(task)} has a place, and {', '.join(better)} before it wait"


def no_place_left_free(commit: Commit) -> Objections:
    """After a balance nobody waits while a place is free."""
    for semaphore, after in _balanced(commit):
        free = semaphore.active - len(after.holders(semaphore.key))
        if free > 0 and after.waiting(semaphore.key):
            yield f"{free} places of {semaphore.key} are free, and {len(after.waiting(semaphore.key))} wait"


def head_protected(commit: Commit) -> Objections:
    """Nobody is asked for a place who is among the first holders, beyond whom `try_release` begins."""
    notes = notes_of(commit.world)
    for task in notes.asked:
        semaphore = notes.after.semaphores[task.semaphore]
        if task in notes.after.holders(task.semaphore)[: semaphore.active - semaphore.try_release]:
            yield f"{_name(task)} is asked, although it is one of the first"


def asked_who_must_go(commit: Commit) -> Objections:
    """After a balance exactly those are asked who stand behind the head and are not among the best there are."""
    for semaphore, after in _balanced(commit):
        holders = after.holders(semaphore.key)
        everybody = sorted([*holders, *after.waiting(semaphore.key)], key=lambda task: task.order)
        staying = {*everybody[: semaphore.active], *holders[: semaphore.active - semaphore.try_release]}
        expected = {task.id for task in holders if task not in staying}
        found = {task.id for task in holders if task.state == "asked"}
        if found != expected:
            yield f"asked are {sorted(found)} of {semaphore.key}, not {sorted(expected)}"


def given_by_a_balance(commit: Commit) -> Objections:
    """Places are given and asked for by a balance of that semaphore alone, and it answers with what it has done."""
    notes = notes_of(commit.world)
    key, answer = _balance_of(commit)
    changed = (*notes.given, *notes.asked, *notes.kept)
    yield from (f"{_name(task)} is {task.state} now" for task in changed if task.semaphore != key)
    if answer is not None:
        lost, given, asked, kept = (_ids(tasks) for tasks in (notes.lost, notes.given, notes.asked, notes.kept))
        answered = tuple(map(sorted, (answer.lapsed, answer.acquired, answer.asked, answer.kept)))
        if answered != (lost, given, asked, kept):
            yield f"{answer} tells of {answered}, done was {(lost, given, asked, kept)}"


def given_once(commit: Commit) -> Objections:
    """A task has a place once under a guid: whoever comes back is somebody new, and what was said before is void."""
    notes = notes_of(commit.world)
    for task in notes.given_again:
        yield f"{_name(task)} held a place under {task.guid} before"
    for task in notes.lost:
        later = notes.after.tasks.get((task.semaphore, task.id))
        if later is not None and later.guid == task.guid:
            yield f"{_name(task)} waits under {task.guid}, under which it held a place"


def place_kept(commit: Commit) -> Objections:
    """A place is lost only by a release or a step back that names its holder, or if it was held for too long."""
    for task in notes_of(commit.world).lost:
        is_late = task.hold_until is not None and task.hold_until <= commit.now
        is_lapsed = commit.transition.name == "balance" and is_late
        if not is_lapsed and not _names(commit, task, "release_tasks", "step_back"):
            yield f"{_name(task)} lost its place, held until {task.hold_until and moment(task.hold_until)}"


def task_kept(commit: Commit) -> Objections:
    """A task goes only by a release that names it, and nobody comes but by being enqueued."""
    notes = notes_of(commit.world)
    for key, task in notes.before.tasks.items():
        if key not in notes.after.tasks and not _names(commit, task, "release_tasks"):
            yield f"{_name(task)} is gone"
    for key, task in notes.after.tasks.items():
        if key not in notes.before.tasks and not _names(commit, task, "enqueue_tasks"):
            yield f"{_name(task)} is there"


def turn_kept(commit: Commit) -> Objections:
    """Whoever waits or holds keeps its turn, unless it is named; only who lapsed stands behind its like."""
    notes = notes_of(commit.world)
    for earlier, task in _same_tasks(notes):
        if earlier.priority != task.priority and not _names(commit, earlier, "enqueue_tasks", "step_back"):
            yield f"{_name(task)} has another priority"
        is_lapsed = commit.transition.name == "balance" and earlier in notes.lost
        if task.enqueued_at != (commit.now if is_lapsed else earlier.enqueued_at):
            yield f"{_name(task)} counts as enqueued at {moment(task.enqueued_at)}"


def held_as_agreed(commit: Commit) -> Objections:
    """A place that is given or renewed is held for `hold_for` from then on, or for good if there is none."""
    notes = notes_of(commit.world)
    renewed = [task for earlier, task in _same_tasks(notes) if task.holds and earlier.hold_until != task.hold_until]
    for task in (*notes.given, *renewed):
        hold_for = notes.after.semaphores[task.semaphore].hold_for
        expected = None if hold_for is None else commit.now + hold_for
        if task.hold_until != expected:
            yield f"{_name(task)} holds its place until {task.hold_until}, not {expected}"


def enqueued_as_asked(commit: Commit) -> Objections:
    """Whoever is enqueued, for the first time or again, has the priority that was asked for."""
    if commit.transition.name != "enqueue_tasks" or not isinstance(commit.transition, Noted):
        return
    key, tasks = commit.transition.arguments[:2]
    for wanted in tasks:
        task = notes_of(commit.world).after.tasks.get((key, wanted.id))
        if task is None or task.priority != wanted.priority:
            yield f"{wanted.id} of {key} was enqueued with priority {wanted.priority:g}, but is {task}"


def renewed_as_asked(commit: Commit) -> Objections:
    """Whoever is told that its place is renewed holds it for `hold_for` from now on."""
    if commit.transition.name != "renew_tasks" or not isinstance(commit.transition, Noted):
        return
    key, after = commit.transition.arguments[0], notes_of(commit.world).after
    hold_for = after.semaphores[key].hold_for
    expected = None if hold_for is None else commit.now + hold_for
    for task in (after.tasks[key, id] for id in commit.answer):
        if task.hold_until != expected:
            yield f"{_name(task)} was renewed, but is held until {task.hold_until}, not {expected}"


# What tells of it.


def one_event_each(commit: Commit) -> Objections:
    """Every place that is given and every ask has one event, of that task and that time, written with it; no other."""
    notes = notes_of(commit.world)
    expected = Counter([(False, *_time_of(task)) for task in notes.given])
    expected += Counter([(True, *_time_of(task)) for task in notes.asked])
    found = Counter((event.is_ask, event.key, event.task_id, event.hold) for event in notes.written)
    for one in expected - found:
        yield f"nothing tells of {one}"
    for one in found - expected:
        yield f"an event tells of {one}, which is not new"


def marked(commit: Commit) -> Objections:
    """Whatever changes about a semaphore has it balanced: a mark is written beside it, and goes by a balance alone."""
    notes = notes_of(commit.world)
    key, _ = _balance_of(commit)
    marks = {key for key, _ in notes.after.marks}
    for touched in notes.touched:
        if touched != key and touched not in marks and _is_changed(notes, touched):
            yield f"{touched} was changed without a mark"
    for mark in sorted(notes.before.marks - notes.after.marks):
        if mark[0] != key:
            yield f"the mark {mark} is gone without a balance"


def carried_out_once(commit: Commit) -> Objections:
    """A request takes effect once, however often and however late it is sent."""
    effects = notes_of(commit.world).of_request
    if len(effects) > 1:
        yield f"a request took effect {len(effects)} times: {effects}"


def _balanced(commit: Commit) -> Iterator[tuple[SemaphoreRow, State]]:
    """The semaphore that was balanced, if one was, and the state thereafter."""
    key, answer = _balance_of(commit)
    if key is not None and answer is not None and answer.is_complete:
        after = notes_of(commit.world).after
        yield after.semaphores[key], after


def _balance_of(commit: Commit) -> tuple[str | None, Balanced | None]:
    transition = commit.transition
    if transition.name != "balance" or not isinstance(transition, Noted):
        return None, None
    return transition.arguments[0], commit.answer


def _names(commit: Commit, task: TaskRow, *transitions: str) -> bool:
    """Whether the commit is one of these, and is about this task, in this time if it says which."""
    transition = commit.transition
    if transition.name not in transitions or not isinstance(transition, Noted):
        return False
    key, named = transition.arguments[:2]
    for one in named if isinstance(named, list) else [named]:
        is_same_time = not isinstance(one, TaskName) or one.guid is None or str(one.guid) == task.guid
        if (key, one.id) == (task.semaphore, task.id) and is_same_time:
            return True
    return False


def _same_tasks(notes: SemaphoreNotes) -> Iterator[tuple[TaskRow, TaskRow]]:
    for key, earlier in notes.before.tasks.items():
        task = notes.after.tasks.get(key)
        if task is not None and task is not earlier:
            yield earlier, task


def _is_changed(notes: SemaphoreNotes, key: str) -> bool:
    before, after = notes.before, notes.after
    if before.semaphores.get(key) != after.semaphores[key]:
        return True
    return _shape(before, key) != _shape(after, key)


def _shape(state: State, key: str) -> list[tuple[Any, ...]]:
    return [task.without_time for task in (*state.holders(key), *state.waiting(key))]


def _time_of(task: TaskRow) -> tuple[str, str, str]:
    return task.semaphore, task.id, task.guid


def _ids(tasks: list[TaskRow]) -> list[str]:
    return sorted(task.id for task in tasks)


def _name(task: TaskRow) -> str:
    return f"{task.id} of {task.semaphore} (priority {task.priority:g})"


AT_EVERY_COMMIT = (
    within_active,
    best_first,
    no_place_left_free,
    head_protected,
    asked_who_must_go,
    given_by_a_balance,
    given_once,
    place_kept,
    task_kept,
    turn_kept,
    held_as_agreed,
    enqueued_as_asked,
    renewed_as_asked,
    one_event_each,
    marked,
    carried_out_once,
)
