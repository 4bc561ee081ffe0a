"""What never started is given back although the database fails for a moment, and is not taken for interrupted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import anyio
import pytest

from matrixsched import App, Retry, State
from matrixsched.clock import ManualClock
from matrixsched.errors import DatabaseBusy, DatabaseError, DatabaseUnavailable, OutcomeUnknown
from matrixsched.events import WorkerStopped
from matrixsched.store.transition import Transition
from matrixsched.worker import Worker, WorkerPolicy

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]

SECOND = timedelta(seconds=1)
LEASE = WorkerPolicy().attempt_lease
DEADLINE_S = 20
NEVER_AGAIN = Retry(max_interruptions=0)
"""An interruption, and the action is in quarantine."""


class Failing:
    """Stands before a store: transitions of one name fail as told, one failure for each; then all is well."""

    def __init__(self, app: App, name: str, *failures: Exception, is_done: bool = False) -> None:
        self._run, self._name, self._failures, self._is_done = app.store.run, name, list(failures), is_done
        app.store.run = self.run  # type: ignore[method-assign]

    async def run(self, transition: Transition[Any]) -> Any:
        if transition.name != self._name or not self._failures:
            return await self._run(transition)
        if self._is_done:
            await self._run(transition)
        raise self._failures.pop(0)

    @property
    def is_over(self) -> bool:
        return not self._failures


async def give_back(worker: Worker) -> None:
    """As the daemon does: a step that failed is made again."""
    while not worker.runner.giving_back.is_idle:
        try:
            await worker.runner.giving_back.step()
        except DatabaseError:
            assert worker.runner.held, "forgotten before the answer was there"


async def look_often(worker: Worker, clock: ManualClock) -> None:
    """Slots of a limit begin a little later."""
    for _ in range(20):
        await worker.intake.step()
        clock.advance(SECOND / 100)


def careful(app: App) -> list[str]:
    """Registers a handler whose actions must not be interrupted; what it ran."""
    ran: list[str] = []

    @app.action("careful", retry=NEVER_AGAIN)
    async def run() -> None:
        ran.append("careful")

    return ran


async def ran_once(app: App, clock: ManualClock, ran: list[str]) -> None:
    """When the lease is over, everything has come due that was not given back."""
    clock.advance(2 * LEASE)
    await Worker(app).run_due()
    status = (await app.get("c")).status
    assert (ran, status.state, status.interrupted) == (["careful"], State.DONE, 0)


FAILURES = pytest.mark.parametrize(
    ("failure", "is_done"),
    [
        (DatabaseUnavailable("away"), False),
        (DatabaseBusy("locked"), False),
        (OutcomeUnknown("lost"), False),
        (OutcomeUnknown("lost"), True),
    ],
    ids=["unavailable", "busy", "request lost", "answer lost"],
)


@FAILURES
async def test_what_waited_for_too_long_is_given_back_when_the_database_takes_it(app, clock, failure, is_done):
    ran = careful(app)
    await app.schedule("careful", id="c")
    worker = Worker(app)
    await worker.intake.step()
    clock.advance(LEASE / 3 + SECOND / 1000)
    failing = Failing(app, "give_back", failure, failure, is_done=is_done)
    await worker.runner.watch()
    await give_back(worker)
    assert failing.is_over
    assert (worker.runner.held, worker.runner.giving_back.count) == (0, 0 if is_done else 1)
    await ran_once(app, clock, ran)


@pytest.mark.parametrize("name", ["claim_gated", "move"])
async def test_what_was_claimed_without_an_answer_is_given_back_when_the_database_takes_it(app, clock, name):
    ran = careful(app)
    await app.limits.set("key:customer", "100/s", pool=100)
    clock.advance(SECOND)
    worker = Worker(app, WorkerPolicy(slots_ahead=timedelta(0)))
    await app.schedule("careful", id="c", limit="customer" if name == "claim_gated" else None)
    run = app.store.run

    async def answered_late(transition: Transition[Any]) -> Any:
        answer = await run(transition)
        if transition.name == name and answer.attempts:
            app.store.run = run
            clock.advance(LEASE / 3 + SECOND / 1000)
            Failing(app, "give_back", DatabaseUnavailable("away"))
            raise OutcomeUnknown("no answer")
        return answer

    app.store.run = answered_late
    with pytest.raises(OutcomeUnknown):
        await look_often(worker, clock)
    assert worker.runner.held == 1
    await give_back(worker)
    await ran_once(app, clock, ran)


async def test_what_is_being_given_back_is_not_started(app, clock):
    ran = careful(app)
    await app.schedule("careful", id="c")
    worker = Worker(app)
    await worker.intake.step()
    worker.runner.give_back_waiting()
    Failing(app, "give_back", DatabaseUnavailable("away"))
    with pytest.raises(DatabaseUnavailable):
        await worker.runner.giving_back.step()
    assert not worker.runner.has_waiting
    assert ran == []
    await give_back(worker)
    await ran_once(app, clock, ran)


async def test_a_row_that_came_back_to_the_same_worker_is_kept_although_the_answer_was_lost(app, clock):
    ran = careful(app)
    await app.schedule("careful", id="c")
    worker = Worker(app)
    await worker.intake.step()
    worker.runner.give_back_waiting()
    Failing(app, "give_back", OutcomeUnknown("lost"), is_done=True)
    with pytest.raises(OutcomeUnknown):
        await worker.runner.giving_back.step()
    await worker.intake.step()
    assert (worker.runner.has_waiting, worker.runner.held) == (True, 1)
    await give_back(worker)
    assert worker.runner.held == 1, "the later claim was forgotten with the earlier one"
    await worker.runner.run_next()
    await worker.recorder.step()
    await ran_once(app, clock, ran)


async def test_what_cannot_be_given_back_is_left_to_its_lease_in_the_end(app, clock):
    careful(app)
    await app.schedule("careful", id="c")
    worker = Worker(app)
    await worker.intake.step()
    worker.runner.give_back_waiting()
    Failing(app, "give_back", *[DatabaseUnavailable("away")] * 100)
    clock.advance(2 * LEASE)
    await worker.runner.giving_back.step()
    assert (worker.runner.held, worker.runner.giving_back.is_idle) == (0, True)


class TestOfADaemon:
    """In real time: the daemon has threads, and the database its own clock."""

    @pytest.fixture
    async def app(self, database_url: str, anyio_backend: str) -> AsyncIterator[App]:
        app = App(database_url)
        await app.init(shards=4)
        async with app:
            yield app

    @staticmethod
    async def stop_while_some_wait(app: App, *failures: Exception, **policy: Any) -> WorkerStopped:
        """Stop a worker that holds actions whose slots are yet to begin."""
        stopped: list[WorkerStopped] = []
        app.events.subscribe(WorkerStopped, stopped.append)
        careful(app)
        await app.limits.set("global", "1/s")
        for number in range(10):
            await app.schedule("careful", id=f"c{number}")
        worker = Worker(app, WorkerPolicy(slots_ahead=3 * SECOND, **policy))
        with anyio.fail_after(DEADLINE_S):
            async with anyio.create_task_group() as group:
                group.start_soon(worker.run)
                while not worker.runner.line.pressing:
                    await anyio.lowlevel.checkpoint()
                Failing(app, "give_back", *failures)
                worker.stop()
        return stopped[0]

    async def test_a_worker_that_stops_gives_back_what_waits_although_the_database_fails_for_a_moment(self, app):
        failures = DatabaseUnavailable("away"), DatabaseBusy("locked"), DatabaseUnavailable("away")
        stopped = await self.stop_while_some_wait(app, *failures)
        assert stopped.given_back > 0
        assert not any(action.status.running for action in await app.list())

    async def test_and_leaves_in_time_if_the_database_stays_away(self, app):
        failures = [DatabaseUnavailable("away")] * 1000
        stopped = await self.stop_while_some_wait(app, *failures, farewell=SECOND / 5)
        assert stopped.given_back == 0
        assert any(action.status.running for action in await app.list())
