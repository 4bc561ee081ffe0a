"""How often, how long and until when an action may be tried, and what is counted of that; a function each."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import takewhile
from typing import TYPE_CHECKING
from uuid import UUID

from matrixsched.rules.retry import is_suspect
from matrixsched.store.values import Answer, Ended
from simulation.commit_checkers import Commit, Objections, name_of
from simulation.database import ActionRow, moment
from simulation.faults import Fault, Noted
from simulation.history import ClaimNote, Run

if TYPE_CHECKING:
    from simulation.world import World

REACTS_WITHIN = timedelta(milliseconds=100)
"""So long after its limit a handler may notice that it was cancelled: several steps of its process."""
WENT_WRONG = ("failed", "timed_out", "interrupted")
UNCANCELLABLE = "stubborn"
"""The handler that does not let itself be cancelled every time."""


@dataclass(frozen=True, slots=True)
class Counts:
    """What an action says of its attempts since it was last replaced."""

    succeeded: int = 0
    failed: int = 0
    missed: int = 0
    deferred: int = 0
    interrupted: int = 0
    consecutive_failures: int = 0

    @classmethod
    def told_by(cls, action: ActionRow) -> Counts:
        return cls(
            action.succeeded,
            action.failed,
            action.missed,
            action.deferred,
            action.interrupted,
            action.consecutive_failures,
        )

    def after(self, outcome: str, interruptions: int) -> Counts:
        """With one more outcome, of an attempt that was told of so many interruptions."""
        failed = outcome in ("failed", "timed_out")
        return Counts(
            self.succeeded + (outcome == "succeeded"),
            self.failed + failed,
            self.missed + (outcome == "missed"),
            self.deferred + (outcome in ("retried", "cancelled")),
            self.interrupted + interruptions + (outcome == "interrupted"),
            0 if outcome == "succeeded" else self.consecutive_failures + failed,
        )


@dataclass(slots=True)
class Counted:
    """What each action must count, and until when each attempt was leased, from what was committed."""

    by_id: dict[str, Counts] = field(default_factory=dict)
    leased_until: dict[tuple[str, int, str], datetime] = field(default_factory=dict)
    not_before: dict[str, dict[str, datetime]] = field(default_factory=lambda: defaultdict(dict))
    """By action: of versions of which no attempt was recorded or given back, the end of the longest lease. Prolonging
    cuts a lease to the time its handler may take, but not the wait of what was put behind it before."""

    def committed(self, commit: Commit) -> None:
        for row in commit.after.queue:
            if row.claimed_by is not None:
                self.leased_until[row.guid, row.attempt, row.claimed_by] = moment(row.due)
                leases = self.not_before[row.id]
                leases[row.guid] = max(leases.get(row.guid, moment(0)), moment(row.due))
        if commit.transition.name in ("record", "record_deliveries", "give_back"):
            held = {(row.id, row.guid) for row in commit.after.queue if row.claimed_by is not None}
            for row in commit.before.queue:
                if row.claimed_by is not None and (row.id, row.guid) not in held:
                    self.not_before[row.id].pop(row.guid)
        for action in commit.after.actions.values():
            before = commit.before.actions.get(action.id)
            if before is None or before.guid != action.guid:
                self.by_id[action.id] = self._of_version(commit, before, action)
            elif commit.transition.name == "expire_waiting" and before.state == "live" != action.state:
                self._add_interrupted(action.id, _unheard(commit, before, heard_last=False))
        for ended in _recorded(commit):
            claim = ended.claim
            claimed = commit.world.history.claims[claim.guid, claim.attempt, claim.claimed_by]
            counts = self.by_id[claim.action_id]
            self.by_id[claim.action_id] = counts.after(ended.verdict.outcome, claimed.attempt.interruptions)

    def _of_version(self, commit: Commit, before: ActionRow | None, action: ActionRow) -> Counts:
        operation = commit.world.history.operation_of.get(UUID(action.guid))
        if operation is None:  # written by no client: by nobody whose word could be taken
            return Counts.told_by(action)
        if before is None or not operation.keeps_counters:
            return Counts()
        self._add_interrupted(action.id, _unheard(commit, before, heard_last=True))
        return self.by_id[action.id]

    def _add_interrupted(self, action_id: str, count: int) -> None:
        counts = self.by_id[action_id]
        self.by_id[action_id] = replace(counts, interrupted=counts.interrupted + count)


def _recorded(commit: Commit) -> Iterator[Ended]:
    if isinstance(commit.transition, Noted) and commit.transition.name in ("record", "record_deliveries"):
        for ended in commit.transition.arguments[0]:
            if commit.answer[ended.claim.guid] is Answer.RECORDED:
                yield ended


def _unheard(commit: Commit, action: ActionRow, *, heard_last: bool) -> int:
    """How many attempts at this version came to nothing since an outcome was recorded; the one that is under way is
    not yet among them if it may still be heard of."""
    rows = [row for row in commit.before.rows_of(action.id) if row.guid == action.guid and not row.is_incoming]
    claims = commit.world.history.claims_of.get(UUID(action.guid), [])
    if not rows or not claims:
        return 0
    unsettled = takewhile(lambda claimed: claimed.settled_as != Answer.RECORDED, reversed(claims))
    count = sum(claimed.settled_as is None for claimed in unsettled)
    return count - (heard_last and rows[0].claimed_by is not None)


def counted_as_noted(commit: Commit) -> Objections:
    """All counters of an action are what was recorded of its attempts since it was last replaced."""
    for action in commit.after.actions.values():
        told, noted = Counts.told_by(action), commit.world.counted.by_id[action.id]
        if told != noted:
            yield f"{action.id} at {action.guid} says {told}, noted was {noted}"


def remembered(commit: Commit) -> Objections:
    """An attempt that went wrong is in the history of its action from then on, which is not longer than agreed."""
    found = list(_went_wrong(commit))
    if not found:
        return
    past = {(one.guid, one.attempt): one for one in commit.world.database.remembered()}
    lengths = Counter(one.id for one in past.values())
    for ended in found:
        claim, outcome = ended.claim, ended.verdict.outcome
        row = past.get((str(claim.guid), claim.attempt))
        if row is None or row.outcome != outcome:
            yield f"attempt {claim.attempt} of {claim.action_id} at {claim.guid} is remembered as {row}, not {outcome}"
        if lengths[claim.action_id] > commit.world.size.policy.history_max:
            yield f"{lengths[claim.action_id]} attempts of {claim.action_id} are remembered"


def _went_wrong(commit: Commit) -> Iterator[Ended]:
    return (ended for ended in _recorded(commit) if ended.verdict.outcome in WENT_WRONG)


AT_EVERY_COMMIT: tuple[Callable[[Commit], Objections], ...] = (counted_as_noted, remembered)


def started_before_its_end(world: World) -> Objections:
    """No handler is started at or after the expiry of its action."""
    for claimed, run in _started(world):
        version = world.asked.versions.get(str(run.guid))
        expires_at = None if version is None else version.asked.expires_at
        if expires_at is not None and run.started_at >= expires_at:
            yield f"{name_of(claimed.attempt)} started at {run.started_at}, expired at {expires_at}"


def started_within(world: World) -> Objections:
    """No handler is started later after its tick than its action allows."""
    for claimed, run in _started(world):
        version = world.asked.versions.get(str(run.guid))
        start_within = None if version is None else version.asked.start_within
        if start_within is not None and run.started_at > claimed.attempt.tick_at + start_within:
            yield f"{name_of(claimed.attempt)} started at {run.started_at}, {start_within} after its tick at the latest"


def within_attempts(world: World) -> Objections:
    """A tick fails as often as its handler's policy allows, and is then left alone."""
    failures: Counter[tuple[UUID, int]] = Counter()
    for record in world.history.records:
        claim = record.claim
        claimed = world.history.claims.get((claim.guid, claim.attempt, claim.claimed_by))
        if claimed is None or record.answer is not Answer.RECORDED:
            continue
        tick = claim.guid, claimed.attempt.tick
        failures[tick] += record.verdict.outcome in ("failed", "timed_out")
        most = world.behaviour(claimed.attempt.handler).retry.max_attempts
        if most is not None and failures[tick] > most:
            yield f"{name_of(claimed.attempt)} is failure {failures[tick]} of tick {tick[1]}, of {most} at most"


