"""How long a worker rests that found nothing: until something is due, by the database's clock, and never not at all."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from matrixsched import App
from matrixsched.clock import ManualClock
from matrixsched.store.transition import Transition
from matrixsched.store.values import Acquired
from matrixsched.worker import Worker

pytestmark = pytest.mark.anyio

MILLISECOND = timedelta(milliseconds=1)
ANSWERS_TAKE = 30 * MILLISECOND


@pytest.fixture
def slow(app: App, clock: ManualClock) -> App:
    """The database tells the time at once, and its answer takes a while."""
    run = app.store.run

    async def run_slowly(transition: Transition[Any]) -> Any:
        answer = await run(transition)
        if transition.name == "acquire_shard":
            clock.advance(ANSWERS_TAKE)
        return answer

    app.store.run = run_slowly  # type: ignore[method-assign]
    return app


@pytest.mark.parametrize("delay", [40 * MILLISECOND, 500 * MILLISECOND])
async def test_it_rests_until_the_row_is_due_and_not_by_as_much_longer_as_the_answer_took(
    slow: App, clock: ManualClock, delay: timedelta
):
    slow.action("work")(lambda: None)
    await slow.schedule("work", id="a", delay=2 * ANSWERS_TAKE + delay)
    worker = Worker(slow)
    assert await worker.intake.step() == 0  # it was moved
    rest_s = await worker.intake.step()
    assert rest_s == pytest.approx(delay.total_seconds(), abs=0.0011)
    clock.advance(timedelta(seconds=rest_s))
    assert await worker.intake.step() == 0
    assert worker.runner.has_waiting


async def test_what_others_have_is_asked_for_less_and_less_often_however_long_answers_take(
    app: App, clock: ManualClock
):
    async def run(transition: Transition[Any]) -> Any:
        assert transition.name == "acquire_shard"
        answer = Acquired(now=clock.now(), shard=None, next_due_at=clock.now() + 10 * MILLISECOND)
        clock.advance(ANSWERS_TAKE)
        return answer

    app.action("work")(lambda: None)
    app.store.run = run  # type: ignore[method-assign, assignment]
    worker = Worker(app)
    rests = [await worker.intake.step() for _ in range(12)]
    assert rests[:4] == [0, 0.01, 0.02, 0.04]
    assert rests == sorted(rests)
    assert rests[-1] == worker.policy.rest_max.total_seconds()
