"""Limits where the database is far away, or slow to answer: slots are taken that can still be used when it is known."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

import pytest

from matrixsched import App, call
from matrixsched.clock import ManualClock
from matrixsched.errors import ConfigurationError
from matrixsched.events import SlotsVoided
from matrixsched.store.store import Store
from matrixsched.store.transition import Transition
from matrixsched.store.wrapper import StoreWrapper
from matrixsched.worker import Worker, WorkerPolicy

pytestmark = pytest.mark.anyio

T = TypeVar("T")
MILLISECOND = timedelta(milliseconds=1)
RATE_PER_S = 20
SECONDS = 6


class FarStore(StoreWrapper):
    """A question takes as long to get there as its answer to come back; meanwhile the worker does other things."""

    def __init__(self, inner: Store, way_ms: int, millisecond: Callable[[], Awaitable[None]]) -> None:
        super().__init__(inner)
        self._way_ms = way_ms
        self._millisecond = millisecond

    async def run(self, transition: Transition[T]) -> T:
        await self._pass(self._way_ms)
        answer = await self._inner.run(transition)
        # The gates are asked in a transaction of several statements, and what they say holds from the first.
        await self._pass(self._way_ms * (6 if transition.name == "claim_gated" else 1))
        return answer

    async def _pass(self, milliseconds: int) -> None:
        for _ in range(milliseconds):
            await self._millisecond()

    def sibling(self) -> Store:
        return self._inner.sibling()


@pytest.fixture
async def app(database_url: str, anyio_backend: str) -> AsyncIterator[App]:
    app = App(database_url, clock=ManualClock())
    await app.init(shards=1)
    async with app:
        yield app


async def starts_of(app: App, clock: ManualClock, way_ms: int) -> list[float]:
    """When a worker starts its handlers that has so far to go to its database."""
    starts: list[float] = []

    @app.action("send")
    async def send() -> None:
        starts.append(clock.monotonic())

    async def millisecond() -> None:
        clock.advance(MILLISECOND)
        await worker.runner.start_timed()
        while worker.runner.has_waiting:
            await worker.runner.run_next()

    near, app.store = app.store, FarStore(app.store, way_ms, millisecond)
    try:
        worker = Worker(app)
        ends_at = clock.monotonic() + SECONDS
        while clock.monotonic() < ends_at:
            await worker.intake.step()
            await worker.recorder.step()
            await worker.runner.watch()
            await millisecond()
    finally:
        app.store = near
    return starts


@pytest.mark.parametrize("way_ms", [20, 60])
async def test_most_of_a_limit_can_be_used_however_long_answers_take(app: App, way_ms: int):
    assert isinstance(app.clock, ManualClock)
    await app.limits.set("global", f"{RATE_PER_S}/s")
    await app.schedule_many(call("send") for _ in range(2 * RATE_PER_S * SECONDS))
    voided: list[SlotsVoided] = []
    app.events.subscribe(SlotsVoided, voided.append)
    starts = await starts_of(app, app.clock, way_ms)
    assert 0.6 * RATE_PER_S * SECONDS <= len(starts) <= RATE_PER_S * SECONDS + 2
    assert sum(event.count for event in voided) <= 0.1 * RATE_PER_S * SECONDS


async def test_slots_are_not_taken_further_ahead_than_attempts_live(app: App):
    @app.action("send")
    async def send() -> None: ...

    policy = WorkerPolicy(slots_ahead=timedelta(seconds=5))
    assert Worker(app, policy).intake.ahead == policy.attempt_lease / 3


def test_slots_are_not_taken_so_far_ahead_that_they_would_be_given_out_again():
    with pytest.raises(ConfigurationError, match=r"slots_ahead \(60 s\) must be at most 10 s"):
        WorkerPolicy(slots_ahead=timedelta(minutes=1), attempt_lease=timedelta(minutes=10))
