"""Which points in time and durations are accepted, on every database alike."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

from matrixsched.errors import InvalidDuration, InvalidNumber, InvalidTime

TIME_MIN = datetime(1970, 1, 1, tzinfo=UTC)
TIME_MAX = datetime(2200, 1, 1, tzinfo=UTC)
DURATION_MAX = timedelta(days=3653)
"""Ten years: longer delays are almost always a slip of units."""


def check_time(argument: str, at: object) -> datetime:
    """The same instant in UTC."""
    if not isinstance(at, datetime):
        raise InvalidTime(argument, f"must be a datetime, not {type(at).__name__}")
    if at.tzinfo is None or at.utcoffset() is None:
        raise InvalidTime(argument, "has no time zone")
    try:
        moment = at.astimezone(UTC)
    except OverflowError:
        raise InvalidTime(argument, "lies outside of what can be computed") from None
    if not TIME_MIN <= moment <= TIME_MAX:
        raise InvalidTime(argument, f"lies in the year {moment.year}")
    return moment


def check_duration(argument: str, duration: object, *, zero: bool = True) -> timedelta:
    """The duration itself if it is neither negative nor absurd; `zero` says whether nothing at all is allowed."""
    if not isinstance(duration, timedelta):
        raise InvalidDuration(argument, f"must be a timedelta, not {type(duration).__name__}")
    if duration < timedelta(0):
        raise InvalidDuration(argument, f"is negative ({duration.total_seconds()} s)")
    if not zero and not duration:
        raise InvalidDuration(argument, "is zero")
    if duration > DURATION_MAX:
        raise InvalidDuration(argument, f"is longer than ten years ({duration.days} days)")
    return duration


def check_number(argument: str, value: object, *, least: float, most: float) -> float:
    """The number itself if it is finite and within bounds."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidNumber(argument, value, "must be a number")
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidNumber(argument, value, "must be finite")
    if not least <= value <= most:
        raise InvalidNumber(argument, value, f"must be between {least} and {most}")
    return value


def check_integer(argument: str, value: object, *, least: int, most: int) -> int:
    """The integer itself if it is within bounds."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidNumber(argument, value, "must be a whole number")
    if not least <= value <= most:
        raise InvalidNumber(argument, value, f"must be between {least} and {most}")
    return value
