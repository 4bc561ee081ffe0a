"""Cron expressions: which local times they name, and at which instants those come in a zone.

The parser is cronsim, asked only about local time without a zone; what becomes of local times that are skipped or come
twice is decided here.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Literal

from cronsim import CronSim, CronSimError

from matrixsched.errors import InvalidCron
from matrixsched.rules.zones import NEAR, Change, instant_of, local_of, stretches

Skipped = Literal["shift", "skip"]
Repeated = Literal["once", "both", "skip"]

EXPRESSION_CHARACTERS_MAX = 500
_SOMETIME = datetime(2000, 1, 1, tzinfo=UTC).replace(tzinfo=None)
_INSTANT = timedelta(microseconds=1)


@lru_cache(maxsize=1024)
def covers_every_hour(expression: str) -> bool:
    """Whether the expression names minutes of every hour rather than times of day; refuses what names nothing."""
    if len(expression) > EXPRESSION_CHARACTERS_MAX:
        raise InvalidCron(expression, f"has {len(expression)} characters, {EXPRESSION_CHARACTERS_MAX} are allowed")
    fields = expression.split()
    if len(fields) != 5:
        seconds = "; there is none for seconds" if len(fields) == 6 else ""
        raise InvalidCron(expression, f"has {len(fields)} fields instead of five{seconds}")
    try:
        parsed = CronSim(expression, _SOMETIME)
        next(parsed)
    except StopIteration:
        raise InvalidCron(expression, "never fires: no date fits all of its fields") from None
    except CronSimError as error:
        raise InvalidCron(expression, _why(fields, error)) from None
    return len(parsed.hours) == 24


def _why(fields: list[str], error: CronSimError) -> str:
    """What is wrong with it: if day and month can be read one without the other, they do not go together."""
    minute, hour, day, month, weekday = fields
    try:
        CronSim(" ".join([minute, hour, day, "*", weekday]), _SOMETIME)
        CronSim(" ".join([minute, hour, "*", month, weekday]), _SOMETIME)
    except CronSimError:
        return f"cannot be read ({error})"
    return "never fires: its months have no such day"


def instants(
    expression: str, zone: str, *, skipped: Skipped, repeated: Repeated, after: datetime
) -> Iterator[datetime]:
    """The instants after `after` at which clocks in that zone show what the expression names; strictly increasing."""
    ahead = stretches(zone, after)
    while (stretch := next(ahead, None)) is not None:
        since = max(local_of(after, stretch.offset), local_of(stretch.begins, stretch.offset) - _INSTANT)
        until = local_of(stretch.ends, stretch.offset)
        if (entered := stretch.entered) is not None:
            if entered.is_fold and repeated != "both":
                since = max(since, local_of(entered.at, entered.before) - _INSTANT)
            if skipped == "shift" and after < stretch.begins == entered.at and _names_skipped(expression, entered):
                yield stretch.begins
                since += _INSTANT  # what is named for this very instant is the same tick
        if (left := stretch.left) is not None and left.is_fold and repeated == "skip":
            until = min(until, local_of(left.at, left.after))
        local = until
        for local in CronSim(expression, since):
            if local >= until:
                break
            yield instant_of(local, stretch.offset)
        if local > until + 2 * NEAR:
            # Nothing is named up to there in any offset, so whatever changes until then does not matter.
            after = instant_of(local, timedelta(0)) - NEAR
            ahead = stretches(zone, after)


def _names_skipped(expression: str, change: Change) -> bool:
    """Whether a local time that the change skips is named."""
    first, end = local_of(change.at, change.before), local_of(change.at, change.after)
    return first < end and next(CronSim(expression, first - _INSTANT), end) < end
