"""What goes into the transitions and what comes out of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID, uuid5

from matrixsched.rules.action import Attempt, Claim, State, Terms
from matrixsched.rules.gates import Gate, Held
from matrixsched.rules.outcome import Verdict
from matrixsched.rules.queues import NewItem

GATED_LANES_MAX = 200
"""How many gated lanes are looked at together."""


@dataclass(frozen=True, slots=True)
class Installation:
    """The facts fixed at `init`."""

    shard_count: int
    schema_version: int
    oldest_library: int
    now: datetime
    is_distributed: bool = False
    """Never on SQLite."""


@dataclass(frozen=True, slots=True)
class WaitingRow:
    """The row that stands for a live action."""

    lane: str | None
    """In the processing queue; None: it is not there."""
    due_at: datetime | None
    is_new: bool
    """It is in the incoming queue."""

    @property
    def is_lost(self) -> bool:
        """There is none: only a hand in the tables leaves it so, and only a repair puts one back."""
        return self.lane is None and not self.is_new


class NewAction(NamedTuple):
    """An action to be written; its first tick is `at`, or after `delay` by the database's clock.

    With both, `at` is the tick and the run is due that `delay` later: the jitter.

    `request_guid` is set where the caller named the request; otherwise the statement's own counts.
    """

    shard: int
    id: str
    guid: UUID
    request_guid: UUID | None
    handler: str
    payload: bytes
    terms: Terms
    lane: str
    priority: int
    template: str | None
    zone: str | None
    expires_at: datetime | None
    at: datetime | None
    delay: timedelta


def noted_guids(batch: Sequence[NewAction], *, replace: bool) -> list[UUID]:
    """Of which actions it is kept that they were written: where the request does not tell, because others may have sent
    the same by its name, or because it leaves alone what exists."""
    return [new.guid for new in batch if new.request_guid is not None or not replace]


def mark_of(change_guid: UUID) -> UUID:
    """Stands among the requests beside the guid of a change that was called off, lest it passes for carried out."""
    return uuid5(change_guid, "called off")


def took_effect(guids: Iterable[UUID], requests: Collection[UUID]) -> set[UUID]:
    return {guid for guid in guids if guid in requests and mark_of(guid) not in requests}


class Seen(NamedTuple):
    """As an action was read of which no attempt was under way."""

    state: State
    last_ended_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change to an action that exists."""

    shard: int
    id: str
    guid: UUID
    request_guid: UUID
    expected_guid: UUID | None
    at: datetime | None = None
    delay: timedelta = timedelta(0)
    seen: Seen | None = None
    """With `expected_guid`: it is moved only if no attempt at it began or ended since."""


class Written(NamedTuple):
    """An action that was written."""

    id: str
    guid: UUID
    created: bool
    running: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionFilter:
    """Which actions to list; what is None does not matter."""

    state: State | None = None
    handler: str | None = None
    template: str | None = None
    id_prefix: str | None = None
    due_before: datetime | None = None


class Turn(StrEnum):
    """Which of the shards with work is taken; among equals the one that was served longest ago, before all of them one
    with events that are due."""

    OLDEST = "oldest"
    IMPORTANT = "important"
    """One where the most important rows wait before gates."""
    UNGATED = "ungated"
    """One with rows that wait for no gate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Acquired:
    """The answer to asking for a shard; `shard` is None when nothing free has work."""

    now: datetime
    shard: int | None
    incoming: bool = False
    incoming_events: bool = False
    """Events are among what is new."""
    lanes: tuple[str, ...] = ()
    """Lanes with rows that are due, in the order of their claims: events, ungated, coming, special ones."""
    gated_lanes: tuple[str, ...] = ()
    """The most important gated lanes that are worth a look now, in this shard or another."""
    holds: bool = False
    """There are rows in gated lanes, anywhere, or lanes are listed of which all rows are gone."""
    next_due_at: datetime | None = None
    contended: bool = False
    """Some shards have work, and others took those that were tried."""


class Taking(NamedTuple):
    """How to take a shard that nobody holds, by the very statement that moves its rows."""

    holder: str
    not_after: datetime
    """By the database's clock: from then on it is not begun any more."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """Attempts that are now ours, out of `seen` rows looked at."""

    seen: int
    attempts: Sequence[Attempt]
    gated_lanes: tuple[str, ...] = ()
    """Where rows were put that have to pass a gate."""
    parked: bool = False
    """Rows were put aside for whoever knows their handlers."""
    took_shard: bool = False
    """The shard, which nobody held, is ours since then."""


