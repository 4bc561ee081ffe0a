"""A worker on a database in memory."""

from datetime import timedelta

import anyio
import anyio.to_thread
import pytest

from matrixsched import App
from matrixsched.worker import Worker, WorkerPolicy

pytestmark = pytest.mark.anyio


async def test_it_hears_at_once_of_what_other_threads_schedule():
    app = App("sqlite://")
    ran = anyio.Event()

    @app.action("work")
    async def work() -> None:
        ran.set()

    await app.init(shards=4)
    async with app, anyio.create_task_group() as group:
        # By itself it would look again after a minute only.
        worker = Worker(app, WorkerPolicy(rest_max=timedelta(minutes=1)))
        group.start_soon(worker.run)
        await worker.running.wait()
        with anyio.fail_after(20):
            await anyio.wait_all_tasks_blocked()
            await anyio.to_thread.run_sync(lambda: app.sync.schedule(work, id="w"))
            await ran.wait()
        await anyio.to_thread.run_sync(app.sync.close)
        worker.stop()
