"""When an action runs again: rules that are stored, instants that follow from them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal

from matrixsched.errors import InvalidTime
from matrixsched.rules.times import check_duration, check_time

INTERVAL_MIN = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Every:
    """A repetition by interval; made by `every()`.

    On the grid (the default) ticks lie at `anchor + n * interval` and never drift; ticks that were missed while
    nothing ran are made up for once. After the end, the next tick comes one interval after the last run ended.
    """

    interval: timedelta
    anchor: datetime | None = None
    after_end: bool = False


Repeat = Every


def every(interval: timedelta, *, anchor: datetime | None = None, after_end: bool = False) -> Every:
    """Repeat at a fixed interval, on a grid through `anchor`, or counted from the end of the last run."""
    check_duration("interval", interval, zero=False)
    if interval < INTERVAL_MIN:
        raise InvalidTime("interval", "is shorter than a millisecond")
    if after_end and anchor is not None:
        raise InvalidTime("anchor", "has no meaning with after_end=True: choose one")
    return Every(interval, None if anchor is None else check_time("anchor", anchor), after_end)


def begin(repeat: Repeat, start: datetime) -> tuple[Repeat, datetime]:
    """The repetition as it is stored, and its first tick, when it begins at `start`.

    A grid without an anchor gets its first tick as anchor, so that it stays the same grid whatever is moved later.
    """
    if repeat.after_end:
        return repeat, start
    if repeat.anchor is None:
        return replace(repeat, anchor=start), start
    return repeat, grid_point(repeat.anchor, repeat.interval, start, side="at_or_after")


def next_tick(repeat: Repeat, tick_at: datetime, ended_at: datetime) -> datetime:
    """The tick after the one at `tick_at` whose run ended at `ended_at`.

    Never at or before `tick_at`, whatever the clock did meanwhile: a tick is not repeated.
    """
    latest = max(tick_at, ended_at)
    if repeat.after_end or repeat.anchor is None:
        return latest + repeat.interval
    return grid_point(repeat.anchor, repeat.interval, latest, side="after")


def grid_point(
    anchor: datetime, interval: timedelta, moment: datetime, *, side: Literal["after", "at_or_after"]
) -> datetime:
    """The first point of the grid `anchor + n * interval` after (or at) `moment`; n may be negative."""
    steps, rest = divmod(moment - anchor, interval)
    if rest or side == "after":
        steps += 1
    return anchor + steps * interval
