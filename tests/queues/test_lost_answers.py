"""Settling whose answer was lost: what an earlier try did is told from what others took over, as far as it can be."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import anyio
import pytest
from support.crew import SECOND, Crew, TestedStorage, until
from support.queue_tasks import EMAILS
from support.queues import storage_of

from matrixsched.clock import ManualClock
from matrixsched.errors import OutcomeUnknown
from matrixsched.events import BatchEnded
from matrixsched.queues.results import DeadLetter, Done, RetryAt
from matrixsched.rules.queues import Settled, Taken
from matrixsched.store.store import Store
from matrixsched.testing import Faults
from matrixsched.testing.faults import StageStore, Tape

pytestmark = pytest.mark.anyio

ENDS = [
    pytest.param("done_tasks", Done(), (1, 0, 0), id="done"),
    pytest.param("retry_tasks", RetryAt(timedelta(0)), (0, 1, 0), id="retry"),
    pytest.param("set_aside_tasks", DeadLetter("spam"), (0, 0, 1), id="dead"),
]


@pytest.fixture
def faults(clock: ManualClock) -> Faults:
    return Faults(clock)


@pytest.fixture
def far(store: Store, clock: ManualClock, faults: Faults) -> Crew:
    """Processors whose database is behind a line that fails when a test says so."""
    return Crew(clock, storage_of(StageStore(store, faults, Tape())))


@pytest.mark.parametrize(("transition", "result", "counts"), ENDS)
async def test_what_an_earlier_try_did_counts_though_its_answer_was_lost(
    far: Crew, faults: Faults, transition: str, result: Any, counts: tuple[int, int, int]
):
    far.handle("emails", lambda tasks: result, batch_size=1, visibility=30 * SECOND)
    await far.emails("ada")
    faults.lose_answer(transition, times=2)  # the storage sends it again by itself
    async with far.at_work() as processors:
        await until(lambda: faults.struck[transition] == 2)
        processors.stop()  # the task may come back at once
        far.clock.advance(SECOND)
        await until(lambda: len(far.of(BatchEnded)) == 1)
    assert (far.ended.processed, far.ended.retried, far.ended.dead) == counts
    assert (far.ended.stale, far.ended.left) == (0, 0)


@pytest.mark.parametrize(("transition", "result", "counts"), ENDS)
async def test_what_others_took_when_its_timeout_was_over_is_not_counted_as_ours(
    far: Crew, store: Store, faults: Faults, transition: str, result: Any, counts: tuple[int, int, int]
):
    far.handle("emails", lambda tasks: result, visibility=30 * SECOND)
    (id,) = await far.emails("ada")
    faults.lose_request(transition, times=2)
    async with far.at_work() as processors:
        await until(lambda: faults.struck[transition] == 2)
        processors.stop()
        far.clock.advance(30 * SECOND)  # as if the process had been stopped
        (other,) = await storage_of(store, seed=2).get(EMAILS, 10)
        await until(lambda: len(far.of(BatchEnded)) == 1)
    assert (far.ended.processed, far.ended.retried, far.ended.dead, far.ended.stale) == (0, 0, 0, 1)
    assert (await storage_of(store).done([other])).settled == {id}


class Hanging(TestedStorage):
    """Its first `done` takes as long as the test says, comes to nothing, and nobody knows."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.may_end = anyio.Event()

    async def done(self, tasks: Iterable[Taken]) -> Settled:
        if not self.may_end.is_set():
            self.calls.append("done")
            await self.may_end.wait()
            raise OutcomeUnknown("no answer")
        return await super().done(tasks)


async def test_a_prolongation_that_leaves_out_what_is_being_settled_makes_nobody_trust_it_longer(clock: ManualClock):
    storage = Hanging(clock)
    crew = Crew(clock, storage)
    crew.handle("emails", lambda tasks: None, visibility=30 * SECOND)
    await crew.emails("ada")
    async with crew.at_work() as processors:
        await until(lambda: storage.calls[-1:] == ["done"])
        clock.advance(20 * SECOND)
        await processors.batches.prolong(storage)
        assert "extend" not in storage.calls
        clock.advance(10 * SECOND)
        (other,) = await storage.get(EMAILS, 10)
        storage.may_end.set()
        await until(lambda: len(crew.of(BatchEnded)) == 1)
    assert (crew.ended.processed, crew.ended.left) == (0, 1)
    assert (await storage.done([other])).settled == {other.id}
