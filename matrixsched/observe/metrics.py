"""Prometheus metrics of one process: of its worker if it has one, of its calls to schedule, of its connections.

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
from typing import Literal, Protocol
from weakref import WeakKeyDictionary

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

import matrixsched
from matrixsched.app import App
from matrixsched.errors import BadInput
from matrixsched.events import (
    AttemptDropped,
    AttemptEnded,
    BacklogSampled,
    CallsWritten,
    ClaimsGivenBack,
    ClaimsLost,
    Events,
    HandlerLeaked,
    InterruptionsFound,
    LoopSampled,
    OutcomesRecorded,
    ShardSynced,
    StepFailed,
    Tidied,
    WorkerStarted,
    WorkerStopped,
)
from matrixsched.observe.gate_metrics import EVERYBODY, GateMetrics
from matrixsched.observe.queue_metrics import QueueMetrics
from matrixsched.observe.semaphore_metrics import SemaphoreMetrics
from matrixsched.rules.action import Outcome
from matrixsched.rules.minutes import LATE_BOUNDS_S
from matrixsched.store.store import Store
from matrixsched.store.values import Pool

GaugeMode = Literal["livesum", "livemax", "livemin", "livemostrecent"]

LOOP_BUCKETS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 30)
PEAK_S = 60.0
NEVER_RAN = frozenset({Outcome.EXPIRED, Outcome.MISSED})
RUN_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)


class Load(Protocol):
    @property
    def held(self) -> int: ...

    @property
    def running(self) -> int: ...

    @property
    def leaked(self) -> int: ...


class Hold(Protocol):
    @property
    def shards_held(self) -> int: ...


class Working(Protocol):
    """A worker, as far as it can only be asked and not heard: how much it has in its hands now."""

    @property
    def runner(self) -> Load: ...

    @property
    def intake(self) -> Hold: ...

    @property
    def leaked(self) -> int: ...

    @property
    def looked_at(self) -> float | None: ...


class Metrics:
    """Counts what happens in an application, from now on; make it once, before the work begins.

    >>> metrics = Metrics(app)                                   # a registry of its own: metrics.exposition()
    >>> metrics = Metrics(app, registry=prometheus_client.REGISTRY)    # beside those that you serve already
    >>> metrics = Metrics(app, worker=worker)                    # also what a worker in this process holds

    `matrixsched worker --metrics-port` does all of it by itself; this is for programs that schedule, or that run a
    Worker of their own. Where several processes share PROMETHEUS_MULTIPROC_DIR, nobody asks each of them: call
    `collect()` about once a second there.
    """

    def __init__(self, app: App, *, worker: Working | None = None, registry: CollectorRegistry | None = None) -> None:
        self.registry = CollectorRegistry() if registry is None else registry
        self._app = app
        self._worker = worker
        self._tallies: dict[str, _Tally] = {}
        # By store: `app.sync` has another one, which counts from nothing, each time that it is opened.
        self._pools: WeakKeyDictionary[Store, Pool] = WeakKeyDictionary()
        self._loop_peak = _Peak(PEAK_S)
        self._began_at = app.clock.monotonic()
        self._collecting = threading.Lock()
        before_others = _BeforeOthers(self.collect)
        self.registry.register(before_others)
        try:
            self._define()
        except ValueError:
            self.registry.unregister(before_others)
            raise BadInput("the registry holds these metrics already: make Metrics once for each registry") from None
        self._subscribe(app.events)
        if worker is not None:
            self._tell_look(worker)  # nobody else does while it waits for its database

    def _define(self) -> None:
        counter, gauge, histogram = self._counter, self._gauge, self._histogram
        self._attempts = counter("attempts", "Attempts that ended.", "handler", "outcome")
        self._late = histogram(
            "attempt_late_seconds", "From the scheduled time of an attempt to its start.", LATE_BOUNDS_S, "handler"
        )
        self._run = histogram("attempt_run_seconds", "How long handlers ran.", RUN_BUCKETS, "handler")
        self._dropped = counter("attempts_dropped", "Attempts that were started and ended without an outcome.")
        self._synced = counter("shards_synced", "Visits to a shard with work.")
        self._shards_lost = counter("shards_lost", "Visits that ended because another worker had taken the shard.")
        self._held_s = counter("shard_held_seconds", "How long shards were held, all in all.")
        self._moved = counter("actions_moved", "Rows moved from the incoming to the processing queue.")
        self._claimed = counter("actions_claimed", "Rows claimed for an attempt.")
        self._outcomes = counter("outcomes", "Answers to outcomes sent to the database.", "answer")
        self._claims_lost = counter("claims_lost", "Attempts whose lease could not be kept.")
        self._interruptions = counter(
            "interruptions_found",
            "Claims of actions whose attempt before never ended: its worker died, or lost it.",
            "handler",
        )
        self._given_back = counter("claims_given_back", "Claimed rows that could not be started soon enough.")
        self._step_failures = counter("step_failures", "Steps of the worker that failed and were repeated.", "step")
        self._tidied = counter("tidied", "Rows removed as old or dead.", "kind")
        self._stops = counter("worker_stops", "Orderly ends of a worker, by how its handlers ended.", "handlers")
        self._slots = gauge("worker_slots", "Handlers of actions that may run at once.")
        self._looked = gauge(
            "worker_looked_timestamp_seconds",
            "When the worker last found out about work, or began if it never did; of several processes the one that "
            "is worst off. 0 where there is no worker.",
            mode="livemin",
        )
        self._held = gauge("attempts_held", "Attempts claimed and not yet recorded.")
        self._running = gauge("attempts_running", "Handlers running now.")
        self._leaked = gauge("handlers_leaked", "Handlers that ignored their time limit and still run.")
        self._leaks = counter("handler_leaks", "Times that a handler ignored its time limit.", "handler")

        self._shards_held = gauge("shards_held", "Shard locks in the hands of workers now.")
        self._due = gauge("due_actions", f"What is due and waits, at most 10000. {EVERYBODY}", mode="livemostrecent")
        self._oldest_due = gauge(
            "oldest_due_seconds", f"How long the oldest of it has been due. {EVERYBODY}", mode="livemostrecent"
        )
        self._oldest_open = gauge(
            "oldest_open_seconds",
            f"How long the oldest of it has been due that only a worker must take: no gate holds it. {EVERYBODY}",
            mode="livemostrecent",
        )
        self._oldest_parked = gauge(
            "oldest_parked_seconds",
            f"How long the oldest of it has been due whose handler no worker knows that met it. {EVERYBODY}",
            mode="livemostrecent",
        )
        self._loop_lag = histogram("loop_lag_seconds", "How late timers of the event loop fired.", LOOP_BUCKETS)
        self._loop_lag_max = gauge(
            "loop_lag_max_seconds",
            "The latest timer of the last minute or two: handlers block the loop.",
            mode="livemax",
        )
        self._calls = counter("schedule_calls", "Calls that were written, each or many at a time.", "way")
        self._statements = counter("schedule_statements", "Statements that carried those calls.", "way")
        self._gates = GateMetrics(counter, gauge)
        self._semaphores = SemaphoreMetrics(counter, gauge, histogram)
        self._queues = QueueMetrics(counter, gauge, self.registry)
        self._define_pools()

    def _define_pools(self) -> None:
        counter, gauge = self._counter, self._gauge
        self._connections = gauge("connections", "Connections to the database.", "pool", "state")
        self._waiting = gauge("connection_waiting", "Transitions that wait for a connection now.", "pool")
        self._served = counter("connection_uses", "Transitions that were given a connection.", "pool")
        self._waited = counter("connection_wait_seconds", "How long transitions waited for a connection.", "pool")
        build = gauge("build_info", "Always 1.", "version", "dialect", "installation", mode="livemax")
        build.labels(matrixsched.__version__, self._app.store.dialect, self._app.installation).set(1)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"matrixsched_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str, mode: GaugeMode = "livesum") -> Gauge:
        return Gauge(f"matrixsched_{name}", text, labels, registry=self.registry, multiprocess_mode=mode)

    def _histogram(self, name: str, text: str, buckets: Sequence[float], *labels: str) -> Histogram:
        return Histogram(f"matrixsched_{name}", text, labels, buckets=buckets, registry=self.registry)

    def _subscribe(self, events: Events) -> None:
        events.subscribe(AttemptEnded, self._on_attempt_ended)
        events.subscribe(ShardSynced, self._on_shard_synced)
        events.subscribe(OutcomesRecorded, self._on_outcomes_recorded)
        events.subscribe(ClaimsLost, lambda event: self._claims_lost.inc(event.count))
        events.subscribe(InterruptionsFound, self._on_interruptions_found)
        events.subscribe(ClaimsGivenBack, lambda event: self._given_back.inc(event.count))
        events.subscribe(HandlerLeaked, lambda event: self._leaks.labels(event.handler).inc())
        events.subscribe(StepFailed, lambda event: self._step_failures.labels(event.step).inc())
        events.subscribe(Tidied, self._on_tidied)
        events.subscribe(WorkerStarted, self._on_worker_started)
        events.subscribe(WorkerStopped, lambda e: self._stops.labels("cancelled" if e.cancelled else "finished").inc())
        events.subscribe(AttemptDropped, lambda event: self._dropped.inc())
        events.subscribe(CallsWritten, self._on_calls_written)
        events.subscribe(BacklogSampled, self._on_backlog_sampled)
        events.subscribe(LoopSampled, self._on_loop_sampled)
        self._gates.subscribe(events)
        self._semaphores.subscribe(events)
        self._queues.subscribe(events)

    def collect(self) -> None:
        """Bring Prometheus's numbers up to date; call it before they are read."""
        with self._collecting:
            for handler, tally in list(self._tallies.items()):
                self._add(handler, tally)
            self._gates.collect()
            self._loop_lag_max.set(self._loop_peak.value(self._app.clock.monotonic()))
            for name, store in self._app.stores.items():
                self._tell_pool(name, store)
            if self._worker is not None:
                self._tell_load(self._worker)

    def exposition(self) -> bytes:
        """The metrics as Prometheus scrapes them."""
        return generate_latest(self.registry)

    def _tell_load(self, worker: Working) -> None:
        self._held.set(worker.runner.held)
        self._running.set(worker.runner.running)
        self._leaked.set(worker.leaked)
        self._shards_held.set(worker.intake.shards_held)
        self._tell_look(worker)

    def _tell_look(self, worker: Working) -> None:
        clock, looked_at = self._app.clock, worker.looked_at
        ago_s = clock.monotonic() - (self._began_at if looked_at is None else looked_at)
        self._looked.set(clock.now().timestamp() - ago_s)

    def _tell_pool(self, name: str, store: Store) -> None:
        pool, before = store.pool, self._pools.get(store)
        self._pools[store] = pool
        for state, count in (("most", pool.most), ("open", pool.open), ("in_use", pool.in_use)):
            self._connections.labels(name, state).set(count)
        self._waiting.labels(name).set(pool.waiting)
        self._served.labels(name).inc(pool.served - (before.served if before else 0))
        self._waited.labels(name).inc(pool.waited_s - (before.waited_s if before else 0.0))

    # Subscribers.

    def _on_worker_started(self, event: WorkerStarted) -> None:
        # One that is there for queues alone runs no action, whatever its concurrency says.
        self._slots.set(event.concurrency if event.handlers else 0)

    def _on_attempt_ended(self, event: AttemptEnded) -> None:
        tally = self._tallies.get(event.handler)
        if tally is None:
            tally = self._tallies[event.handler] = _Tally()
        tally.outcomes[event.outcome] += 1
        tally.late.observe(event.late.total_seconds())
        if event.outcome not in NEVER_RAN:
            tally.run.observe(event.run_s)

    def _on_shard_synced(self, event: ShardSynced) -> None:
        self._synced.inc()
        self._held_s.inc(max(0.0, event.held_s))
        self._moved.inc(event.moved)
        self._claimed.inc(event.claimed)
        if event.lost:
            self._shards_lost.inc()

    def _on_outcomes_recorded(self, event: OutcomesRecorded) -> None:
        for answer in ("recorded", "superseded", "lost", "busy"):
            if count := getattr(event, answer):
                self._outcomes.labels(answer).inc(count)

    def _on_interruptions_found(self, event: InterruptionsFound) -> None:
        for handler, count in event.of.items():
            self._interruptions.labels(handler).inc(count)

    def _on_tidied(self, event: Tidied) -> None:
        for kind in ("actions", "requests", "rows", "expired", "leases", "history"):
            if count := getattr(event, kind):
                self._tidied.labels(kind).inc(count)

    def _on_calls_written(self, event: CallsWritten) -> None:
        way = "coalesced" if event.coalesced else "many"
        self._calls.labels(way).inc(event.calls)
        self._statements.labels(way).inc()

    def _on_backlog_sampled(self, event: BacklogSampled) -> None:
        self._due.set(event.due)
        self._oldest_due.set(event.oldest_due_s)
        self._oldest_open.set(event.oldest_open_s)
        self._oldest_parked.set(event.oldest_parked_s)

    def _on_loop_sampled(self, event: LoopSampled) -> None:
        self._loop_lag.observe(event.late_s)
        self._loop_peak.observe(event.late_s, self._app.clock.monotonic())

    def _add(self, handler: str, tally: _Tally) -> None:
        for outcome, total in tally.outcomes.items():
            if news := total - tally.told[outcome]:
                tally.told[outcome] = total
                self._attempts.labels(handler, outcome.value).inc(news)
        tally.late.add_to(self._late.labels(handler))
        tally.run.add_to(self._run.labels(handler))


