"""Attempts whose lease runs out in the hands of a worker that lives; all were first seen in simulated runs."""

from datetime import timedelta

import anyio
import pytest
from support.scene import SHARDS

from matrixsched import App, Outcome, Retry, State
from matrixsched.events import OutcomesRecorded
from matrixsched.rules.names import shard_of
from matrixsched.worker import Worker, WorkerPolicy

pytestmark = pytest.mark.anyio

SECOND = timedelta(seconds=1)
POLICY = WorkerPolicy()
LEASE = POLICY.attempt_lease


async def status(app: App, id: str):
    return (await app.get(id)).status


async def claimed(app: App, worker: Worker, running: anyio.abc.TaskGroup) -> None:
    """Claim what is due and start it."""
    await worker.intake.step()
    running.start_soon(worker.runner.run_next)
    await anyio.wait_all_tasks_blocked()


async def test_a_worker_runs_what_it_claims_in_place_of_its_own_lapsed_attempt(app, clock):
    release, ran, told = anyio.Event(), [], []
    app.events.subscribe(OutcomesRecorded, told.append)

    @app.action("work")
    async def work() -> None:
        ran.append("began")
        if len(ran) == 1:
            await release.wait()

    await app.schedule(work, id="w")
    worker = Worker(app)
    async with anyio.create_task_group() as running:
        await claimed(app, worker, running)
        clock.advance(LEASE)
        await claimed(app, worker, running)
        release.set()
    while not worker.recorder.is_idle:
        await worker.recorder.step()
    now = await status(app, "w")
    assert (now.state, now.succeeded, now.interrupted) == (State.DONE, 1, 1)
    assert ran == ["began", "began"]
    assert [(answers.recorded, answers.lost) for answers in told] == [(1, 0)], "an outcome known to be lost was sent"
    assert len(worker.leases) == 0


async def test_a_handler_that_ignored_its_limit_is_recorded_before_others_can_claim_it(app, clock):
    release = anyio.Event()

    @app.action("deaf", timeout=20 * SECOND, retry=Retry(max_attempts=1))
    async def deaf() -> None:
        with anyio.CancelScope(shield=True):
            await release.wait()

    await app.schedule(deaf, id="d")
    worker, other = Worker(app), Worker(app)
    async with anyio.create_task_group() as running:
        await claimed(app, worker, running)
        for _ in range(5):
            clock.advance((20 * SECOND + POLICY.timeout_grace) / 5)
            await worker.leases.extend(app.store)
            await worker.runner.watch()
        assert await other.run_due() == 0
        await worker.recorder.step()
        assert (await status(app, "d")).last_outcome is Outcome.TIMED_OUT
        release.set()


async def test_what_misses_its_slot_while_no_handler_is_free_is_given_back_and_was_not_interrupted(app, clock):
    sent = []

    @app.action("send")
    async def send() -> None:
        sent.append(clock.now())

    await app.limits.set("handler:send", "1/s")
    await app.schedule(send, id="s")
    clock.advance(SECOND)
    busy, other = Worker(app), Worker(app)
    await busy.intake.step()
    assert busy.runner.held == 1
    clock.advance(SECOND)
    await busy.runner.watch()
    await busy.runner.giving_back.step()
    assert busy.runner.held == 0
    clock.advance(SECOND)
    await other.run_due()
    now = await status(app, "s")
    assert (len(sent), now.succeeded, now.interrupted) == (1, 1, 0)


async def test_no_slot_is_taken_for_a_handler_that_is_about_to_be_busy(app, clock):
    release = anyio.Event()

    @app.action("long")
    async def long() -> None:
        await release.wait()

    @app.action("send")
    async def send() -> None: ...

    await app.limits.set("handler:send", "1/s")
    clock.advance(SECOND)
    long_id, send_id = [id for id in map(str, range(100)) if shard_of(id, SHARDS) == 0][:2]
    await app.schedule(long, id=long_id)
    await app.schedule(send, id=send_id)
    worker = Worker(app, WorkerPolicy(concurrency=1))
    async with anyio.create_task_group() as handlers:
        worker.runner.open_slots(handlers)
        await worker.intake.step()
        assert (await status(app, long_id)).running
        assert not (await status(app, send_id)).running
        release.set()
        worker.runner.open_slots(None)
