"""The figures to reach, as data; what a run says about each is told at its end.

Absolute figures hold for the machine they were set on, two cores that also run the database; ratios are of one run. One
of them depends on the disk as well: peers that send a notice with each job wait for its flush one after another, so the
slower it is the better we look beside them (see the workload `commits`).

That nothing is lost, early, run twice or above a limit is no figure: it makes a run fail. Recovery after `kill -9` is
not measured here: `./tools/dev chaos` judges it.
"""

from __future__ import annotations

from benchmarks.judging import Absolute, Bound, Target, Times

BEST_PEER = Times(
    ("schedule-32", "rate"),
    tuple((f"{peer}-enqueue-32", "rate") for peer in ("pgqueuer", "procrastinate", "awa", "graphile", "pgboss")),
    "the best peer",
)
SCHEDULED = Absolute("schedule-32", "rate", "/s")
PGBOSS_BULK = Times(("schedule-many", "rate"), (("pgboss-bulk", "rate"),), "pg-boss")
PGQUEUER_DRAIN = Times(("drain", "rate"), (("pgqueuer-drain", "rate"),), "PgQueuer")
FLOOR = Times(("drain", "rate"), (("floor", "drain"),), "the protocol floor")
ONE_PROCESS = Times(("drain-2", "rate"), (("drain", "rate"),), "one process")
GRAPHILE = Times(("queue-drain", "rate"), (("graphile-drain", "rate"),), "graphile-worker")
RAW_QUEUE = Times(("queue-drain", "rate"), (("queue-floor", "rate"),), "raw claim and delete")
LATENCY_P50 = Absolute("latency", "p50", "ms", "p50")
LATENCY_P99 = Absolute("latency", "p99", "ms", "p99")
PGQUEUER_LATENCY = Times(("latency", "p50"), (("pgqueuer-latency", "p50"),), "PgQueuer's p50")
LATENESS_P50 = Absolute("lateness", "p50", "ms", "p50")
LATENESS_P99 = Absolute("lateness", "p99", "ms", "p99")
WITH_1M = Absolute("drain-future", "to none", "share", "÷ none:")
WITH_10M = Absolute("drain-future-10m", "to none", "share", "÷ none:")
IDLE = Absolute("idle", "transactions", "/s")
PLAN = Absolute("plan", "p50", "ms", "p50")
BESIDE_HELD = Times(("drain-held", "rate"), (("drain-template", "rate"),), "alone")
LIMIT_USED = Absolute("limit-fleet", "used", "share")
BALANCE = Times(("balance", "p50"), (("balance-small", "p50"),), "with 1,000")
IDLE_SEMAPHORES = Absolute("semaphores-idle", "to none", "share", "÷ none:")
SQLITE_DRAIN = Absolute("drain", "rate", "/s", database="sqlite")
SQLITE_SCHEDULED = Absolute("schedule-32", "rate", "/s", database="sqlite")
MEMORY = Absolute("memory", "peak", "MB")
WEB_API = Absolute("web-api", "worst p95", "ms", "p95")
WEB_BULK = Absolute("web-bulk", "worst p95", "ms", "p95")
WEB_PAGES = Absolute("web-pages", "worst p95", "ms", "p95")
WATCHED = Absolute("drain-watched", "cost", "%")

AS_NONE = 1.1
"""What counts as no cost: a look takes a fifth of a millisecond, and differs by as much from one to the next."""

