"""Metrics of queues: how long cycles take, what becomes of tasks, who is at work, and what waits.

Four of them have names of their own, without our prefix, and tell queues by their numbers (`queue_num`): other
programs that have such queues call them so, and one board shows them all. The others tell queues by name; the first
hundred that a process meets have their own, the rest are together `other`.
"""

from __future__ import annotations

from collections import Counter as Tally

from prometheus_client import CollectorRegistry, Gauge, Histogram

from matrixsched.events import BatchEnded, BatchTaken, Events, ProcessorsRunning, QueuesSampled, TaskSetAside
from matrixsched.observe.gate_metrics import MakeCounter, MakeGauge
from matrixsched.observe.labels import LATEST, Names, Sampled

CYCLE_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
"""One of the borders is that above which a cycle is overlong."""
TOLD = "Every worker that handles queues looks every 15 seconds and reports the same for the whole installation."


class QueueMetrics:
    def __init__(self, counter: MakeCounter, gauge: MakeGauge, registry: CollectorRegistry) -> None:
        self._names = Names()
        self._numbers = Names()
        self._unreadable: Tally[int] = Tally()
        """Told of, and part of the dead of a batch whose end comes next."""
        self._define_common(registry)

        def sampled(name: str, text: str, *labels: str) -> Sampled:
            return Sampled(gauge(f"queue_{name}", f"{text} {TOLD}", "queue", *labels, mode=LATEST))

        self._depth = sampled(
            "depth", "Tasks of a queue: ready, counted up to 10000; taken and delayed, together so.", "state"
        )
        self._oldest = sampled("oldest_ready_seconds", "How long the oldest task has been ready.")
        self._dead = sampled("dead_letters", "Tasks that were set aside, counted up to 10000.")
        became = (
            "What became of tasks in this process: processed, retried, dead, or not for it to say any more: stale. "
            "Those that nobody could read are unreadable, and not among the dead."
        )
        self._tasks = counter("queue_tasks", became, "queue", "result")
        self._errors = counter(
            "queue_errors",
            "As handlers count them in their HandlerStats; otherwise tasks set aside, or left unsettled by a failure.",
            "queue",
        )
        self._slow = counter("queue_slow_cycles", "Cycles that took longer than 10 seconds.", "queue")

    def _define_common(self, registry: CollectorRegistry) -> None:
        """Those whose names are not ours alone."""

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(name, text, labels, registry=registry, multiprocess_mode="livesum")

        self._cycle_s = Histogram(
            "queue_job_processor_cycle_duration_seconds",
            "From the request for a batch to the last of its tasks settled.",
            ["queue_num"],
            buckets=CYCLE_BUCKETS,
            registry=registry,
        )
        self._in_progress = gauge("queue_tasks_in_progress", "Tasks in the hands of handlers now.", "queue_num")
        self._running_workers = gauge("queue_running_workers", "Workers that run job processors.")
        self._running_processors = gauge("queue_running_job_processors", "Job processors that run.")

    def subscribe(self, events: Events) -> None:
        events.subscribe(ProcessorsRunning, self._on_processors_running)
        events.subscribe(BatchTaken, self._on_batch_taken)
        events.subscribe(BatchEnded, self._on_batch_ended)
        events.subscribe(TaskSetAside, self._on_task_set_aside)
        events.subscribe(QueuesSampled, self._on_sampled)

    def _on_processors_running(self, event: ProcessorsRunning) -> None:
        self._running_processors.set(event.count)
        self._running_workers.set(1 if event.count else 0)

    def _on_batch_taken(self, event: BatchTaken) -> None:
        self._in_progress.labels(self._number(event.queue)).inc(event.tasks)

    def _on_batch_ended(self, event: BatchEnded) -> None:
        number, name = self._number(event.queue), self._names.label(event.name)
        self._in_progress.labels(number).dec(event.tasks)
        self._cycle_s.labels(number).observe(max(0.0, event.cycle_s))
        unreadable = min(event.dead, self._unreadable.pop(event.queue, 0))
        results = {"processed": event.processed, "retried": event.retried, "stale": event.stale}
        for result, count in (results | {"dead": event.dead - unreadable, "unreadable": unreadable}).items():
            if count:
                self._tasks.labels(name, result).inc(count)
        if event.errors:
            self._errors.labels(name).inc(event.errors)
        if event.is_overlong:
            self._slow.labels(name).inc()

    def _on_task_set_aside(self, event: TaskSetAside) -> None:
        self._unreadable[event.queue] += event.unreadable

    def _on_sampled(self, event: QueuesSampled) -> None:
        depth: Tally[tuple[str, ...]] = Tally()
        dead: Tally[tuple[str, ...]] = Tally()
        oldest: dict[tuple[str, ...], float] = {}
        for sample in event.samples:
            name = self._names.label(sample.name)
            for state in ("ready", "taken", "delayed"):
                depth[name, state] += getattr(sample, state)
            dead[(name,)] += sample.dead
            oldest[(name,)] = max(sample.oldest_ready_s, oldest.get((name,), 0.0))
        self._depth.show(depth)
        self._dead.show(dead)
        self._oldest.show(oldest)

    def _number(self, queue: int) -> str:
        return self._numbers.label(str(queue))
