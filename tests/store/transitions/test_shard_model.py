"""Whatever waits, wherever, and whoever holds what: a worker gets the shard and is told the work that a model says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import product
from random import Random

import pytest
from support.scene import HANDLER, LEASE, SHARDS, Scene
from support.shard_model import FAR, Question, World
from support.waiting import AROUND_NOW, ELSEWHERE, GATED, SECOND, TICK, Listed, Lock, Slots, Waiting, gated_rows, put

from matrixsched.rules.action import COMING, EVENT, UNGATED, parked_lane, suspect_lane
from matrixsched.store.values import Acquired, Turn

pytestmark = pytest.mark.anyio

WORLDS = 100
SPECIAL = (parked_lane(HANDLER), suspect_lane(HANDLER), parked_lane(ELSEWHERE))


async def test_a_worker_gets_the_shard_and_is_told_the_work_that_the_model_says(scene: Scene):
    for number in range(WORLDS):
        random = Random(number)
        world = drawn(random, scene.now)
        await put(
            scene,
            rows=world.rows,
            listed=world.listed,
            limits=world.limits,
            incoming=world.incoming,
            locks=world.locks.items(),
        )
        for _ in range(SHARDS + 2):
            await check(scene, world, asked(random))
        locks = {row["shard_id"]: row for row in await scene.table("shard_locks")}
        found = {
            shard: Lock(row["locked"], row["last_heartbeat_at"], row["last_processing_start_at"])
            for shard, row in locks.items()
        }
        assert found == world.locks, world


@pytest.mark.parametrize("special", ["none", "due", "later"])
async def test_no_lane_of_a_shard_hides_another(scene: Scene, special: str):
    """They are looked at in the order of their names, each by its head, and none where it may be spared."""
    for coming, event in product(["none", "due", "later"], repeat=2):
        heads = {suspect_lane(HANDLER): special, EVENT: event, COMING: coming}
        rows = [row for number, lane in enumerate(heads, 1) for row in _headed(lane, heads[lane], scene.now, number)]
        free = {shard: Lock(False, scene.now, scene.now) for shard in range(SHARDS)}
        world = World(now=scene.now, lease=LEASE, locks=free, incoming=[], rows=rows, listed=[], limits=[])
        await put(scene, rows=rows, listed=[], limits=[], locks=free.items())
        lanes = [suspect_lane(HANDLER)]
        for only_events in (True, False, False):
            await check(scene, world, Question(lanes, (), timedelta(0), Turn.OLDEST, only_events))


async def test_a_shard_with_an_event_that_is_due_comes_before_one_that_waits_for_longer(scene: Scene):
    for coming, event in product(["none", "later"], ["due", "later"]):
        rows = [Waiting(shard, UNGATED, scene.now - SECOND) for shard in (0, 1)]
        rows += [*_headed(EVENT, event, scene.now, 1), *_headed(COMING, coming, scene.now, 2)]
        locks = {shard: Lock(False, scene.now, scene.now - shard * SECOND) for shard in range(SHARDS)}
        world = World(now=scene.now, lease=LEASE, locks=locks, incoming=[], rows=rows, listed=[], limits=[])
        await put(scene, rows=rows, listed=[], limits=[], locks=locks.items())
        await check(scene, world, Question((), (), timedelta(0), Turn.OLDEST, only_events=False))


@pytest.mark.parametrize("is_listed", [False, True])
async def test_what_waits_before_gates_is_told_of_and_gates_that_were_slow_until_now_are_open(
    scene: Scene, is_listed: bool
):
    lane = GATED[0]
    rows = [Waiting(0, lane.name, scene.now)]
    listed = [Listed(lane.name, lane.priority, lane.handler, scene.now)] if is_listed else []
    limits = [Slots("global", scene.now + SECOND, has_rate=False, slow_until=scene.now, has_slow_rate=True)]
    locks = {shard: Lock(False, scene.now, scene.now) for shard in range(SHARDS)}
    world = World(now=scene.now, lease=LEASE, locks=locks, incoming=[], rows=rows, listed=listed, limits=limits)
    await put(scene, rows=rows, listed=listed, limits=limits, locks=locks.items())
    await check(scene, world, Question((), (HANDLER,), timedelta(0), Turn.OLDEST, only_events=False))
    assert world.locks[0].locked == is_listed


def _headed(lane: str, head: str, now: datetime, number: int) -> Iterator[Waiting]:
    """Later there is another row of each lane, soonest of those that nobody is woken for."""
    if head == "due":
        yield Waiting(0, lane, now)
    if head != "none":
        yield Waiting(0, lane, now + number * TICK)


async def check(scene: Scene, world: World, question: Question) -> None:
    """Whether it gets what the model says."""
    before = world.copy()
    acquired = await ask(scene, question)
    expected = replace(world.answer(question), next_due_at=acquired.next_due_at)
    assert replace(acquired, gated_lanes=tuple(sorted(acquired.gated_lanes))) == expected, (question, before)
    if acquired.shard is None and not question.only_events:
        assert is_in(acquired.next_due_at, world.ask_again(question)), (acquired, question, before)


async def ask(scene: Scene, question: Question) -> Acquired:
    asking = scene.do.acquire_shard(
        sync_guid=scene.guid(),
        holder="host:1",
        lease=LEASE,
        lanes=question.lanes,
        gated_handlers=question.gated_handlers,
        ahead=question.ahead,
        turn=question.turn,
        only_events=question.only_events,
    )
    return await scene.run(asking)


def is_in(at: datetime | None, span: tuple[datetime, datetime] | None) -> bool:
    return at is None if span is None else at is not None and span[0] <= at <= span[1]


# Worlds.


def drawn(random: Random, now: datetime) -> World:
    """Little enough that most shards have nothing to do, and close to the instants that matter."""
    has_gates = random.random() < 0.6
    return World(
        now=now,
        lease=LEASE,
        locks={shard: _lock(random, now) for shard in range(SHARDS)},
        incoming=list(_incoming(random, now)) if random.random() < 0.5 else [],
        rows=[
            *_rows(random, now, random.randrange(2 if has_gates else 7)),
            *(gated_rows(random, now) if has_gates else ()),
        ],
        listed=[
            Listed(lane.name, lane.priority, lane.handler, now + random.choice(AROUND_NOW[:-1]))
            for lane in GATED
            if random.random() < (0.9 if has_gates else 0.2)
        ],
        limits=list(_limits(random, now)) if random.random() < 0.6 else [],
    )


def _lock(random: Random, now: datetime) -> Lock:
    heartbeats = (timedelta(0), -LEASE, LEASE, -LEASE - TICK, LEASE + TICK)
    return Lock(random.random() < 0.4, now + random.choice(heartbeats), now - random.randrange(3) * SECOND)


def _incoming(random: Random, now: datetime) -> Iterator[Waiting]:
    for shard in range(SHARDS):
        if random.random() < 0.3:
            yield Waiting(shard, random.choice([UNGATED, EVENT, GATED[0].name]), now)


def _rows(random: Random, now: datetime, count: int) -> Iterator[Waiting]:
    for _ in range(count):
        lane = random.choice([UNGATED, EVENT, COMING, *SPECIAL])
        yield Waiting(random.randrange(SHARDS), lane, now + random.choice(AROUND_NOW))


def _limits(random: Random, now: datetime) -> Iterator[Slots]:
    slots = (timedelta(0), TICK, SECOND, SECOND + TICK, FAR - TICK, FAR)
    ends = (None, timedelta(0), TICK, SECOND)
    for name in ("global", f"handler:{HANDLER}"):
        if random.random() < 0.7:
            end = random.choice(ends)
            slow_until = None if end is None else now + end
            has_slow_rate = slow_until is not None and random.random() < 0.5
            yield Slots(name, now + random.choice(slots), random.random() < 0.5, slow_until, has_slow_rate)


def asked(random: Random) -> Question:
    handlers = random.choice([(HANDLER,), (HANDLER,), (HANDLER, ELSEWHERE), (ELSEWHERE,), ()])
    lanes = [parked_lane(name) for name in handlers]
    if random.random() < 0.5:
        lanes += [suspect_lane(name) for name in handlers]
    ahead = random.choice([timedelta(0), SECOND])
    return Question(lanes, handlers, ahead, random.choice(list(Turn)), only_events=random.random() < 0.15)