TARGETS = (
    Target(
        "schedule, 32 calls at once, each durable",
        gate=[Bound(BEST_PEER, "≥", 3)],
        aim=[Bound(BEST_PEER, "≥", 5), Bound(SCHEDULED, "≥", 10_000)],
    ),
    Target(
        "schedule_many, batches of 1,000",
        gate=[Bound(PGBOSS_BULK, "≥", 0.8)],
        aim=[Bound(PGBOSS_BULK, "≥", 1.2)],
    ),
    Target(
        "drain 20,000 due actions, one process",
        gate=[Bound(PGQUEUER_DRAIN, "≥", 0.9), Bound(FLOOR, "≥", 0.5)],
        aim=[Bound(PGQUEUER_DRAIN, "≥", 1.2)],
    ),
    Target(
        "the same, two processes",
        gate=[Bound(ONE_PROCESS, ">", 1)],
        aim=[Bound(ONE_PROCESS, "≥", 1.4)],
    ),
    Target(
        "typed queue, batch handlers, one process",
        gate=[Bound(GRAPHILE, "≥", 1)],
        aim=[Bound(RAW_QUEUE, "≥", 0.6)],
    ),
    Target(
        "schedule → handler start on an idle worker",
        gate=[Bound(LATENCY_P50, "≤", 3), Bound(LATENCY_P99, "≤", 15)],
        aim=[Bound(PGQUEUER_LATENCY, "≤", 1)],
    ),
    Target(
        "lateness of 2,000 actions over 20 s",
        gate=[Bound(LATENESS_P50, "≤", 5), Bound(LATENESS_P99, "≤", 20)],
        aim=[Bound(LATENESS_P50, "≤", 2), Bound(LATENESS_P99, "≤", 6)],
    ),
    Target(
        "drain with 1,000,000 future actions",
        gate=[Bound(WITH_1M, "≥", 0.8)],
        aim=[Bound(WITH_1M, "≥", 0.95)],
    ),
    Target(
        "drain with 10,000,000 future actions",
        gate=[Bound(WITH_10M, "≥", 0.6)],
        aim=[Bound(WITH_10M, "≥", 0.9)],
    ),
    Target(
        "transactions of an idle worker, 64 shards",
        gate=[Bound(IDLE, "≤", 3)],
        aim=[Bound(IDLE, "≤", 1.2)],
    ),
    Target(
        "quota plan of one window, 1,000,000 due rows",
        gate=[Bound(PLAN, "≤", 500)],
        aim=[Bound(PLAN, "≤", 100)],
    ),
    Target(
        "a template beside another with 1,000,000 held rows",
        gate=[Bound(BESIDE_HELD, "≥", 0.8)],
        aim=[Bound(BESIDE_HELD, "≥", 0.95)],
    ),
    Target(
        "fleet-wide limit, 4 processes: used of it",
        gate=[Bound(LIMIT_USED, "≥", 0.95)],
        aim=[Bound(LIMIT_USED, "≥", 0.99)],
    ),
    Target(
        "semaphore: one balance with 1,000,000 waiting tasks",
        gate=[Bound(BALANCE, "≤", 2)],
        aim=[Bound(BALANCE, "≤", 1.1)],
    ),
    Target("HTTP API: the slowest call with 1,000,000 actions", gate=[Bound(WEB_API, "≤", 20)]),
    Target("HTTP API: the slowest call about a hundred", gate=[Bound(WEB_BULK, "≤", 200)]),
    Target("dashboard: the slowest page with 1,000,000 actions", gate=[Bound(WEB_PAGES, "≤", 100)]),
    Target("five open tabs: of the drain's processor time", gate=[Bound(WATCHED, "≤", 2)]),
    Target("10,000 idle semaphores: cost as none", gate=[Bound(IDLE_SEMAPHORES, "≤", AS_NONE)]),
    Target(
        "SQLite: drain, one process",
        gate=[Bound(SQLITE_DRAIN, "≥", 5_000)],
        aim=[Bound(SQLITE_DRAIN, "≥", 10_000)],
    ),
    Target(
        "SQLite: schedule, 32 calls at once",
        gate=[Bound(SQLITE_SCHEDULED, "≥", 5_000)],
        aim=[Bound(SQLITE_SCHEDULED, "≥", 15_000)],
    ),
    Target(
        "memory of a worker with 1,000,000 due rows",
        gate=[Bound(MEMORY, "≤", 150)],
        aim=[Bound(MEMORY, "≤", 100)],
    ),
)
