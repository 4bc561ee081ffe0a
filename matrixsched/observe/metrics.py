"""Prometheus metrics of one worker.

Attempts are counted in plain numbers first and added to Prometheus's own when somebody looks (`collect`): a counter and
two histograms cost three microseconds an attempt, which at ten thousand attempts a second is a share of a core. All
other events come once a batch or less and are counted directly.

With PROMETHEUS_MULTIPROC_DIR set before this module is imported, the numbers live in files that the supervisor adds up.
"""

from __future__ import annotations

import os
import struct
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from glob import escape, glob
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from matrixsched.events import (
    AttemptEnded,
    ClaimsGivenBack,
    ClaimsLost,
    Events,
    HandlerLeaked,
    OutcomesRecorded,
    ShardSynced,
    StepFailed,
    Tidied,
    WorkerStarted,
    WorkerStopped,
)
from matrixsched.rules.action import Outcome

LATE_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200)
RUN_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)


class Load(Protocol):
    """What can only be asked, not heard: how much a worker has in its hands now."""

    @property
    def held(self) -> int: ...

    @property
    def running(self) -> int: ...

    @property
    def leaked(self) -> int: ...


class Metrics:
    def __init__(self, events: Events, load: Load, registry: CollectorRegistry | None = None) -> None:
        self.registry = CollectorRegistry() if registry is None else registry
        self._load = load
        self._tallies: dict[str, _Tally] = {}
        self._collecting = threading.Lock()
        self._define()
        self._subscribe(events)

    def _define(self) -> None:
        counter, gauge = self._counter, self._gauge
        self._attempts = counter("attempts", "Attempts that ended.", "handler", "outcome")
        self._late = Histogram(
            "matrixsched_attempt_late_seconds",
            "From the scheduled time of an attempt to its start.",
            ["handler"],
            buckets=LATE_BUCKETS,
            registry=self.registry,
        )
        self._run = Histogram(
            "matrixsched_attempt_run_seconds",
            "How long handlers ran.",
            ["handler"],
            buckets=RUN_BUCKETS,
            registry=self.registry,
        )
        self._synced = counter("shards_synced", "Visits to a shard with work.")
        self._shards_lost = counter("shards_lost", "Visits that ended because another worker had taken the shard.")
        self._moved = counter("actions_moved", "Rows moved from the incoming to the processing queue.")
        self._claimed = counter("actions_claimed", "Rows claimed for an attempt.")
        self._outcomes = counter("outcomes", "Answers to outcomes sent to the database.", "answer")
        self._claims_lost = counter("claims_lost", "Attempts whose lease could not be kept.")
        self._given_back = counter("claims_given_back", "Claimed rows that could not be started soon enough.")
        self._step_failures = counter("step_failures", "Steps of the worker that failed and were repeated.", "step")
        self._tidied = counter("tidied", "Rows removed as old or dead.", "kind")
        self._stops = counter("worker_stops", "Orderly ends of a worker, by how its handlers ended.", "handlers")
        self._slots = gauge("worker_slots", "Handlers that may run at once.")
        self._held = gauge("attempts_held", "Attempts claimed and not yet recorded.")
        self._running = gauge("attempts_running", "Handlers running now.")
        self._leaked = gauge("handlers_leaked", "Handlers that ignored their time limit and still run.")
        self._leaks = counter("handler_leaks", "Times that a handler ignored its time limit.", "handler")

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"matrixsched_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(f"matrixsched_{name}", text, registry=self.registry, multiprocess_mode="livesum")

    def _subscribe(self, events: Events) -> None:
        events.subscribe(AttemptEnded, self._on_attempt_ended)
        events.subscribe(ShardSynced, self._on_shard_synced)
        events.subscribe(OutcomesRecorded, self._on_outcomes_recorded)
        events.subscribe(ClaimsLost, lambda event: self._claims_lost.inc(event.count))
        events.subscribe(ClaimsGivenBack, lambda event: self._given_back.inc(event.count))
        events.subscribe(HandlerLeaked, lambda event: self._leaks.labels(event.handler).inc())
        events.subscribe(StepFailed, lambda event: self._step_failures.labels(event.step).inc())
        events.subscribe(Tidied, self._on_tidied)
        events.subscribe(WorkerStarted, lambda event: self._slots.set(event.concurrency))
        events.subscribe(WorkerStopped, lambda e: self._stops.labels("cancelled" if e.cancelled else "finished").inc())

    def collect(self) -> None:
        """Bring Prometheus's numbers up to date; call it before they are read."""
        with self._collecting:
            for handler, tally in list(self._tallies.items()):
                self._add(handler, tally)
            self._held.set(self._load.held)
            self._running.set(self._load.running)
            self._leaked.set(self._load.leaked)

    def exposition(self) -> bytes:
        """The metrics as Prometheus scrapes them."""
        self.collect()
        return generate_latest(self.registry)

    # Subscribers.

    def _on_attempt_ended(self, event: AttemptEnded) -> None:
        tally = self._tallies.get(event.handler)
        if tally is None:
            tally = self._tallies[event.handler] = _Tally()
        tally.outcomes[event.outcome] += 1
        tally.late.observe(event.late.total_seconds())
        tally.run.observe(event.run_s)

    def _on_shard_synced(self, event: ShardSynced) -> None:
        self._synced.inc()
        self._moved.inc(event.moved)
        self._claimed.inc(event.claimed)
        if event.lost:
            self._shards_lost.inc()

    def _on_outcomes_recorded(self, event: OutcomesRecorded) -> None:
        for answer in ("recorded", "superseded", "lost", "busy"):
            if count := getattr(event, answer):
                self._outcomes.labels(answer).inc(count)

    def _on_tidied(self, event: Tidied) -> None:
        for kind in ("actions", "requests", "rows", "expired", "leases", "history"):
            if count := getattr(event, kind):
                self._tidied.labels(kind).inc(count)

    def _add(self, handler: str, tally: _Tally) -> None:
        for outcome, total in tally.outcomes.items():
            if news := total - tally.told[outcome]:
                tally.told[outcome] = total
                self._attempts.labels(handler, outcome.value).inc(news)
        tally.late.add_to(self._late.labels(handler))
        tally.run.add_to(self._run.labels(handler))


