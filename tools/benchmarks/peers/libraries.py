"""Workloads of other libraries: the same on the same server in the same run, for figures that ours are divided by.

What they promise differs: most complete a job by its bare id, and write about a third of our rows.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.measuring import Measured, Run, rate, rested, spread_of
from benchmarks.peers.environments import Peer, database_beside

NODE = "node@22.23.3"
PG = "pg@8.23.1"
PSYCOPG = "psycopg[binary,pool]==3.3.9"
PGQUEUER = Peer("pgqueuer", ("pgqueuer==1.6.0", "asyncpg==0.32.0", "uvloop==0.23.0"), "with_pgqueuer.py")
PROCRASTINATE = Peer("procrastinate", ("procrastinate==3.10.0", PSYCOPG), "with_procrastinate.py")
AWA = Peer("awa", ("awa-pg==0.6.9", PSYCOPG), "with_awa.py")
HUEY = Peer("huey", ("huey==3.5.4",), "with_huey.py")
GRAPHILE = Peer("graphile", (NODE, "graphile-worker@0.18.0", PG), "with_graphile.mjs")
PGBOSS = Peer("pgboss", (NODE, "pg-boss@12.35.0", PG), "with_pgboss.mjs")

CALLS_PART = 4
"""They are slow where calls are made one by one, and their rates do not depend on how many they are."""

Running = Callable[[Run], Measured]


def enqueued(peer: Peer, how: str) -> Running:
    return _told(f"{peer.name}: calls per second of 32 callers at once; {how}", lambda run: _enqueued(run, peer))


def put_in_bulk(peer: Peer, how: str) -> Running:
    return _told(
        f"{peer.name}: jobs per second of one caller, 1,000 at a time; {how}",
        lambda run: _rated(run, peer, "bulk", run.scale.calls_in_batches),
    )


def drained(peer: Peer, how: str, *, part: int = 1) -> Running:
    return _told(
        f"{peer.name}: no-op jobs per second, one process; {how}",
        lambda run: _rated(run, peer, "drain", max(1, run.scale.due // part)),
    )


def drained_by_2(peer: Peer, how: str) -> Running:
    return _told(
        f"{peer.name}: no-op jobs per second, two processes; {how}",
        lambda run: _rated(run, peer, "drain_2", run.scale.due),
    )


def latency(peer: Peer) -> Running:
    return _told(
        f"{peer.name}: from the call to the start of the handler, on an idle worker in a process of its own",
        lambda run: _timed(_asked(run, peer, "latency", run.scale.starts)),
    )


def lateness(peer: Peer) -> Running:
    return _told(
        f"{peer.name}: how long after its instant a handler starts, for jobs spread evenly over 20 seconds",
        lambda run: _timed(_asked(run, peer, "lateness", run.scale.timers, str(run.scale.timers_over_s))),
    )


def _told(summary: str, run: Running) -> Running:
    run.__doc__ = summary
    return run


def _enqueued(run: Run, peer: Peer) -> Measured:
    return _rated(run, peer, "enqueue", max(1, run.scale.calls_at_once // CALLS_PART))


def _rated(run: Run, peer: Peer, what: str, count: int) -> Measured:
    answered = _asked(run, peer, what, count)
    return Measured([rate("rate", count, answered["seconds"])], answered["violations"])


def _timed(answered: dict[str, Any]) -> Measured:
    figures = [*spread_of(answered["times_s"]), *rested(spread_of(answered.get("rested_s", ())))]
    return Measured(figures, answered["violations"])


def _asked(run: Run, peer: Peer, what: str, count: int, *more: str) -> dict[str, Any]:
    with _target(run) as target:
        return peer.ask(what, target, str(count), *more)


@contextlib.contextmanager
def _target(run: Run) -> Iterator[str]:
    """A database on the same server, or a file, for nobody else."""
    if run.place.dialect == "postgresql":
        with database_beside(run.place.url) as url:
            yield url
    else:
        with tempfile.TemporaryDirectory(prefix="matrixsched-bench-") as folder:
            yield str(Path(folder) / "peer.db")
