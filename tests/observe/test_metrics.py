"""What can be scraped from a program that schedules, from one that works, and from several at once."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import anyio
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from support.drivers import connect_psycopg

import matrixsched
from matrixsched import App, call
from matrixsched.clock import ManualClock
from matrixsched.errors import BadInput
from matrixsched.events import LoopSampled, ShardSynced
from matrixsched.observe import Metrics
from matrixsched.observe.metrics import FOLDER_VARIABLE, PEAK_S, exposition_of
from matrixsched.store.statements import statement
from matrixsched.store.transition import Ask, Conversation, Transition
from matrixsched.worker import Worker

pytestmark = pytest.mark.anyio

DEADLINE_S = 20


@pytest.fixture
def app(app: App) -> App:
    @app.action("greet")
    async def greet(name: str) -> None: ...

    return app


def scraped(registry: CollectorRegistry) -> dict[str, float]:
    """As an exporter of the program's own would read it."""
    lines = generate_latest(registry).decode().splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}


async def test_a_program_that_only_schedules_has_metrics_beside_its_own(app: App, database_url: str) -> None:
    registry = CollectorRegistry()
    Metrics(app, registry=registry)
    async with anyio.create_task_group() as callers:
        for number in range(10):
            callers.start_soon(app.schedule, "greet", str(number))
    await app.schedule_many([call("greet", "Ada"), call("greet", "Bob")])
    found = scraped(registry)
    assert found['matrixsched_schedule_calls_total{way="coalesced"}'] == 10
    assert found['matrixsched_schedule_statements_total{way="coalesced"}'] <= 2
    assert found['matrixsched_schedule_calls_total{way="many"}'] == 2
    assert found['matrixsched_schedule_statements_total{way="many"}'] == 1
    dialect = database_url.partition(":")[0]
    version = matrixsched.__version__
    assert found[f'matrixsched_build_info{{dialect="{dialect}",installation="default",version="{version}"}}'] == 1


async def test_connections_are_counted_as_they_are_used(app: App, database_url: str) -> None:
    registry = CollectorRegistry()
    await app.schedule("greet", "Ada", id="a")
    Metrics(app, registry=registry)
    before = scraped(registry)
    for _ in range(5):
        await app.get("a")
    found = scraped(registry)
    uses = 'matrixsched_connection_uses_total{pool="app"}'
    assert found[uses] - before[uses] == 5
    most = found['matrixsched_connections{pool="app",state="most"}']
    assert most == (1 if database_url.startswith("sqlite") else 8)
    assert 1 <= found['matrixsched_connections{pool="app",state="open"}'] <= most
    assert found['matrixsched_connections{pool="app",state="in_use"}'] == 0
    assert found['matrixsched_connection_waiting{pool="app"}'] == 0
    assert found['matrixsched_connection_wait_seconds_total{pool="app"}'] >= 0
    assert scraped(registry) == found, "looking twice changes nothing"


async def test_whoever_waits_for_a_connection_is_seen_and_leaves_no_trace_when_it_gives_up(
    app: App, database_url: str
) -> None:
    with occupied(database_url) as slow:
        async with anyio.create_task_group() as crowd:
            for _ in range(app.store.pool.most + 3):
                crowd.start_soon(app.store.run, slow)
            with anyio.fail_after(DEADLINE_S):
                # Neither a thread nor a server tells when it waits.
                while app.store.pool.in_use < app.store.pool.most or app.store.pool.waiting < 3:  # noqa: ASYNC110
                    await anyio.sleep(0.001)
            crowd.cancel_scope.cancel()
            if database_url.startswith("sqlite"):
                let_go.set()  # what has begun there runs to its end
    pool = app.store.pool
    assert (pool.in_use, pool.waiting) == (0, 0)


let_go = threading.Event()


