"""Attempts are made one after another in one cancel scope: what is cancelled for one of them is nobody else's."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from matrixsched import App, Retry, call
from matrixsched.clock import ManualClock
from matrixsched.events import AttemptDropped, AttemptEnded
from matrixsched.worker import Worker, WorkerPolicy

pytestmark = pytest.mark.anyio

NEIGHBOURS = 300
EVERY = 50


async def waits() -> None:
    await anyio.sleep_forever()


async def swallows() -> None:
    try:
        await anyio.sleep_forever()
    except BaseException:
        return


@pytest.mark.parametrize("handler", [waits, swallows])
async def test_neighbours_of_one_that_is_out_of_time_are_run(
    app: App, clock: ManualClock, handler: Callable[[], Any]
) -> None:
    app.action("slow", timeout=timedelta(milliseconds=1), retry=Retry(max_attempts=1))(handler)
    ran: list[int] = []

    @app.action("work")
    async def work(number: int) -> None:
        await anyio.lowlevel.checkpoint()
        ran.append(number)

    calls = [call("work", number, id=f"{number:04}") for number in range(NEIGHBOURS)]
    calls += [call("slow", id=f"{number:04} slow") for number in range(0, NEIGHBOURS, EVERY)]
    ended, all_ended, dropped = 0, anyio.Event(), list[AttemptDropped]()

    def count(_: AttemptEnded) -> None:
        nonlocal ended
        ended += 1
        if ended == len(calls):
            all_ended.set()

    app.events.subscribe(AttemptEnded, count)
    app.events.subscribe(AttemptDropped, dropped.append)
    await app.schedule_many(sorted(calls, key=lambda one: str(one.id)))
    worker = Worker(app, WorkerPolicy(concurrency=1, timeout_grace=timedelta(seconds=1)))
    async with anyio.create_task_group() as group:
        group.start_soon(worker.run)
        with anyio.fail_after(30):
            while not all_ended.is_set():
                await anyio.lowlevel.checkpoint()
                clock.advance(timedelta(microseconds=100))
        worker.stop()
    assert not dropped
    assert sorted(ran) == list(range(NEIGHBOURS))