class _Tally:
    """What one handler's attempts came to."""

    __slots__ = ("late", "outcomes", "run", "told")

    def __init__(self) -> None:
        self.outcomes = dict.fromkeys(Outcome, 0)
        self.told = dict.fromkeys(Outcome, 0)
        self.late = _Buckets(LATE_BUCKETS)
        self.run = _Buckets(RUN_BUCKETS)


class _Buckets:
    """A histogram in plain numbers. They only grow, so that one thread may count while another reads."""

    __slots__ = ("_bounds", "_counts", "_sum", "_told_counts", "_told_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0
        self._told_counts = list(self._counts)
        self._told_sum = 0.0

    def observe(self, seconds: float) -> None:
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self._sum += seconds

    def add_to(self, histogram: Histogram) -> None:
        # Prometheus's client can only observe one value at a time; its buckets themselves can be added to.
        for place, total in enumerate(self._counts):
            if news := total - self._told_counts[place]:
                self._told_counts[place] = total
                histogram._buckets[place].inc(news)
        news_s, self._told_sum = self._sum - self._told_sum, self._sum
        histogram._sum.inc(news_s)


# Several processes.

FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"


def shared_folder() -> str | None:
    """Where this process writes its numbers, for its supervisor to add up; None if it has none."""
    return os.environ.get(FOLDER_VARIABLE) or None


def metrics_are_shared() -> bool:
    return shared_folder() is not None


def exposition_of(folder: str) -> Callable[[], bytes]:
    """The metrics of all processes that write to the folder, added up."""
    registry = CollectorRegistry()
    registry.register(_Folder(folder))
    return lambda: generate_latest(registry)


class _Folder(Collector):
    def __init__(self, path: str) -> None:
        self._path = path

    def collect(self) -> Iterable[Metric]:
        files = [file for file in glob(f"{escape(self._path)}/*.db") if _is_readable(file)]
        merged: Iterable[Metric] = MultiProcessCollector.merge(files)  # type: ignore[no-untyped-call]
        return merged


def _is_readable(file: str) -> bool:
    """A process that starts, or is killed while it starts, leaves a file that is not one yet; it must not hide all."""
    try:
        MultiProcessCollector.merge([file])  # type: ignore[no-untyped-call]
    except (struct.error, RuntimeError, ValueError, OSError):
        return False
    return True
