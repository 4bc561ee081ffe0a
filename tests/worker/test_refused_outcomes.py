"""Outcomes that the database refuses: they keep nobody else from being recorded, on both databases."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from matrixsched import Outcome, Retry, State
from matrixsched.errors import DatabaseError, DatabaseUnavailable
from matrixsched.events import ClaimsLost
from matrixsched.store.values import Ended
from matrixsched.worker import Worker, WorkerPolicy

pytestmark = pytest.mark.anyio

STRICT = Retry(max_attempts=3, first_delay=timedelta(seconds=10), jitter=0)


def refuse(app, monkeypatch, refused: Callable[[Ended], bool], error: Exception | None = None) -> None:
    """Let the database refuse every batch with such an outcome in it; alone, with this error."""
    do = app.store.transitions
    record = do.record

    def refusing(batch, *, history_max):
        if any(refused(ended) for ended in batch):
            raise error if error and len(batch) == 1 else DatabaseError("refused")
        return record(batch, history_max=history_max)

    monkeypatch.setattr(do, "record", refusing)


@pytest.fixture
async def worker(app):
    @app.action("work", retry=STRICT)
    async def work(number: int) -> None:
        if number == 2:
            raise ValueError("poison")

    for number in range(5):
        await app.schedule(work, number, id=f"w{number}")
    return Worker(app)


async def claim_and_run(worker: Worker) -> None:
    while await worker.intake.step() == 0:
        pass
    while worker.runner.has_waiting:
        await worker.runner.run_next()


async def test_an_outcome_that_is_refused_is_recorded_as_a_failure_and_the_others_as_they_are(
    app, clock, worker, monkeypatch
):
    refuse(app, monkeypatch, lambda ended: "poison" in (ended.verdict.error or ""))
    assert await worker.run_due() == 5
    for number in (0, 1, 3, 4):
        assert (await app.get(f"w{number}")).status.state is State.DONE
    status = (await app.get("w2")).status
    assert (status.state, status.last_outcome) == (State.LIVE, Outcome.FAILED)
    assert status.last_error == "its outcome could not be stored: it was failed"
    assert status.scheduled_at == clock.now() + STRICT.first_delay
    assert len(worker.leases) == 0


async def test_an_outcome_that_is_refused_in_any_form_is_dropped_and_its_row_comes_due_by_itself(
    app, clock, worker, monkeypatch
):
    lost: list[ClaimsLost] = []
    app.events.subscribe(ClaimsLost, lost.append)
    with monkeypatch.context() as patch:
        refuse(app, patch, lambda ended: ended.claim.action_id == "w2")
        assert await worker.run_due() == 5
    for number in (0, 1, 3, 4):
        assert (await app.get(f"w{number}")).status.state is State.DONE
    assert [event.count for event in lost] == [1]
    assert (worker.recorder.is_idle, len(worker.leases)) == (True, 0)
    clock.advance(WorkerPolicy().attempt_lease)
    assert await Worker(app).run_due() == 1
    status = (await app.get("w2")).status
    assert (status.interrupted, status.failed) == (1, 1)


async def test_a_database_that_refuses_everything_is_asked_again_before_outcomes_are_dropped(app, worker, monkeypatch):
    await claim_and_run(worker)
    with monkeypatch.context() as patch:
        refuse(app, patch, lambda ended: True)
        for _ in range(4):
            with pytest.raises(DatabaseError):
                await worker.recorder.step()
    assert len(worker.leases) == 5
    await worker.recorder.step()
    assert (await app.get("w0")).status.state is State.DONE
    assert (await app.get("w2")).status.failed == 1
    assert len(worker.leases) == 0


async def test_a_database_that_goes_away_between_them_loses_none(app, worker, monkeypatch):
    await claim_and_run(worker)
    with monkeypatch.context() as patch:
        refuse(app, patch, lambda ended: ended.claim.action_id == "w2", DatabaseUnavailable("away"))
        with pytest.raises(DatabaseUnavailable):
            await worker.recorder.step()
    await worker.recorder.step()
    assert (await app.get("w2")).status.failed == 1
    assert len(worker.leases) == 0


async def test_outcomes_behind_many_that_are_lost_do_not_wait(app, worker):
    """Nothing wakes the recorder while outcomes lie there: it goes on by itself."""
    hasty = Worker(app, WorkerPolicy(batch_max=1))
    while await hasty.intake.step() == 0 or hasty.runner.has_waiting:
        while hasty.runner.has_waiting:
            await hasty.runner.run_next()
    ended = list(hasty.recorder._ended)
    assert len(ended) >= 3
    for one in ended[:2]:
        hasty.leases.drop(one.claim)  # another attempt took their place
    assert await hasty.recorder.step() == 0
    while not hasty.recorder.is_idle:
        await hasty.recorder.step()
    assert len(hasty.leases) == 0
