"""How an action stands, with everything that decides about it: what an explanation goes by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from matrixsched.rules.action import Action, Spec, State
from matrixsched.rules.gates import QuotaNow
from matrixsched.rules.lanes import Lane
from matrixsched.rules.limits import Limit
from matrixsched.rules.minutes import WorkerSeen
from matrixsched.rules.quota import QuotaSettings
from matrixsched.rules.templates import Template

BEFORE_COUNT_MAX = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRow:
    """The row of the processing queue that stands for an action."""

    lane: str
    due_at: datetime
    """While it is claimed: when the attempt's lease ends."""
    claimed_at: datetime | None
    """Of the attempt under way, or of the one that was interrupted."""
    is_claimed: bool
    interrupted: int
    before: int = 0
    """How many rows of a gated lane were due before it, counted up to BEFORE_COUNT_MAX."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardLock:
    is_locked: bool
    locked_by: str | None
    heartbeat_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How an action stands, and everything that decides about it."""

    now: datetime
    action: Action
    row: QueueRow | None
    """None: it has not been moved out of the incoming queue, or it is finished, or no row stands for it."""
    blocked_until: datetime | None
    """The end of the lease of an attempt at another version."""
    shard: ShardLock
    worker_seen_at: datetime | None
    """The last sign of life that any worker left behind which runs actions."""
    workers: Sequence[WorkerSeen] = ()
    """Those that did not leave; whoever was killed, or runs by hand in a test, is not rightly told."""
    limits: Mapping[str, Limit] = field(default_factory=dict)
    """Those that it is under, by name, with key:*."""
    template: Template | None = None
    quota: QuotaNow | None = None
    settings: QuotaSettings = QuotaSettings()
    is_new: bool = True
    """It is in the incoming queue, if it has no other row."""

    @property
    def is_lost(self) -> bool:
        """No row stands for it, though it is live: only a hand in the tables does that, and only a repair mends it."""
        return self.action.status.state is State.LIVE and self.row is None and not self.is_new

    @property
    def workers_there(self) -> list[WorkerSeen]:
        """Those that run actions; who is there for queues alone does nothing for this one."""
        return [worker for worker in self.workers if worker.runs_actions and worker.is_there(self.now)]

    @property
    def heard_at(self) -> datetime | None:
        """The last sign of life of any worker that runs actions."""
        said = [worker.seen_at for worker in self.workers if worker.runs_actions]
        return max([*said, *([] if self.worker_seen_at is None else [self.worker_seen_at])], default=None)

    @property
    def able_workers(self) -> list[WorkerSeen]:
        """Those that are there and have its handler."""
        return [worker for worker in self.workers_there if self.action.spec.handler in worker.handlers]

    @property
    def due_at(self) -> datetime:
        """Since when it is held, or when it comes due."""
        scheduled_at = self.action.status.scheduled_at
        return scheduled_at if self.row is None or self.row.is_claimed else max(scheduled_at, self.row.due_at)

    @property
    def is_running(self) -> bool:
        return self.row is not None and self.row.is_claimed and self.row.due_at > self.now


def lane_to_pass(spec: Spec) -> Lane:
    """The gates that an action has to pass, as far as they exist."""
    return Lane(handler=spec.handler, priority=spec.priority, key=spec.limit, template=spec.template, zone=spec.zone)
