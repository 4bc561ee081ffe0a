"""The options that make a rule of repetition, for `schedule` and for the preview of `actions next`."""

from __future__ import annotations

from typing import Annotated, Any

from matrixsched.errors import WrongUse
from matrixsched.ops.commands.toolkit import text_option
from matrixsched.ops.reading import read_duration
from matrixsched.ops.repetition import read_exclusion, read_misfire
from matrixsched.rules.crontab import Repeated, Skipped
from matrixsched.rules.schedule import Repeat, cron, every

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
            ("misfire", None if misfire is None else read_misfire("--misfire", misfire)),
            ("jitter", None if jitter is None else read_duration("--jitter", jitter)),
            ("exclude", [read_exclusion("--exclude", text) for text in exclude or ()] or None),
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
