"""When a repetition rests: whole days, daily hours, or a period between two instants."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta

from matrixsched.errors import BadInput, InvalidTime
from matrixsched.rules.times import check_time
from matrixsched.rules.zones import Stretch, instant_of, local_of, stretches

EXCLUSIONS_MAX = 1000
_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Period:
    """From one instant up to another, which is no longer part of it."""

    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        object.__setattr__(self, "start", check_time("Period.start", self.start))
        object.__setattr__(self, "end", check_time("Period.end", self.end))
        if self.start >= self.end:
            raise InvalidTime("Period.end", "is not after its start")


@dataclass(frozen=True, slots=True)
class Daily:
    """Each day from one local time up to another, which is no longer part of it; past midnight if that is earlier."""

    start: time
    end: time

    def __post_init__(self) -> None:
        for name, at in (("Daily.start", self.start), ("Daily.end", self.end)):
            if not isinstance(at, time):
                raise BadInput(f"{name} must be a time of day such as time(22, 30), not {type(at).__name__}")
            if at.tzinfo is not None:
                raise BadInput(f"{name} has a time zone of its own; the repetition's zone counts")
        if self.start == self.end:
            raise BadInput("Daily.start and Daily.end are the same time, which excludes nothing or everything")

    def end_after(self, local: datetime) -> datetime | None:
        """When the window that holds this local time ends; None if none does."""
        clock, today = local.time(), datetime.combine(local, self.end)
        if self.start < self.end:
            return today if self.start <= clock < self.end else None
        if clock >= self.start:
            return today + _DAY
        return today if clock < self.end else None


Exclusion = date | Period | Daily


def check_exclusions(exclude: Iterable[Exclusion]) -> tuple[Exclusion, ...]:
    """The exclusions, each once."""
    if isinstance(exclude, str | date | Period | Daily) or not isinstance(exclude, Iterable):
        raise BadInput(f"exclude must be a list of dates, Periods and Dailys, not {type(exclude).__name__}")
    exclusions = tuple(dict.fromkeys(_check_exclusion(exclusion) for exclusion in exclude))
    if len(exclusions) > EXCLUSIONS_MAX:
        raise BadInput(f"exclude holds {len(exclusions)} entries, {EXCLUSIONS_MAX} are allowed")
    return exclusions


def _check_exclusion(exclusion: object) -> Exclusion:
    if isinstance(exclusion, datetime):
        raise BadInput("exclude holds a datetime: pass a date for a whole day, or a Period(start, end)")
    if isinstance(exclusion, date | Period | Daily):
        return exclusion
    raise BadInput(f"exclude takes dates, Periods and Dailys, not {type(exclusion).__name__}")


def excluded_until(exclude: tuple[Exclusion, ...], zone: str, moment: datetime) -> datetime | None:
    """The instant up to which `moment` is excluded, or None if it is not; later than `moment` in any case.

    Another exclusion, or the other side of a change of offset, may go on from there: ask again.
    """
    if not exclude:
        return None
    stretch = next(stretches(zone, moment), None)
    if stretch is None:
        return None
    local = local_of(moment, stretch.offset)
    # Days are compared all at once: there may be many, and this is asked for every tick.
    today = [local.date()] if local.date() in exclude else []
    windows = [exclusion for exclusion in exclude if not isinstance(exclusion, date)]
    ends = [end for exclusion in today + windows if (end := _end(exclusion, moment, local, stretch)) is not None]
    return max(ends, default=None)


def _end(exclusion: Exclusion, moment: datetime, local: datetime, stretch: Stretch) -> datetime | None:
    if isinstance(exclusion, Period):
        return exclusion.end if exclusion.start <= moment < exclusion.end else None
    end = exclusion.end_after(local) if isinstance(exclusion, Daily) else datetime.combine(exclusion + _DAY, time())
    return None if end is None else min(instant_of(end, stretch.offset), stretch.ends)
