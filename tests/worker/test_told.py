"""A worker at rest that is told of new actions in one shard looks at that one first, and never at that one alone."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any, cast
from uuid import uuid4

import pytest
from support.elsewhere import schedule_elsewhere
from support.scene import SHARDS

from matrixsched import App
from matrixsched.rules.names import shard_of
from matrixsched.store.news import News
from matrixsched.store.store import Store
from matrixsched.store.transition import Transition
from matrixsched.store.wrapper import StoreWrapper
from matrixsched.worker import Worker, WorkerPolicy

pytestmark = pytest.mark.anyio

LEASE = timedelta(seconds=10)


class Looking(StoreWrapper):
    """Notes where was looked: in the shard that a move was to take, or (None) everywhere."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.looks: list[int | None] = []

    async def run(self, transition: Transition[Any]) -> Any:
        parameters = next(transition.begin()).parameters
        if transition.name == "move" and parameters.get("not_after") is not None:
            self.looks.append(cast(int, parameters["shard_id"]))
        elif transition.name == "acquire_shard":
            self.looks.append(None)
        return await self._inner.run(transition)

    def sibling(self) -> Store:
        return self._inner.sibling()


@pytest.fixture
async def told(app: App, anyio_backend: str) -> tuple[Worker, Looking]:
    app.action("work")(lambda: None)
    worker = Worker(app)
    looking = Looking(app.store)
    worker.intake._tools = replace(worker.intake._tools, store=looking)
    await worker.intake.step()
    looking.looks.clear()
    return worker, looking


async def test_it_looks_there_first_and_then_everywhere(app: App, told: tuple[Worker, Looking]) -> None:
    worker, looking = told
    await schedule_elsewhere(app, "a")
    worker._hear(News.ACTIONS, shard_of("a", SHARDS))
    assert await worker.intake.step() == 0
    assert await worker.intake.step() > 0
    assert looking.looks == [shard_of("a", SHARDS), None]


async def test_if_somebody_else_has_it_all_others_are_looked_at(app: App, told: tuple[Worker, Looking]) -> None:
    worker, looking = told
    taken, elsewhere = shard_of("taken", SHARDS), shard_of("elsewhere", SHARDS)
    assert taken != elsewhere
    await schedule_elsewhere(app, "taken")
    acquiring = app.store.transitions.acquire_shard(sync_guid=uuid4(), holder="other", lease=LEASE, lanes=())
    assert (await app.store.run(acquiring)).shard == taken
    await schedule_elsewhere(app, "elsewhere")
    worker._hear(News.ACTIONS, taken)
    assert [await worker.intake.step() for _ in range(2)] == [0, 0]
    assert looking.looks == [taken, None]
    assert [held.attempt.claim.action_id for held in worker.runner.line.clear()] == ["elsewhere"]


async def test_of_several_shards_or_of_none_in_particular_all_are_looked_at(told: tuple[Worker, Looking]) -> None:
    worker, looking = told
    for shards in ([1, 2], [1, None], [None]):
        for shard in shards:
            worker._hear(News.ACTIONS, shard)
        await worker.intake.step()
    assert looking.looks == [None] * 3


async def test_whoever_is_not_at_rest_looks_everywhere(app: App, told: tuple[Worker, Looking]) -> None:
    worker, looking = told
    await schedule_elsewhere(app, "a")
    await worker.intake.step()
    worker._hear(News.ACTIONS, 1)
    await worker.intake.step()
    assert looking.looks == [None, None]


async def test_whoever_had_room_for_events_only_looks_everywhere(app: App) -> None:
    """It does not know what else there is: rows that are overdue would wait for all that is new in one shard."""
    app.action("work")(lambda: None)
    app.on_acquired("pool")(lambda event: None)
    worker = Worker(app, WorkerPolicy(concurrency=1))
    worker.intake._tools = replace(worker.intake._tools, store=(looking := Looking(app.store)))
    await app.schedule("work", id="a")
    await worker.intake.step()
    for _ in range(2):
        worker._hear(News.ACTIONS, 1)
        assert worker.runner.room == 0
        await worker.intake.step()
    worker.runner.give_back_waiting()
    await worker.runner.giving_back.step()
    await worker.intake.step()
    assert worker.runner.held == 1
    assert looking.looks == [None] * 4


async def test_news_of_actions_in_a_shard_wake_nobody_who_balances_semaphores(told: tuple[Worker, Looking]) -> None:
    worker, _ = told
    woken = list[str]()
    worker._changes.set = lambda: woken.append("balance")  # type: ignore[method-assign]
    worker._hear(News.ACTIONS, 1)
    assert not woken
    worker._hear(News.ACTIONS)
    assert woken == ["balance"]
