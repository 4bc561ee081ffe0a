"""What waits, put there as it is drawn: rows without actions, lanes as they are listed, limits, locks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from typing import Any

from matrixsched.rules.lanes import Lane, escaped
from matrixsched.rules.limits import in_nanoseconds
from support.scene import HANDLER, SHARDS, Scene

TICK = timedelta(microseconds=1)
SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)
AROUND_NOW = (-2 * SECOND, -SECOND, -TICK, timedelta(0), TICK, SECOND, HOUR)
ELSEWHERE = "else|where"
GATED = (
    Lane(handler=HANDLER, priority=1),
    Lane(handler=HANDLER, priority=1, key="mx"),
    Lane(handler=HANDLER, priority=2, template="news"),
    Lane(handler=ELSEWHERE, priority=0, key="mx"),
)


@dataclass(frozen=True, slots=True)
class Waiting:
    shard: int
    lane: str
    at: datetime
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Listed:
    """A gated lane, and when it is worth a look."""

    lane: str
    priority: int
    handler: str
    ready_at: datetime


@dataclass(frozen=True, slots=True)
class Slots:
    """A limit."""

    name: str
    next_slot_at: datetime
    has_rate: bool
    """One in a second."""
    slow_until: datetime | None = None
    has_slow_rate: bool = False
    pool: int = 0


@dataclass(frozen=True, slots=True)
class Lock:
    locked: bool
    heartbeat_at: datetime
    served_at: datetime


def gated_rows(random: Random, now: datetime) -> Iterator[Waiting]:
    """Before gates. No two of a lane at one time: which of them is the first is not said."""
    for lane in GATED:
        for after in random.sample(AROUND_NOW, random.randrange(4)):
            expires_at = random.choice([None, None, None, now - TICK, now, now + TICK])
            yield Waiting(random.randrange(SHARDS), lane.name, now + after, expires_at)


# In the database.

LOCK = """update matrixsched.shard_locks set locked = cast(:locked as boolean), last_heartbeat_at = :beat,
    last_processing_start_at = :served where shard_id = :shard"""
INCOMING = """insert into matrixsched.incoming_queue (shard_id, created_at, action_id, action_guid, scheduled_at, lane)
    values (:shard, :now, :id, :guid, :at, :lane)"""
PROCESSING = """insert into matrixsched.processing_queue
    (shard_id, action_id, action_guid, lane, scheduled_at, expires_at, attempt, interrupted, added_at, moved_by,
     moved_at)
    values (:shard, :id, :guid, :lane, :at, :expires_at, 0, 0, :now, :guid, :now)"""
LISTED = """insert into matrixsched.held_lanes (lane, priority, handler, ready_at)
    values (:lane, :priority, :handler, :ready_at)"""
LIMIT = """insert into matrixsched.limits
    (name, requests, per_us, pool, next_slot_ns, slow_until, slow_requests, slow_per_us, updated_at)
    values (:name, :rate, cast(:per_us as bigint), :pool, :slot, :until, :slow, :slow, :now)"""


async def put(
    scene: Scene,
    *,
    rows: Sequence[Waiting],
    listed: Sequence[Listed],
    limits: Sequence[Slots],
    incoming: Sequence[Waiting] = (),
    locks: Iterable[tuple[int, Lock]] = (),
) -> None:
    """And nothing else."""
    asks: list[tuple[str, dict[str, Any]]] = [
        (f"delete from matrixsched.{table}", {})
        for table in ("incoming_queue", "processing_queue", "held_lanes", "limits")
    ]
    asks += [(LOCK, _lock(shard, lock)) for shard, lock in locks]
    asks += [(INCOMING, _row(scene, row, number)) for number, row in enumerate(incoming)]
    asks += [(PROCESSING, _row(scene, row, number) | {"expires_at": row.expires_at}) for number, row in enumerate(rows)]
    asks += [(LISTED, _listed(one)) for one in listed]
    asks += [(LIMIT, _limit(limit, scene.now)) for limit in limits]
    await scene.write(asks)


def _lock(shard: int, lock: Lock) -> dict[str, Any]:
    return {"shard": shard, "locked": lock.locked, "beat": lock.heartbeat_at, "served": lock.served_at}


def _row(scene: Scene, row: Waiting, number: int) -> dict[str, Any]:
    return {
        "shard": row.shard,
        "id": f"{number}",
        "guid": scene.guid(),
        "lane": row.lane,
        "at": row.at,
        "now": scene.now,
    }


def _listed(one: Listed) -> dict[str, Any]:
    return {"lane": one.lane, "priority": one.priority, "handler": escaped(one.handler), "ready_at": one.ready_at}


def _limit(limit: Slots, now: datetime) -> dict[str, Any]:
    return {
        "name": limit.name,
        "rate": 1 if limit.has_rate else None,
        "per_us": 1_000_000 if limit.has_rate else None,
        "pool": limit.pool,
        "slot": in_nanoseconds(limit.next_slot_at),
        "until": limit.slow_until,
        "slow": 1 if limit.has_slow_rate else None,
        "now": now,
    }
