"""What a worker shows of itself."""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import get_args
from uuid import UUID

import pytest

from matrixsched import App, Retry
from matrixsched.clock import ManualClock
from matrixsched.errors import ConfigurationError
from matrixsched.events import (
    AttemptDropped,
    AttemptEnded,
    AttemptStarted,
    BacklogSampled,
    BatchEnded,
    BatchTaken,
    CallsWritten,
    ClaimsGivenBack,
    ClaimsLost,
    Event,
    Events,
    GatesSampled,
    HandlerLeaked,
    InterruptionsFound,
    LoopSampled,
    OutcomesRecorded,
    ProcessorsAssigned,
    ProcessorsRunning,
    QueueHandlerFailed,
    QueuesSampled,
    SemaphoreBalanced,
    SemaphoresSampled,
    ShardSynced,
    SlotsVoided,
    SlowDownTold,
    StepFailed,
    TaskSetAside,
    TemplatePaused,
    TemplateResumed,
    Tidied,
    WindowPlanned,
    WorkerStarted,
    WorkerStopped,
)
from matrixsched.observe.health import Readiness, serve_health
from matrixsched.observe.logs import Logs, log_to, logger
from matrixsched.observe.metrics import FOLDER_VARIABLE, Metrics, exposition_of
from matrixsched.rules.action import Outcome, State
from matrixsched.rules.gate_report import GateReport
from matrixsched.rules.gates import Gate
from matrixsched.rules.processors import QueueLoad
from matrixsched.rules.queues import QueueSample
from matrixsched.rules.rates import parse_rate
from matrixsched.rules.semaphore import SemaphoreSample
from matrixsched.worker import Worker

pytestmark = pytest.mark.anyio

SECRET = "hunter2"


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """Everything logged, also at the lowest level."""
    before = (logger.handlers[:], logger.level, logger.propagate)
    stream = io.StringIO()
    log_to(stream, as_json=True, level=logging.DEBUG)
    yield stream
    logger.handlers[:], logger.propagate = before[0], before[2]
    logger.setLevel(before[1])


def parsed(lines: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in lines.getvalue().splitlines()]


@pytest.fixture
async def app() -> AsyncIterator[App]:
    clock = ManualClock()
    app = App("sqlite://", clock=clock)

    @app.action("greet")
    async def greet(name: str) -> None: ...

    @app.action("refuse", retry=Retry(max_attempts=1))
    async def refuse(name: str) -> None:
        raise PermissionError(f"{name} is not allowed: {SECRET} [in trouble]")

    await app.init(shards=4)
    async with app:
        yield app


async def test_a_scrape_tells_outcomes_lateness_and_run_time_by_handler(app: App) -> None:
    worker = Worker(app)
    metrics = Metrics(app, worker=worker)
    for number in range(3):
        await app.schedule("greet", "Ada", id=f"greet:{number}")
    await app.schedule("refuse", "Bob")
    assert isinstance(app.clock, ManualClock)
    app.clock.advance(timedelta(seconds=7))
    await worker.run_due()

    samples = metrics.exposition().decode().splitlines()
    assert 'matrixsched_attempts_total{handler="greet",outcome="succeeded"} 3.0' in samples
    assert 'matrixsched_attempts_total{handler="refuse",outcome="failed"} 1.0' in samples
    assert 'matrixsched_attempt_late_seconds_bucket{handler="greet",le="5.0"} 0.0' in samples
    assert 'matrixsched_attempt_late_seconds_bucket{handler="greet",le="10.0"} 3.0' in samples
    assert 'matrixsched_attempt_late_seconds_count{handler="greet"} 3.0' in samples
    assert 'matrixsched_attempt_late_seconds_sum{handler="greet"} 21.0' in samples
    assert 'matrixsched_attempt_run_seconds_count{handler="refuse"} 1.0' in samples
    assert 'matrixsched_outcomes_total{answer="recorded"} 4.0' in samples
    assert "matrixsched_actions_moved_total 4.0" in samples
    assert "matrixsched_actions_claimed_total 4.0" in samples
    assert "matrixsched_attempts_held 0.0" in samples
    assert metrics.exposition().decode().splitlines() == samples, "looking twice changes nothing"


def test_values_beyond_the_last_bucket_and_on_a_border_are_counted_like_prometheus_does() -> None:
    app = App("sqlite://")
    metrics = Metrics(app)
    for seconds in (0.001, 0.0011, 1e6):
        app.events.emit(attempt_ended(late=timedelta(seconds=seconds)))
    samples = metrics.exposition().decode().splitlines()
    buckets = [line.rpartition(" ") for line in samples if "late_seconds_bucket" in line]
    assert [count for _, _, count in buckets] == ["1.0"] + ["2.0"] * (len(buckets) - 2) + ["3.0"]


