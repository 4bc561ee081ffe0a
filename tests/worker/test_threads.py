"""Plain functions run in threads, which nobody can cancel; on both databases."""

import threading
from datetime import timedelta

import anyio
import anyio.to_thread
import pytest

from matrixsched import Outcome, Retry, State
from matrixsched.events import HandlerLeaked
from matrixsched.worker import Worker, WorkerPolicy

pytestmark = pytest.mark.anyio

SECOND = timedelta(seconds=1)
POLICY = WorkerPolicy(concurrency=1, timeout_grace=5 * SECOND)
ONCE = Retry(max_attempts=1)
DEADLINE_S = 20


class Stubborn:
    """A handler that goes on until it is let go."""

    def __init__(self, app) -> None:
        self.begun, self.release, self.calls = threading.Event(), threading.Event(), 0

        @app.action("stubborn", timeout=2 * SECOND, retry=Retry(first_delay=timedelta(0), min_delay=timedelta(0)))
        def stubborn() -> None:
            self.calls += 1
            self.begun.set()
            self.release.wait(DEADLINE_S)

        self.handler = stubborn

    async def wait_begun(self) -> None:
        assert await anyio.to_thread.run_sync(self.begun.wait, DEADLINE_S)


async def until_no_leak(worker: Worker) -> None:
    with anyio.fail_after(DEADLINE_S):
        while worker.runner.leaked:  # noqa: ASYNC110 - a thread ends without a word
            await anyio.sleep(0.005)


async def test_a_thread_over_its_limit_keeps_its_action_until_its_grace_ends(app, clock):
    stubborn = Stubborn(app)
    leaks: list[HandlerLeaked] = []
    app.events.subscribe(HandlerLeaked, leaks.append)
    await app.schedule(stubborn.handler, id="s")
    worker, other = Worker(app, POLICY), Worker(app, POLICY)
    await worker.intake.step()
    try:
        async with anyio.create_task_group() as running:
            running.start_soon(worker.runner.run_next)
            await stubborn.wait_begun()
            for _ in range(3):
                clock.advance(2 * SECOND)
                await worker.leases.extend(app.store)
                await worker.runner.watch()
                await anyio.wait_all_tasks_blocked()
                await worker.recorder.step()
                assert await other.run_due() == 0, "two attempts at once"
            assert (worker.runner.running, worker.runner.leaked, stubborn.calls) == (1, 0, 1)
            clock.advance(SECOND)
            await worker.runner.watch()
        assert (worker.runner.running, worker.runner.leaked, len(leaks)) == (0, 1, 1)
        await worker.recorder.step()
        status = (await app.get("s")).status
        assert (status.failed, status.last_outcome) == (1, Outcome.TIMED_OUT)
    finally:
        stubborn.release.set()
    await until_no_leak(worker)


async def test_a_thread_that_ends_in_its_grace_is_recorded_as_it_ended(app, clock):
    stubborn = Stubborn(app)
    await app.schedule(stubborn.handler, id="s")
    worker = Worker(app, POLICY)
    await worker.intake.step()
    async with anyio.create_task_group() as running:
        running.start_soon(worker.runner.run_next)
        await stubborn.wait_begun()
        clock.advance(3 * SECOND)
        await worker.runner.watch()
        stubborn.release.set()
    await worker.recorder.step()
    assert (await app.get("s")).status.state is State.DONE
    assert worker.runner.leaked == 0


async def test_at_a_stop_the_row_of_a_thread_that_goes_on_is_left_to_its_lease(app, clock):
    stubborn = Stubborn(app)
    await app.schedule(stubborn.handler, id="s")
    worker = Worker(app, POLICY)
    await worker.intake.step()
    try:
        async with anyio.create_task_group() as running:
            running.start_soon(worker.runner.run_next)
            await stubborn.wait_begun()
            worker.runner.cancel_running()
        assert worker.recorder.is_idle
        assert len(worker.leases) == 0
        assert await Worker(app).run_due() == 0, "it still runs"
    finally:
        stubborn.release.set()
    await until_no_leak(worker)
    clock.advance(POLICY.attempt_lease)
    assert await Worker(app).run_due() == 1
    status = (await app.get("s")).status
    assert (status.state, status.interrupted) == (State.DONE, 1)


async def test_a_plain_handler_cancelled_before_its_thread_began_is_no_leak_and_never_begins(app, clock):
    stubborn = Stubborn(app)
    ran: list[str] = []

    @app.action("work", retry=ONCE, timeout=SECOND)
    def work() -> None:
        ran.append("work")

    await app.schedule(work, id="w")
    worker = Worker(app, POLICY)
    await worker.intake.step()
    worker.runner._threads.acquire_on_behalf_of_nowait(stubborn)  # all threads are taken
    async with anyio.create_task_group() as running:
        running.start_soon(worker.runner.run_next)
        await anyio.wait_all_tasks_blocked()
        clock.advance(SECOND)
        await worker.runner.watch()
    worker.runner._threads.release_on_behalf_of(stubborn)
    await worker.recorder.step()
    assert (await app.get("w")).status.last_outcome is Outcome.TIMED_OUT
    assert (worker.runner.leaked, ran) == (0, [])
