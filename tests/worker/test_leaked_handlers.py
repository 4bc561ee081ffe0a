"""Handlers that ignore their time limit, and the attempts that follow them."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import anyio
import pytest

from matrixsched import App, Retry
from matrixsched.events import AttemptEnded
from matrixsched.rules.action import Outcome
from matrixsched.worker import Worker, WorkerPolicy

pytestmark = pytest.mark.anyio


async def test_a_leaked_attempt_that_ends_late_leaves_the_next_attempt_alone(tmp_path: Path) -> None:
    """Both are attempts at the same version of the same action, and both run in the same process."""
    app = App(f"sqlite:///{tmp_path}/test.db")
    calls: list[int] = []

    @app.action("stubborn", timeout=timedelta(seconds=0.1), retry=Retry(first_delay=timedelta(milliseconds=50)))
    async def stubborn() -> None:
        calls.append(len(calls))
        if len(calls) <= 2:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(0.6)

    outcomes: list[Outcome] = []
    succeeded = anyio.Event()

    def ended(event: AttemptEnded) -> None:
        outcomes.append(event.outcome)
        if event.outcome is Outcome.SUCCEEDED:
            succeeded.set()

    app.events.subscribe(AttemptEnded, ended)
    await app.init(shards=4)
    async with app, anyio.create_task_group() as group:
        worker = Worker(app, WorkerPolicy(concurrency=10, timeout_grace=timedelta(seconds=0.1)))
        group.start_soon(worker.run)
        await app.schedule(stubborn, id="one")
        with anyio.fail_after(20):
            await succeeded.wait()
        worker.stop()  # which waits for what still runs
    assert outcomes == [Outcome.TIMED_OUT, Outcome.TIMED_OUT, Outcome.SUCCEEDED]
    assert (worker.runner.leaked, worker.runner.running) == (0, 0)
