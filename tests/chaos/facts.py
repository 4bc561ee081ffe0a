"""All that is known of a run, read into memory: what was called, run, claimed and written, and what went wrong."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from chaos import audit
from chaos.audit import Change
from chaos.fleet import Incarnation
from chaos.nemeses import Fault
from chaos.notes import read_notes
from chaos.place import Place
from chaos.setting import LEASE_S, SHARDS
from chaos.watching import Sample, Snapshot
from matrixsched.rules.names import shard_of

ACTIONS = "select action_id, action_guid, state, succeeded, failed, interrupted from matrixsched.scheduled_actions"
HISTORY = "select action_guid, attempt, outcome from matrixsched.attempt_history"
AT_WORK_MIN = 3
"""With fewer workers there may be no room for what comes back."""
GRACE_S = 1.0
"""How long after its end a fault still explains something: whoever was held up has to catch up."""


@dataclass(eq=False)
class Operation:
    """A call of a client."""

    name: str
    what: str
    ids: tuple[str, ...]
    called: float
    not_before: float | None = None
    handler: str | None = None
    payload: Any = None
    reply: str = "open"
    """ok, refused, failed (nothing was done), unknown, or open: its client was killed meanwhile."""
    replied: float | None = None
    guid: str | None = None
    changed: bool = True

    @property
    def is_certain(self) -> bool:
        return self.reply == "ok" and self.changed

    @property
    def is_doubtful(self) -> bool:
        return self.reply in ("unknown", "open")


@dataclass(eq=False)
class Run:
    """A call of a handler."""

    writer: str
    id: str
    guid: str
    tick: int
    attempt: int
    handler: str
    begun: float
    due: float
    ended: float | None = None
    ending: str | None = None
    """done, failed, cancelled, void (an event that was not told any more); None: it never ended."""


@dataclass(eq=False)
class Claim:
    """That an attempt, or a task of a queue, was given to a worker."""

    writer: str | None
    id: str
    guid: str
    attempt: int
    name: str
    """The sync guid, or the receipt."""
    at: float
    due: float | None
    """When it was due before; None where it was claimed as it was moved."""
    seq: int
    lease_ends: float
    """As it was claimed: a lease after its statement began, while it is noted when that ends."""
    over_at: float | None = None
    """When it was no longer held."""
    taken_over: bool = False
    """Its lease had ended, and somebody else said so."""


@dataclass(eq=False)
class Hold:
    """That somebody held the lock of a shard."""

    writer: str | None
    since: float
    until: float | None = None


class ActionRow(NamedTuple):
    id: str
    guid: str
    state: str
    succeeded: int
    failed: int
    interrupted: int


class Remembered(NamedTuple):
    """A row of attempt_history."""

    guid: str
    attempt: int
    outcome: str


class Told(NamedTuple):
    """Somebody was told of a place of the semaphore."""

    task: str
    at: float
    writer: str


class Parcel(NamedTuple):
    """A task of the queue in the hands of a handler."""

    token: str
    task: str
    receipt: str
    at: float
    writer: str
    is_delivered: bool


@dataclass
class Facts:
    operations: list[Operation] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    actions: dict[str, ActionRow] = field(default_factory=dict)
    history: list[Remembered] = field(default_factory=list)
    told: list[Told] = field(default_factory=list)
    parcels: list[Parcel] = field(default_factory=list)
    snapshots: list[Snapshot] = field(default_factory=list)
    samples: dict[str, list[Sample]] = field(default_factory=dict)
    left_alone: list[str] = field(default_factory=list)
    """Workers that ended although nobody had killed them, or did not end well when they were asked to."""
    complaints: list[str] = field(default_factory=list)
    """What workers and clients said that they never should."""
    blocked: list[Fault] = field(default_factory=list)
    """When workers said that their event loops stood still; it is a fault only where others confirm it."""
    undone: int = 0
    integrity: str = "ok"
    lease_s: float = LEASE_S
    patience_s: float = 0.0
    """How much longer recovery and progress may take than promised, where the machine has other things to do."""
    incarnations: list[tuple[str, int, float, float]] = field(default_factory=list)
    """Writer, number of the process, from when to when."""

    # What follows from that.

    @cached_property
    def operations_of(self) -> dict[str, list[Operation]]:
        """Of each id in the order in which they were called, which is that in which they were carried out."""
        found: dict[str, list[Operation]] = defaultdict(list)
        for operation in sorted(self.operations, key=lambda one: one.called):
            for id in operation.ids:
                found[id].append(operation)
        return found

    @cached_property
    def operation_of(self) -> dict[str, Operation]:
        """By the guid of the version that it wrote; also one that found its own request carried out before."""
        return {one.guid: one for one in self.operations if one.guid is not None and one.changed}

    def asked_for(self, run: Run) -> Operation | None:
        """Which operation wrote the version that is run, where that is known: also if it was told no guid (many at once
        are told none), but was the only one of its action."""
        operations = self.operations_of.get(run.id, [])
        return self.operation_of.get(run.guid) or (operations[0] if len(operations) == 1 else None)

    @cached_property
    def claims(self) -> list[Claim]:
        return _claims(self.changes, "row")

    @cached_property
    def takes(self) -> list[Claim]:
        """Of tasks of the queue."""
        return _claims(self.changes, "task")

    @cached_property
    def places(self) -> list[Change]:
        """What became of tasks of the semaphore."""
        return [change for change in self.changes if change.place == "hold"]

    @cached_property
    def claim_of(self) -> dict[tuple[str, int], Claim]:
        return {(one.guid, one.attempt): one for one in self.claims}

    @cached_property
    def claims_of(self) -> dict[str, list[Claim]]:
        found: dict[str, list[Claim]] = defaultdict(list)
        for claim in self.claims:
            found[claim.guid].append(claim)
        return found

    @cached_property
    def runs_of(self) -> dict[str, list[Run]]:
        """Of each id, as they began."""
        found: dict[str, list[Run]] = defaultdict(list)
        for run in sorted(self.runs, key=lambda one: one.begun):
            found[run.id].append(run)
        return found

    @cached_property
    def holds(self) -> dict[int, list[Hold]]:
        """Of each shard, who held it and from when to when."""
        found: dict[int, list[Hold]] = defaultdict(list)
        for one in self.changes:
            if one.place == "lock":
                holds = found[int(one.id)]
                if holds and holds[-1].until is None:
                    holds[-1].until = one.at
                if one.state == "locked":
                    holds.append(Hold(one.writer, one.at))
        return found

    def is_shard_kept(self, id: str, since: float, until: float, *, but_by: str | None = None) -> bool:
        """Whether somebody (else) whom a fault hit kept others from the action's shard for a while meanwhile."""
        holds = self.holds[shard_of(id, SHARDS)]
        first = bisect_left(holds, since - 5 * self.lease_s, key=lambda hold: hold.since)
        last = bisect_right(holds, until, key=lambda hold: hold.since)
        return any(
            hold.writer != but_by
            and (hold.until or until) >= since
            and self.fault_between(hold.writer, max(hold.since, since), min(hold.until or until, until)) is not None
            for hold in holds[first:last]
        )

    @cached_property
    def _working(self) -> list[tuple[str, float, float]]:
        """Each worker from its first lock of a shard to its end."""
        first: dict[str | None, float] = {}
        for holds in self.holds.values():
            for hold in holds:
                first[hold.writer] = min(hold.since, first.get(hold.writer, hold.since))
        return [(writer, first[writer], ends) for writer, _, _, ends in self.incarnations if writer in first]

    def at_work(self, moment: float) -> int:
        """How many workers were there and not stopped."""
        return sum(
            begins <= moment < ends
            and not any(one.kind == "stop" and one.begins <= moment < one.ends for one in self._faults_of[writer])
            for writer, begins, ends in self._working
        )

    @cached_property
    def _faults_of(self) -> dict[str | None, list[Fault]]:
        found: dict[str | None, list[Fault]] = defaultdict(list)
        for fault in self.faults:
            found[fault.writer].append(fault)
        return found

    def are_too_few(self, since: float, until: float) -> bool:
        """Whether at some moment fewer workers were at work than there must be to have room for what comes back."""
        return any(self.at_work(since + tenth / 10) < AT_WORK_MIN for tenth in range(1, int((until - since) * 10) + 1))

    def fault_between(self, writer: str | None, since: float, until: float) -> Fault | None:
        """One that hit this process, or all of them, between two moments."""
        for fault in [*self._faults_of[writer], *(self._faults_of[None] if writer is not None else [])]:
            if fault.begins <= until and fault.ends >= since - GRACE_S:
                return fault
        return None


