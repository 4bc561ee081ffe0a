"""A run as a picture: ours, the floors and the peers, side by side in groups that compare.

Colours come from a style sheet inside the picture, so that it can be read on a light page and on a dark one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

from benchmarks.measuring import Unit, shown
from benchmarks.report import Figured, Report
from matrixsched.store.statements import Dialect

Kind = Literal["ours", "floor", "peer"]

WIDTH, LEFT, BARS, RIGHT = 960, 16, 330, 200
"""Of the picture; where names begin, and bars; and what is kept free for their figures."""
ROW, BAR, HEAD, TOP, BOTTOM = 24, 15, 46, 62, 20
LEGEND: tuple[tuple[Kind, str], ...] = (
    ("ours", "matrixsched"),
    ("floor", "the same statements without the library"),
    ("peer", "other libraries"),
)
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #52514e } .title { font-size: 15px; fill: #0b0b0b }
.head { font-weight: 600; fill: #0b0b0b } .ground { fill: #fcfcfb } .axis { stroke: #e1e0d9 }
.ours { fill: #2a78d6 } .floor { fill: #d4d2c9; stroke: #898781 } .peer { fill: #eda100 }
@media (prefers-color-scheme: dark) {
text { fill: #c3c2b7 } .title, .head { fill: #ffffff } .ground { fill: #1a1a19 } .axis { stroke: #383835 }
.ours { fill: #3987e5 } .floor { fill: #44433f; stroke: #898781 } .peer { fill: #c98500 } }
"""


@dataclass(frozen=True)
class Bar:
    name: str
    workload: str
    figure: str = "rate"
    kind: Kind = "ours"


@dataclass(frozen=True)
class Group:
    title: str
    bars: Sequence[Bar]
    """The first one is ours: the others say how many times theirs it is."""
    unit: Unit = "/s"
    database: Dialect = "postgresql"

    def of(self, bar: Bar) -> Figured:
        return bar.workload, self.database, bar.figure


def peer(name: str, workload: str, figure: str = "rate") -> Bar:
    return Bar(name, workload, figure, kind="peer")


GROUPS = (
    Group(
        "Calls, 32 at once, each durable",
        (
            Bar("schedule", "schedule-32"),
            peer("pg-boss", "pgboss-enqueue-32"),
            peer("PgQueuer", "pgqueuer-enqueue-32"),
            peer("Procrastinate", "procrastinate-enqueue-32"),
            peer("graphile-worker", "graphile-enqueue-32"),
            peer("awa", "awa-enqueue-32"),
        ),
    ),
    Group(
        "In batches of 1,000",
        (
            Bar("schedule_many", "schedule-many"),
            Bar("bare statements", "floor", "schedule", "floor"),
            peer("pg-boss", "pgboss-bulk"),
            peer("PgQueuer", "pgqueuer-bulk"),
        ),
    ),
    Group(
        "Drained by one process",
        (
            Bar("actions", "drain"),
            Bar("… moved before", "drain-staged"),
            Bar("… beside 100,000 future ones", "drain-future-100k"),
            Bar("… beside 1,000,000 future ones", "drain-future"),
            Bar("… beside 10,000,000 future ones", "drain-future-10m"),
            Bar("bare statements", "floor", "drain", "floor"),
            peer("PgQueuer", "pgqueuer-drain"),
            peer("awa", "awa-drain"),
            peer("Procrastinate", "procrastinate-drain"),
        ),
    ),
    Group("Drained by two processes", (Bar("actions", "drain-2"), peer("PgQueuer", "pgqueuer-drain-2"))),
    Group(
        "Jobs in batches, drained by one process",
        (
            Bar("typed queue", "queue-drain"),
            Bar("… beside 1,000,000 delayed tasks", "queue-future"),
            Bar("bare UPDATE and DELETE", "queue-floor", kind="floor"),
            peer("graphile-worker", "graphile-drain"),
            peer("pg-boss", "pgboss-drain"),
        ),
    ),
    Group(
        "From the call to the handler, median (shorter is better)",
        (
            Bar("schedule", "latency", "p50"),
            Bar("bare statements", "latency-floor", "p50", "floor"),
            peer("PgQueuer", "pgqueuer-latency", "p50"),
        ),
        unit="ms",
    ),
    Group(
        "Lateness of timers, median (shorter is better)",
        (
            Bar("actions", "lateness", "p50"),
            Bar("bare statements", "lateness-floor", "p50", "floor"),
            peer("PgQueuer", "pgqueuer-lateness", "p50"),
        ),
        unit="ms",
    ),
    Group(
        "SQLite: calls, 32 at once, each durable",
        (Bar("schedule", "schedule-32"), peer("Huey", "huey-enqueue-32")),
        database="sqlite",
    ),
    Group(
        "SQLite: drained by one process",
        (
            Bar("actions", "drain"),
            Bar("… moved before", "drain-staged"),
            Bar("… beside 1,000,000 future ones", "drain-future"),
            peer("Huey", "huey-drain"),
        ),
        database="sqlite",
    ),
)


