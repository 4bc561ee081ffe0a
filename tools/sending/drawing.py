"""The run as a picture: sent in each interval, and of each template minute by minute, against what was granted.

Colours come from a style sheet inside the picture, so that it can be read on a light page and on a dark one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from html import escape
from math import ceil

from sending.judging import Run
from sending.minutes import Minute

WIDTH, LEFT, RIGHT = 960, 64, 16
FIRST_TOP, SECOND_TOP, PANEL = 84, 396, 220
HEIGHT = SECOND_TOP + PANEL + 44
FILLED = 0.86
"""How much of its place a bar takes."""
KINDS = ("inside", "outside", "uniform")
SHADES = ("#cde2fb", "#b0d0f7", "#90bbf0", "#70a7ea", "#4f92e3", "#357fd8", "#2468bb", "#184f95")
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #52514e } .title { font-size: 15px; fill: #0b0b0b }
rect { stroke: #fcfcfb; stroke-width: .7 } .ground { fill: #fcfcfb } .grid { stroke: #e1e0d9 }
.granted { stroke: #0b0b0b; stroke-width: 2; fill: none }
.most { stroke: #898781; stroke-width: 1.5; stroke-dasharray: 5 4 } .kill { stroke: #d03b3b; stroke-width: 1.5 }
.killed { fill: #d03b3b } .inside { fill: #2a78d6 } .outside { fill: #eda100 } .uniform { fill: #1baf7a }
@media (prefers-color-scheme: dark) {
text { fill: #c3c2b7 } .title { fill: #ffffff } rect { stroke: #1a1a19 } .ground { fill: #1a1a19 }
.grid { stroke: #383835 }
.granted { stroke: #ffffff } .kill { stroke: #e66767 } .killed { fill: #e66767 }
.inside { fill: #3987e5 } .outside { fill: #c98500 } .uniform { fill: #199e70 } }
"""


