"""Limits are used to the full also by workers that have little room, or much else to do. In real time."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import pytest

from matrixsched import App, call
from matrixsched.events import SlotsVoided
from matrixsched.worker import Worker, WorkerPolicy

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

PATIENCE_S = 20


@pytest.fixture
async def app(database_url: str, anyio_backend: str) -> AsyncIterator[App]:
    app = App(database_url)
    await app.init(shards=16)
    async with app:
        yield app


def sending(app: App, count: int, *, takes_s: float = 0.0) -> anyio.Event:
    """Register `send`; the event is set when it has begun so often."""
    sent, enough = 0, anyio.Event()

    @app.action("send")
    async def send() -> None:
        nonlocal sent
        sent += 1
        if sent == count:
            enough.set()
        await anyio.sleep(takes_s)

    return enough


async def test_what_is_under_a_limit_does_not_wait_behind_everything_that_is_not(app: App):
    enough, free = sending(app, 60), 0

    @app.action("free")
    async def free_action() -> None:
        nonlocal free
        free += 1
        await anyio.sleep(0.02)

    await app.limits.set("handler:send", "50/s")
    await app.schedule_many(call("send") for _ in range(100))
    await app.schedule_many(call("free") for _ in range(6_000))
    async with Worker(app, WorkerPolicy(concurrency=20)):
        with anyio.fail_after(PATIENCE_S):
            await enough.wait()
    assert free < 6_000


async def test_no_slot_is_taken_for_which_no_handler_will_be_free(app: App):
    enough, voided = sending(app, 60, takes_s=0.4), 0

    def count(event: SlotsVoided) -> None:
        nonlocal voided
        voided += event.count

    app.events.subscribe(SlotsVoided, count)
    await app.limits.set("global", "20/s")
    await app.schedule_many(call("send") for _ in range(100))
    few = WorkerPolicy(concurrency=5)  # two of them could do 25 in a second
    async with Worker(app, few, name="one"), Worker(app, few, name="other"):
        with anyio.fail_after(PATIENCE_S):
            await enough.wait()
    # A machine that is busy with other things may be late for some; without the room for handlers it is every fifth.
    assert voided <= 9