def draw(report: Report) -> str:
    body, height = [], float(TOP)
    for group in GROUPS:
        bars = [bar for bar in group.bars if report.median(group.of(bar)) is not None]
        if group.bars[0] in bars:
            body += _group(report, group, bars, height)
            height += HEAD + ROW * len(bars)
    if report.caveat:
        body.append(_text(LEFT, height + ROW, report.caveat))
        height += ROW
    height += BOTTOM
    size = f'viewBox="0 0 {WIDTH} {height:g}" width="{WIDTH}" height="{height:g}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size}>',
        f"<style>{STYLE}</style>",
        f'<rect class="ground" width="{WIDTH}" height="{height:g}"/>',
        *_head(report),
        *body,
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _head(report: Report) -> Iterator[str]:
    rounds = "one round" if report.rounds == 1 else f"medians of {report.rounds} rounds"
    yield _text(LEFT, 26, f"Measured in one run, {rounds}; × says how many times that figure ours is", "title")
    x = float(LEFT)
    for kind, label in LEGEND:
        yield f'<rect class="{kind}" x="{x:g}" y="40" width="12" height="12"/>' + _text(x + 18, 51, label)
        x += 44 + 6.8 * len(label)


def _group(report: Report, group: Group, bars: Sequence[Bar], top: float) -> Iterator[str]:
    medians = [report.median(group.of(bar)) or 0.0 for bar in bars]
    scale = (WIDTH - BARS - RIGHT) / (max(medians) or 1.0)
    yield _text(LEFT, top + HEAD - 14, group.title, "head")
    yield f'<path class="axis" d="M{BARS} {top + HEAD - 4:g}v{ROW * len(bars):g}"/>'
    for number, (bar, median) in enumerate(zip(bars, medians, strict=True)):
        y = top + HEAD + ROW * number
        yield _text(BARS - 10, y + 12, bar.name, anchor="end")
        yield f'<rect class="{bar.kind}" x="{BARS}" y="{y:g}" width="{max(1.0, median * scale):.1f}" height="{BAR}"/>'
        yield _text(BARS + max(1.0, median * scale) + 8, y + 12, _figure(report, group, bar, median))


def _figure(report: Report, group: Group, bar: Bar, median: float) -> str:
    """The figure, and how many times it the first one of the group is."""
    times = report.times(group.of(group.bars[0]), group.of(bar)) if bar.kind != "ours" else None
    return shown(median, group.unit) + (f" · {times:.2f} ×" if times is not None else "")


def _text(x: float, y: float, text: str, style: str = "", *, anchor: str = "") -> str:
    more = (f' class="{style}"' if style else "") + (f' text-anchor="{anchor}"' if anchor else "")
    return f'<text x="{x:.1f}" y="{y:.1f}"{more}>{escape(text, quote=False)}</text>'
