"""Many actions due at once: slots begin as handlers need them."""

from collections.abc import AsyncIterator
from datetime import timedelta

import anyio
import pytest

from matrixsched import App, call
from matrixsched.events import OutcomesRecorded
from matrixsched.worker import Worker, WorkerPolicy

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]

DEADLINE_S = 20


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


async def scheduled(app: App, count: int) -> None:
    await app.schedule_many(call("work", id=f"w{number}") for number in range(count))


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