def attempt_ended(
    outcome: Outcome = Outcome.SUCCEEDED,
    *,
    state: State = State.DONE,
    error: str | None = None,
    late: timedelta = timedelta(0),
) -> AttemptEnded:
    guid = UUID(int=1)
    return AttemptEnded("id", guid, "greet", 1, outcome, state, error, 0.25, late, datetime(2030, 1, 1, tzinfo=UTC))


async def test_log_lines_hold_neither_payloads_nor_what_handlers_say(app: App, lines: io.StringIO) -> None:
    Logs(app.events)
    worker = Worker(app)
    await app.schedule("greet", SECRET, id="one")
    await app.schedule("refuse", SECRET, id="two")
    await worker.run_due()

    assert SECRET not in lines.getvalue()
    failed = next(line for line in parsed(lines) if line["message"] == "attempt failed")
    assert failed["level"] == "error"
    assert failed["id"] == "two"
    assert str(failed["error"]).startswith("PermissionError in refuse (test_observe.py:")


@pytest.mark.parametrize(
    ("stored", "shown"),
    [
        ("ValueError: secret [in f (tasks.py:3)]", "ValueError in f (tasks.py:3)"),
        ("ValueError: secret [in [brackets]] [in f (tasks.py:3)]", "ValueError in f (tasks.py:3)"),
        ("the handler left a cancel scope or a task group open",) * 2,
        ("ValueError: a very long secret that was cut off…", "ValueError"),
        ("", ""),
    ],
)
def test_of_an_error_only_its_type_and_place_are_logged(stored: str, shown: str, lines: io.StringIO) -> None:
    events = Events()
    Logs(events)
    events.emit(attempt_ended(Outcome.FAILED, state=State.LIVE, error=stored))
    (line,) = parsed(lines)
    assert line["error"] == shown
    assert line["level"] == "warning"


def test_reasons_that_handlers_give_are_not_logged(lines: io.StringIO) -> None:
    events = Events()
    Logs(events)
    events.emit(attempt_ended(Outcome.CANCELLED, state=State.CANCELLED, error=SECRET))
    assert SECRET not in lines.getvalue()


EVENTS = [
    CallsWritten(3, coalesced=True),
    WorkerStarted("host/1", ("greet",), 100),
    WorkerStopped("host/1", 0, 0),
    ShardSynced(1, UUID(int=1), 1, 1, 0.01, False),
    AttemptStarted("id", UUID(int=1), "greet", 1, timedelta(0)),
    AttemptEnded("id", UUID(int=1), "greet", 1, Outcome.SUCCEEDED, State.DONE, None, 0.1, timedelta(0), None),
    AttemptDropped("id", UUID(int=1), "greet", 1),
    OutcomesRecorded(1, 0, 0, 0),
    ClaimsLost(1),
    ClaimsGivenBack(1),
    InterruptionsFound({"greet": 2}),
    HandlerLeaked("id", "greet", 1),
    StepFailed("intake", "DatabaseUnavailable: away", 1, 1.0),
    Tidied(1, 1, 1),
    GatesSampled(GateReport(held={(Gate.QUOTA, "promo"): 3, (None, None): 1})),
    SemaphoreBalanced("pool", acquired=2, asked=1, kept=0, lapsed=0, took_s=0.01),
    ProcessorsRunning(2),
    BatchTaken(7, "emails", 10),
    BatchEnded(7, "emails", 10, 7, 1, 1, 1, 0, 1, 0.1, 0.2),
    QueueHandlerFailed(7, "emails", 10, "ValueError in send (tasks.py:3)"),
    TaskSetAside(7, "emails", 17, "it is not a msgpack array", unreadable=True),
    SemaphoresSampled((SemaphoreSample(key="pool", held=2, asked=1, waiting=3, oldest_wait_s=1.5),)),
    ProcessorsRunning(2),
    BatchTaken(7, "emails", 10),
    BatchEnded(7, "emails", 10, 6, 1, 1, 1, left=1, errors=2, duration_s=0.2, cycle_s=11.5, last_error=SECRET),
    TaskSetAside(7, "emails", 1234, SECRET, unreadable=False),
    ProcessorsAssigned((QueueLoad(queue=7, ready=5),), {"host/1": {7: 2}}, moved=1, took_s=0.01),
    QueuesSampled((QueueSample(queue=7, name="emails", ready=5, taken=1, delayed=0, dead=2, oldest_ready_s=1.5),)),
    WindowPlanned("host/1", 0.1),
    SlotsVoided(2),
    SlowDownTold("global", datetime(2030, 1, 1, tzinfo=UTC), None),
    TemplatePaused("promo", None),
    TemplateResumed("promo"),
    BacklogSampled(3, 1.5),
    LoopSampled(1.5),
]


