"""Many actions due at once: the database and the handlers are busy at the same time, and nobody has more than room."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import anyio
import pytest

from matrixsched import App, call
from matrixsched.events import OutcomesRecorded
from matrixsched.store.transition import Transition
from matrixsched.worker import Worker, WorkerPolicy
from matrixsched.worker.runner import BATCHES_MAX

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]

DEADLINE_S = 20
CROWD = 2_000


@pytest.fixture
async def app(database_url: str, anyio_backend: str) -> AsyncIterator[App]:
    app = App(database_url)
    await app.init(shards=16)
    async with app:
        yield app


async def run_all(app: App, worker: Worker, count: int) -> None:
    """Until that many outcomes are recorded."""
    recorded, all_recorded = 0, anyio.Event()

    def note(event: OutcomesRecorded) -> None:
        nonlocal recorded
        recorded += event.recorded
        if recorded >= count:
            all_recorded.set()

    app.events.subscribe(OutcomesRecorded, note)
    async with anyio.create_task_group() as group:
        group.start_soon(worker.run)
        with anyio.fail_after(DEADLINE_S):
            await all_recorded.wait()
        worker.stop()


async def scheduled(app: App, count: int = CROWD) -> None:
    await app.schedule_many(call("work", id=f"w{number}") for number in range(count))


async def test_in_a_crowd_two_shards_are_looked_at_side_by_side(app: App):
    under_way, most = 0, 0
    taking = ("acquire_shard", "move", "claim")
    run = app.store.run

    async def counting(transition: Transition[Any]) -> Any:
        nonlocal under_way, most
        if transition.name not in taking:
            return await run(transition)
        under_way += 1
        most = max(most, under_way)
        try:
            return await run(transition)
        finally:
            under_way -= 1

    app.store.run = counting  # type: ignore[method-assign]

    @app.action("work")
    async def work() -> None: ...

    await scheduled(app)
    await run_all(app, Worker(app), CROWD)
    assert most == 2


async def test_claims_side_by_side_take_no_more_than_there_is_room_for(app: App):
    held = list[int]()

    @app.action("work")
    async def work() -> None:
        held.append(worker.runner.held)
        await anyio.lowlevel.checkpoint()

    worker = Worker(app, WorkerPolicy(concurrency=4, batch_max=20))
    await scheduled(app)
    await run_all(app, worker, CROWD)
    assert max(held) <= 20 * BATCHES_MAX


async def test_what_is_being_claimed_leaves_no_room_to_others(app: App):
    @app.action("work")
    async def work() -> None: ...

    runner = Worker(app, WorkerPolicy(concurrency=10)).runner
    assert runner.room == 10
    with runner.expecting(7):
        assert (runner.room, runner.gated_room(0)) == (3, 3)
        with runner.expecting(3):
            assert (runner.room, runner.gated_room(0)) == (0, 0)
    assert runner.room == 10


async def test_handlers_that_wait_run_side_by_side_up_to_the_limit(app: App):
    running, most, enough = 0, 0, anyio.Event()

    @app.action("work")
    async def work() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 30:
            enough.set()
        await enough.wait()
        running -= 1

    await scheduled(app, 100)
    await run_all(app, Worker(app, WorkerPolicy(concurrency=30)), 100)
    assert most == 30


async def test_handlers_that_never_wait_share_a_slot(app: App):
    tasks = set[int]()

    @app.action("work")
    async def work() -> None:
        tasks.add(anyio.get_current_task().id)

    worker = Worker(app, WorkerPolicy(concurrency=100, rest_max=timedelta(seconds=1)))
    await scheduled(app, 200)
    await run_all(app, worker, 200)
    assert len(tasks) < 100
