"""When work is to happen: the times that are written, and that what is due is not left lying; a function each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from matrixsched.rules.outcome import Verdict
from matrixsched.rules.schedule import Every, Repeat, upcoming
from matrixsched.store.values import Answer
from simulation.asked import Version, new_versions
from simulation.commit_checkers import Commit, Objections, name_of
from simulation.database import QueueRow, microseconds, moment
from simulation.faults import Noted

if TYPE_CHECKING:
    from simulation.world import Process, World

_INSTANT = timedelta(microseconds=1)
_AFTER_HOLDING = timedelta(seconds=0.1)
"""A shard is let go so much later at most than it may be held: what was asked is waited for."""


def timed_as_asked(commit: Commit) -> Objections:
    """A new version of an action is due exactly when its caller said: then, or so long after it was written."""
    for action in new_versions(commit):
        version = commit.world.asked.versions.get(action.guid)
        if version is None or action.state != "live":
            continue
        target, due, repeat = first_target(version), moment(action.scheduled_at), version.asked.repeat
        if not target.earliest <= due <= target.latest + (repeat.jitter if repeat is not None else timedelta(0)):
            yield f"{action.id} at {action.guid} is to run at {due}, but was asked for {target}"


@dataclass(frozen=True, slots=True)
class Target:
    """When something is to be: between two instants, which differ where nobody else knows what it was reckoned from."""

    earliest: datetime
    latest: datetime

    def holds(self, instant: datetime) -> bool:
        return self.earliest <= instant <= self.latest

    def __str__(self) -> str:
        return f"{self.earliest} to {self.latest}"


def first_target(version: Version) -> Target:
    """When a version is first to run, but for its jitter."""
    asked = version.asked
    if asked.repeat is None or asked.is_change:  # what was moved by hand runs then, on the grid or not
        return Target(version.begins_at, version.begins_at)
    # A repetition begins when the database is asked for its time, which is before it is written.
    instants = [_first_tick(asked.repeat, asked.begins(at)) for at in (version.called_at, version.written_at)]
    return Target(*instants)


def _first_tick(repeat: Repeat, start: datetime) -> datetime:
    """The first tick at or after its beginning."""
    if isinstance(repeat, Every) and (repeat.after_end or repeat.anchor is None) and not repeat.exclude:
        return start
    if isinstance(repeat, Every) and repeat.anchor is not None and not repeat.exclude:
        return start + (repeat.anchor - start) % repeat.interval
    return upcoming(repeat, start - _INSTANT, 1)[0]


def timed_as_recorded(commit: Commit) -> Objections:
    """The next time of an action is the one that was recorded of its attempt, and nothing else moves it."""
    recorded = dict(_recorded(commit))
    for action in commit.after.actions.values():
        before = commit.before.actions.get(action.id)
        if before is None or before.guid != action.guid or action.state != "live":
            continue
        expected = recorded.get(action.guid, before.scheduled_at)
        if action.scheduled_at != expected:
            yield f"{action.id} at {action.guid} is to run at {moment(action.scheduled_at)}, not {moment(expected)}"


def _recorded(commit: Commit) -> Iterator[tuple[str, int]]:
    """The times that this commit recorded, by guid."""
    if isinstance(commit.transition, Noted) and commit.transition.name in ("record", "record_deliveries"):
        for ended in commit.transition.arguments[0]:
            if commit.answer[ended.claim.guid] is Answer.RECORDED and ended.verdict.state == "live":
                yield str(ended.claim.guid), _next_time(ended.verdict, commit.now)


def _next_time(verdict: Verdict, now: int) -> int:
    if verdict.next_at is not None:
        return microseconds(verdict.next_at)
    return now + (verdict.delay or timedelta(0)) // _INSTANT


def due_at_its_time(commit: Commit) -> Objections:
    """A row is due at its action's time, or when the lease of an attempt ended; later only while an earlier version of
    the action runs."""
    for row in commit.after.queue:
        action = commit.after.actions.get(row.id)
        if row.claimed_by is not None or action is None or (action.guid, action.state) != (row.guid, "live"):
            continue
        if (
            row.due > max(commit.now, action.scheduled_at)
            and not _was_interrupted(commit, row)
            and not _is_blocked(commit, row)
        ):
            yield f"{row.id} at {row.guid} is due at {moment(row.due)}, not at {moment(action.scheduled_at)}"


def _was_interrupted(commit: Commit, row: QueueRow) -> bool:
    leases = commit.world.counted.leased_until.items()
    return any(guid == row.guid and ended_at == moment(row.due) for (guid, *_), ended_at in leases)


def _is_blocked(commit: Commit, row: QueueRow) -> bool:
    """By an attempt at another version, also if that was dropped since, because its lease was over."""
    leases = commit.world.counted.not_before[row.id].items()
    return any(guid != row.guid and moment(row.due) <= until for guid, until in leases)


def leased_as_agreed(commit: Commit) -> Objections:
    """An attempt is leased for as long as its worker's policy says: so long it lies still after a crash, no longer."""
    lease = commit.world.size.policy.attempt_lease // _INSTANT
    before = {(row.id, row.guid): row for row in commit.before.queue}
    for row in commit.after.queue:
        if row.claimed_by is not None and row != before.get((row.id, row.guid)) and row.due > commit.now + lease:
            yield f"attempt {row.attempt} of {row.id} at {row.guid} is leased until {moment(row.due)}"
    for attempt in commit.attempts:
        rows = [row for row in commit.after.rows_of(attempt.claim.action_id) if row.guid == str(attempt.claim.guid)]
        if any(row.due != commit.now + lease for row in rows):
            yield f"{name_of(attempt)} is leased until {moment(rows[0].due)}"


