"""Metrics of semaphores: who holds, who waits and for how long, what balances change and how long they take.

Semaphores are labels. The first hundred that a process meets have their own, the rest are together `other`.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Sequence
from typing import Protocol

from prometheus_client import Histogram

from matrixsched.events import Events, SemaphoreBalanced, SemaphoresSampled
from matrixsched.observe.gate_metrics import MakeCounter, MakeGauge
from matrixsched.observe.labels import LATEST, Names, Sampled

BALANCE_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
TOLD = "Every worker that is told of its events looks every minute, at a hundred semaphores at most."


class MakeHistogram(Protocol):
    def __call__(self, name: str, text: str, buckets: Sequence[float], *labels: str) -> Histogram: ...


class SemaphoreMetrics:
    def __init__(self, counter: MakeCounter, gauge: MakeGauge, histogram: MakeHistogram) -> None:
        self._keys = Names()

        def sampled(name: str, text: str) -> Sampled:
            return Sampled(gauge(f"semaphore_{name}", f"{text} {TOLD}", "semaphore", mode=LATEST))

        self._held = sampled("held", "Tasks that hold a place.")
        self._asked = sampled("asked", "Of those, how many were asked to release it.")
        self._waiting = sampled("waiting", "Tasks that wait for a place, counted up to 10000.")
        self._oldest = sampled("oldest_wait_seconds", "How long the oldest of those has waited.")
        changes = "What balances of this process changed: places acquired, asked for, kept after all, and lapsed."
        self._changes = counter("semaphore_changes", changes, "semaphore", "change")
        self._balance_s = histogram("semaphore_balance_seconds", "How long a balance took.", BALANCE_BUCKETS)

    def subscribe(self, events: Events) -> None:
        events.subscribe(SemaphoreBalanced, self._on_balanced)
        events.subscribe(SemaphoresSampled, self._on_sampled)

    def _on_balanced(self, event: SemaphoreBalanced) -> None:
        key = self._keys.label(event.key)
        counts = {"acquired": event.acquired, "asked": event.asked, "kept": event.kept, "lapsed": event.lapsed}
        for change, count in counts.items():
            self._changes.labels(key, change).inc(count)
        self._balance_s.observe(max(0.0, event.took_s))

    def _on_sampled(self, event: SemaphoresSampled) -> None:
        held: Tally[tuple[str, ...]] = Tally()
        asked: Tally[tuple[str, ...]] = Tally()
        waiting: Tally[tuple[str, ...]] = Tally()
        oldest: dict[tuple[str, ...], float] = {}
        for sample in event.samples:
            label = (self._keys.label(sample.key),)
            held[label] += sample.held
            asked[label] += sample.asked
            waiting[label] += sample.waiting
            oldest[label] = max(sample.oldest_wait_s, oldest.get(label, 0.0))
        self._held.show(held)
        self._asked.show(asked)
        self._waiting.show(waiting)
        self._oldest.show(oldest)
