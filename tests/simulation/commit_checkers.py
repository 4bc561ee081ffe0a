"""What must be true of every commit of a run, whatever its faults; a function each, which yields its objections."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from matrixsched.rules.action import Attempt, Claim
from matrixsched.store.transition import Transition
from matrixsched.store.values import Answer, Claimed, Extension, GatedClaim
from simulation.database import ActionRow, QueueRow, Snapshot, moment
from simulation.faults import Noted

if TYPE_CHECKING:
    from simulation.world import World

Objections = Iterator[str]


@dataclass(frozen=True, slots=True)
class Commit:
    """A transition that wrote something, and the state before and after it."""

    host: str
    transition: Transition[Any]
    answer: Any
    before: Snapshot
    after: Snapshot
    now: int
    asked_at: datetime
    world: World
    is_late: bool = False
    """Whether whoever asked had given up."""

    @property
    def attempts(self) -> Sequence[Attempt]:
        return self.answer.attempts if isinstance(self.answer, Claimed | GatedClaim) else ()


def one_live_row(commit: Commit) -> Objections:
    """Every live action has exactly one row with its guid in the two queues together (SPEC A8)."""
    rows = Counter((row.id, row.guid) for row in commit.after.queue)
    for action in commit.after.actions.values():
        if action.state == "live" and rows[action.id, action.guid] != 1:
            yield f"{action.id} at {action.guid} has {rows[action.id, action.guid]} rows"


def nothing_vanishes(commit: Commit) -> Objections:
    """An action that goes away was finished before."""
    for action_id, action in commit.before.actions.items():
        if action_id not in commit.after.actions and action.state == "live":
            yield f"live {action_id} at {action.guid} is gone"


def fenced(commit: Commit) -> Objections:
    """Whoever claims or moves holds the lock of that shard under the guid it names."""
    if commit.transition.name not in ("claim", "move") or not isinstance(commit.transition, Noted):
        return
    shard, sync_guid = commit.transition.arguments[:2]
    if not any(lock.shard == shard and lock.guid == str(sync_guid) for lock in commit.world.database.locked()):
        yield f"shard {shard} is not locked under {sync_guid}"


def claimed_when_due(commit: Commit) -> Objections:
    """A row is claimed at or after its due time by the database's clock."""
    for attempt in commit.attempts:
        for row in _rows_of(commit.before, attempt):
            if row.due > commit.now:
                yield f"{name_of(attempt)} is due only at {moment(row.due)}"


def claimed_as_it_stands(commit: Commit) -> Objections:
    """Only the present version of a live action is claimed."""
    for attempt in commit.attempts:
        action = commit.after.actions.get(attempt.claim.action_id)
        if action is None or action.state != "live" or action.guid != str(attempt.claim.guid):
            yield f"{name_of(attempt)} is not the action as it stands"


def claimed_alone(commit: Commit) -> Objections:
    """An action is not claimed while the lease of another attempt at it runs."""
    for attempt in commit.attempts:
        for row in commit.before.rows_of(attempt.claim.action_id):
            if row.is_leased(commit.now):
                other = f"attempt {row.attempt} at {row.guid}"
                yield f"{name_of(attempt)} although {other} is leased until {moment(row.due)}"


def leased(commit: Commit) -> Objections:
    """When an attempt is handed out, its row is rescheduled to the end of a lease that names it."""
    for attempt in commit.attempts:
        claim = attempt.claim
        rows = _rows_of(commit.after, attempt)
        if not any(row.claimed_by == str(claim.claimed_by) and row.attempt == claim.attempt for row in rows):
            yield f"{name_of(attempt)} has no row that names it"
        elif not all(row.is_leased(commit.now) for row in rows):
            yield f"{name_of(attempt)} has no lease"


def interruptions_counted(commit: Commit) -> Objections:
    """An attempt is told how many before it were heard of no more since an outcome was recorded."""
    for attempt in commit.attempts:
        earlier = commit.world.history.claims_of[attempt.claim.guid][:-1]
        unheard = list(takewhile(lambda claimed: claimed.settled_as != Answer.RECORDED, reversed(earlier)))
        expected = sum(claimed.settled_as is None for claimed in unheard)
        if attempt.interruptions != expected:
            yield f"{name_of(attempt)} is told of {attempt.interruptions} interruptions, there were {expected}"