AT_EVERY_COMMIT: tuple[Callable[[Commit], Objections], ...] = (
    timed_as_asked,
    timed_as_recorded,
    due_at_its_time,
    leased_as_agreed,
)


def taken_in_turn(commit: Commit) -> Objections:
    """Of the free shards where something waits that passes no gate, the one is taken that was served longest ago."""
    if commit.transition.name != "acquire_shard" or commit.answer.shard is None:
        return
    world, taken = commit.world, commit.answer.shard
    waiting = {row.shard for row in commit.after.queue if _waits_ungated(row, commit.now)}
    if _is_preferred(commit) or taken not in waiting:
        return
    lease = world.size.policy.shard_lease // _INSTANT
    held = {shard for shard, lock in world.locks.items() if lock.heartbeat_at >= commit.now - lease}
    longest_ago = min(waiting - held, key=lambda shard: (world.served.get(shard, 0), shard), default=taken)
    if world.served.get(longest_ago, 0) < world.served.get(taken, 0):
        yield f"shard {taken} was served after shard {longest_ago}, which waits"


def _waits_ungated(row: QueueRow, now: int) -> bool:
    return row.is_incoming or (row.lane == "" and row.due <= now)


def _is_preferred(commit: Commit) -> bool:
    """Whether events or the gates decide which shard is taken."""
    acquired = commit.answer
    return bool(acquired.incoming_events or "event" in acquired.lanes or acquired.gated_lanes)


AT_EVERY_LOCK: tuple[Callable[[Commit], Objections], ...] = (taken_in_turn,)


class Overlooked:
    """What is due although somebody could take it; looked at whenever anybody talks to the database."""

    LOOKS_EVERY = timedelta(milliseconds=250)

    def __init__(self, world: World) -> None:
        self._world = world
        self._looked_at = world.clock.now()
        self._since: dict[tuple[str, str, int], tuple[datetime, frozenset[str]]] = {}
        """Since when a row lies there, and who could have taken it all the time."""
        self._served: dict[int, datetime] = {}
        """When something was last moved or claimed in a shard: what else lies there has to wait its turn."""

    def committed(self, commit: Commit) -> None:
        if commit.transition.name in ("move", "claim", "claim_gated") and isinstance(commit.transition, Noted):
            self._served[commit.transition.arguments[0]] = self._world.clock.now()

    def look(self) -> None:
        now = self._world.clock.now()
        passed = now - self._looked_at
        if passed < self.LOOKS_EVERY:
            return
        self._looked_at = now
        due = [row for row in self._world.snapshot.queue if self._is_due(row)]
        able = self._able_hosts() if due else {}
        seen = self._since
        self._since = {}
        for row in due:
            name = row.id, row.guid, row.attempt
            hosts = frozenset(host for host, knows in able.items() if self._handler(row) in knows)
            since, earlier = seen.get(name, (now, hosts))
            since = max(since, self._served.get(row.shard, since))
            if row.shard in self._world.locks:
                since = min(now, since + passed)  # whoever has the shard now may be one whom faults keep from claiming
            if hosts & earlier:
                self._since[name] = since, hosts & earlier
                self._judge(row, since, hosts & earlier)
            elif hosts:
                self._since[name] = now, hosts

    def _judge(self, row: QueueRow, since: datetime, hosts: frozenset[str]) -> None:
        size = self._world.size
        # All shards may have work, and it is the turn of each before it is the same one's again.
        turn_of_others = (size.shards - 1) * (size.policy.hold_max + _AFTER_HOLDING)
        if self._world.clock.now() - since > size.policy.rest_max + timedelta(seconds=1) + turn_of_others:
            who = ", ".join(sorted(hosts))
            self._world.violate("overlooked", f"{row.id} at {row.guid} is due since {moment(row.due)}, seen by {who}")
            del self._since[row.id, row.guid, row.attempt]

    def _is_due(self, row: QueueRow) -> bool:
        """Whether it is due, and neither a gate nor a lock holds it."""
        now = self._world.database.now()
        action = self._world.snapshot.actions.get(row.id)
        is_live = action is not None and (action.guid, action.state) == (row.guid, "live")
        is_open = row.lane in ("", "event") or row.lane.startswith("handler:")
        return is_live and is_open and row.due <= now and not self._is_held(row.shard, now)

    def _is_held(self, shard: int, now: int) -> bool:
        """Whether somebody has its lock who is slow, or gone, and whose lease is not over."""
        lock, lease = self._world.locks.get(shard), self._world.size.policy.shard_lease // _INSTANT
        return lock is not None and now - lease <= lock.heartbeat_at <= now - 1_000_000

    def _handler(self, row: QueueRow) -> str:
        return self._world.snapshot.actions[row.id].handler

    def _able_hosts(self) -> dict[str, frozenset[str]]:
        """Who has room, is well and has been so for as long as is rested after failures; and what they know."""
        well_since = self._world.clock.now() - 5 * self._world.size.policy.rest_max
        return {
            host: frozenset(process.worker._app.handlers.names)
            for host, process in self._world.processes.items()
            if not self._world.loop.is_held(host)
            and not process.worker.stopping.is_set()
            and _has_room(process)
            and not any(fault.host == host and fault.ends_at >= well_since for fault in self._world.history.faults)
        }


def _has_room(process: Process) -> bool:
    """Whether it may hold another attempt, not counting on its pace; asking the runner itself would measure that."""
    worker = process.worker
    return worker.policy.concurrency - worker.runner._leaked > len(worker.leases)
