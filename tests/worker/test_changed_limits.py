"""A limit that is changed holds at once: workers that have seen their lanes held look again without being restarted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import anyio
import pytest

from matrixsched import App, State, call
from matrixsched.events import AttemptEnded, ShardSynced, StepFailed
from matrixsched.worker import Worker

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]

DEADLINE_S = 30
DAY = timedelta(days=1)
HELD = 5


@pytest.fixture
async def app(database_url: str, anyio_backend: str) -> AsyncIterator[App]:
    """In real time: the daemon has threads, and the database its own clock."""
    app = App(database_url)
    await app.init(shards=1)

    @app.action("send")
    async def send() -> None: ...

    async with app:
        yield app


@asynccontextmanager
async def everything_held(app: App, *, later: int = 0) -> AsyncIterator[list[AttemptEnded]]:
    """A worker that has met actions which a limit holds back; left when all of them have run, and so many others."""
    moved, ended = anyio.Event(), anyio.Event()
    ran: list[AttemptEnded] = []

    def note(event: AttemptEnded) -> None:
        ran.append(event)
        if len(ran) >= HELD + later:
            ended.set()

    app.events.subscribe(ShardSynced, lambda sync: moved.set() if sync.moved else None)
    app.events.subscribe(AttemptEnded, note)
    await app.schedule_many(call("send") for _ in range(HELD))
    worker = Worker(app)
    async with anyio.create_task_group() as group:
        group.start_soon(worker.run)
        with anyio.fail_after(DEADLINE_S):
            await moved.wait()
            yield ran
            await ended.wait()
        worker.stop()


@pytest.mark.parametrize("change", ["raised", "removed", "resumed"])
async def test_what_was_held_back_goes_at_once(app: App, database_url: str, change: str):
    await app.limits.set("global", "1000/s" if change == "resumed" else "1/day")
    if change == "resumed":
        await app.limits.slow_down("global", DAY)
    elsewhere = App(database_url)
    async with elsewhere, everything_held(app) as ran:
        assert ran == []
        match change:
            case "raised":
                await elsewhere.limits.set("global", "1000/s")
            case "removed":
                assert await elsewhere.limits.remove("global")
            case "resumed":
                assert await elsewhere.limits.resume("global")


async def test_a_limit_that_is_lowered_holds_what_comes_after_it(app: App):
    await app.limits.set("handler:send", "1000/s")
    async with everything_held(app) as ran:
        pass
    await app.limits.set("handler:send", "1/day")
    await app.schedule_many(call("send") for _ in range(HELD))
    assert await Worker(app).run_due() <= 1  # in the slot that nobody had wanted
    assert len(ran) <= HELD + 1


async def test_many_change_limits_while_workers_pass_them(app: App):
    """Neither waits for the other for long, and none of them fails."""
    failed: list[StepFailed] = []
    app.events.subscribe(StepFailed, failed.append)
    await app.limits.set("key:*", "100000/s")

    async def change(number: int) -> None:
        for turn in range(10):
            await app.limits.set("global", f"{1000 + number}/s", pool=turn)
            await app.limits.set("key:*", f"{100_000 + turn}/s")
            await app.limits.slow_down(f"key:{number}", timedelta(milliseconds=1), reason="HTTP 429")
            await app.limits.resume(f"key:{number}")
        await app.limits.remove("global")

    async with everything_held(app, later=100), anyio.create_task_group() as changing:
        await app.schedule_many(call("send", limit=f"{number % 4}") for number in range(100))
        for number in range(4):
            changing.start_soon(change, number)
    assert await app.list(state=State.LIVE) == []
    assert failed == []
