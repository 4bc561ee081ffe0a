"""Shards in the hands of workers, and windows of the quota, in a world of real sessions."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID, uuid4

from support.interleaving import World

WINDOW = timedelta(minutes=1)


async def open_shards(world: World, count: int) -> list[UUID]:
    """Shards in the hands of as many workers; their guids."""
    guids = [uuid4() for _ in range(count)]
    await world.watcher.execute("delete from matrixsched.shard_locks")
    await world.watcher.executemany(
        "insert into matrixsched.shard_locks (shard_id, locked, last_lock_guid, last_heartbeat_at) "
        "values ($1, true, $2, $3)",
        [(shard, guid, world.now) for shard, guid in enumerate(guids)],
    )
    return guids


async def put_window(world: World, begins_at: datetime, grants: dict[str, int]) -> None:
    """A window that somebody planned, with what each template was granted in it: as many as waited."""
    await world.watcher.execute(
        "insert into matrixsched.quota_windows (begins_at, ends_at, planned_at, planned_by, templates) "
        "values ($1, $2, $1, 'host:1', $3)",
        begins_at,
        begins_at + WINDOW,
        len(grants),
    )
    await world.watcher.executemany(
        "insert into matrixsched.quota_grants (begins_at, template, priority, inside, zones, waiting, granted) "
        "values ($1, $2, 0, false, '[]', $3, $3)",
        [(begins_at, template, granted) for template, granted in grants.items()],
    )
