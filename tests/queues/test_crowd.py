"""Many who take, settle, forget and put at once, while the clock runs: nothing is lost, nothing is done twice."""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta

import anyio
import pytest
from support.queues import storage_of

from matrixsched.clock import ManualClock
from matrixsched.rules.queues import NewItem
from matrixsched.store.store import Store

pytestmark = pytest.mark.anyio

SECOND = timedelta(seconds=1)
WORKERS, TASKS = 6, 300


@pytest.mark.parametrize("seed", range(3))
async def test_every_task_is_settled_for_good_once(store: Store, clock: ManualClock, seed: int):
    ended: Counter[int] = Counter()
    put: list[int] = []

    async def work(number: int) -> None:
        chance = random.Random(seed * WORKERS + number)
        storage = storage_of(store, seed=1000 * seed + number)
        for _ in range(TASKS // WORKERS // 5):
            put.extend(await storage.put_many([NewItem(queue=1, data=b"x", delay=chance.randint(0, 2) * SECOND)] * 5))
        while len(ended) < TASKS:
            tasks = await storage.get(1, chance.randint(1, 20), visibility=chance.randint(1, 3) * SECOND)
            clock.advance(chance.randint(0, 2) * SECOND / 4)
            if chance.random() < 0.2:
                continue  # it died
            if chance.random() < 0.5:
                await storage.extend(tasks, visibility=2 * SECOND)
            clock.advance(chance.randint(0, 4) * SECOND / 4)
            third = len(tasks) // 3
            await storage.retry([(task, SECOND) for task in tasks[:third]])
            dead = await storage.set_aside([(task, "no use") for task in tasks[third : third + 1]])
            done = await storage.done(tasks[third + 1 :])
            ended.update(done.settled)
            ended.update(dead.settled)

    with anyio.fail_after(120):
        async with anyio.create_task_group() as crowd:
            for number in range(WORKERS):
                crowd.start_soon(work, number)
    assert set(ended.values()) == {1}
    assert sorted(ended) == sorted(put)
    stat = (await storage_of(store).stat())[1]
    dead = await storage_of(store).dead_letters(1, limit=TASKS)
    assert (stat.total, stat.dead) == (0, len(dead))
