"""What can be scraped about semaphores: who holds, who waits, and what balances do."""

from __future__ import annotations

from datetime import timedelta

import pytest
from prometheus_client import generate_latest

from matrixsched import Acquired, App
from matrixsched.clock import ManualClock
from matrixsched.events import SemaphoreBalanced, SemaphoresSampled
from matrixsched.observe import Metrics
from matrixsched.observe.labels import LABELS_MAX
from matrixsched.rules.semaphore import SemaphoreSample
from matrixsched.worker import Worker
from matrixsched.worker.sampling import SEMAPHORES_EVERY_S, SEMAPHORES_MAX

pytestmark = pytest.mark.anyio

MINUTE = timedelta(minutes=1)


def told_of(app: App, key: str) -> None:
    @app.on_acquired(key)
    async def hand_out(event: Acquired) -> None: ...


def scraped(metrics: Metrics) -> dict[str, float]:
    lines = generate_latest(metrics.registry).decode().splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}


def gauges(found: dict[str, float], key: str) -> list[float]:
    names = ("held", "asked", "waiting", "oldest_wait_seconds")
    return [found[f'matrixsched_semaphore_{name}{{semaphore="{key}"}}'] for name in names]


def changes(found: dict[str, float], key: str) -> dict[str, float]:
    name = 'matrixsched_semaphore_changes_total{{change="{}",semaphore="{}"}}'
    return {change: found[name.format(change, key)] for change in ("acquired", "asked", "kept", "lapsed")}


# On a database.


async def test_who_holds_and_who_waits_is_seen(app: App, clock: ManualClock) -> None:
    told_of(app, "pool")
    worker = Worker(app)
    metrics = Metrics(app, worker=worker)
    pool = await app.semaphores.get_or_create("pool", active=2, try_release=1, hold_for=10 * MINUTE)
    await worker.sampling.semaphores()
    assert gauges(scraped(metrics), "pool") == [0, 0, 0, 0]
    await pool.enqueue_many({"a": 1, "b": 3, "c": 2, "d": 0})
    clock.advance(MINUTE)
    while await worker.balancing.step() == 0:
        pass
    await pool.enqueue("urgent", 9)
    clock.advance(MINUTE)
    while await worker.balancing.step() == 0:
        pass
    assert gauges(scraped(metrics), "pool") == [0, 0, 0, 0], "a scrape asks nobody"
    await worker.sampling.semaphores()
    found = scraped(metrics)
    assert gauges(found, "pool") == [2, 1, 3, 120]
    assert changes(found, "pool") == {"acquired": 2, "asked": 1, "kept": 0, "lapsed": 0}
    assert found["matrixsched_semaphore_balance_seconds_count"] == 2
    await pool.release_many(["urgent", "a", "d"])
    while await worker.balancing.step() == 0:
        pass
    await worker.sampling.semaphores()
    found = scraped(metrics)
    assert gauges(found, "pool") == [2, 0, 0, 0]
    assert changes(found, "pool")["kept"] == 1


async def test_a_worker_looks_at_those_semaphores_alone_that_it_is_told_of(app: App) -> None:
    for number in range(SEMAPHORES_MAX + 5):
        told_of(app, f"pool-{number:03}")
    await app.semaphores.get_or_create("strange")
    seen: list[SemaphoresSampled] = []
    app.events.subscribe(SemaphoresSampled, seen.append)
    await Worker(app).sampling.semaphores()
    (event,) = seen
    assert [one.key for one in event.samples] == [f"pool-{number:03}" for number in range(SEMAPHORES_MAX)]


async def test_nobody_looks_while_nobody_listens_or_nothing_is_told(app: App) -> None:
    @app.action("send")
    async def send() -> None: ...

    before = app.store.pool.served
    Metrics(app)
    assert await Worker(app).sampling.semaphores() == SEMAPHORES_EVERY_S
    assert app.store.pool.served == before, "it is told of no semaphore"
    silent = App("sqlite://")  # not open: to ask would be an error
    told_of(silent, "pool")
    assert await Worker(silent).sampling.semaphores() == SEMAPHORES_EVERY_S


# In numbers alone.


def sample(key: str, oldest_wait_s: float) -> SemaphoreSample:
    return SemaphoreSample(key=key, held=2, asked=1, waiting=3, oldest_wait_s=oldest_wait_s)


def test_semaphores_without_end_are_told_together() -> None:
    app = App("sqlite://")
    metrics = Metrics(app)
    many = [f"s{number:04}" for number in range(LABELS_MAX + 50)]
    app.events.emit(SemaphoresSampled(tuple(sample(key, float(key[1:])) for key in many)))
    for key in many:
        app.events.emit(SemaphoreBalanced(key, acquired=1, asked=2, kept=3, lapsed=4, took_s=0.02))
    found = scraped(metrics)
    assert len([name for name in found if name.startswith("matrixsched_semaphore_held{")]) == LABELS_MAX + 1
    assert gauges(found, "other") == [100, 50, 150, LABELS_MAX + 49]
    assert changes(found, "other") == {"acquired": 50, "asked": 100, "kept": 150, "lapsed": 200}
    assert found['matrixsched_semaphore_balance_seconds_bucket{le="0.025"}'] == len(many)
    assert found['matrixsched_semaphore_balance_seconds_bucket{le="0.01"}'] == 0


def test_what_is_no_longer_sampled_is_zero() -> None:
    app = App("sqlite://")
    metrics = Metrics(app)
    app.events.emit(SemaphoresSampled((sample("pool", 4.0),)))
    app.events.emit(SemaphoresSampled(()))
    assert gauges(scraped(metrics), "pool") == [0, 0, 0, 0]
