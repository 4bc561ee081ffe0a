"""The workloads, by name. What each one measures is the first line of its function."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks import draining, gates, queues, scheduling, semaphores, timing
from benchmarks.floor import floor
from benchmarks.measuring import Measured, Run
from benchmarks.peers import draining as peers
from matrixsched.store.statements import Dialect

BOTH: tuple[Dialect, ...] = ("postgresql", "sqlite")
POSTGRESQL: tuple[Dialect, ...] = ("postgresql",)


@dataclass(frozen=True)
class Ratio:
    """A figure of another workload, measured in the same round, that one of ours is divided by."""

    workload: str
    figure: str


@dataclass(frozen=True)
class Workload:
    name: str
    databases: tuple[Dialect, ...]
    run: Callable[[Run], Measured]
    compared_to: Ratio | None = None
    is_long: bool = False
    """It takes minutes: it is measured when somebody asks for it."""
    is_peer: bool = False
    """Another library: it is measured when somebody asks for it."""

    @property
    def summary(self) -> str:
        return (inspect.getdoc(self.run) or "").partition("\n")[0]


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload("schedule-1", BOTH, scheduling.schedule_1),
        Workload("schedule-32", BOTH, scheduling.schedule_32),
        Workload("schedule-256", BOTH, scheduling.schedule_256),
        Workload("schedule-many", BOTH, scheduling.schedule_many, Ratio("floor", "schedule")),
        Workload("drain", BOTH, draining.drain, Ratio("floor", "drain")),
        Workload("drain-2", BOTH, draining.drain_2, Ratio("drain", "rate")),
        Workload("drain-staged", BOTH, draining.drain_staged, Ratio("drain", "rate")),
        Workload("drain-future-100k", BOTH, draining.drain_future_100k, Ratio("drain", "rate")),
        Workload("drain-future", BOTH, draining.drain_future, Ratio("drain", "rate")),
        Workload("drain-future-10m", POSTGRESQL, draining.drain_future_10m, Ratio("drain", "rate"), is_long=True),
        Workload("memory", BOTH, draining.memory),
        Workload("plan", POSTGRESQL, gates.plan),
        Workload("drain-template", POSTGRESQL, gates.drain_template, Ratio("drain", "rate")),
        Workload("drain-held", POSTGRESQL, gates.drain_held, Ratio("drain-template", "rate")),
        Workload("drain-keys", POSTGRESQL, gates.drain_keys, Ratio("drain", "rate")),
        Workload("limit-fleet", BOTH, gates.limit_fleet),
        Workload("balance-small", BOTH, semaphores.balance_small),
        Workload("balance", POSTGRESQL, semaphores.balance, Ratio("balance-small", "p50")),
        Workload("semaphores-idle", BOTH, semaphores.semaphores_idle),
        Workload("queue-put", BOTH, queues.queue_put),
        Workload("queue-drain", BOTH, queues.queue_drain, Ratio("queue-floor", "rate")),
        Workload("queue-future", POSTGRESQL, queues.queue_future, Ratio("queue-drain", "rate")),
        Workload("queue-floor", POSTGRESQL, queues.queue_floor),
        Workload("latency", BOTH, timing.latency),
        Workload("lateness", BOTH, timing.lateness),
        Workload("idle", BOTH, timing.idle),
        Workload("idle-16", BOTH, timing.idle_16),
        Workload("idle-256", BOTH, timing.idle_256),
        Workload("floor", POSTGRESQL, floor),
        Workload("graphile", POSTGRESQL, peers.graphile, is_peer=True),
        Workload("pgqueuer", POSTGRESQL, peers.pgqueuer, is_peer=True),
    )
}
