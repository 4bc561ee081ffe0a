"""What must be true of semaphores in a whole run; a function each, which yields its objections."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from simulation.commit_checkers import Objections
from simulation.history import ClaimNote, Ended, Reply, Run
from simulation.semaphore_checkers import notes_of
from simulation.semaphore_notes import Ask, Call, Event, Hold, SemaphoreNotes, TaskKey

if TYPE_CHECKING:
    from simulation.world import World


def told(world: World) -> Objections:
    """Whoever holds a place in the end was told so, and whoever is asked to the end was told that, too."""
    notes = notes_of(world)
    done = {run.guid for run in world.history.runs if run.ending in (Ended.DONE, Ended.OVERRUN)}
    for hold, told_of in _all_told_of(notes):
        if told_of.until is None and told_of.told_by not in done and not _is_quarantined(world, told_of):
            what = "was asked" if isinstance(told_of, Ask) else "has a place"
            yield f"nobody was told that {hold.task_id} of {hold.key} {what}"


def told_while_it_counts(world: World) -> Objections:
    """No attempt that begins after a place was released, or is no longer asked for, tells of it."""
    notes = notes_of(world)
    for run in world.history.runs:
        event, claimed = notes.events.get(run.guid), _claim_of(world, run)
        if event is not None and claimed is not None and not _counts(notes, event, claimed.number, run.started):
            yield f"attempt {run.attempt} of {run.id} at {run.guid} tells of what was over before it was claimed"


def _counts(notes: SemaphoreNotes, event: Event, since: int, until: int) -> bool:
    """Whether what an event tells of was true at any time between. Who is asked anew may be told by the first event."""
    hold = notes.holds[event.hold]
    told_of: Sequence[Hold | Ask] = hold.asks if event.is_ask else [hold]
    return any(one.since < until and (one.until is None or one.until > since) for one in told_of)


def void_only_if_over(world: World) -> Objections:
    """An event is left untold only if its place was released, or no longer asked for, before that was recorded."""
    notes = notes_of(world)
    for record in world.history.records:
        told_of = notes.told_of.get(record.claim.guid)
        if told_of is None or record.verdict.outcome != "cancelled":
            continue
        if told_of.until is None or told_of.until > record.number:
            yield f"attempt {record.claim.attempt} of {record.claim.action_id} was void, but what it tells of was not"


def best_hold(world: World) -> Objections:
    """In the end the best tasks hold the places; where nobody may be asked, all places are taken by somebody."""
    if world.violations:
        return
    state = notes_of(world).after
    for key, semaphore in state.semaphores.items():
        holders, waiting = state.holders(key), state.waiting(key)
        if any(task.state == "asked" for task in holders):
            continue  # what told it so is quarantined: see `unrest`
        best = sorted([*holders, *waiting], key=lambda task: task.order)[: semaphore.active]
        if len(holders) != len(best) or (semaphore.try_release > 0 and holders != best):
            yield f"{key} is held by {[task.id for task in holders]}, the best are {[task.id for task in best]}"


def answered(world: World) -> Objections:
    """What callers are told is what was done, and who was told that nothing was done meets no change."""
    notes = notes_of(world)
    for call in notes.calls:
        effects = notes.effects_of(call)
        name = f"{call.operation.kind} of {', '.join(call.operation.ids)} by {call.operation.client}"
        if effects and call.operation.reply in (Reply.FAILED, Reply.REFUSED):
            yield f"{name} was {call.operation.reply}, but took effect"
        if call.operation.reply is Reply.OK:
            yield from (f"{name}: {objection}" for objection in _wrong_answer(notes, call))


def _wrong_answer(notes: SemaphoreNotes, call: Call) -> Objections:
    effects = notes.effects_of(call)
    gone = sum(len(effect.gone) for effect in effects)
    match call.operation.kind:
        case "enqueue":
            yield from _not_enqueued(notes, call)
        case "release" if call.answer != gone:
            yield f"{call.answer} were released by its answer, {gone} in truth"
        case "release_there" if not isinstance(call.answer, int) or call.answer < gone:
            # More, if an answer was lost: it is not known then how many were there.
            yield f"{call.answer} were released by its answer, {gone} in truth"
        case "step_back" if call.answer != bool(effects):
            yield f"it answered {call.answer}, but its effects are {effects}"
        case "update" if not effects:
            yield "nothing was changed"


def _not_enqueued(notes: SemaphoreNotes, call: Call) -> Objections:
    """Whoever was enqueued was there at some time of the call; as new count only those whom the call has brought."""
    operation = call.operation
    key, *ids = operation.ids
    assert operation.replied is not None
    for id in ids:
        task: TaskKey = (key, id)
        if not notes.was_present(task, operation.called, operation.replied):
            yield f"{id} was not there"
    came = sum(len(effect.came) for effect in notes.effects_of(call))
    if not isinstance(call.answer, int) or call.answer > came:
        yield f"{call.answer} were new by its answer, {came} in truth"


def _all_told_of(notes: SemaphoreNotes) -> Iterator[tuple[Hold, Hold | Ask]]:
    for hold in notes.holds.values():
        yield hold, hold
        for ask in hold.asks:
            yield hold, ask


def _is_quarantined(world: World, told_of: Hold | Ask) -> bool:
    return any(one.guid == str(told_of.told_by) and one.state == "quarantined" for one in world.last_seen.values())


def _claim_of(world: World, run: Run) -> ClaimNote | None:
    return next((one for one in world.history.claims_of.get(run.guid, []) if one.run is run), None)


AT_THE_END = (
    told,
    told_while_it_counts,
    void_only_if_over,
    best_hold,
    answered,
)