def written_by_its_holder(commit: Commit) -> Objections:
    """A lease is prolonged and an outcome recorded only by the attempt that the row names."""
    held = {(row.guid, row.attempt, row.claimed_by) for row in commit.before.queue}
    for claim in _written_about(commit):
        if (str(claim.guid), claim.attempt, str(claim.claimed_by)) not in held:
            yield f"attempt {claim.attempt} of {claim.action_id} at {claim.guid} does not hold its row"


def _written_about(commit: Commit) -> Iterator[Claim]:
    if not isinstance(commit.transition, Noted) or commit.transition.name not in (
        "record",
        "record_deliveries",
        "extend",
    ):
        return
    for one in commit.transition.arguments[0]:
        if commit.answer.get(one.claim.guid) in (Answer.RECORDED, Extension.EXTENDED):
            yield one.claim


def given_back_by_its_holder(commit: Commit) -> Objections:
    """A row is given back only by the attempt that it names."""
    if commit.transition.name != "give_back" or not isinstance(commit.transition, Noted):
        return
    claims = [attempt.claim for attempt in commit.transition.arguments[0]]
    named = {(str(claim.guid), claim.attempt, str(claim.claimed_by)) for claim in claims}
    held = {(row.id, row.guid) for row in commit.after.queue if row.claimed_by is not None}
    for row in commit.before.queue:
        is_given_back = row.claimed_by is not None and (row.id, row.guid) not in held
        if is_given_back and (row.guid, row.attempt, row.claimed_by) not in named:
            yield f"attempt {row.attempt} of {row.id} at {row.guid} was given back by another"


def extended_only_if_held(commit: Commit) -> Objections:
    """Prolonging a lease never makes a claim out of a row that was not claimed."""
    if commit.transition.name != "extend":
        return
    before = {(row.id, row.guid): row.claimed_by for row in commit.before.queue}
    for row in commit.after.queue:
        if row.claimed_by is not None and before.get((row.id, row.guid)) != row.claimed_by:
            yield f"{row.id} at {row.guid} is claimed by {row.claimed_by}"


def expired_when_late(commit: Commit) -> Objections:
    """Without an attempt an action expires only after its expiry."""
    for action in _expired_by(commit):
        if action.expires_at is None or action.expires_at > commit.now:
            yield f"{action.id} at {action.guid} still has time"


def expired_unleased(commit: Commit) -> Objections:
    """An action does not expire behind the back of an attempt at it whose lease runs."""
    leased = {(row.id, row.guid) for row in commit.before.queue if row.is_leased(commit.now)}
    for action in _expired_by(commit):
        if (action.id, action.guid) in leased:
            yield f"{action.id} at {action.guid} was leased"


def _expired_by(commit: Commit) -> list[ActionRow]:
    if commit.transition.name != "expire_waiting":
        return []
    before = {action.id for action in commit.before.actions.values() if action.state == "expired"}
    return [one for one in commit.after.actions.values() if one.state == "expired" and one.id not in before]


def _rows_of(snapshot: Snapshot, attempt: Attempt) -> list[QueueRow]:
    claim = attempt.claim
    return [row for row in snapshot.rows_of(claim.action_id) if row.guid == str(claim.guid)]


def name_of(attempt: Attempt) -> str:
    return f"attempt {attempt.claim.attempt} of {attempt.claim.action_id} at {attempt.claim.guid}"


AT_EVERY_COMMIT: tuple[Callable[[Commit], Objections], ...] = (
    one_live_row,
    nothing_vanishes,
    fenced,
    claimed_when_due,
    claimed_as_it_stands,
    claimed_alone,
    leased,
    interruptions_counted,
    written_by_its_holder,
    given_back_by_its_holder,
    extended_only_if_held,
    expired_when_late,
    expired_unleased,
)
