"""The workloads, by name. What each one measures is the first line of its function."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks import churning, draining, gates, queues, scheduling, semaphores, timing, web
from benchmarks.commits import commits
from benchmarks.floor import floor
from benchmarks.latency_floor import latency_floor
from benchmarks.lateness_floor import lateness_floor
from benchmarks.measuring import Measured, Run
from benchmarks.peers.environments import Peer
from benchmarks.peers.libraries import (
    AWA,
    GRAPHILE,
    HUEY,
    PGBOSS,
    PGQUEUER,
    PROCRASTINATE,
    drained,
    drained_by_2,
    enqueued,
    latency,
    lateness,
    put_in_bulk,
)
from matrixsched.store.statements import Dialect

BOTH: tuple[Dialect, ...] = ("postgresql", "sqlite")
POSTGRESQL: tuple[Dialect, ...] = ("postgresql",)
SQLITE: tuple[Dialect, ...] = ("sqlite",)


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
    peer: Peer | None = None
    """Another library: it is measured when somebody asks for it."""

    @property
    def summary(self) -> str:
        return (inspect.getdoc(self.run) or "").partition("\n")[0]


def of_peer(peer: Peer, kind: str, run: Callable[[Run], Measured]) -> Workload:
    databases = SQLITE if peer is HUEY else POSTGRESQL
    return Workload(f"{peer.name}-{kind}", databases, run, peer=peer)


# What is compared stands side by side: a machine is faster in this minute than in the next.
WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload("commits", BOTH, commits),
        Workload("schedule-1", BOTH, scheduling.schedule_1),
        Workload("schedule-32", BOTH, scheduling.schedule_32),
        of_peer(PGQUEUER, "enqueue-32", enqueued(PGQUEUER, "a pool of 32, uvloop")),
        of_peer(PROCRASTINATE, "enqueue-32", enqueued(PROCRASTINATE, "a pool of 32")),
        of_peer(AWA, "enqueue-32", enqueued(AWA, "a pool of 32")),
        of_peer(GRAPHILE, "enqueue-32", enqueued(GRAPHILE, "a pool of 32")),
        of_peer(PGBOSS, "enqueue-32", enqueued(PGBOSS, "a pool of 32")),
        of_peer(HUEY, "enqueue-32", enqueued(HUEY, "32 threads, fsync")),
        Workload("schedule-256", BOTH, scheduling.schedule_256),
        of_peer(PGBOSS, "bulk", put_in_bulk(PGBOSS, "insert()")),
        of_peer(PGQUEUER, "bulk", put_in_bulk(PGQUEUER, "lists to enqueue(), uvloop")),
        Workload("schedule-many", BOTH, scheduling.schedule_many, Ratio("floor", "schedule")),
        Workload("floor", POSTGRESQL, floor),
        Workload("drain", BOTH, draining.drain, Ratio("floor", "drain")),
        of_peer(PGQUEUER, "drain", drained(PGQUEUER, "batches of 500, uvloop")),
        of_peer(AWA, "drain", drained(AWA, "500 at once, queue storage")),
        of_peer(PROCRASTINATE, "drain", drained(PROCRASTINATE, "10 at once, a quarter of the jobs", part=4)),
        of_peer(HUEY, "drain", drained(HUEY, "4 threads, fsync")),
        Workload("drain-2", BOTH, draining.drain_2, Ratio("drain", "rate")),
        of_peer(PGQUEUER, "drain-2", drained_by_2(PGQUEUER, "batches of 500, uvloop")),
        Workload("drain-staged", BOTH, draining.drain_staged, Ratio("drain", "rate")),
        Workload("drain-future-100k", BOTH, draining.drain_future_100k),
        Workload("drain-future", BOTH, draining.drain_future),
        Workload("drain-future-10m", POSTGRESQL, draining.drain_future_10m, is_long=True),
        Workload("churn", POSTGRESQL, churning.churn, is_long=True),
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
        of_peer(GRAPHILE, "drain", drained(GRAPHILE, "a local queue of 500, batched completions")),
        of_peer(PGBOSS, "drain", drained(PGBOSS, "batches of 500, burst mode")),
        Workload("queue-floor", POSTGRESQL, queues.queue_floor),
        Workload("queue-future", POSTGRESQL, queues.queue_future, Ratio("queue-drain", "rate")),
        Workload("latency", BOTH, timing.latency, Ratio("latency-floor", "p50")),
        Workload("latency-floor", POSTGRESQL, latency_floor),
        of_peer(PGQUEUER, "latency", latency(PGQUEUER)),
        Workload("lateness", BOTH, timing.lateness, Ratio("lateness-floor", "p50")),
        Workload("lateness-floor", POSTGRESQL, lateness_floor),
        of_peer(PGQUEUER, "lateness", lateness(PGQUEUER)),
        Workload("web-api", POSTGRESQL, web.web_api),
        Workload("web-bulk", POSTGRESQL, web.web_bulk),
        Workload("web-pages", POSTGRESQL, web.web_pages),
        Workload("drain-watched", POSTGRESQL, web.drain_watched),
        Workload("idle", BOTH, timing.idle),
        Workload("idle-16", BOTH, timing.idle_16),
        Workload("idle-256", BOTH, timing.idle_256),
    )
}