def test_every_event_is_a_line(lines: io.StringIO) -> None:
    assert {type(event) for event in EVENTS} == set(get_args(Event))
    events = Events()
    Logs(events)
    for number, event in enumerate(EVENTS, start=1):
        events.emit(event)
        assert len(parsed(lines)) == number, f"{type(event).__name__} is not logged"


def test_what_comes_all_the_time_is_not_even_heard_unless_it_is_logged(lines: io.StringIO) -> None:
    logger.setLevel(logging.INFO)
    events = Events()
    Logs(events)
    assert not events.wants(AttemptStarted)
    assert not events.wants(CallsWritten)
    assert not events.wants(BacklogSampled)
    assert not events.wants(GatesSampled)
    assert not events.wants(SemaphoresSampled)
    assert not events.wants(QueuesSampled)
    events.emit(LoopSampled(0.2))
    assert parsed(lines) == []
    events.emit(LoopSampled(1.5))
    (line,) = parsed(lines)
    assert (line["level"], line["late_s"]) == ("warning", 1.5)


def test_a_step_that_keeps_failing_is_told_ever_more_rarely(lines: io.StringIO) -> None:
    events = Events()
    Logs(events)
    for failures in range(1, 101):
        events.emit(StepFailed("intake", "DatabaseUnavailable: away", failures, 1.0))
    assert [line["failures"] for line in parsed(lines)] == [1, 2, 4, 8, 16, 32, 64]


def test_a_hundred_handlers_that_are_told_to_slow_down_together_are_one_line(lines: io.StringIO) -> None:
    events, until = Events(), datetime(2030, 1, 1, tzinfo=UTC)
    Logs(events)
    for number in range(100):
        events.emit(SlowDownTold("global", until + timedelta(milliseconds=number), None))
    events.emit(SlowDownTold("key:acme", until, parse_rate("1/s")))
    events.emit(SlowDownTold("global", until + timedelta(minutes=1), None))
    assert [(line["level"], line["limit"], line["to"]) for line in parsed(lines)] == [
        ("warning", "global", "nothing"),
        ("warning", "key:acme", "1/s"),
        ("warning", "global", "nothing"),
    ]


def test_plain_lines_are_one_line_whatever_an_id_holds() -> None:
    stream, events = io.StringIO(), Events()
    before = logger.handlers[:]
    log_to(stream)
    try:
        Logs(events)
        events.emit(StepFailed("intake", "two\nlines and spaces", 1, 1.0))
    finally:
        logger.handlers[:] = before
    assert stream.getvalue().count("\n") == 1
    assert 'error="two\\nlines and spaces"' in stream.getvalue()


def test_a_file_of_metrics_in_the_making_does_not_hide_the_others(tmp_path: Path) -> None:
    write = (
        "from prometheus_client import CollectorRegistry, Counter\n"
        "Counter('beans', 'Counted.', registry=CollectorRegistry()).inc(3)\n"
    )
    shared = os.environ | {FOLDER_VARIABLE: str(tmp_path)}
    for _ in range(2):
        subprocess.run([sys.executable, "-c", write], env=shared, check=True)
    (tmp_path / "counter_1.db").touch()
    (tmp_path / "counter_2.db").write_bytes(b"\xff\x00\x00\x00" + b"\x07" * 60)
    assert "beans_total 6.0" in exposition_of(str(tmp_path))().decode()


def test_metrics_that_cannot_be_read_are_an_answer_all_the_same() -> None:
    def broken() -> bytes:
        raise KeyError(SECRET)

    with serve_health(0, exposition=broken, readiness=lambda: Readiness(True, ""), host="127.0.0.1") as port:
        assert get(port, "/metrics") == (500, "the metrics could not be read (KeyError)\n")


def test_probes_are_answered_on_a_free_port() -> None:
    ready = [Readiness(False, "waiting for the database")]
    with serve_health(0, exposition=lambda: b"numbers", readiness=lambda: ready[0], host="127.0.0.1") as port:
        assert get(port, "/metrics") == (200, "numbers")
        assert get(port, "/healthz") == (200, "alive\n")
        assert get(port, "/readyz") == (503, "waiting for the database\n")
        ready[0] = Readiness(True, "ready")
        assert get(port, "/readyz?verbose") == (200, "ready\n")
        assert get(port, "/elsewhere")[0] == 404
        with (
            pytest.raises(ConfigurationError, match="in use"),
            serve_health(port, exposition=lambda: b"", readiness=lambda: ready[0], host="127.0.0.1"),
        ):
            pass


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
