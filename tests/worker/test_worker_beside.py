"""A worker inside another program, in real time: `async with Worker(app)`."""

import signal
from datetime import timedelta
from typing import Any

import anyio
import pytest

from matrixsched import App, State
from matrixsched.errors import BadInput, HandlersLeaked, MatrixSchedError, NotOpen
from matrixsched.worker import Worker, WorkerPolicy

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]

DEADLINE_S = 20


@pytest.fixture
async def closed_app(database_url: str, anyio_backend: str) -> App:
    """Installed, but not opened."""
    app = App(database_url)
    await app.init(shards=4)
    return app


async def test_it_opens_the_application_runs_its_actions_and_closes_it_again(closed_app):
    ran = anyio.Event()

    @closed_app.action("work")
    async def work() -> None:
        ran.set()

    async with Worker(closed_app) as worker:
        assert isinstance(worker, Worker)
        await closed_app.schedule(work, id="w")
        with anyio.fail_after(DEADLINE_S):
            await ran.wait()
    with pytest.raises(NotOpen):
        await closed_app.get("w")
    async with closed_app:
        assert (await closed_app.get("w")).status.state is State.DONE


async def test_an_application_that_is_open_stays_open(closed_app):
    @closed_app.action("work")
    async def work() -> None: ...

    async with closed_app:
        async with Worker(closed_app):
            pass
        assert await closed_app.list() == []


async def test_what_is_under_way_at_the_end_is_finished_and_recorded(closed_app):
    began, may_end = anyio.Event(), anyio.Event()

    @closed_app.action("work")
    async def work() -> None:
        began.set()
        await may_end.wait()

    async with closed_app, anyio.create_task_group() as group:
        async with Worker(closed_app) as worker:
            await closed_app.schedule(work, id="w")
            with anyio.fail_after(DEADLINE_S):
                await began.wait()

            async def end_once_it_stops() -> None:
                await worker.stopping.wait()
                may_end.set()

            group.start_soon(end_once_it_stops)
        assert (await closed_app.get("w")).status.state is State.DONE


@pytest.mark.parametrize("error", [ZeroDivisionError, SystemExit, KeyboardInterrupt])
async def test_what_the_block_raises_comes_out_as_itself_after_the_worker_finished(closed_app, error):
    @closed_app.action("work")
    async def work() -> None: ...

    worker = Worker(closed_app)
    with pytest.raises(error):
        async with worker:
            raise error
    assert worker.stopping.is_set()


async def test_a_worker_that_has_run_is_not_entered_again(closed_app):
    @closed_app.action("work")
    async def work() -> None: ...

    worker = Worker(closed_app)
    async with worker:
        pass
    with pytest.raises(BadInput, match="runs once"):
        async with worker:
            pytest.fail("it would run nothing")


async def test_a_worker_that_gives_up_ends_the_block_and_says_why_even_if_its_slots_came_back(closed_app):
    gives_up = anyio.Event()

    @closed_app.action("stubborn", timeout=timedelta(milliseconds=10))
    async def stubborn() -> None:
        with anyio.CancelScope(shield=True):
            await gives_up.wait()

    async def work_until_it_ends() -> None:
        policy = WorkerPolicy(concurrency=1, timeout_grace=timedelta(0), rest_max=timedelta(milliseconds=10))
        async with Worker(closed_app, policy) as worker, anyio.create_task_group() as group:
            group.start_soon(release_once_it_gives_up, worker)
            await closed_app.schedule(stubborn)
            await anyio.sleep_forever()

    async def release_once_it_gives_up(worker: Worker) -> None:
        await worker.stopping.wait()
        gives_up.set()

    with pytest.raises(HandlersLeaked, match="1 of 1 handler slots"):
        await work_until_it_ends()


async def test_a_database_without_tables_is_said_as_such(database_url, anyio_backend):
    app = App(database_url)

    @app.action("work")
    async def work() -> None: ...

    with pytest.raises(MatrixSchedError, match="matrixsched init"):
        async with Worker(app):
            pytest.fail("there is nothing to work on")


async def test_signals_stay_the_programs_own(closed_app):
    @closed_app.action("work")
    async def work() -> None: ...

    def heard(*_: Any) -> None: ...

    before = {number: signal.signal(number, heard) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        async with Worker(closed_app):
            assert {signal.getsignal(number) for number in before} == {heard}
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