class _BeforeOthers(Collector):
    """Registered first, hence asked first: whoever reads the registry, the numbers are up to date."""

    def __init__(self, collect: Callable[[], None]) -> None:
        self._collect = collect

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        self._collect()
        return ()


class _Peak:
    """The greatest value of the last one to two spans, so that no scrape misses one and none keeps it for ever."""

    __slots__ = ("_began_at", "_now", "_past", "_span_s")

    def __init__(self, span_s: float) -> None:
        self._span_s = span_s
        self._began_at = float("-inf")
        self._now = self._past = 0.0

    def observe(self, value: float, now: float) -> None:
        self._turn(now)
        self._now = max(self._now, value)

    def value(self, now: float) -> float:
        self._turn(now)
        return max(self._now, self._past)

    def _turn(self, now: float) -> None:
        elapsed_s = now - self._began_at
        if elapsed_s >= self._span_s:
            self._past = self._now if elapsed_s < 2 * self._span_s else 0.0
            self._began_at, self._now = now, 0.0


class _Tally:
    """What one handler's attempts came to."""

    __slots__ = ("late", "outcomes", "run", "told")

    def __init__(self) -> None:
        self.outcomes = dict.fromkeys(Outcome, 0)
        self.told = dict.fromkeys(Outcome, 0)
        self.late = _Buckets(LATE_BOUNDS_S)
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
