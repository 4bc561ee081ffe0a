"""What programs can hear, and how they stop hearing it."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any, get_args

import anyio
import pytest

from matrixsched import App, Outcome, State, call, events
from matrixsched.clock import ManualClock
from matrixsched.errors import BadInput
from matrixsched.events import (
    AttemptDropped,
    AttemptEnded,
    AttemptStarted,
    BacklogSampled,
    CallsWritten,
    LoopSampled,
    ShardSynced,
    WorkerStarted,
)
from matrixsched.worker import Worker, WorkerPolicy
from matrixsched.worker.daemon import CHORES_BEGIN_WITHIN_S
from matrixsched.worker.sampling import BACKLOG_EVERY_S, LOOP_EVERY_S

pytestmark = pytest.mark.anyio

DEADLINE_S = 20


@pytest.fixture
def app(app: App) -> App:
    @app.action("greet")
    async def greet(name: str) -> None: ...

    return app


async def test_a_program_hears_what_it_asked_for_and_nothing_else(app: App) -> None:
    heard: list[object] = []

    @app.on(AttemptEnded)
    def tell(event: AttemptEnded) -> None:
        heard.append((event.id, event.outcome, event.state))

    await app.schedule("greet", "Ada", id="a")
    await Worker(app).run_due()
    assert heard == [("a", Outcome.SUCCEEDED, State.DONE)]
    tell(AttemptEnded("b", *[None] * 9))  # type: ignore[arg-type]  # it is still the function it was
    assert len(heard) == 2


async def test_each_subscription_is_ended_once_and_alone(app: App) -> None:
    heard: list[CallsWritten] = []
    first = app.events.subscribe(CallsWritten, heard.append)
    second = app.events.subscribe(CallsWritten, heard.append)
    await app.schedule("greet", "Ada")
    assert len(heard) == 2
    first()
    first()
    await app.schedule("greet", "Ada")
    assert len(heard) == 3
    second()
    await app.schedule("greet", "Ada")
    assert len(heard) == 3
    assert not app.events.wants(CallsWritten)


async def test_a_subscriber_that_raised_is_heard_no_more_and_may_be_ended_all_the_same(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[str] = []
    monkeypatch.setattr("sys.unraisablehook", lambda report: reported.append(str(report.exc_value)))

    def broken(event: CallsWritten) -> None:
        raise ValueError("mine")

    end = app.events.subscribe(CallsWritten, broken)
    for _ in range(2):
        await app.schedule("greet", "Ada")
    end()
    assert reported == ["mine"]


async def test_a_subscriber_that_raises_is_reported_by_pythons_own_hook_and_stops_nobody(
    app: App, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.unraisablehook", sys.__unraisablehook__)

    def broken(event: CallsWritten) -> None:
        raise ValueError("mine")

    app.events.subscribe(CallsWritten, broken)
    await app.schedule("greet", "Ada")
    told = capsys.readouterr().err
    assert "in broken" in told
    assert told.endswith("ValueError: mine\n")


async def test_a_subscriber_that_ends_its_subscription_and_raises_harms_nobody(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[str] = []
    monkeypatch.setattr("sys.unraisablehook", lambda report: reported.append(str(report.exc_value)))

    def hear_once(event: CallsWritten) -> None:
        end()
        raise ValueError("mine")

    end = app.events.subscribe(CallsWritten, hear_once)
    for _ in range(2):
        await app.schedule("greet", "Ada")
    assert reported == ["mine"]


async def _awaited(event: AttemptEnded) -> None: ...


@pytest.mark.parametrize(
    ("kind", "subscriber", "why"),
    [
        (Outcome, print, "Outcome is not an event: subscribe to one of AttemptDropped, "),
        ("AttemptEnded", print, "str is not an event"),
        (AttemptEnded, _awaited, "must be a plain function"),
        (AttemptEnded, None, "must be a plain function"),
    ],
)
async def test_what_could_never_be_heard_is_refused(kind: Any, subscriber: Any, why: str) -> None:
    with pytest.raises(BadInput, match=why):
        App("sqlite://").on(kind)(subscriber)


def test_all_events_are_offered_by_name() -> None:
    assert {event.__name__ for event in get_args(events.Event)} < set(events.__all__)


# What the scheduler tells.


async def test_calls_made_together_are_told_as_the_statement_that_carried_them(app: App) -> None:
    written: list[CallsWritten] = []
    app.events.subscribe(CallsWritten, written.append)
    async with anyio.create_task_group() as callers:
        for number in range(50):
            callers.start_soon(app.schedule, "greet", str(number))
    assert sum(event.calls for event in written) == 50
    assert len(written) <= 3
    assert all(event.coalesced for event in written)


async def test_calls_made_in_bulk_are_told_as_such(app: App) -> None:
    written: list[CallsWritten] = []
    app.events.subscribe(CallsWritten, written.append)
    await app.schedule_many(call("greet", str(number)) for number in range(1500))
    assert written == [CallsWritten(1000, coalesced=False), CallsWritten(500, coalesced=False)]


# Every attempt that is told to have started is told to have ended, once.


async def test_an_attempt_whose_lease_was_lost_is_told_to_be_dropped(app: App, clock: ManualClock) -> None:
    told: list[object] = []
    app.events.subscribe(AttemptStarted, lambda event: told.append((AttemptStarted, event.attempt)))
    app.events.subscribe(AttemptEnded, lambda event: told.append((AttemptEnded, event.attempt)))
    app.events.subscribe(AttemptDropped, lambda event: told.append((AttemptDropped, event.attempt)))
    is_first = True

    @app.action("wait")
    async def wait() -> None:
        nonlocal is_first
        if is_first:
            is_first = False
            await anyio.sleep_forever()

    await app.schedule(wait, id="w")
    worker = Worker(app)
    async with anyio.create_task_group() as running:
        await worker.intake.step()
        running.start_soon(worker.runner.run_next)
        await anyio.wait_all_tasks_blocked()
        clock.advance(worker.policy.attempt_lease)
        await worker.runner.watch()
    await worker.run_due()
    assert told == [(AttemptStarted, 1), (AttemptDropped, 1), (AttemptStarted, 2), (AttemptEnded, 2)]


# What is looked at now and then.


async def test_the_backlog_is_looked_up_for_whoever_listens(app: App, clock: ManualClock) -> None:
    sampled: list[BacklogSampled] = []
    app.events.subscribe(BacklogSampled, sampled.append)
    await app.schedule("greet", "Ada")
    await app.schedule("greet", "Bob", delay=timedelta(hours=1))
    clock.advance(timedelta(seconds=42))
    worker = Worker(app)
    assert await worker.sampling.backlog() == BACKLOG_EVERY_S
    await worker.run_due()
    await worker.sampling.backlog()
    assert sampled == [BacklogSampled(1, 42.0, 42.0, 0.0), BacklogSampled(0, 0.0, 0.0, 0.0)]


async def test_for_nobody_nothing_is_looked_up() -> None:
    app = App("sqlite://")

    @app.action("greet")
    async def greet() -> None: ...

    assert await Worker(app).sampling.backlog() == BACKLOG_EVERY_S  # not open: to ask would be an error


async def test_a_loop_that_is_late_is_told_by_how_much() -> None:
    clock, late = ManualClock(), []
    app = App("sqlite://", clock=clock)

    @app.action("greet")
    async def greet() -> None: ...

    sampling = Worker(app).sampling
    assert await sampling.loop() > LOOP_EVERY_S  # nobody listens yet
    app.events.subscribe(LoopSampled, lambda event: late.append(round(event.late_s, 6)))
    assert await sampling.loop() == LOOP_EVERY_S
    for blocked_s in (0, 0.7):
        clock.advance(timedelta(seconds=LOOP_EVERY_S + blocked_s))
        await sampling.loop()
    assert late == [0, 0.7]


async def test_a_running_worker_takes_both_samples_by_itself(app: App, clock: ManualClock) -> None:
    backlog, loop, started = anyio.Event(), anyio.Event(), anyio.Event()
    app.events.subscribe(BacklogSampled, lambda event: backlog.set())
    app.events.subscribe(LoopSampled, lambda event: loop.set())
    app.events.subscribe(WorkerStarted, lambda event: started.set())
    worker = Worker(app, WorkerPolicy(farewell=timedelta(seconds=1)))
    async with anyio.create_task_group() as group:
        group.start_soon(worker.run)
        with anyio.fail_after(DEADLINE_S):
            await started.wait()
            await anyio.wait_all_tasks_blocked()
            clock.advance(timedelta(seconds=CHORES_BEGIN_WITHIN_S))
            await backlog.wait()
            await anyio.wait_all_tasks_blocked()
            clock.advance(timedelta(seconds=LOOP_EVERY_S))
            await loop.wait()
        worker.stop(at_once=True)


async def test_a_worker_knows_that_it_holds_a_shard_while_it_does(app: App) -> None:
    held: list[int] = []
    worker = Worker(app)
    app.events.subscribe(ShardSynced, lambda event: held.append(worker.intake.shards_held))
    await app.schedule("greet", "Ada")
    await worker.run_due()
    assert held == [1]
    assert worker.intake.shards_held == 0