def _claims(changes: Iterable[Change], place: str) -> list[Claim]:
    """Claims, and when each was over: by whoever had it, or taken over when its lease had ended."""
    found: list[Claim] = []
    current: dict[str, Claim] = {}
    for one in changes:
        if one.place != place:
            continue
        row = one.id if place == "task" else one.guid or one.was_guid or ""
        claim, was_claim = (one.guid, one.was_guid) if place == "task" else (one.claim, one.was_claim)
        if was_claim is not None and was_claim != claim and (before := current.pop(row, None)) is not None:
            before.over_at = one.at
            before.taken_over = claim is not None or one.interrupted > 0
        if claim is not None and claim != was_claim:
            name = one.id if place == "task" else one.guid or ""
            made = Claim(
                one.writer, one.id, name, one.attempt or 0, claim, one.at, one.was_due, one.seq, one.due or 0.0
            )
            current[row] = made
            found.append(made)
    return found


def read_operations(path: Path) -> list[Operation]:
    operations: dict[str, Operation] = {}
    for note in read_notes(path):
        match note["kind"]:
            case "call":
                operations[note["op"]] = Operation(
                    note["op"],
                    note["what"],
                    tuple(note["ids"]),
                    note["at"],
                    note.get("not_before"),
                    note.get("handler"),
                    note.get("payload"),
                )
            case "ok" | "refused" | "failed" | "unknown":
                operation = operations[note["op"]]
                operation.reply, operation.replied = note["kind"], note["at"]
                operation.guid, operation.changed = note.get("guid"), note.get("changed", True)
    return list(operations.values())


