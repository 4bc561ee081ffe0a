"""Whatever waits before gates and however it is listed, afterwards the list, and the limits, are as a model says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from random import Random

import pytest
from support.scene import HANDLER, Scene
from support.waiting import AROUND_NOW, GATED, HOUR, SECOND, TICK, Listed, Slots, Waiting, gated_rows, put

from matrixsched.rules.action import COMING, EVENT, UNGATED, parked_lane
from matrixsched.rules.lanes import escaped, is_gated, lane_of

pytestmark = pytest.mark.anyio

WORLDS = 60
LOOK_AGAIN = 60 * SECOND
POOL = 10
"""Of all keys, at one a second: a key is full again so many seconds after its next slot."""


@dataclass(frozen=True, slots=True)
class World:
    now: datetime
    every: timedelta
    done_at: datetime | None
    """When lanes were relisted last."""
    rows: list[Waiting]
    listed: list[Listed]
    limits: list[Slots]

    @property
    def is_time(self) -> bool:
        return self.done_at is None or self.was_set_back or self.done_at <= self.now - self.every

    @property
    def was_set_back(self) -> bool:
        return self.done_at is not None and self.done_at > self.now

    def relisted(self) -> World:
        if not self.is_time:
            return self
        lanes = {row.lane for row in self.rows if is_gated(row.lane)}
        listed = [self._looked_at(one) for one in self.listed if one.lane in lanes]
        listed += [self._found(lane) for lane in lanes - {one.lane for one in self.listed}]
        limits = [limit for limit in self.limits if not self._is_full_again(limit)]
        return replace(self, done_at=self.now, listed=listed, limits=limits)

    def _first_at(self, lane: str) -> datetime:
        return min(row.at for row in self.rows if row.lane == lane)

    def _found(self, lane: str) -> Listed:
        about = lane_of(lane)
        return Listed(lane, about.priority, about.handler, max(self.now, self._first_at(lane)))

    def _looked_at(self, one: Listed) -> Listed:
        """When it is worth a look from here on."""
        if one.ready_at > self.now:
            is_mistaken = self.was_set_back or one.ready_at > self.now + LOOK_AGAIN
            return replace(one, ready_at=self.now) if is_mistaken else one
        if any(row.lane == one.lane and self._may_go(row) for row in self.rows):
            return one
        later = max(self.now + SECOND, self._first_at(one.lane))
        return replace(one, ready_at=min(self.now + LOOK_AGAIN, later))

    def _may_go(self, row: Waiting) -> bool:
        return row.at <= self.now and (row.expires_at is None or row.expires_at > self.now)

    def _is_full_again(self, limit: Slots) -> bool:
        """It says no more than if it were not there."""
        is_slow = limit.slow_until is not None and limit.slow_until > self.now
        if limit.name == "key:*" or limit.has_rate or is_slow:
            return False
        pools = [one.pool * SECOND for one in self.limits if one.name == "key:*" and one.has_rate]
        return limit.next_slot_at < self.now - HOUR - sum(pools, timedelta(0))


async def test_lanes_are_listed_and_limits_forgotten_as_the_model_says(scene: Scene):
    for number in range(WORLDS):
        world = drawn(Random(number), scene.now)
        await put(scene, rows=world.rows, listed=world.listed, limits=world.limits)
        await scene.sql("update matrixsched.chores set done_at = :at", at=scene.now + TICK)
        await scene.sql("update matrixsched.chores set done_at = :at where name = 'lanes'", at=world.done_at)
        after = world.relisted()
        new = len({row.lane for row in after.listed} - {row.lane for row in world.listed}) if world.is_time else None
        assert await scene.run(scene.do.relist_lanes(every=world.every, look_again=LOOK_AGAIN)) == new
        assert await listed(scene) == sorted(_as_listed(after.listed)), world
        assert {row["name"] for row in await scene.table("limits")} == {limit.name for limit in after.limits}, world
        chores = {row["name"]: row["done_at"] for row in await scene.table("chores")}
        assert chores.pop("lanes") == after.done_at
        assert set(chores.values()) == {scene.now + TICK}


async def listed(scene: Scene) -> list[tuple[object, ...]]:
    rows = await scene.table("held_lanes")
    return sorted((row["lane"], row["priority"], row["handler"], row["ready_at"]) for row in rows)


def _as_listed(found: Iterable[Listed]) -> Iterator[tuple[object, ...]]:
    return ((one.lane, one.priority, escaped(one.handler), one.ready_at) for one in found)


# Worlds.


def drawn(random: Random, now: datetime) -> World:
    done = random.choice([None, -HOUR, -SECOND, -SECOND + TICK, timedelta(0), TICK])
    return World(
        now=now,
        every=random.choice([timedelta(0), SECOND]),
        done_at=None if done is None else now + done,
        rows=[*gated_rows(random, now), *_others(random, now)],
        listed=[
            Listed(lane.name, lane.priority, lane.handler, now + random.choice(READY))
            for lane in GATED
            if random.random() < 0.7
        ],
        limits=list(_limits(random, now)),
    )


def _others(random: Random, now: datetime) -> Iterator[Waiting]:
    """That are before no gate."""
    for lane in random.sample([UNGATED, EVENT, COMING, parked_lane(HANDLER)], random.randrange(3)):
        yield Waiting(0, lane, now)


READY = (*AROUND_NOW, LOOK_AGAIN, LOOK_AGAIN + TICK)


def _limits(random: Random, now: datetime) -> Iterator[Slots]:
    if random.random() < 0.5:
        yield Slots("key:*", now - 2 * HOUR, has_rate=random.random() < 0.8, pool=POOL)
    for name in ("global", f"handler:{HANDLER}", "key:mx", "key:other"):
        before = random.choice([HOUR, HOUR + TICK, HOUR + POOL * SECOND, HOUR + POOL * SECOND + TICK, 2 * HOUR])
        end = random.choice([None, None, -TICK, timedelta(0), TICK])
        slow_until = None if end is None else now + end
        yield Slots(name, now - before, has_rate=random.random() < 0.2, slow_until=slow_until)
