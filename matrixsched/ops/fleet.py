"""The whole fleet at a glance: what is due, how late it is, who works on it, what is held back by which gate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta

from matrixsched.app import App
from matrixsched.ops.render import Count
from matrixsched.rules.gate_report import GateReport
from matrixsched.rules.minutes import MINUTE, FleetMinute, WorkerMinute, WorkerSeen, fleet_minutes, late_quantile
from matrixsched.store.fleet import Parked

MINUTES = 60
DUE_COUNT_MAX = 10_000
PARKED_COUNT_MAX = 1_000
GATED_LANES_MAX = 2_000
HELD_COUNT_MAX = 20_000
LATELY = 5
"""Lateness and throughput are told of so many minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerAtWork(WorkerSeen):
    """A worker that is there, and what it did in the last minutes."""

    attempts: int
    went_wrong: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    now: datetime
    shard_count: int
    due: Count
    oldest_due_at: datetime | None
    oldest_open_at: datetime | None = None
    """Of what stands before no gate, so that nothing but a worker with room for it is missing."""
    oldest_parked_at: datetime | None = None
    """Of what no worker that met it has a handler for."""
    parked: Sequence[Parked] = ()
    """For which handlers that is."""
    minutes: Sequence[FleetMinute]
    """The last hour, oldest first; the last one has not ended yet."""
    workers: Sequence[WorkerAtWork]
    gates: GateReport

    @property
    def oldest_due(self) -> timedelta:
        return self.since(self.oldest_due_at)

    @property
    def parked_for_workers(self) -> list[Parked]:
        """For handlers that some worker has after all: it has no room, or has just come."""
        return [one for one in self.parked if one.handler in self._known]

    @property
    def parked_for_nobody(self) -> list[Parked]:
        return [one for one in self.parked if one.handler not in self._known]

    @property
    def _known(self) -> set[str]:
        return {handler for worker in self.workers for handler in worker.handlers}

    def since(self, at: datetime | None) -> timedelta:
        return timedelta(0) if at is None else self.now - at

    def late_s(self, share: float) -> float | None:
        """Within which time that share of the attempts of the last minutes began."""
        lately = self.minutes[-LATELY:]
        return late_quantile([sum(counts) for counts in zip(*(one.late for one in lately), strict=True)], share)

    @property
    def throughput(self) -> float:
        """Attempts per second, in the last minutes."""
        lately = self.minutes[-LATELY:]
        elapsed = self.now - lately[0].minute
        return sum(one.attempts for one in lately) / max(elapsed.total_seconds(), 1.0)

    @property
    def went_wrong(self) -> int:
        """In the last minutes."""
        return sum(one.went_wrong for one in self.minutes[-LATELY:])


async def overview(app: App) -> Overview:
    do, run = app.store.transitions, app.store.run
    installation = await run(do.installation())
    backlog = await run(do.backlog(count_max=DUE_COUNT_MAX))
    told = await run(do.worker_minutes(since=MINUTE * (MINUTES + 1)))
    seen = await run(do.workers_seen())
    parked = [] if backlog.oldest_parked_at is None else await run(do.parked(count_max=PARKED_COUNT_MAX))
    gates = await run(do.gate_report(lanes_max=GATED_LANES_MAX, count_max=HELD_COUNT_MAX))
    return Overview(
        now=backlog.now,
        shard_count=installation.shard_count,
        due=Count(backlog.due, DUE_COUNT_MAX),
        oldest_due_at=backlog.oldest_due_at,
        oldest_open_at=backlog.oldest_open_at,
        oldest_parked_at=backlog.oldest_parked_at,
        parked=parked,
        minutes=fleet_minutes(told, now=backlog.now, count=MINUTES),
        workers=workers_at_work(seen, told, backlog.now),
        gates=gates,
    )


def workers_at_work(seen: Sequence[WorkerSeen], told: Sequence[WorkerMinute], now: datetime) -> list[WorkerAtWork]:
    """Those that were heard of lately, by name."""
    lately = {one.name: FleetMinute(now) for one in seen if one.is_there(now)}
    for minute in told:
        if minute.worker in lately and minute.minute > now - MINUTE * LATELY:
            lately[minute.worker].add(minute)
    return [
        WorkerAtWork(**asdict(one), attempts=lately[one.name].attempts, went_wrong=lately[one.name].went_wrong)
        for one in seen
        if one.name in lately
    ]
