"""Charts of the last hour as geometry; the templates draw it as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, log10

from matrixsched.ops.web.pages.words import clock_text, late_text
from matrixsched.rules.minutes import LATE_BOUNDS_S, FleetMinute

WIDTH = 420
HEIGHT = 140
LEFT = 44
RIGHT = 4
TOP = 8
BOTTOM = 20
INNER_WIDTH = WIDTH - LEFT - RIGHT
INNER_HEIGHT = HEIGHT - TOP - BOTTOM
FLOOR = HEIGHT - BOTTOM


@dataclass(frozen=True, slots=True)
class Bar:
    x: float
    y: float
    width: float
    height: float
    kind: str


@dataclass(frozen=True, slots=True)
class Mark:
    """A line of the grid with its name."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Line:
    path: str
    kind: str


@dataclass(frozen=True, slots=True)
class Spot:
    """A minute, as it is told where the pointer is."""

    x: float
    width: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    title: str
    says: str
    """What it shows, for those who do not see it."""
    rows: Sequence[Mark]
    columns: Sequence[Mark]
    spots: Sequence[Spot]
    bars: Sequence[Bar] = ()
    lines: Sequence[Line] = ()
    legend: Sequence[tuple[str, str]] = ()
    """Kind and name."""


def attempts_chart(minutes: Sequence[FleetMinute]) -> Chart:
    most = nice(max((minute.attempts for minute in minutes), default=0))
    bars = []
    for number, minute in enumerate(minutes):
        wrong, well = minute.went_wrong, minute.attempts - minute.went_wrong
        if well:
            bars.append(_bar(number, len(minutes), wrong / most, well / most, "well"))
        if wrong:
            bars.append(_bar(number, len(minutes), 0, wrong / most, "wrong"))
    total, failed = sum(one.attempts for one in minutes), sum(one.went_wrong for one in minutes)
    return Chart(
        title="Attempts per minute",
        says=f"{total:,} attempts in the last hour, {failed:,} went wrong",
        rows=_rows(most),
        columns=_columns(minutes),
        spots=_spots(
            minutes, [f"{one.attempts - one.went_wrong:,} went well, {one.went_wrong:,} wrong" for one in minutes]
        ),
        bars=bars,
        legend=(("well", "went well"), ("wrong", "went wrong")),
    )


def due_chart(minutes: Sequence[FleetMinute]) -> Chart:
    most = nice(max((minute.due or 0 for minute in minutes), default=0))
    known = [minute.due for minute in minutes if minute.due is not None]
    return Chart(
        title="Due and waiting",
        says=f"at most {max(known):,} were due in the last hour" if known else "no worker told how many were due",
        rows=_rows(most),
        columns=_columns(minutes),
        spots=_spots(minutes, ["not told" if one.due is None else f"{one.due:,} due" for one in minutes]),
        bars=[
            _bar(number, len(minutes), 0, minute.due / most, "due")
            for number, minute in enumerate(minutes)
            if minute.due
        ],
    )


def late_chart(minutes: Sequence[FleetMinute]) -> Chart:
    """On a scale on which each step is ten times the one before: a millisecond matters as much as an hour."""
    half = [minute.late_s(0.5) for minute in minutes]
    most = [minute.late_s(0.99) for minute in minutes]
    worst = max((late for late in most if late is not None), default=None)
    return Chart(
        title="How late attempts began",
        says=f"99 of 100 began within {late_text(worst).removeprefix('≤ ')} at worst" if worst else "no attempts",
        rows=[Mark(_late_y(bound), text) for bound, text in _LATE_ROWS],
        columns=_columns(minutes),
        spots=_spots(
            minutes,
            [f"half {late_text(one)}, 99 of 100 {late_text(other)}" for one, other in zip(half, most, strict=True)],
        ),
        lines=[Line(_path(most), "p99"), Line(_path(half), "p50")],
        legend=(("p50", "half"), ("p99", "99 of 100")),
    )


_LATE_ROWS = ((0.001, "1 ms"), (0.1, "100 ms"), (10, "10 s"), (1800, "30 min"))


def nice(most: float) -> int:
    """The end of a scale that holds it: 1, 2 or 5 with zeros."""
    if most <= 4:
        return 4
    size: int = 10 ** int(log10(most))
    return next(size * step for step in (1, 2, 5, 10) if size * step >= most)


def _rows(most: int) -> list[Mark]:
    return [Mark(_round(FLOOR - INNER_HEIGHT * part), short(most * part)) for part in (0, 0.5, 1)]


def short(count: float) -> str:
    """A count in a narrow place: 12k, 1.5M."""
    for size, unit in ((1_000_000, "M"), (1_000, "k")):
        if count >= size:
            return f"{count / size:.3g}{unit}"
    return f"{ceil(count)}"


def _columns(minutes: Sequence[FleetMinute]) -> list[Mark]:
    """Every quarter of an hour."""
    return [
        Mark(_x(number + 0.5, len(minutes)), clock_text(minute.minute))
        for number, minute in enumerate(minutes)
        if minute.minute.minute % 15 == 0 and 2 <= number <= len(minutes) - 3  # else its text would not fit
    ]


def _spots(minutes: Sequence[FleetMinute], texts: Sequence[str]) -> list[Spot]:
    width = _round(INNER_WIDTH / max(len(minutes), 1))
    return [
        Spot(_x(number, len(minutes)), width, f"{clock_text(minute.minute)}: {text}")
        for number, (minute, text) in enumerate(zip(minutes, texts, strict=True))
    ]


def _bar(number: int, count: int, begins: float, share: float, kind: str) -> Bar:
    height = max(INNER_HEIGHT * share, 1.0)  # what is there is seen
    y = FLOOR - INNER_HEIGHT * begins - height
    return Bar(_x(number, count) + 0.5, _round(max(y, TOP)), _round(INNER_WIDTH / count - 1), _round(height), kind)


def _x(number: float, count: int) -> float:
    return _round(LEFT + INNER_WIDTH * number / max(count, 1))


_LEAST, _MOST = log10(LATE_BOUNDS_S[0]), log10(LATE_BOUNDS_S[-1])


def _late_y(late_s: float) -> float:
    exponent = _MOST if late_s == float("inf") else min(max(log10(late_s), _LEAST), _MOST)
    return _round(FLOOR - INNER_HEIGHT * (exponent - _LEAST) / (_MOST - _LEAST))


def _path(late: Sequence[float | None]) -> str:
    """A step for each minute; where nothing began there is a gap."""
    parts, is_drawing = [], False
    for number, one in enumerate(late):
        if one is None:
            is_drawing = False
            continue
        begins, ends, y = _x(number, len(late)), _x(number + 1, len(late)), _late_y(one)
        parts.append(f"{'L' if is_drawing else 'M'}{begins} {y}L{ends} {y}")
        is_drawing = True
    return "".join(parts)


def _round(value: float) -> float:
    return round(value, 1)


# The hours of a day.


@dataclass(frozen=True, slots=True)
class Band:
    """A zone's day as UTC shows it: where the windows lie, on a scale of 24 hours."""

    zone: str
    says: str
    parts: Sequence[tuple[float, float]]
    """Beginning and width, in hours."""