@contextmanager
def occupied(database_url: str) -> Iterator[Transition[None]]:
    """A transition that takes as long as this block."""
    if database_url.startswith("sqlite"):
        let_go.clear()

        def wait() -> Conversation[None]:
            assert let_go.wait(DEADLINE_S)
            yield from ()

        yield Transition("wait", wait)
        return
    waiting = statement("postgresql", "default", "wait", "select pg_advisory_xact_lock(42)")

    def wait_for_lock() -> Conversation[None]:
        yield Ask(waiting, {})

    with connect_psycopg(database_url) as holder:
        holder.execute("select pg_advisory_xact_lock(42)")
        yield Transition("wait", wait_for_lock)


def test_synchronous_calls_have_connections_of_their_own(database_url: str) -> None:
    app, registry = App(database_url), CollectorRegistry()
    app.sync.init(shards=4)
    Metrics(app, registry=registry)
    uses = 'matrixsched_connection_uses_total{pool="sync"}'
    assert uses not in scraped(registry)
    for life in (1, 2):
        with app.sync:
            app.sync.schedule("greet", "Ada")
            found = scraped(registry)
            # It also reads the installation when it connects; a second life is not taken for the first.
            assert found[uses] == 2 * life
            assert found['matrixsched_schedule_calls_total{way="coalesced"}'] == life


async def test_a_registry_that_holds_the_metrics_already_is_refused_and_stays_as_it_is(app: App) -> None:
    registry = CollectorRegistry()
    Metrics(app, registry=registry)
    before = scraped(registry)
    with pytest.raises(BadInput, match="make Metrics once for each registry"):
        Metrics(app, registry=registry)
    assert scraped(registry) == before


async def test_what_is_due_and_since_when(app: App, clock: ManualClock) -> None:
    worker = Worker(app)
    metrics = Metrics(app, worker=worker)
    await app.schedule("greet", "Ada")
    clock.advance(timedelta(seconds=90))
    await worker.sampling.backlog()
    found = scraped(metrics.registry)
    assert (found["matrixsched_due_actions"], found["matrixsched_oldest_due_seconds"]) == (1, 90)
    await worker.run_due()
    await worker.sampling.backlog()
    found = scraped(metrics.registry)
    assert (found["matrixsched_due_actions"], found["matrixsched_oldest_due_seconds"]) == (0, 0)


async def test_what_waits_for_a_gate_or_a_handler_is_not_what_workers_are_late_with(
    app: App, clock: ManualClock
) -> None:
    worker = Worker(app)
    metrics = Metrics(app, worker=worker)
    await app.limits.set("key:slow", "1/h", pool=0)
    for number in range(2):
        await app.schedule("greet", str(number), limit="slow")
    await app.schedule("unknown", "Ada", id="parked")
    await worker.run_due()
    clock.advance(timedelta(seconds=90))
    await worker.sampling.backlog()
    found = scraped(metrics.registry)
    assert found["matrixsched_oldest_due_seconds"] == found["matrixsched_oldest_parked_seconds"] == 90
    assert found["matrixsched_oldest_open_seconds"] == 0
    await app.schedule("greet", "late")
    clock.advance(timedelta(seconds=30))
    await worker.sampling.backlog()
    assert scraped(metrics.registry)["matrixsched_oldest_open_seconds"] == 30


async def test_whoever_takes_over_from_a_worker_that_died_counts_what_it_left(app: App, clock: ManualClock) -> None:
    metrics = Metrics(app)
    found_again = 'matrixsched_interruptions_found_total{handler="greet"}'
    for name in ("Ada", "Bob"):
        await app.schedule("greet", name)
    dead = Worker(app)
    await dead.intake.step()
    assert dead.runner.held > 0
    assert found_again not in scraped(metrics.registry)
    clock.advance(dead.policy.attempt_lease + timedelta(seconds=1))
    await Worker(app).run_due()
    assert scraped(metrics.registry)[found_again] == dead.runner.held