def within_interruptions(world: World) -> Objections:
    """No handler is started whose action was interrupted in a row more often than its policy allows."""
    for claimed, _ in _started(world):
        most = world.behaviour(claimed.attempt.handler).retry.max_interruptions
        if claimed.attempt.interruptions > most:
            yield f"{name_of(claimed.attempt)} was started after {claimed.attempt.interruptions} interruptions"


def stopped_at_its_limit(world: World) -> Objections:
    """A handler is cancelled when its time is over, unless its process stood still."""
    for claimed, run in _started(world):
        limit = run.started_at + timedelta(seconds=world.behaviour(run.handler).timeout_s) + REACTS_WITHIN
        if _runs_past(world, run, limit):
            yield f"{name_of(claimed.attempt)} on {run.host} ran past {limit}"


def stopped_with_its_lease(world: World) -> Objections:
    """A handler whose lease is not prolonged is cancelled before it ends, unless its process stood still."""
    for claimed, run in _started(world):
        claim = claimed.claim
        limit = world.counted.leased_until.get((str(claim.guid), claim.attempt, str(claim.claimed_by)))
        if limit is not None and _runs_past(world, run, limit):
            yield f"{name_of(claimed.attempt)} on {run.host} ran past its lease, which ended at {limit}"


def suspects_apart(world: World) -> Objections:
    """A process runs no more suspects at once than agreed, for one of them may be what ends it."""
    runs = [run for claimed, run in _started(world) if is_suspect(claimed.attempt.interruptions)]
    for run in runs:
        beside = [other for other in runs if other.host == run.host and _runs_at(world, other, run.started)]
        if len(beside) > world.size.policy.suspects_max:
            yield f"{run.host} runs {len(beside)} suspects at {run.started_at}: {sorted(one.id for one in beside)}"


