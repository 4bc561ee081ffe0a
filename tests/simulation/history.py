"""What was asked, claimed, run and recorded, noted outside the database in the order in which it happened."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

from matrixsched.context import Context
from matrixsched.rules.action import Attempt, Claim
from matrixsched.rules.outcome import Verdict
from matrixsched.store.values import Answer

STOP_THAT_MATTERS = timedelta(seconds=1)
"""Leases are prolonged long before they end, and trusted for so much less than they last."""
_REFUSALS = ("busy", "unavailable")
_ABOUT_CLAIMS = frozenset(
    ("move", "claim", "claim_gated", "close_fence", "claimed_by", "extend", "record", "record_deliveries", "give_back")
    + ("take_tasks", "extend_tasks", "done_tasks", "retry_tasks", "set_aside_tasks")
)
"""The calls by which a worker gets what it holds, keeps it and gets rid of it: actions, and tasks of queues."""

Key = tuple[UUID, int, UUID]
"""An attempt by name: guid, number, claimed by."""


class Ended(StrEnum):
    """How a handler ended, as it saw it itself."""

    DONE = "done"
    FAILED = "failed"
    RETRY = "retry"
    CANCEL = "cancel"
    CANCELLED = "cancelled"
    OVERRUN = "overrun"
    """It returned, but after its time limit."""


class Reply(StrEnum):
    """What the caller of an operation knows."""

    OPEN = "open"
    OK = "ok"
    REFUSED = "refused"
    """For a reason that lies in the state it met."""
    FAILED = "failed"
    """Nothing was done."""
    UNKNOWN = "unknown"


@dataclass(slots=True, eq=False)
class Operation:
    """A call of a client."""

    kind: str
    client: str
    ids: tuple[str, ...]
    called: int
    called_at: datetime
    not_before: datetime | None
    """What it schedules does not start earlier; None if that is not known beforehand."""
    guids: set[UUID] = field(default_factory=set)
    """Drawn for it: the versions that it may write are among them."""
    reply: Reply = Reply.OPEN
    replied: int | None = None
    replied_at: datetime | None = None
    changed: bool = False
    interval: timedelta | None = None
    """Of what it schedules for every tick of a grid that begins with the run."""
    """By a request id, under which it may be sent again after a refusal: its first try may still come through late."""

    @property
    def keeps_counters(self) -> bool:
        return self.kind in ("reschedule", "run_now", "cancel")

    @property
    def is_certain(self) -> bool:
        """Its caller knows that it changed the action."""
        return self.reply is Reply.OK and self.changed

    def is_before(self, other: Operation) -> bool:
        """Whether it was certain, and over, before the other one was called."""
        return self.is_certain and self.replied is not None and self.replied < other.called


@dataclass(slots=True, eq=False)
class Run:
    """A call of a handler."""

    host: str
    id: str
    guid: UUID
    tick: int
    attempt: int
    handler: str
    key: str
    """By which others know what it does again."""
    started: int
    started_at: datetime
    ended: int | None = None
    ended_at: datetime | None = None
    ending: Ended | None = None


@dataclass(slots=True, eq=False)
class ClaimNote:
    """A committed claim, whether or not its worker heard of it."""

    host: str
    attempt: Attempt
    number: int
    asked_at: datetime
    at: datetime
    run: Run | None = None
    settled_at: datetime | None = None
    settled_as: str | None = None
    next_at: datetime | None = None
    """When the same guid was claimed again."""
    leased_until: datetime | None = None
    started_under: datetime | None = None
    """Until when it was leased when its handler was started."""

    @property
    def claim(self) -> Claim:
        return self.attempt.claim


@dataclass(frozen=True, slots=True)
class RecordNote:
    """A committed answer to an outcome."""

    number: int
    at: datetime
    host: str
    claim: Claim
    verdict: Verdict
    answer: Answer


@dataclass(slots=True)
class FaultNote:
    kind: str
    host: str
    what: str
    begins_at: datetime
    ends_at: datetime

    @property
    def loses_claims(self) -> bool:
        """Whether a worker may lose what it holds by it. A refusal is no excuse: nothing was done, the worker knows it,
        and has to try again. Neither is what happens to a call about something else, or too short a stop."""
        if self.kind.startswith("crash"):
            return True  # before or after a call, or at any await
        if self.kind == "stop":
            return self.ends_at - self.begins_at >= STOP_THAT_MATTERS
        return self.kind not in _REFUSALS and self.what in _ABOUT_CLAIMS


class History:
    def __init__(self, now: Callable[[], datetime], *, keeps_trace: bool) -> None:
        self._now = now
        self._hash = hashlib.blake2b(digest_size=8)
        self._count = 0
        self._keeps_trace = keeps_trace
        self.trace: list[str] = []
        self.operations: list[Operation] = []
        self.operation_of: dict[UUID, Operation] = {}
        self.runs: list[Run] = []
        self.claims: dict[Key, ClaimNote] = {}
        self.claims_of: dict[UUID, list[ClaimNote]] = {}
        self.records: list[RecordNote] = []
        self.faults: list[FaultNote] = []

    def note(self, *facts: object) -> int:
        """Put a line into the trace; its number."""
        self._count += 1
        line = f"{self._now():%M:%S.%f} {' '.join(map(str, facts))}"
        self._hash.update(line.encode())
        if self._keeps_trace:
            self.trace.append(line)
        return self._count

    @property
    def trace_hash(self) -> str:
        return self._hash.hexdigest()

    # Clients.

    def call(self, client: str, kind: str, ids: Sequence[str], not_before: datetime | None) -> Operation:
        number = self.note(client, kind, *ids)
        operation = Operation(kind, client, tuple(ids), number, self._now(), not_before)
        self.operations.append(operation)
        return operation

    def drew(self, operation: Operation, guid: UUID) -> None:
        operation.guids.add(guid)
        self.operation_of[guid] = operation

    def caused(self, host: str, kind: str, guid_by_id: Mapping[str, UUID]) -> None:
        """A commit wrote versions of actions by itself: certain, and known from then on."""
        operation = self.call(host, kind, list(guid_by_id), None)
        for guid in guid_by_id.values():
            self.drew(operation, guid)
        self.reply(operation, Reply.OK, changed=True)

    def reply(self, operation: Operation, reply: Reply, *, changed: bool = False, what: object = "") -> None:
        operation.reply, operation.changed, operation.replied_at = reply, changed, self._now()
        operation.replied = self.note(operation.client, operation.kind, *operation.ids, reply, changed, what)

    # Workers.

    def claimed(self, host: str, attempts: Iterable[Attempt], asked_at: datetime) -> None:
        for attempt in attempts:
            claim = attempt.claim
            number = self.note(host, "claimed", claim.action_id, claim.guid, claim.attempt, attempt.tick)
            earlier = self.claims_of.setdefault(claim.guid, [])
            if earlier:
                earlier[-1].next_at = self._now()
            claimed = ClaimNote(host, attempt, number, asked_at, self._now())
            earlier.append(claimed)
            self.claims[claim.guid, claim.attempt, claim.claimed_by] = claimed

    def leased(self, leases: Iterable[tuple[Key, datetime]]) -> None:
        """As the rows of attempts say."""
        for key, until in leases:
            if key in self.claims:
                self.claims[key].leased_until = until

    def started(self, host: str, context: Context) -> Run:
        number = self.note(host, "started", context.id, context.guid, context.attempt, context.tick)
        run = Run(
            host,
            context.id,
            context.guid,
            context.tick,
            context.attempt,
            context.handler,
            context.idempotency_key,
            number,
            self._now(),
        )
        self.runs.append(run)
        for claimed in self.claims_of.get(context.guid, ()):
            if claimed.claim.attempt == context.attempt and claimed.host == host and claimed.run is None:
                claimed.run, claimed.started_under = run, claimed.leased_until
        return run

    def ended(self, run: Run, ending: Ended) -> None:
        run.ended = self.note(run.host, "ended", run.id, run.guid, run.attempt, ending)
        run.ended_at, run.ending = self._now(), ending

    def recorded(self, host: str, claim: Claim, verdict: Verdict, answer: Answer) -> None:
        number = self.note(host, "recorded", claim.action_id, claim.guid, claim.attempt, verdict.outcome, answer)
        self.records.append(RecordNote(number, self._now(), host, claim, verdict, answer))
        if answer in (Answer.RECORDED, Answer.SUPERSEDED):
            self.settled(claim, answer)

    def settled(self, claim: Claim, how: str) -> None:
        claimed = self.claims.get((claim.guid, claim.attempt, claim.claimed_by))
        if claimed is not None and claimed.settled_as is None:
            claimed.settled_at, claimed.settled_as = self._now(), how

    # Faults.

    def fault(self, kind: str, host: str, what: str = "", duration_s: float = 0) -> FaultNote:
        self.note("FAULT", kind, host, what, f"{duration_s:.3f}")
        now = self._now()
        fault = FaultNote(kind, host, what, now, now + timedelta(seconds=duration_s))
        self.faults.append(fault)
        return fault

    def is_hit(self, host: str, since: datetime, until: datetime) -> bool:
        """Whether any fault hit that host between two instants."""
        return any(self._hits(host, since, until))

    def is_explained(self, host: str, since: datetime, until: datetime) -> bool:
        """Whether a fault hit that host between two instants by which it may lose what it holds."""
        return any(fault.loses_claims for fault in self._hits(host, since, until))

    def _hits(self, host: str, since: datetime, until: datetime) -> Iterator[FaultNote]:
        return (
            fault for fault in self.faults if fault.host == host and fault.begins_at <= until and fault.ends_at >= since
        )
