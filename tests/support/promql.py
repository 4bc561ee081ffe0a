"""What an expression of Prometheus's reads: metrics, and labels of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry

from matrixsched import App
from matrixsched.observe import Metrics

OF_THE_SCRAPE = frozenset({"job", "instance"})
"""Labels that Prometheus gives to everything."""
_METRIC = re.compile(r"\b((?:matrixsched[_:]|queue_)[a-z_:]+)(?:\{([^}]*)\})?")
_MATCHER = re.compile(r"""(\w+)\s*(=~|!~|!=|=)\s*["']([^"']*)["']""")
_CLAUSE = re.compile(r"\b(?:by|on|without|ignoring|group_left|group_right)\s*\(([^)]*)\)")


def real_metrics() -> Mapping[str, frozenset[str]]:
    """The labels of every sample that can be scraped, by its name."""
    registry = CollectorRegistry()
    Metrics(App("sqlite:///never-opened.db"), registry=registry)
    return {
        name: frozenset(getattr(collector, "_labelnames", ())) | ({"le"} if name.endswith("_bucket") else set())
        for name, collector in registry._names_to_collectors.items()
        if not name.endswith("_created")
    }


@dataclass(frozen=True)
class Selector:
    metric: str
    matchers: tuple[tuple[str, str, str], ...]
    """Label, operator, value."""

    @property
    def values(self) -> set[tuple[str, str]]:
        """Values of labels that it names, each by itself."""
        return {(label, one) for label, _, value in self.matchers for one in value.split("|")}


def selectors(expression: str) -> list[Selector]:
    # What stands between parentheses after `by` and the like are labels, some of which are named like our metrics.
    plain = _CLAUSE.sub(" ", expression)
    return [Selector(name, tuple(_MATCHER.findall(inside or ""))) for name, inside in _METRIC.findall(plain)]


def clause_labels(expression: str) -> set[str]:
    """Labels by which it sums up or joins."""
    return {label.strip() for inside in _CLAUSE.findall(expression) for label in inside.split(",") if label.strip()}


def faults(expression: str, recorded: Mapping[str, frozenset[str]] | None = None) -> list[str]:
    """What it reads that nobody tells; `recorded` are series that other rules make."""
    known = {**real_metrics(), **(recorded or {})}
    read = selectors(expression)
    found = [f"no metric {one.metric}" for one in read if one.metric not in known]
    for one in read:
        labels = known.get(one.metric, frozenset()) | OF_THE_SCRAPE
        found += [f"{one.metric} has no label {label}" for label, _, _ in one.matchers if label not in labels]
    all_labels = OF_THE_SCRAPE.union(*(known.get(one.metric, frozenset()) for one in read))
    found += [f"nothing has the label {label}" for label in sorted(clause_labels(expression) - all_labels)]
    return found if read else [*found, "it reads nothing of ours"]