def _runs_at(world: World, run: Run, number: int) -> bool:
    """Whether it was running then, by the numbers of the notes, and not given up as one that ignores its limit."""
    return run.handler != UNCANCELLABLE and run.started <= number and (run.ended is None or run.ended > number)


def _started(world: World) -> Iterator[tuple[ClaimNote, Run]]:
    return ((claimed, claimed.run) for claimed in world.history.claims.values() if claimed.run is not None)


def _runs_past(world: World, run: Run, limit: datetime) -> bool:
    """Whether it ran on after that, and could have been stopped."""
    ended_at = run.ended_at
    if run.handler == UNCANCELLABLE or (ended_at is None and world.loop.is_held(run.host)):
        return False
    return (ended_at or world.clock.now()) > _put_off_by_stops(world, run.host, limit)


def _put_off_by_stops(world: World, host: str, limit: datetime) -> datetime:
    """When a process must have done what it was to do by then: it may have stood still at that time."""
    for fault in world.history.faults:
        if fault.host == host and fault.kind == Fault.STOP and fault.begins_at <= limit <= fault.ends_at:
            limit = fault.ends_at + REACTS_WITHIN
    return limit


AT_THE_END: tuple[Callable[[World], Objections], ...] = (
    started_before_its_end,
    started_within,
    within_attempts,
    within_interruptions,
    stopped_at_its_limit,
    stopped_with_its_lease,
    suspects_apart,
)
