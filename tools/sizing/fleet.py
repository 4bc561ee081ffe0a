"""The fleet that is reckoned with, and the machine that its database is on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    workers: int = 1_000
    """Processes."""
    shards: int = 4_096
    future: int = 100_000_000
    """Actions that are stored and not due yet."""
    rate: float = 50_000
    """Actions a second, come due by chance, over long."""
    handler_ms: float = 20
    schedule_batch: int = 100
    """Actions that are scheduled in one transaction."""
    lease: float = 10
    """Seconds: of an attempt."""
    shard_lease: float = 10
    heartbeat: float = 3
    hold_max: float = 0.25
    rest_max: float = 1
    keep_hours: float = 168
    """How long actions stay after they have ended well."""
    tidy_batch: int = 500
    per_machine: int = 32
    """Workers that die together."""
    listen: bool = True
    pooled: bool = False
    """Through PgBouncer in transaction mode."""
    cores: int = 64
    """Of the database's machine."""
    max_connections: int = 1_000
    disk_tb: float = 4
    wal_mb_s: float = 500
    """What its disk and its standbys take."""
    max_wal_gb: float = 64
    checkpoint_s: float = 900
    vacuum_cost_limit: int = 200
    """Of the server. Our queues are vacuumed without any, as their schema says."""
    vacuum_scale: float = 0.05
    """The share of `scheduled_actions` that is dead when it is vacuumed."""
    outage_s: float = 30
    """How long a change of the primary takes."""
