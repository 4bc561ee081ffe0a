"""How large the run of a seed is, and by which numbers its workers live."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from random import Random

from matrixsched.worker.policy import WorkerPolicy


@dataclass(frozen=True, slots=True)
class Size:
    """How large a run is; drawn from its seed."""

    shards: int
    workers: int
    clients: int
    callers: int
    ids: int
    operations: int
    think_s: float
    chaos_s: float
    is_told: bool
    """Workers are told of changes; otherwise they look by themselves only."""
    shards_named: float
    """The share of those who are told of new actions that hear in which shard they are."""
    policy: WorkerPolicy


def draw_size(chance: Random) -> Size:
    return Size(
        shards=chance.randint(1, 8),
        workers=chance.randint(2, 4),
        clients=chance.randint(2, 3),
        callers=chance.randint(1, 3),
        ids=chance.randint(3, 25),
        operations=chance.randint(10, 24),
        think_s=chance.choice((0.5, 2.0, 5.0)),
        chaos_s=chance.uniform(12, 45),
        is_told=chance.random() < 0.4,
        shards_named=0.5,
        policy=WorkerPolicy(
            **_draw_leases(chance),
            concurrency=chance.randint(1, 4),
            batch_max=chance.randint(1, 5),
            timeout_grace=timedelta(seconds=2),
            stop_grace=timedelta(seconds=chance.choice((0, 3, 20))),
            keep_done=timedelta(seconds=chance.choice((5, 30, 3600))),
            keep_cancelled=timedelta(seconds=chance.choice((5, 30, 3600))),
            keep_failed=timedelta(seconds=chance.choice((5, 30, 3600))),
            keep_expired=timedelta(seconds=chance.choice((5, 30, 3600))),
            tidy_every=timedelta(seconds=chance.choice((2, 10, 30))),
            tidy_batch=chance.choice((2, 10, 500)),
            history_max=chance.choice((1, 5, 50)),
        ),
    )


def _draw_leases(chance: Random) -> dict[str, timedelta]:
    """How long things are held and leased, and how often looked at: some hold shards over many heartbeats."""
    shard_lease_s, attempt_lease_s = chance.choice((4.0, 10.0)), chance.choice((4.0, 10.0, 10.0))
    return {
        "shard_lease": timedelta(seconds=shard_lease_s),
        "heartbeat": timedelta(seconds=chance.choice((0.02, shard_lease_s / 4))),
        "attempt_lease": timedelta(seconds=attempt_lease_s),
        "lease_margin": timedelta(seconds=attempt_lease_s / 10),
        "rest_max": timedelta(seconds=chance.choice((0.5, 1.0, 2.0))),
        "hold_max": timedelta(seconds=chance.choice((0.1, 0.25, 1.5))),
    }
