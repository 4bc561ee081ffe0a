"""Rates: so many in a time, as people write them: 10000/min, 5/s, 7/100ms, 1000/day."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta

from matrixsched.errors import InvalidDurationText, InvalidRate
from matrixsched.rules.durations import duration_text, parse_duration

REQUESTS_MAX = 1_000_000_000
PER_MIN = timedelta(milliseconds=1)
PER_MAX = timedelta(days=366)

_NAMES = {"s": "s", "sec": "s", "second": "s", "m": "min", "min": "min", "minute": "min", "h": "h", "hour": "h"}
_NAMES |= {"d": "day", "day": "day"}
_UNITS = {"s": timedelta(seconds=1), "min": timedelta(minutes=1), "h": timedelta(hours=1), "day": timedelta(days=1)}
_TEXT = re.compile(r"\s*(\d{1,100})\s*/\s*(\S.*?)\s*", re.ASCII)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Rate:
    """So many `requests` in the time `per`, evenly."""

    requests: int
    per: timedelta

    def __post_init__(self) -> None:
        if isinstance(self.requests, bool) or not isinstance(self.requests, int):
            raise InvalidRate(self.requests, "the number of requests must be a whole number")
        if not 1 <= self.requests <= REQUESTS_MAX:
            raise InvalidRate(self.requests, f"the number of requests must be between 1 and {REQUESTS_MAX:,}")
        if not isinstance(self.per, timedelta):
            raise InvalidRate(self.per, "the time must be a timedelta")
        if not PER_MIN <= self.per <= PER_MAX:
            raise InvalidRate(self.per, "the time must be between a millisecond and a year")

    @property
    def per_us(self) -> int:
        return self.per // _MICROSECOND

    @property
    def period_ns(self) -> int:
        """The time from one to the next, rounded up: rounding never exceeds a rate, and misses it by a millionth."""
        return -(-self.per_us * 1000 // self.requests)

    @property
    def per_minute(self) -> float:
        return self.requests * (_UNITS["min"] / self.per)

    def __str__(self) -> str:
        for name, unit in _UNITS.items():
            if self.per == unit:
                return f"{self.requests}/{name}"
        return f"{self.requests}/{duration_text(self.per)}"


def check_rate(rate: object) -> Rate:
    """The rate that was given, or written as text."""
    if isinstance(rate, Rate):
        return rate
    if not isinstance(rate, str):
        raise InvalidRate(rate, "it must be text such as 100/min, or a Rate")
    return parse_rate(rate)


def parse_rate(text: str) -> Rate:
    found = _TEXT.fullmatch(text)
    if found is None:
        raise InvalidRate(text, "it must be a whole number above zero, a slash and a time")
    number, per = found.groups()
    try:
        named = _NAMES.get(per.lower())
        return Rate(int(number), parse_duration(per, "rate") if named is None else _UNITS[named])
    except InvalidDurationText:
        raise InvalidRate(text, f"{per!r:.40} is no time") from None
    except InvalidRate as error:
        raise InvalidRate(text, error.why) from None
