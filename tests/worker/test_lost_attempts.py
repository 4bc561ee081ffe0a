"""Attempts that others have taken over while their handlers were running here."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

import anyio
import pytest

from matrixsched import App, Context, State
from matrixsched.clock import ManualClock
from matrixsched.errors import DatabaseUnavailable
from matrixsched.events import AttemptDropped, ClaimsLost
from matrixsched.store.store import Store
from matrixsched.store.transition import Transition
from matrixsched.store.wrapper import StoreWrapper
from matrixsched.worker import Worker, WorkerPolicy
from matrixsched.worker.leases import Leases

pytestmark = pytest.mark.anyio

T = TypeVar("T")


class Around(StoreWrapper):
    """A store whose siblings are what they were."""

    def sibling(self) -> Store:
        return self._inner.sibling()


class ExtendingBetween(Around):
    """A store in which leases are prolonged when outcomes are committed and nobody has been told so yet."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.leases: Leases | None = None
        self.rounds = 0

    async def run(self, transition: Transition[T]) -> T:
        answer = await super().run(transition)
        if transition.name == "record" and self.leases is not None:
            self.rounds += 1
            await self.leases.extend(self._inner)
        return answer


async def test_an_attempt_that_was_recorded_meanwhile_is_not_told_to_be_lost(app: App) -> None:
    app.store = between = ExtendingBetween(app.store)

    @app.action("work")
    async def work() -> None: ...

    lost: list[ClaimsLost] = []
    app.events.subscribe(ClaimsLost, lost.append)
    worker = Worker(app)
    between.leases = worker.leases
    await app.schedule(work)
    await worker.run_due()
    assert between.rounds == 1
    assert lost == []


async def test_a_handler_is_not_called_any_more_when_the_lease_ended_on_the_way_to_it(
    app: App, clock: ManualClock
) -> None:
    """Others may have the row by then; the time of a stop of the whole process passes in some await, too."""
    called: list[int] = []
    dropped: list[AttemptDropped] = []
    app.events.subscribe(AttemptDropped, dropped.append)
    policy = WorkerPolicy()

    @app.middleware
    async def stands_still(context: Context, call_next: Callable[[], Awaitable[object]]) -> object:
        if context.attempt == 1:
            clock.advance(policy.attempt_lease)
        return await call_next()

    @app.action("work")
    async def work(context: Context) -> None:
        called.append(context.attempt)

    await app.schedule(work, id="one")
    await Worker(app, policy).run_due()
    assert called == [2]
    assert [(one.id, one.attempt) for one in dropped] == [("one", 1)]
    assert (await app.get("one")).status.interrupted == 1


class RefusingRecords(Around):
    """A store that takes no outcomes until it is told to."""

    refuses = True

    async def run(self, transition: Transition[T]) -> T:
        if transition.name == "record" and self.refuses:
            raise DatabaseUnavailable("away")
        return await super().run(transition)


async def test_what_has_ended_is_held_until_it_is_recorded_also_beyond_its_time_limit(
    app: App, clock: ManualClock
) -> None:
    app.store = refusing = RefusingRecords(app.store)

    @app.action("work", timeout=timedelta(seconds=1))
    async def work() -> None: ...

    await app.schedule(work, id="one")
    worker, heir = Worker(app), Worker(app)
    await worker.intake.step()
    await worker.runner.run_next()
    for _ in range(12):
        clock.advance(worker.policy.attempt_lease / 3)
        await worker.leases.extend(app.store)
        with pytest.raises(DatabaseUnavailable):
            await worker.recorder.step()
    await heir.intake.step()
    assert (worker.runner.held, heir.runner.held) == (1, 0)
    refusing.refuses = False
    await worker.recorder.step()
    status = (await app.get("one")).status
    assert (status.state, status.succeeded, status.interrupted) == (State.DONE, 1, 0)


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
