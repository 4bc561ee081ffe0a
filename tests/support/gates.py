"""A worker's look at what waits before gates, one sync iteration at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from matrixsched.rules.action import Attempt, parked_lane, suspect_lane
from matrixsched.rules.gates import Gate, Held
from matrixsched.rules.lanes import Lane
from matrixsched.rules.rates import parse_rate
from matrixsched.rules.templates import TemplateChange
from matrixsched.store.values import Acquired, GatedClaim, Turn
from support.scene import HANDLER, LEASE, Hold, Scene

NOTHING_AHEAD = timedelta(0)


@dataclass(frozen=True, slots=True)
class Look:
    acquired: Acquired
    attempts: Sequence[Attempt] = ()
    held: Mapping[str, Held] = field(default_factory=dict)

    @property
    def ids(self) -> list[str]:
        """In the order in which they may start."""
        return [attempt.claim.action_id for attempt in self.attempts]

    @property
    def gates(self) -> set[Gate]:
        return {held.gate for held in self.held.values()}


async def acquire(
    scene: Scene, *, handlers: Sequence[str] = (HANDLER,), suspect_room: int = 1, turn: Turn = Turn.OLDEST
) -> tuple[Hold, Acquired]:
    guid = scene.guid()
    lanes = [parked_lane(name) for name in handlers]
    if suspect_room > 0:
        lanes += [suspect_lane(name) for name in handlers]
    acquired = await scene.run(
        scene.do.acquire_shard(
            sync_guid=guid,
            holder="host:1",
            lease=LEASE,
            lanes=lanes,
            gated_handlers=handlers,
            ahead=NOTHING_AHEAD,
            turn=turn,
        )
    )
    return Hold(-1 if acquired.shard is None else acquired.shard, guid), acquired


async def claim_gated(scene: Scene, hold: Hold, **options: Any) -> GatedClaim:
    usual: dict[str, Any] = {
        "listed": (),
        "filled": (),
        "room": 100,
        "suspect_room": 1,
        "attempt_lease": LEASE,
        "ahead": NOTHING_AHEAD,
    }
    return await scene.run(scene.do.claim_gated(hold.shard, hold.guid, **(usual | options)))


async def look(scene: Scene, *, handlers: Sequence[str] = (HANDLER,), room: int = 100, suspect_room: int = 1) -> Look:
    """Take the shard that has work, if any; claim, move, pass gates; let it go."""
    hold, acquired = await acquire(scene, handlers=handlers, suspect_room=suspect_room)
    if acquired.shard is None:
        return Look(acquired)
    attempts, filled = [], []
    for lane in acquired.lanes:
        claimed = await scene.claim(hold, lane=lane, handlers=handlers, limit=room)
        attempts += claimed.attempts
        filled += claimed.gated_lanes
    if acquired.incoming:
        claimed = await scene.move(hold, handlers=handlers, claim_limit=room)
        attempts += claimed.attempts
        filled += claimed.gated_lanes
    passed = await claim_gated(
        scene, hold, listed=acquired.gated_lanes, filled=filled, room=room, suspect_room=suspect_room
    )
    assert await scene.release(hold)
    return Look(acquired, [*attempts, *passed.attempts], passed.held)


async def look_all(scene: Scene, **options: Any) -> list[Attempt]:
    """Everything that may go now, from all shards; it comes to an end."""
    attempts: list[Attempt] = []
    for _ in range(100):
        seen = await look(scene, **options)
        attempts += seen.attempts
        if seen.acquired.shard is None:
            return attempts
    raise AssertionError("workers would ask again and again for what they cannot have")


async def set_limit(scene: Scene, name: str, rate: str | None, *, pool: int = 0) -> None:
    await scene.run(scene.do.set_limit(name, None if rate is None else parse_rate(rate), pool=pool))


async def put_template(scene: Scene, name: str, **change: Any) -> None:
    await scene.run(scene.do.put_template(name, TemplateChange(**change)))


def gated(
    *, key: str | None = None, template: str | None = None, zone: str | None = None, priority: int = 0
) -> dict[str, Any]:
    """What `schedule` writes of an action that has to pass a gate."""
    lane = Lane(handler=HANDLER, priority=priority, key=key, template=template, zone=zone).name
    return {"lane": lane, "priority": priority, "template": template, "zone": zone}


async def grant(scene: Scene, template: str, granted: int, *, priority: int = 0, minutes: int = 1) -> None:
    """The present window, planned as it is said here."""
    if not await scene.table("quota_windows"):
        await scene.sql(
            "insert into matrixsched.quota_windows (begins_at, ends_at, planned_at, planned_by, templates) "
            "values (:now, :ends_at, :now, 'host:1', 1)",
            now=scene.now,
            ends_at=scene.now + timedelta(minutes=minutes),
        )
    await scene.sql(
        "insert into matrixsched.quota_grants (begins_at, template, priority, inside, zones, waiting, granted) "
        "values (:now, :template, :priority, false, '[]', :granted, :granted)",
        now=scene.now,
        template=template,
        priority=priority,
        granted=granted,
    )


async def used(scene: Scene) -> dict[str, int]:
    return {row["template"]: row["used"] for row in await scene.table("quota_grants")}


async def lanes(scene: Scene) -> dict[str, str]:
    """Where each action waits."""
    return {row["action_id"]: row["lane"] for row in await scene.table("processing_queue")}


async def listed(scene: Scene) -> dict[str, timedelta]:
    """The lanes that are listed, and in how long each is worth a look."""
    return {row["lane"]: row["ready_at"] - scene.now for row in await scene.table("held_lanes")}


async def relist(scene: Scene) -> int | None:
    return await scene.run(scene.do.relist_lanes(every=timedelta(0)))
