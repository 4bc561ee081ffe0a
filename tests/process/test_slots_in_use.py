"""Limits are used to the full also by workers that have little room, or much else to do. In real time."""

from __future__ import annotations

import anyio
import pytest

from matrixsched import App, call
from matrixsched.events import SlotsVoided
from matrixsched.worker import Worker, WorkerPolicy

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

PATIENCE_S = 20


async def test_what_is_under_a_limit_does_not_wait_behind_everything_that_is_not(database_url: str):
    app, sent, free = App(database_url), 0, 0
    enough = anyio.Event()

    @app.action("send")
    async def send() -> None:
        nonlocal sent
        sent += 1
        if sent == 60:
            enough.set()

    @app.action("free")
    async def free_action() -> None:
        nonlocal free
        free += 1
        await anyio.sleep(0.02)

    await app.init(shards=16)
    async with app:
        await app.limits.set("handler:send", "50/s")
        await app.schedule_many(call("send") for _ in range(100))
        await app.schedule_many(call("free") for _ in range(6_000))
        async with Worker(app, WorkerPolicy(concurrency=20)):
            with anyio.fail_after(PATIENCE_S):
                await enough.wait()
    assert free < 6_000


async def test_no_slot_is_taken_for_which_no_handler_will_be_free(database_url: str):
    app, sent, voided = App(database_url), 0, 0
    enough = anyio.Event()

    @app.action("send")
    async def send() -> None:
        nonlocal sent
        sent += 1
        if sent == 60:
            enough.set()
        await anyio.sleep(0.4)

    def count(event: SlotsVoided) -> None:
        nonlocal voided
        voided += event.count

    app.events.subscribe(SlotsVoided, count)
    await app.init(shards=16)
    async with app:
        await app.limits.set("global", "20/s")
        await app.schedule_many(call("send") for _ in range(100))
        few = WorkerPolicy(concurrency=5)  # two of them could do 25 in a second
        async with Worker(app, few, name="one"), Worker(app, few, name="other"):
            with anyio.fail_after(PATIENCE_S):
                await enough.wait()
    # A machine that is busy with other things may be late for some; without the room for handlers it is every fifth.
    assert voided <= 5