def draw(run: Run, minutes: Sequence[Minute]) -> str:
    shades = "".join(f".m{number} {{ fill: {shade} }}" for number, shade in enumerate(_shades(len(minutes))))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}">',
        f"<style>{STYLE}{shades}</style>",
        f'<rect class="ground" width="{WIDTH}" height="{HEIGHT}"/>',
        *_intervals(run),
        *_templates(run, minutes),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _shades(count: int) -> list[str]:
    return [SHADES[number * (len(SHADES) - 1) // max(1, count - 1)] for number in range(count)]


# Sent in each interval.


def _intervals(run: Run) -> Iterator[str]:
    windows = run.windows
    most = max([1, *(window.max_to_send for window in windows)])
    panel = _Panel(FIRST_TOP, most * 1.08, len(windows))
    seconds = f"{run.interval.total_seconds():g} s"
    yield _text(LEFT, 24, f"Sent in each interval of {seconds}, against what the formula granted", "title")
    yield from _legend(most)
    yield from panel.grid([0, most // 2, most])
    for number, sent in enumerate(_sent_by_kind(run)):
        yield from panel.bar(number, [(kind, sent[kind]) for kind in KINDS])
    yield panel.steps([window.granted for window in windows])
    yield panel.level(most)
    per_minute = max(1, round(60 / run.interval.total_seconds()))
    for number in range(0, len(windows), per_minute):
        yield _text(panel.x(number), FIRST_TOP + PANEL + 18, f"{number // per_minute} min")
    for at in run.killed.values():
        yield from _kill(run, panel, at)


def _legend(most: int) -> Iterator[str]:
    x = float(LEFT)
    labels = {
        "inside": "at the recipient's best time",
        "outside": "at another time",
        "uniform": "of templates without one",
    }
    for kind, label in labels.items():
        yield f'<rect class="{kind}" x="{x:g}" y="40" width="11" height="11"/>'
        yield _text(x + 16, 50, label)
        x += 28 + 6.2 * len(label)
    yield f'<path class="granted" d="M{x:g} 46h18"/>' + _text(x + 23, 50, "granted")
    x += 80
    yield f'<path class="most" d="M{x:g} 46h18"/>' + _text(x + 23, 50, f"MaxSendSpeed × interval: {most:,}")


def _sent_by_kind(run: Run) -> list[Counter[str]]:
    """Of each interval, how many were started of each kind."""
    sent: list[Counter[str]] = [Counter() for _ in run.windows]
    for id, notes in run.account.begun_at.items():
        cell = run.letters[id].cell
        for begun, _ in notes:
            number = run.window_at(begun)
            if number >= 0:
                is_uniform = not run.campaigns[cell.template].hours
                kind = "inside" if run.is_inside(cell, run.windows[number]) else "outside"
                sent[number]["uniform" if is_uniform else kind] += 1
    return sent


def _kill(run: Run, panel: _Panel, at: float) -> Iterator[str]:
    for number, window in enumerate(run.windows):
        if window.begins.timestamp() <= at < window.ends.timestamp():
            x = panel.x(number + FILLED * (at - window.begins.timestamp()) / run.interval.total_seconds())
            yield f'<path class="kill" d="M{x:.1f} {FIRST_TOP - 8}V{FIRST_TOP + PANEL}"/>'
            yield _text(x + 4, FIRST_TOP - 4, "✗ a worker is killed", "killed")


# Sent of each template.


def _templates(run: Run, minutes: Sequence[Minute]) -> Iterator[str]:
    names = list(run.campaigns)
    granted = [sum(minute.granted[name] for minute in minutes) for name in names]
    most = _round_up(max([1, *granted]))
    panel = _Panel(SECOND_TOP, most, len(names))
    yield _text(
        LEFT, SECOND_TOP - 36, "Sent of each template, minute by minute, against what it was granted in all", "title"
    )
    x = float(LEFT)
    for number, minute in enumerate(minutes):
        yield f'<rect class="m{number}" x="{x:g}" y="{SECOND_TOP - 24}" width="11" height="11"/>'
        yield _text(x + 16, SECOND_TOP - 14, minute.name)
        x += 32 + 6.2 * len(minute.name)
    yield f'<path class="granted" d="M{x:g} {SECOND_TOP - 18}h18"/>'
    yield _text(x + 23, SECOND_TOP - 14, "granted")
    yield from panel.grid([0, most // 2, most])
    for number, name in enumerate(names):
        yield from panel.bar(number, [(f"m{shade}", minute.started[name]) for shade, minute in enumerate(minutes)])
        yield panel.mark(number, granted[number])
        if number % max(1, len(names) // 10) == 0:
            yield _text(panel.x(number), SECOND_TOP + PANEL + 18, name.removeprefix("campaign-"))
    yield _text(
        LEFT, SECOND_TOP + PANEL + 36, "number of the template; what an interval leaves unused is granted again"
    )


def _round_up(count: int) -> int:
    step = 10 ** max(0, len(str(count)) - 2)
    return max(2, ceil(count / step) * step)


class _Panel:
    """Bars side by side over a ground line."""

    def __init__(self, top: float, most: float, count: int) -> None:
        self._ground = top + PANEL
        self._step = (WIDTH - LEFT - RIGHT) / max(1, count)
        self._scale = PANEL / most

    def x(self, number: float) -> float:
        return LEFT + number * self._step

    def y(self, count: float) -> float:
        return self._ground - count * self._scale

    def grid(self, counts: Sequence[int]) -> Iterator[str]:
        for count in counts:
            yield f'<path class="grid" d="M{LEFT} {self.y(count):.1f}H{WIDTH - RIGHT}"/>'
            yield _text(LEFT - 8, self.y(count) + 4, f"{count:,}", anchor="end")

    def bar(self, number: int, parts: Sequence[tuple[str, int]]) -> Iterator[str]:
        below = 0
        for style, count in parts:
            if count:
                below += count
                yield (
                    f'<rect class="{style}" x="{self.x(number):.1f}" y="{self.y(below):.1f}" '
                    f'width="{self._step * FILLED:.1f}" height="{count * self._scale:.1f}"/>'
                )

    def steps(self, counts: Sequence[int]) -> str:
        moves = [f"{self.y(count):.1f}H{self.x(number + 1):.1f}" for number, count in enumerate(counts)]
        return f'<path class="granted" d="M{LEFT} {"V".join(moves)}"/>' if moves else ""

    def mark(self, number: int, count: int) -> str:
        return (
            f'<path class="granted" d="M{self.x(number) - 1:.1f} {self.y(count):.1f}h{self._step * FILLED + 2:.1f}"/>'
        )

    def level(self, count: int) -> str:
        return f'<path class="most" d="M{LEFT} {self.y(count):.1f}H{WIDTH - RIGHT}"/>'


def _text(x: float, y: float, text: str, style: str = "", *, anchor: str = "") -> str:
    more = (f' class="{style}"' if style else "") + (f' text-anchor="{anchor}"' if anchor else "")
    return f'<text x="{x:.1f}" y="{y:.1f}"{more}>{escape(text, quote=False)}</text>'