class Planned(StrEnum):
    """What became of the wish to plan the present window of the quota."""

    NOW = "now"
    BEFORE = "before"
    """It was planned already."""
    BUSY = "busy"
    """Somebody else plans it at this moment, or it is put off until all that is due is before its gates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedClaim:
    """Attempts that passed their gates and are now ours."""

    now: datetime | None = None
    """When that was decided; None when nothing waited."""
    attempts: Sequence[Attempt] = ()
    held: Mapping[str, Held] = field(default_factory=dict)
    """Lanes that had more rows, and what holds these back."""

    @property
    def unplanned(self) -> bool:
        """Whether templates wait for the present window to be planned."""
        return any(held.gate is Gate.UNPLANNED for held in self.held.values())

    @property
    def busy(self) -> bool:
        return any(held.gate is Gate.BUSY for held in self.held.values())


class Extension(StrEnum):
    EXTENDED = "extended"
    BUSY = "busy"
    LOST = "lost"


class Answer(StrEnum):
    """What became of an outcome that was sent to be recorded."""

    RECORDED = "recorded"
    SUPERSEDED = "superseded"
    LOST = "lost"
    BUSY = "busy"


@dataclass(frozen=True, slots=True)
class Holding:
    """An attempt under way whose lease is to be prolonged, at most until `longest` after its claim."""

    claim: Claim
    longest: timedelta


class Ended(NamedTuple):
    """An attempt that ended, and what is to be recorded of it."""

    claim: Claim
    verdict: Verdict
    delivery: NewItem | None = None
    """Becomes a task of a queue in the transaction that records it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardReport:
    """A shard lock and its queues, for operators."""

    shard: int
    locked: bool
    lock_guid: UUID
    locked_by: str | None
    locked_at: datetime
    heartbeat_at: datetime
    heartbeat_age: timedelta
    incoming: int
    processing: int
    oldest_due_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """What is due in the whole installation and not under way."""

    now: datetime
    due: int
    """Counted up to the limit that was asked for."""
    oldest_due_at: datetime | None
    oldest_open_at: datetime | None = None
    """Of what stands before no gate, and whose handler is known as far as anybody has looked."""
    oldest_parked_at: datetime | None = None
    """Of what no worker that met it has a handler for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """The connections of a store, and how long transitions waited for one."""

    most: int
    open: int
    in_use: int
    waiting: int
    """Transitions that wait for a connection now."""
    served: int
    """How often one was had so far."""
    waited_s: float
    """How long that took, all in all."""


@dataclass(frozen=True, slots=True)
class SweepPosition:
    """How far a sweep has come in its round through a table."""

    shard: int = -1
    action_id: str = ""
    guid: UUID = UUID(int=0)


@dataclass(frozen=True, slots=True)
class TidyPosition:
    """How far each of the sweeps has come; None when its round is complete, until all of them are."""

    rows: SweepPosition | None = SweepPosition()
    """Through the processing queue."""
    history: SweepPosition | None = SweepPosition()
    tasks: int | None = 0
    """Through the tasks of queues, by id."""

    @property
    def is_complete(self) -> bool:
        return self.rows is None and self.history is None and self.tasks is None


@dataclass(frozen=True, slots=True)
class Swept:
    gone: int
    position: SweepPosition
    """Where to go on; the beginning when the round is complete."""
    shortened: int = 0
    """Leases that the database's clock had left behind."""


@dataclass(frozen=True, slots=True)
class Expiry:
    """What became of rows that waited past their expiry."""

    late: int
    """Rows that were found."""
    gone: int
    expired: int
    """Actions that ended by it; the other rows that are gone were dead."""
    templates: Mapping[str, int] = field(default_factory=dict)
    """How many of these were of each template."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """A batch of a template's actions that were cancelled."""

    cancelled: int
    after: tuple[int, str] | None
    """Where the next batch begins; None: this was the last one of the round."""
