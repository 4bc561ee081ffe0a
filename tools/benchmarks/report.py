"""Figures of all rounds, their medians and ratios: as a table and as JSON."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.measuring import Measured, Unit, has_uvloop, shown
from benchmarks.workloads import Ratio, Workload
from matrixsched.store.statements import Dialect

Figured = tuple[str, Dialect, str]
"""Workload, database and figure."""


@dataclass
class Series:
    """One figure over all rounds."""

    workload: str
    database: Dialect
    figure: str
    unit: Unit
    compared_to: Ratio | None
    values: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.values)


@dataclass
class Report:
    scale: str
    shards: int
    rounds: int
    machine: dict[str, Any] = field(
        default_factory=lambda: {
            "cpus": os.cpu_count(),
            "system": platform.system(),
            "python": platform.python_version(),
            "uvloop": has_uvloop(),
        }
    )
    violations: list[str] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    """Workloads of other libraries that could not be measured, and why."""
    _series: dict[Figured, Series] = field(default_factory=dict)

    def add(self, workload: Workload, database: Dialect, measured: Measured) -> None:
        for figure in measured.figures:
            key = (workload.name, database, figure.name)
            fresh = Series(*key, figure.unit, workload.compared_to)
            self._series.setdefault(key, fresh).values.append(figure.value)
        self.violations += [f"{workload.name} on {database}: {violation}" for violation in measured.violations]

    @property
    def caveat(self) -> str:
        """What must be known of a run that is only a look."""
        if self.scale != "full":
            return f"Scale {self.scale}: there is less of everything than names say. This is a look, no verdict."
        return "One round: a spread of a third between rounds is usual." if self.rounds == 1 else ""

    def cut_to(self, rounds: int) -> None:
        """Forget what a round measured that did not come to its end."""
        self.rounds = rounds
        for series in self._series.values():
            del series.values[rounds:]

    def leave_out(self, workload: Workload, why: str) -> None:
        """Forget its figures, too: medians of some rounds compare with nothing."""
        self.left_out[workload.name] = why
        self._series = {key: series for key, series in self._series.items() if key[0] != workload.name}

    def median(self, figured: Figured) -> float | None:
        """None if it was not measured."""
        return self._series[figured].median if figured in self._series else None

    def times(self, figured: Figured, other: Figured) -> float | None:
        """The median of the ratios of each round: a slow minute of the machine slows both sides of it."""
        if figured not in self._series or other not in self._series:
            return None
        values, others = self._series[figured].values, self._series[other].values
        if len(values) != len(others):
            return None
        return statistics.median(value / other for value, other in zip(values, others, strict=True))

    def ratio(self, series: Series) -> float | None:
        if series.compared_to is None:
            return None
        base = (series.compared_to.workload, series.database, series.compared_to.figure)
        return self.times((series.workload, series.database, series.figure), base)

    def as_json(self) -> dict[str, Any]:
        return {
            "scale": self.scale,
            "shards": self.shards,
            "rounds": self.rounds,
            "machine": self.machine,
            "figures": list(self._figures()),
            "violations": self.violations,
            "left_out": self.left_out,
        }

    def _figures(self) -> Iterator[dict[str, Any]]:
        for series in self._series.values():
            ratio = self.ratio(series)
            yield {
                "workload": series.workload,
                "database": series.database,
                "figure": series.figure,
                "unit": series.unit,
                "median": series.median,
                "min": min(series.values),
                "max": max(series.values),
                "values": series.values,
                "ratio": ratio,
                "ratio_to": _name(series.compared_to) if ratio is not None else None,
            }

    def show(self, console: Console) -> None:
        table = Table(title=f"matrixsched, scale {self.scale}, {self.shards} shards, medians of {self.rounds} rounds")
        for heading in ("workload", "database", "figure"):
            table.add_column(heading, no_wrap=True)
        for heading in ("median", "spread", "ratio"):
            table.add_column(heading, justify="right", no_wrap=True)
        table.add_column("to", no_wrap=True)
        for series in self._series.values():
            ratio = self.ratio(series)
            table.add_row(
                series.workload,
                series.database,
                series.figure,
                shown(series.median, series.unit),
                f"{shown(min(series.values), series.unit)} – {shown(max(series.values), series.unit)}",
                "" if ratio is None else f"{ratio:.2f}",
                "" if ratio is None else _name(series.compared_to),
            )
        console.print(table)


def _name(ratio: Ratio | None) -> str:
    return "" if ratio is None else f"{ratio.workload} {ratio.figure}"
