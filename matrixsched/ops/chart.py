"""A chart for the terminal: a line for each name, a bar for each hour, as high as its share of the line's highest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from rich.cells import cell_len, set_cell_size
from rich.text import Text

BLOCKS = "▁▂▃▄▅▆▇█"
PLAIN = ".:-=+*#@"
"""For streams whose encoding has no blocks."""
NAME_MAX = 30
BAR_MAX = 3
"""How many cells wide a bar is at most."""
_GAP = "  "


def chart(counts: Mapping[str, Sequence[int]], begins: datetime, *, width: int, is_unicode: bool) -> list[Text]:
    """The counts of each hour since `begins`. Where a line has no room for all of them, several hours are one bar."""
    hours = max(map(len, counts.values()))
    names = min(NAME_MAX, max(len("UTC"), *map(cell_len, counts)))
    peaks = {name: f"{max(per_hour):,}" for name, per_hour in counts.items()}
    numbers = max(len(_PEAK), *map(len, peaks.values()))
    room = max(1, width - names - numbers - 2 * len(_GAP))
    together = -(-hours // room)
    bars = -(-hours // together)
    thick = max(1, min(BAR_MAX, room // bars))
    axis = _axis(begins, bars, timedelta(hours=together), thick)
    lines = [Text(f"{_fit('UTC', names)}{_GAP}{axis}{_GAP}{_PEAK:>{numbers}}", style="bold")]
    for name, per_hour in counts.items():
        heights = [max(per_hour[first : first + together]) for first in range(0, hours, together)]
        drawn = "".join(_bar(height, max(per_hour), is_unicode) * thick for height in heights)
        line = Text(f"{_fit(name, names)}{_GAP}").append(drawn, style="cyan")
        lines.append(line.append(f"{_GAP}{peaks[name]:>{numbers}}"))
    return lines


_PEAK = "PEAK/H"


def _fit(name: str, cells: int) -> str:
    return name if cell_len(name) == cells else set_cell_size(name, cells)


def _bar(height: int, highest: int, is_unicode: bool) -> str:
    """What is more than nothing can be seen, however little it is."""
    if not height:
        return " "
    steps = BLOCKS if is_unicode else PLAIN
    return steps[-(-height * len(steps) // highest) - 1]


def _axis(begins: datetime, bars: int, step: timedelta, thick: int) -> str:
    """The hours of the day under which bars stand, as many as have room."""
    axis = [" "] * (bars * thick)
    free = 0
    for bar in range(bars):
        label = f"{begins + bar * step:%H}"
        place = bar * thick
        if place >= free and place + len(label) <= len(axis):
            axis[place : place + len(label)] = label
            free = place + len(label) + 1
    return "".join(axis)