def read_runs(path: Path, facts: Facts) -> None:
    open_runs: dict[tuple[str, str, int], Run] = {}
    for note in read_notes(path):
        match note["kind"]:
            case "begun":
                names = ("writer", "id", "guid", "tick", "attempt", "handler")
                run = Run(*(note[name] for name in names), note["at"], note["due"])
                open_runs[run.writer, run.guid, run.attempt] = run
                facts.runs.append(run)
            case "done" | "failed" | "cancelled" | "void":
                run = open_runs.pop((note["writer"], note["guid"], note["attempt"]))
                run.ended, run.ending = note["at"], note["kind"]
            case "told":
                facts.told.append(Told(note["task"], note["at"], note["writer"]))
            case "taken" | "delivered":
                facts.parcels.append(
                    Parcel(
                        note["token"],
                        str(note["task"]),
                        note["receipt"],
                        note["at"],
                        note["writer"],
                        note["kind"] == "delivered",
                    )
                )


def read_database(place: Place, facts: Facts) -> None:
    facts.changes = audit.read(place)
    for id, guid, *rest in place.ask(ACTIONS):
        facts.actions[id] = ActionRow(id, str(guid), *rest)
    facts.history = [Remembered(str(guid), attempt, outcome) for guid, attempt, outcome in place.ask(HISTORY)]
    if not place.is_postgresql:
        facts.integrity = "; ".join(str(row[0]) for row in place.ask("pragma integrity_check"))


def lives(incarnations: Iterable[Incarnation], now: float) -> list[tuple[str, int, float, float]]:
    return [(one.writer, one.pid, one.started_at, one.ended_at or now) for one in incarnations]


def first_after(times: list[float], moment: float) -> float | None:
    """The first of sorted moments that is later."""
    place = bisect_right(times, moment)
    return times[place] if place < len(times) else None
