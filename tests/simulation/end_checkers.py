"""What must be true of a whole run, whatever its faults; a function each, which yields its objections."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

from matrixsched.rules.retry import Retry
from matrixsched.store.values import Answer
from simulation import answer_checkers
from simulation.commit_checkers import Objections, name_of
from simulation.database import EPOCH, ActionRow, moment
from simulation.history import ClaimNote, Ended, Operation, RecordNote, Reply, Run

if TYPE_CHECKING:
    from simulation.world import World


def lost(world: World) -> Objections:
    """Whatever was acknowledged and not changed again has run to its end, or ended as its terms allow."""
    for operations in _changes_by_id(world).values():
        for operation in operations:
            yield from _lost_versions(world, operation)


def _lost_versions(world: World, operation: Operation) -> Objections:
    if not operation.is_certain:
        return
    for action_id in operation.ids:
        last = world.last_seen.get(action_id)
        if last is None:
            yield f"{action_id}, {operation.kind} was acknowledged, is not there"
            continue
        written_by = world.history.operation_of.get(UUID(last.guid))
        if written_by is not None and written_by is not operation and written_by.is_before(operation):
            yield f"{action_id} is still at {last.guid}, although {operation.kind} was acknowledged later"


def ended_as_allowed(world: World) -> Objections:
    """A finished action was run to its end, or used up its budget, or was cancelled or expired as its terms say."""
    records = _records_by_guid(world)
    for action in world.last_seen.values():
        if action.state == "live":
            continue
        why = _ALLOWED[action.state](world, action, records[UUID(action.guid)])
        if why:
            yield f"{action.id} at {action.guid} is {action.state}, but {why}"


def _is_allowed_done(world: World, action: ActionRow, records: list[RecordNote]) -> str | None:
    ends = {(run.guid, run.attempt) for run in world.history.runs if run.ending in (Ended.DONE, Ended.OVERRUN)}
    done = any((record.claim.guid, record.claim.attempt) in ends for record in records)
    return None if done else "no handler returned"


def _is_allowed_failed(world: World, action: ActionRow, records: list[RecordNote]) -> str | None:
    policy = _policy(world, action)
    failed = sum(record.verdict.outcome in ("failed", "timed_out") for record in records)
    operation = world.history.operation_of.get(UUID(action.guid))
    if operation is not None and operation.keeps_counters:
        failed = action.failed  # some of the failures belong to earlier guids
    if policy is None or (policy.max_attempts is not None and failed >= policy.max_attempts):
        return None
    return f"failed only {failed} times"


def _is_allowed_quarantined(world: World, action: ActionRow, records: list[RecordNote]) -> str | None:
    policy = _policy(world, action)
    claims = world.history.claims_of.get(UUID(action.guid), [])
    interrupted = sum(_is_interrupted(claimed) and _is_explained(world, claimed) for claimed in claims)
    return None if policy is None or interrupted > policy.max_interruptions else f"interrupted {interrupted} times"


def _is_interrupted(claimed: ClaimNote) -> bool:
    """Whether nothing was heard of it before it was claimed again; a worker that stood still may wake up later."""
    if claimed.settled_at is None:
        return True
    return claimed.next_at is not None and claimed.next_at < claimed.settled_at


def _is_allowed_cancelled(world: World, action: ActionRow, records: list[RecordNote]) -> str | None:
    operation = world.history.operation_of.get(UUID(action.guid))
    if operation is not None and operation.kind == "cancel":
        return None
    return None if any(record.verdict.outcome == "cancelled" for record in records) else "nobody cancelled it"


def _is_allowed_expired(world: World, action: ActionRow, records: list[RecordNote]) -> str | None:
    if action.expires_at is not None and action.finished_at is not None and action.finished_at >= action.expires_at:
        return None
    return None if records else "no outcome was recorded"


_ALLOWED: dict[str, Callable[[World, ActionRow, list[RecordNote]], str | None]] = {
    "done": _is_allowed_done,
    "failed": _is_allowed_failed,
    "quarantined": _is_allowed_quarantined,
    "cancelled": _is_allowed_cancelled,
    "expired": _is_allowed_expired,
}


def _policy(world: World, action: ActionRow) -> Retry | None:
    claims = world.history.claims_of.get(UUID(action.guid), [])
    return world.behaviour(claims[-1].attempt.handler).retry if claims else None


def unexpected(world: World) -> Objections:
    """Nothing starts that nobody asked for, nor what its caller was told is not done."""
    for run in world.history.runs:
        operation = world.history.operation_of.get(run.guid)
        if operation is None or run.id not in operation.ids:
            yield f"{_run(run)} was never asked for"
        elif operation.reply is Reply.FAILED:
            yield f"{_run(run)} although its caller was told that nothing was done"


def early(world: World) -> Objections:
    """No handler starts before the time its caller named, nor before the time recorded for its next attempt."""
    recorded = _records_by_guid(world)
    for run in world.history.runs:
        operation = world.history.operation_of.get(run.guid)
        if operation is not None and operation.not_before is not None and run.started_at < operation.not_before:
            yield f"{_run(run)} is due only at {operation.not_before}"
        earlier = [record for record in recorded[run.guid] if record.number < run.started]
        if earlier and run.started_at < (due := _next_time(earlier[-1])):
            yield f"{_run(run)} was to be tried again only at {due}"


def _next_time(record: RecordNote) -> datetime:
    verdict = record.verdict
    return verdict.next_at if verdict.next_at is not None else record.at + (verdict.delay or timedelta(0))


def superseded(world: World) -> Objections:
    """No attempt begins at a version that was replaced, moved or cancelled, once its caller knows of that."""
    changes = _changes_by_id(world)
    for claimed in world.history.claims.values():
        mine = world.history.operation_of.get(claimed.claim.guid)
        if mine is None or not mine.is_certain:
            continue
        for other in changes[claimed.claim.action_id]:
            is_known = other.is_certain and other.replied is not None and other.replied < claimed.number
            if is_known and mine.is_before(other):
                yield f"{name_of(claimed.attempt)} begins after {other.kind} was acknowledged"


def doubled(world: World) -> Objections:
    """A tick runs to its end once, and once more for each attempt whose worker was hit by a fault."""
    done: dict[tuple[UUID, int], list[Run]] = defaultdict(list)
    for run in world.history.runs:
        if run.ending is Ended.DONE:
            done[run.guid, run.tick].append(run)
    for runs in done.values():
        # The last one needs no excuse: it is the one that counts.
        for run in runs[:-1]:
            claimed = _claim_of(world, run)
            if claimed is None or not _is_explained(world, claimed):
                yield f"{_run(run)} ran to its end, and the same tick again, without a fault"


def abandoned(world: World) -> Objections:
    """A claim is run and recorded, or given back, unless its worker was hit by a fault."""
    for claimed in world.history.claims.values():
        if claimed.settled_as is None and not _is_explained(world, claimed):
            yield f"{name_of(claimed.attempt)} claimed by {claimed.host} at {claimed.at:%H:%M:%S.%f} came to nothing"


def _claim_of(world: World, run: Run) -> ClaimNote | None:
    return next((one for one in world.history.claims_of.get(run.guid, []) if one.run is run), None)


def _is_explained(world: World, claimed: ClaimNote) -> bool:
    """Whether a fault hit its worker between this claim and the next one, or the end of all leases."""
    longest = world.size.policy.attempt_lease + timedelta(seconds=world.behaviour(claimed.attempt.handler).timeout_s)
    until = claimed.next_at or claimed.at + longest + world.size.policy.timeout_grace
    return world.history.is_explained(claimed.host, claimed.asked_at, until)


def started_once(world: World) -> Objections:
    """A claim is one call of its handler."""
    counts = Counter((run.guid, run.attempt) for run in world.history.runs)
    for run in world.history.runs:
        if counts[run.guid, run.attempt] > 1:
            yield f"{_run(run)} was started {counts[run.guid, run.attempt]} times"


def started_in_time(world: World) -> Objections:
    """No handler is started on a claim whose lease is over: its row may be in other hands."""
    for claimed in world.history.claims.values():
        run, until = claimed.run, claimed.started_under
        if run is not None and until is not None and run.started_at >= until:
            yield f"{_run(run)} started at {run.started_at}, leased until {until}"


def overlapping(world: World) -> Objections:
    """Handlers of one id do not run at the same time, unless the worker of the earlier one was hit by a fault."""
    by_id: dict[str, list[Run]] = defaultdict(list)
    for run in world.history.runs:
        for other in by_id[run.id]:
            if _overlaps(other, run) and not _may_overlap(world, other, run):
                yield f"{_run(run)} while {_run(other)} was running"
        by_id[run.id].append(run)


def _overlaps(earlier: Run, later: Run) -> bool:
    return earlier.ended is None or earlier.ended > later.started


def _may_overlap(world: World, earlier: Run, later: Run) -> bool:
    behaviour = world.behaviour(earlier.handler)
    limit = earlier.started_at + timedelta(seconds=behaviour.timeout_s)
    if behaviour.ignores_its_limit and later.started_at > limit:
        return True  # not promised otherwise
    claimed = _claim_of(world, earlier)
    return claimed is not None and world.history.is_explained(earlier.host, claimed.asked_at, later.started_at)


def counted(world: World) -> Objections:
    """The counters of an action are what was recorded of it since it was last replaced."""
    for action in world.snapshot.actions.values():
        guids = _lineage(world, action)
        if guids is None:
            continue
        records = [record for record in world.history.records if _is_recorded(record) and record.claim.guid in guids]
        outcomes = Counter(record.verdict.outcome.value for record in records)
        expected = (outcomes["succeeded"], outcomes["failed"] + outcomes["timed_out"], outcomes["missed"])
        if expected != (action.succeeded, action.failed, action.missed):
            found = (action.succeeded, action.failed, action.missed)
            yield f"{action.id} counts {found}, recorded were {expected} (succeeded, failed, missed)"


def _lineage(world: World, action: ActionRow) -> set[UUID] | None:
    """The guids whose outcomes count for an action: back to the last replacement. None if that cannot be told."""
    guids: set[UUID] = set()
    for guid in reversed(world.versions[action.id]):
        operation = world.history.operation_of.get(UUID(guid))
        if operation is None:
            return None
        guids.add(UUID(guid))
        if not operation.keeps_counters:
            return guids
    return None


def not_made_up(world: World) -> Objections:
    """A success is recorded only for a handler that returned, and once for each tick."""
    returned = {(run.guid, run.attempt) for run in world.history.runs if run.ending in (Ended.DONE, Ended.OVERRUN)}
    ticks: set[tuple[UUID, int]] = set()
    for record in world.history.records:
        if not _is_recorded(record) or record.verdict.outcome != "succeeded":
            continue
        claim = record.claim
        claimed = world.history.claims.get((claim.guid, claim.attempt, claim.claimed_by))
        if claimed is None or (claim.guid, claim.attempt) not in returned:
            yield f"attempt {claim.attempt} of {claim.action_id} at {claim.guid} succeeded without having been run"
        elif (claim.guid, claimed.attempt.tick) in ticks:
            yield f"tick {claimed.attempt.tick} of {claim.action_id} at {claim.guid} succeeded twice"
        else:
            ticks.add((claim.guid, claimed.attempt.tick))


def targets(world: World) -> Objections:
    """What repeats on a grid goes from tick to tick of it; one is left out only if it had passed by then."""
    for record in world.history.records:
        operation = world.history.operation_of.get(record.claim.guid)
        claimed = world.history.claims.get((record.claim.guid, record.claim.attempt, record.claim.claimed_by))
        if operation is None or operation.interval is None or claimed is None or not _is_recorded(record):
            continue
        tick_at, next_at, interval = claimed.attempt.tick_at, record.verdict.tick_at, operation.interval
        if record.verdict.state != "live" or next_at == tick_at:
            continue
        if next_at < tick_at or (next_at - EPOCH) % interval:
            yield f"{name_of(claimed.attempt)}: from the tick at {tick_at} to {next_at}, every {interval}"
        if next_at - tick_at > interval and next_at - interval > record.at:
            yield f"{name_of(claimed.attempt)}: ticks between {tick_at} and {next_at} are left out at {record.at}"


def quiet(world: World) -> Objections:
    """After the last fault everything comes to rest: nothing is due, claimed, held or waiting to be recorded."""
    if not world.violations:
        yield from unrest(world)


def unrest(world: World) -> Objections:
    """What is not at rest."""
    now = world.database.now()
    snapshot = world.database.snapshot()
    for row in snapshot.queue:
        if row.is_incoming or row.due <= now or row.claimed_by is not None:
            place = "incoming" if row.is_incoming else "processing"
            yield f"{row.id} at {row.guid} is {place}, due at {moment(row.due)}, claimed by {row.claimed_by}"
    for lock in world.database.locked():
        # A dead worker's lock stays until somebody wants the shard; it counts as free once its lease is over.
        if lock.heartbeat_at >= now - world.size.policy.shard_lease // timedelta(microseconds=1):
            yield f"shard {lock.shard} is locked since {moment(lock.heartbeat_at)}"
    for process in world.processes.values():
        if len(process.worker.leases) or process.worker.runner.running or not process.worker.recorder.is_idle:
            yield f"{process.host} still holds {len(process.worker.leases)} attempts"
    for part in world.parts:
        yield from part.unrest()


def _changes_by_id(world: World) -> dict[str, list[Operation]]:
    found: dict[str, list[Operation]] = defaultdict(list)
    for operation in world.history.operations:
        for action_id in operation.ids:
            found[action_id].append(operation)
    return found


def _records_by_guid(world: World) -> dict[UUID, list[RecordNote]]:
    found: dict[UUID, list[RecordNote]] = defaultdict(list)
    for record in world.history.records:
        if _is_recorded(record):
            found[record.claim.guid].append(record)
    return found


def _is_recorded(record: RecordNote) -> bool:
    return record.answer is Answer.RECORDED


def _run(run: Run) -> str:
    return f"attempt {run.attempt} of {run.id} at {run.guid}, tick {run.tick}, on {run.host}"


AT_THE_END: tuple[Callable[[World], Objections], ...] = (
    lost,
    ended_as_allowed,
    unexpected,
    early,
    superseded,
    doubled,
    abandoned,
    started_once,
    started_in_time,
    overlapping,
    counted,
    not_made_up,
    targets,
    quiet,
    answer_checkers.told_what_was_done,
    answer_checkers.failed_for_a_reason,
)
