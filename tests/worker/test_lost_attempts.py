"""Attempts that others have taken over while their handlers were running here."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import anyio
import pytest

from matrixsched import App
from matrixsched.events import ClaimsLost
from matrixsched.worker import Worker, WorkerPolicy

pytestmark = pytest.mark.anyio


async def test_a_handler_whose_attempt_was_taken_over_is_cancelled_and_leaves_its_place(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/test.db")
    begun, cancelled = anyio.Event(), anyio.Event()

    @app.action("endless")
    async def endless() -> None:
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.set()

    lost: list[int] = []
    app.events.subscribe(ClaimsLost, lambda event: lost.append(event.count))
    await app.init(shards=4)
    short = WorkerPolicy(attempt_lease=timedelta(seconds=1), lease_margin=timedelta(seconds=0.2))
    async with app, anyio.create_task_group() as group:
        worker = Worker(app, short)
        group.start_soon(worker.run)
        await app.schedule(endless, id="one")
        with anyio.fail_after(20):
            await begun.wait()
            take_over(tmp_path / "test.db")
            await cancelled.wait()
            await anyio.lowlevel.checkpoint()
        held = worker.runner.held
        worker.stop()
    assert lost == [1]
    assert held == 0


def take_over(database: Path) -> None:
    """As another worker does whose claim came after the lease had ended."""
    with closing(sqlite3.connect(database)) as connection, connection:
        later = "update matrixsched_processing_queue set claimed_by = ?, attempt = attempt + 1"
        assert connection.execute(later, (str(uuid4()),)).rowcount == 1
