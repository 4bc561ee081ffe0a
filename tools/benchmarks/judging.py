"""What a run says about figures to reach: a gate that must hold, and an aim beyond it."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

from rich.console import Console
from rich.table import Table

from benchmarks.measuring import Unit, shown
from benchmarks.report import Figured, Report
from matrixsched.store.statements import Dialect

Sign = Literal["≥", ">", "≤"]
HOLDS = {"≥": operator.ge, ">": operator.gt, "≤": operator.le}


class Verdict(StrEnum):
    BELOW = "below gate"
    GATE = "gate"
    AIM = "aim"
    UNKNOWN = "not measured"


STYLES = {Verdict.BELOW: "red", Verdict.GATE: "yellow", Verdict.AIM: "green", Verdict.UNKNOWN: "dim"}


@dataclass(frozen=True)
class Absolute:
    """A figure as it is."""

    workload: str
    figure: str
    unit: Unit
    name: str = ""
    database: Dialect = "postgresql"

    def value(self, report: Report) -> float | None:
        return report.median((self.workload, self.database, self.figure))

    def measured_text(self, value: float) -> str:
        return f"{self.name} {shown(value, self.unit)}".strip()

    def bound_text(self, sign: Sign, limit: float) -> str:
        number = f"{limit:,g}" + {"share": "", "/s": "/s"}.get(self.unit, f" {self.unit}")
        return f"{self.name} {sign} {number}".strip()


@dataclass(frozen=True)
class Times:
    """How many times another figure one is; of several others the best counts."""

    figured: tuple[str, str]
    """Workload and figure."""
    others: tuple[tuple[str, str], ...]
    name: str
    """What the other is."""
    database: Dialect = "postgresql"

    def value(self, report: Report) -> float | None:
        medians = {other: median for other in map(self._of, self.others) if (median := report.median(other))}
        best = max(medians, key=lambda other: medians[other], default=None)
        return None if best is None else report.times(self._of(self.figured), best)

    def measured_text(self, value: float) -> str:
        return f"{value:.2f} × {self.name}"

    def bound_text(self, sign: Sign, limit: float) -> str:
        return f"{sign} {limit:g} × {self.name}"

    def _of(self, figured: tuple[str, str]) -> Figured:
        workload, figure = figured
        return workload, self.database, figure


@dataclass(frozen=True)
class Bound:
    measure: Absolute | Times
    sign: Sign
    limit: float

    @property
    def text(self) -> str:
        return self.measure.bound_text(self.sign, self.limit)

    def holds(self, report: Report) -> bool | None:
        """None if it was not measured."""
        value = self.measure.value(report)
        return None if value is None else bool(HOLDS[self.sign](value, self.limit))


@dataclass(frozen=True)
class Target:
    what: str
    gate: Sequence[Bound]
    aim: Sequence[Bound] = ()

    def measured(self, report: Report) -> list[str]:
        measures = dict.fromkeys(bound.measure for bound in (*self.gate, *self.aim))
        values = {measure: measure.value(report) for measure in measures}
        return [measure.measured_text(value) for measure, value in values.items() if value is not None]

    def verdict(self, report: Report) -> Verdict:
        gate = [bound.holds(report) for bound in self.gate]
        if False in gate:
            return Verdict.BELOW
        if None in gate:
            return Verdict.UNKNOWN
        return Verdict.AIM if self.aim and all(bound.holds(report) for bound in self.aim) else Verdict.GATE


def as_json(targets: Sequence[Target], report: Report) -> list[dict[str, Any]]:
    return [
        {
            "what": target.what,
            "measured": target.measured(report),
            "gate": _texts(target.gate),
            "aim": _texts(target.aim),
            "verdict": target.verdict(report).value,
        }
        for target in _concerned(targets, report)
    ]


def show(targets: Sequence[Target], report: Report, console: Console) -> None:
    table = Table(title="Figures to reach", caption=report.caveat, show_lines=True)
    for heading in ("what", "measured", "gate", "aim", "verdict"):
        table.add_column(heading)
    for target in _concerned(targets, report):
        verdict = target.verdict(report)
        cells = (target.measured(report), _texts(target.gate), _texts(target.aim))
        table.add_row(target.what, *("\n".join(lines) for lines in cells), f"[{STYLES[verdict]}]{verdict}[/]")
    if table.row_count:
        console.print(table)


def _concerned(targets: Sequence[Target], report: Report) -> Iterator[Target]:
    """Those of which this run measured something."""
    return (target for target in targets if target.measured(report))


def _texts(bounds: Sequence[Bound]) -> list[str]:
    return [bound.text for bound in bounds]
