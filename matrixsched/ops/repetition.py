"""Parts of rules of repetition as people write them: what of them rests, and what becomes of runs that were missed."""

from __future__ import annotations

import re
from datetime import date, time

from matrixsched.errors import WrongUse
from matrixsched.ops.reading import read_time
from matrixsched.rules.exclusions import Daily, Exclusion, Period
from matrixsched.rules.schedule import CatchUp, Misfire, catch_up

DIGITS_MAX = 20
_DAILY = re.compile(r"(\d\d:\d\d(?::\d\d)?)-(\d\d:\d\d(?::\d\d)?)")


def read_misfire(option: str, text: str) -> Misfire:
    match text.partition(":"):
        case ("once" | "skip") as word, "", "":
            return word
        case "catch-up", ":", number if number.isdecimal() and len(number) <= DIGITS_MAX:
            return catch_up(int(number))
    raise WrongUse(f"{option} is {text!r:.80}, but must be once, skip or catch-up:N")


def misfire_text(misfire: Misfire) -> str:
    """As it is read again."""
    return f"catch-up:{misfire.limit}" if isinstance(misfire, CatchUp) else misfire


def read_exclusion(option: str, text: str) -> Exclusion:
    try:
        if daily := _DAILY.fullmatch(text):
            return Daily(*(time.fromisoformat(part) for part in daily.groups()))
        if "/" in text:
            start, end = (read_time(option, part) for part in text.split("/"))
            return Period(start, end)
        return date.fromisoformat(text)
    except ValueError as error:
        if isinstance(error, WrongUse):
            raise
        raise WrongUse(
            f"{option} is {text!r:.80}, but must be a date (2026-12-25), a daily window (22:00-06:00) or two times "
            "(2026-12-24T12:00Z/2026-12-27T06:00Z)"
        ) from None


def exclusion_text(exclusion: Exclusion) -> str:
    """As it is read again."""
    match exclusion:
        case Daily(start, end):
            return f"{start.isoformat()}-{end.isoformat()}"
        case Period(start, end):
            return f"{start.isoformat()}/{end.isoformat()}"
    return exclusion.isoformat()
