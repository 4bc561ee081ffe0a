"""A caller's open transaction on some actions: workers and other callers go on. (On SQLite a writer holds up all.)"""

from collections.abc import AsyncIterator
from datetime import timedelta

import anyio
import pytest
from sqlalchemy.ext.asyncio import AsyncEngine
from support.drivers import async_engine

from matrixsched import App, State, call
from matrixsched.errors import DatabaseBusy
from matrixsched.events import OutcomesRecorded
from matrixsched.scheduler_policy import SchedulerPolicy
from matrixsched.worker import Worker, WorkerPolicy

pytestmark = pytest.mark.anyio


@pytest.fixture
async def app(postgres_dsn: str, clock, anyio_backend: str) -> AsyncIterator[App]:
    policy = SchedulerPolicy(lock_patience=timedelta(milliseconds=50))
    app = App(postgres_dsn, clock=clock, policy=policy)
    await app.init(shards=2)
    async with app:
        yield app


@pytest.fixture
async def engine(postgres_dsn: str) -> AsyncIterator[AsyncEngine]:
    engine = async_engine(postgres_dsn, "asyncpg")
    yield engine
    await engine.dispose()


@pytest.fixture
def ran(app: App) -> list[str]:
    ran: list[str] = []

    @app.action("note")
    async def note(text: str) -> None:
        ran.append(text)

    return ran


async def test_an_outcome_waits_for_the_transaction_and_the_others_do_not(app, engine, ran):
    ids = [f"n{n}" for n in range(20)]
    for id in ids:
        await app.schedule("note", id, id=id)
    worker = Worker(app)
    while await worker.intake.step() == 0:
        pass
    answers: list[OutcomesRecorded] = []
    app.events.subscribe(OutcomesRecorded, answers.append)
    async with engine.begin() as connection:
        await app.schedule("note", "new", id="n7", connection=connection)
        while worker.runner.has_waiting:
            await worker.runner.run_next()
        await worker.recorder.step()
        assert (answers[-1].recorded, answers[-1].busy) == (19, 1)
        assert (await app.get("n7")).status.running
        await worker.leases.extend(app.store)
    await worker.recorder.step()
    assert (answers[-1].superseded, answers[-1].busy) == (1, 0)
    assert await worker.run_due() == 1
    assert ran[-1] == "new"
    assert {action.status.state for action in await app.list()} == {State.DONE}


async def test_a_transaction_that_is_rolled_back_leaves_the_outcome_to_be_recorded(app, engine, ran):
    await app.schedule("note", "old", id="n")
    worker = Worker(app)
    while await worker.intake.step() == 0:
        pass
    async with engine.connect() as connection:
        await app.cancel("n", connection=connection)
        await worker.runner.run_next()
        await worker.recorder.step()
        await connection.rollback()
    await worker.recorder.step()
    assert (await app.get("n")).status.state is State.DONE


async def test_rows_of_a_locked_action_are_moved_and_claimed_as_ever(app, engine, ran):
    await app.schedule("note", "old", id="n")
    async with engine.begin() as connection:
        await app.reschedule("n", delay=timedelta(0), connection=connection)
        worker = Worker(app)
        await worker.intake.step()
        await worker.intake.step()
        assert len(worker.leases) == 1, "what was committed before still runs"


async def test_other_callers_go_on_and_only_the_locked_id_is_busy(app, engine, ran):
    answers: dict[str, str] = {}

    async def caller(id: str) -> None:
        try:
            await app.schedule("note", id, id=id)
            answers[id] = "written"
        except DatabaseBusy as busy:
            answers[id] = busy.remedy

    async with engine.begin() as connection:
        await app.schedule("note", "mine", id="hot", connection=connection)
        async with anyio.create_task_group() as callers:
            for id in ["a", "b", "c", "hot", "d", "e"]:
                callers.start_soon(caller, id)
    assert answers == {"hot": DatabaseBusy.remedy} | dict.fromkeys("abcde", "written")
    assert (await app.get("hot")).spec.payload == b'"mine"'


async def test_a_call_waits_a_while_for_a_transaction_that_ends(app, engine, ran):
    app.scheduler._policy = SchedulerPolicy(lock_patience=timedelta(seconds=30))
    locked, answers = anyio.Event(), []

    async def holder() -> None:
        async with engine.begin() as connection:
            await app.schedule("note", "first", id="hot", connection=connection)
            locked.set()
            # Ends when the other call has been sent on its own, which the server shows as a wait for this one.
            async with engine.connect() as onlooker:
                waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
                while not (await onlooker.exec_driver_sql(waiting)).scalar():
                    await onlooker.rollback()

    async def caller() -> None:
        await locked.wait()
        answers.append(await app.schedule("note", "second", id="hot"))

    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            group.start_soon(holder)
            group.start_soon(caller)
    assert (await app.get("hot")).spec.payload == b'"second"'
    assert answers[0].created is False


async def test_many_outcomes_that_wait_for_a_transaction_leave_room_for_others(app, engine, ran):
    await app.schedule_many(call("note", f"n{n}", id=f"n{n}") for n in range(40))
    worker = Worker(app, WorkerPolicy(concurrency=5, batch_max=10))
    async with engine.begin() as connection:
        for n in range(40):
            await app.schedule("note", "new", id=f"n{n}", connection=connection)
        await app.schedule("note", "innocent", id="innocent", delay=timedelta(seconds=1))
        for _ in range(60):
            await worker.intake.step()
            while worker.runner.has_waiting:
                await worker.runner.run_next()
            await worker.recorder.step()
        assert worker.recorder.held_up == 40
        app.clock.advance(timedelta(seconds=1))
        await worker.intake.step()
        while worker.runner.has_waiting:
            await worker.runner.run_next()
        assert "innocent" in ran
