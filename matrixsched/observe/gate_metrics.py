"""Metrics of the gates: what they hold back, how much of what they allow is used, and what went to waste.

Templates and limits are labels. The first hundred of each that a process meets have their own, the rest are together
`other`, and single keys are never told apart: there may be ten thousand of them.
"""

from __future__ import annotations

import math
from collections import Counter as Tally
from collections.abc import Mapping
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
from matrixsched.rules.action import Outcome
from matrixsched.rules.gate_report import GateReport
from matrixsched.rules.lanes import key_limit

LABELS_MAX = 100
OTHER = "other"
OPEN = "open"
"""What has only to be taken by a worker."""
ANY_KEY_AT_ALL = "key"
EVERYBODY = "Every worker looks every 15 seconds and reports the same for the whole installation."

_LATEST: Literal["livemostrecent"] = "livemostrecent"


class MakeCounter(Protocol):
    def __call__(self, name: str, text: str, *labels: str) -> Counter: ...


class MakeGauge(Protocol):
    def __call__(self, name: str, text: str, *labels: str, mode: Literal["livemostrecent"]) -> Gauge: ...


class GateMetrics:
    def __init__(self, counter: MakeCounter, gauge: MakeGauge) -> None:
        self._templates = _Names()
        self._limits = _Names()
        self._ended: Tally[tuple[str, Outcome]] = Tally()
        self._told: Tally[tuple[str, Outcome]] = Tally()
        held = f"What is due and waits before gates, counted up to 20000. {EVERYBODY}"
        self._held = _Sampled(gauge("held_actions", held, "gate", "template", mode=_LATEST))
        left = f"How many actions a limit would let start at once. {EVERYBODY}"
        self._slots_left = _Sampled(gauge("limit_slots_left", left, "limit", mode=_LATEST), absent=math.nan)
        slowed = f"1 for a limit that was told to slow down. {EVERYBODY}"
        self._slowed = _Sampled(gauge("limit_slowed", slowed, "limit", mode=_LATEST))
        window = "in the present window of the quota, and in the last one"
        granted = f"What a template may send {window}. {EVERYBODY}"
        self._granted = _Sampled(gauge("quota_granted", granted, "template", "window", mode=_LATEST))
        used = (
            f"What is spent of that, by each claim, whether it then started in its slot or not, {window}. {EVERYBODY}"
        )
        self._used = _Sampled(gauge("quota_used", used, "template", "window", mode=_LATEST))
        self._paused = gauge("templates_paused", f"Templates that are paused. {EVERYBODY}", mode=_LATEST)
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


class _Names:
    """Labels without end would fill the memory of whoever scrapes them."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def label(self, name: str) -> str:
        if name in self._known:
            return name
        if len(self._known) >= LABELS_MAX:
            return OTHER
        self._known.add(name)
        return name


class _Sampled:
    """A gauge that shows one sample at a time: what was there before and is no more is `absent`.

    It is not removed: the files that several processes share know no removal.
    """

    def __init__(self, gauge: Gauge, *, absent: float = 0.0) -> None:
        self._gauge = gauge
        self._absent = absent
        self._shown: dict[tuple[str, ...], None] = {}

    def show(self, values: Mapping[tuple[str, ...], float]) -> None:
        self._shown |= dict.fromkeys(values)
        for labels in self._shown:
            self._gauge.labels(*labels).set(values.get(labels, self._absent))