async def test_when_a_worker_last_knew_about_work(app: App, clock: ManualClock) -> None:
    worker, looked = Worker(app), "matrixsched_worker_looked_timestamp_seconds"
    assert scraped(Metrics(app).registry)[looked] == 0, "there is no worker"
    metrics, began = Metrics(app, worker=worker), clock.now().timestamp()
    clock.advance(timedelta(seconds=20))
    assert scraped(metrics.registry)[looked] == began
    await worker.intake.step()
    clock.advance(timedelta(seconds=20))
    assert scraped(metrics.registry)[looked] == began + 20


async def test_what_expired_is_counted_but_did_not_run(app: App, clock: ManualClock) -> None:
    worker = Worker(app)
    metrics = Metrics(app, worker=worker)
    await app.schedule("greet", "Ada", expires_at=clock.now() + timedelta(seconds=1))
    await app.schedule("greet", "Bob", start_within=timedelta(seconds=1))
    clock.advance(timedelta(seconds=2))
    await worker.run_due()
    found = scraped(metrics.registry)
    assert found['matrixsched_attempts_total{handler="greet",outcome="expired"}'] == 1
    assert found['matrixsched_attempts_total{handler="greet",outcome="missed"}'] == 1
    assert found['matrixsched_attempt_late_seconds_count{handler="greet"}'] == 2
    assert found.get('matrixsched_attempt_run_seconds_count{handler="greet"}', 0) == 0


async def test_shards_are_seen_while_they_are_held(app: App, clock: ManualClock) -> None:
    worker = Worker(app)
    metrics = Metrics(app, worker=worker)
    held: list[float] = []
    app.events.subscribe(ShardSynced, lambda event: held.append(scraped(metrics.registry)["matrixsched_shards_held"]))
    await app.schedule("greet", "Ada")
    await worker.run_due()
    assert held == [1]
    assert scraped(metrics.registry)["matrixsched_shards_held"] == 0


def test_a_loop_that_was_blocked_is_seen_for_a_while() -> None:
    clock = ManualClock()
    app = App("sqlite://", clock=clock)
    metrics = Metrics(app)
    seen: list[float] = []
    app.events.emit(LoopSampled(2.5))
    for _ in range(5):
        seen.append(scraped(metrics.registry)["matrixsched_loop_lag_max_seconds"])
        clock.advance(timedelta(seconds=PEAK_S * 0.6))
        app.events.emit(LoopSampled(0.002))
    assert seen == [2.5, 2.5, 2.5, 2.5, 0.002]
    found = scraped(metrics.registry)
    assert found['matrixsched_loop_lag_seconds_bucket{le="1.0"}'] == 5
    assert found["matrixsched_loop_lag_seconds_count"] == 6


def test_of_what_all_processes_report_alike_the_last_word_counts(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from matrixsched import App\n"
        "from matrixsched.events import BacklogSampled, LoopSampled\n"
        "from matrixsched.observe import Metrics\n"
        "app = App('sqlite://')\n"
        "metrics = Metrics(app)\n"
        "app.events.emit(BacklogSampled(int(sys.argv[1]), 1.5))\n"
        "app.events.emit(LoopSampled(float(sys.argv[1])))\n"
        "metrics.collect()\n"
    )
    for due in ("30", "20"):
        shared = os.environ | {FOLDER_VARIABLE: str(tmp_path)}
        subprocess.run([sys.executable, "-c", program, due], env=shared, check=True)
    lines = exposition_of(str(tmp_path))().decode().splitlines()
    assert "matrixsched_due_actions 20.0" in lines
    assert "matrixsched_oldest_due_seconds 1.5" in lines
    assert "matrixsched_loop_lag_max_seconds 30.0" in lines
    assert 'matrixsched_connections{pool="app",state="most"} 2.0' in lines
    assert (
        f'matrixsched_build_info{{dialect="sqlite",installation="default",version="{matrixsched.__version__}"}} 1.0'
        in (lines)
    )
