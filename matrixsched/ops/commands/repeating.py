"""The options that make a rule of repetition, for `schedule` and for the preview of `actions next`."""

from __future__ import annotations

import re
from datetime import date, time
from typing import Annotated, Any

from matrixsched.errors import WrongUse
from matrixsched.ops.commands.toolkit import text_option
from matrixsched.ops.reading import read_duration, read_time
from matrixsched.rules.crontab import Repeated, Skipped
from matrixsched.rules.exclusions import Daily, Exclusion, Period
from matrixsched.rules.schedule import Misfire, Repeat, catch_up, cron, every

EveryOption = Annotated[str | None, text_option("DURATION", "Repeat at this interval, as in 1h.")]
CronOption = Annotated[str | None, text_option("CRON", 'Repeat by the calendar, as in "0 9 * * *".')]
ZoneOption = Annotated[str | None, text_option("ZONE", "Whose clocks count, as in Europe/Berlin; default: UTC.")]
SkippedOption = Annotated[
    Skipped | None, text_option("WORD", "Local times that clocks skip: shift them behind the gap, or skip.")
]
RepeatedOption = Annotated[
    Repeated | None, text_option("WORD", "Local times that clocks show twice: run once, both times, or skip.")
]
MisfireOption = Annotated[
    str | None,
    text_option(
        "WORD", "Runs missed while nothing ran: once (late), skip, or catch-up:N for the N newest; default: once."
    ),
]
JitterOption = Annotated[str | None, text_option("DURATION", "Start each run up to this much later, by chance.")]
ExcludeOption = Annotated[
    list[str] | None,
    text_option(
        "WHEN", "No runs then: a date (2026-12-25), a daily window (22:00-06:00), or START/END as times; repeatable."
    ),
]


def read_repeat(
    interval: str | None,
    expression: str | None,
    zone: str | None,
    skipped: Skipped | None,
    repeated: Repeated | None,
    misfire: str | None,
    jitter: str | None,
    exclude: list[str] | None,
) -> Repeat | None:
    """The rule that the options make; None if they make none."""
    if interval is not None and expression is not None:
        raise WrongUse("--every and --cron are both given: choose one")
    if expression is None and (skipped or repeated):
        raise WrongUse("--skipped and --repeated are about local times: they go with --cron")
    rest: dict[str, Any] = {
        name: value
        for name, value in (
            ("zone", zone),
            ("misfire", None if misfire is None else _misfire(misfire)),
            ("jitter", None if jitter is None else read_duration("--jitter", jitter)),
            ("exclude", [_exclusion(text) for text in exclude or ()] or None),
        )
        if value is not None
    }
    if expression is not None:
        return cron(expression, skipped=skipped, repeated=repeated, **rest)
    if interval is not None:
        return every(read_duration("--every", interval, zero=False), **rest)
    if rest:
        raise WrongUse(f"--{next(iter(rest))} goes with --every or --cron")
    return None


def _misfire(text: str) -> Misfire:
    match text.partition(":"):
        case ("once" | "skip") as word, "", "":
            return word
        case "catch-up", ":", number if number.isdecimal():
            return catch_up(int(number))
    raise WrongUse(f"--misfire is {text!r:.80}, but must be once, skip or catch-up:N")


_DAILY = re.compile(r"(\d\d:\d\d(?::\d\d)?)-(\d\d:\d\d(?::\d\d)?)")


def _exclusion(text: str) -> Exclusion:
    try:
        if daily := _DAILY.fullmatch(text):
            return Daily(*(time.fromisoformat(part) for part in daily.groups()))
        if "/" in text:
            start, end = (read_time("--exclude", part) for part in text.split("/"))
            return Period(start, end)
        return date.fromisoformat(text)
    except ValueError as error:
        if isinstance(error, WrongUse):
            raise
        raise WrongUse(
            f"--exclude is {text!r:.80}, but must be a date (2026-12-25), a daily window (22:00-06:00) or two times "
            "(2026-12-24T12:00Z/2026-12-27T06:00Z)"
        ) from None
