"""Metrics of the gates: what they hold back, how much of what they allow is used, and what went to waste.

Templates and limits are labels. The first hundred of each that a process meets have their own, the rest are together
`other`, and single keys are never told apart: there may be ten thousand of them.
"""

from __future__ import annotations

import math
from collections import Counter as Tally
from typing import Literal, Protocol

from prometheus_client import Counter, Gauge

from matrixsched.events import (
    AttemptEnded,
    Events,
    GatesSampled,
    SlotsVoided,
    SlowDownTold,
    Tidied,
    WindowPlanned,
)
from matrixsched.observe.labels import LATEST, Names, Sampled
from matrixsched.rules.action import Outcome
from matrixsched.rules.gate_report import GateReport
from matrixsched.rules.lanes import key_limit

OPEN = "open"
"""What has only to be taken by a worker."""
ANY_KEY_AT_ALL = "key"
EVERYBODY = "Every worker looks every 15 seconds and reports the same for the whole installation."


class MakeCounter(Protocol):
    def __call__(self, name: str, text: str, *labels: str) -> Counter: ...


class MakeGauge(Protocol):
    def __call__(self, name: str, text: str, *labels: str, mode: Literal["livemostrecent"]) -> Gauge: ...


class GateMetrics:
    def __init__(self, counter: MakeCounter, gauge: MakeGauge) -> None:
        self._templates = Names()
        self._limits = Names()
        self._ended: Tally[tuple[str, Outcome]] = Tally()
        self._told: Tally[tuple[str, Outcome]] = Tally()
        held = f"What is due and waits before gates, counted up to 20000. {EVERYBODY}"
        self._held = Sampled(gauge("held_actions", held, "gate", "template", mode=LATEST))
        left = f"How many actions a limit would let start at once. {EVERYBODY}"
        self._slots_left = Sampled(gauge("limit_slots_left", left, "limit", mode=LATEST), absent=math.nan)
        slowed = f"1 for a limit that was told to slow down. {EVERYBODY}"
        self._slowed = Sampled(gauge("limit_slowed", slowed, "limit", mode=LATEST))
        window = "in the present window of the quota, and in the last one"
        granted = f"What a template may send {window}. {EVERYBODY}"
        self._granted = Sampled(gauge("quota_granted", granted, "template", "window", mode=LATEST))
        used = (
            f"What is spent of that, by each claim, whether it then started in its slot or not, {window}. {EVERYBODY}"
        )
        self._used = Sampled(gauge("quota_used", used, "template", "window", mode=LATEST))
        self._paused = gauge("templates_paused", f"Templates that are paused. {EVERYBODY}", mode=LATEST)
        self._attempts = counter("template_attempts", "Attempts of templates that ended.", "template", "outcome")
        self._expired = counter("expired_unsent", "Actions of templates that expired before they started.", "template")
        self._planned = counter("quota_windows_planned", "Windows of the quota planned by this process.")
        self._planning_s = counter("quota_planning_seconds", "How long that took, all in all.")
        self._void = counter("slots_void", "Actions that passed their gates but could not start in their slots.")
        self._slow_downs = counter("slow_downs", "Times that this process told a limit to slow down.", "limit")

    def subscribe(self, events: Events) -> None:
        events.subscribe(AttemptEnded, self._on_attempt_ended)
        events.subscribe(Tidied, self._on_tidied)
        events.subscribe(GatesSampled, self._on_gates_sampled)
        events.subscribe(WindowPlanned, self._on_window_planned)
        events.subscribe(SlotsVoided, lambda event: self._void.inc(event.count))
        events.subscribe(SlowDownTold, lambda event: self._slow_downs.labels(self._limit(event.limit)).inc())

    def collect(self) -> None:
        """Add to Prometheus's numbers what was counted since: attempts are too many to do so for each."""
        for (template, outcome), total in list(self._ended.items()):
            if news := total - self._told[template, outcome]:
                self._told[template, outcome] = total
                self._attempts.labels(template, outcome.value).inc(news)
                if outcome is Outcome.EXPIRED:
                    self._expired.labels(template).inc(news)

    def _limit(self, name: str) -> str:
        return ANY_KEY_AT_ALL if name.startswith(key_limit("")) else self._limits.label(name)

    def _on_attempt_ended(self, event: AttemptEnded) -> None:
        if event.template is not None:
            self._ended[self._templates.label(event.template), event.outcome] += 1

    def _on_tidied(self, event: Tidied) -> None:
        for template, count in event.expired_of.items():
            self._expired.labels(self._templates.label(template)).inc(count)

    def _on_window_planned(self, event: WindowPlanned) -> None:
        self._planned.inc()
        self._planning_s.inc(max(0.0, event.took_s))

    def _on_gates_sampled(self, event: GatesSampled) -> None:
        report = event.report
        held: Tally[tuple[str, ...]] = Tally()
        for (gate, template), count in report.held.items():
            held[OPEN if gate is None else gate.value, self._templates.label(template or "")] += count
        self._held.show(held)
        self._slots_left.show(self._fewest_slots(report))
        self._slowed.show(dict.fromkeys(((self._limit(name),) for name in report.slowed), 1))
        self._show_shares(report)
        self._paused.set(len(report.paused))

    def _fewest_slots(self, report: GateReport) -> dict[tuple[str, ...], float]:
        """Of limits that share a label the one that is nearest to its end."""
        fewest: dict[tuple[str, ...], float] = {}
        for name, left in report.slots_left.items():
            label = (self._limit(name),)
            fewest[label] = min(left, fewest.get(label, left))
        return fewest

    def _show_shares(self, report: GateReport) -> None:
        granted: Tally[tuple[str, ...]] = Tally()
        used: Tally[tuple[str, ...]] = Tally()
        for share in report.shares:
            label = self._templates.label(share.template), "present" if share.is_present else "last"
            granted[label] += share.granted
            used[label] += share.used
        self._granted.show(granted)
        self._used.show(used)
