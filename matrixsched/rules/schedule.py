"""When an action runs again: rules that are stored, instants that follow from them.

A rule names ticks. They depend on the rule alone, never on when the last one ran: so they do not drift, and whoever
asks again, after a restart or on another machine, gets the same ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice, takewhile
from typing import Literal

from matrixsched.errors import BadInput, InvalidCron, InvalidDuration, NeverRuns, shown
from matrixsched.rules.crontab import Repeated, Skipped, covers_every_hour, instants
from matrixsched.rules.exclusions import Exclusion, check_exclusions, excluded_until
from matrixsched.rules.times import TIME_MAX, check_duration, check_integer, check_time
from matrixsched.rules.zones import check_zone

INTERVAL_MIN = timedelta(milliseconds=1)
CATCH_UP_MAX = 1000
PREVIEW_MAX = 10_000
MISFIRE_GRACE = timedelta(seconds=60)
"""How late a tick may start under misfire="skip" when the call set no start_within."""
EXCLUDED_MAX = 1500
"""After so many exclusions in a row, four years of days, a rule counts as one that never fires again."""
_INSTANT = timedelta(microseconds=1)
_MINUTE = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class CatchUp:
    """Make up for missed ticks, at most for the `limit` newest; made by `catch_up()`."""

    limit: int

    def __post_init__(self) -> None:
        check_integer("catch_up", self.limit, least=1, most=CATCH_UP_MAX)


Misfire = Literal["once", "skip"] | CatchUp


@dataclass(frozen=True, slots=True)
class Every:
    """A repetition by interval; made by `every()`.

    On the grid (the default) ticks lie at `anchor + n * interval` and never drift. After the end, the next tick comes
    one interval after the last run ended.
    """

    interval: timedelta
    anchor: datetime | None = None
    after_end: bool = False
    misfire: Misfire = "once"
    jitter: timedelta = timedelta(0)
    zone: str = "UTC"
    exclude: tuple[Exclusion, ...] = ()

    def __post_init__(self) -> None:
        check_duration("interval", self.interval, zero=False)
        if self.interval < INTERVAL_MIN:
            raise InvalidDuration("interval", "is shorter than a millisecond")
        if not isinstance(self.after_end, bool):
            raise BadInput(f"after_end must be True or False, not {type(self.after_end).__name__}")
        if self.anchor is not None:
            object.__setattr__(self, "anchor", check_time("anchor", self.anchor))
            if self.after_end:
                raise BadInput("anchor has no meaning with after_end=True: choose one")
        if self.after_end and isinstance(self.misfire, CatchUp):
            raise BadInput("catch_up has no meaning with after_end=True, which has no ticks to miss: choose one")
        _check_common(self)


@dataclass(frozen=True, slots=True)
class Cron:
    """A repetition by the calendar; made by `cron()`."""

    expression: str
    zone: str
    skipped: Skipped
    repeated: Repeated
    misfire: Misfire = "once"
    jitter: timedelta = timedelta(0)
    exclude: tuple[Exclusion, ...] = ()

    def __post_init__(self) -> None:
        _check_expression(self.expression)
        if self.skipped not in ("shift", "skip"):
            raise BadInput(f'skipped is {shown(self.skipped)}, but must be "shift" or "skip"')
        if self.repeated not in ("once", "both", "skip"):
            raise BadInput(f'repeated is {shown(self.repeated)}, but must be "once", "both" or "skip"')
        _check_common(self)


Repeat = Every | Cron


def every(
    interval: timedelta,
    *,
    anchor: datetime | None = None,
    after_end: bool = False,
    misfire: Misfire = "once",
    jitter: timedelta = timedelta(0),
    zone: str = "UTC",
    exclude: Iterable[Exclusion] = (),
) -> Every:
    """Repeat at a fixed interval, on a grid through `anchor`, or counted from the end of the last run.

    `zone` is for excluded dates and daily windows; the grid itself knows no zone. The rest is as for `cron`.
    """
    return Every(interval, anchor, after_end, misfire, jitter, zone, check_exclusions(exclude))


def cron(
    expression: str,
    zone: str = "UTC",
    *,
    skipped: Skipped | None = None,
    repeated: Repeated | None = None,
    misfire: Misfire = "once",
    jitter: timedelta = timedelta(0),
    exclude: Iterable[Exclusion] = (),
) -> Cron:
    """Repeat when clocks in `zone` show what a five-field cron expression names.

    A local time that is `skipped` when clocks go forward runs at the first instant after the gap ("shift") or not at
    all ("skip"); one that is `repeated` when they go back runs the first time ("once"), each time ("both") or not at
    all ("skip"). Times of day are shifted and run once, unless told otherwise; an expression for every hour keeps its
    pace instead: "skip" and "both".

    When ticks were missed while nothing ran, `misfire` says: one run makes up for all ("once"); what is more than
    `start_within` late, or a minute, is dropped ("skip"); each is made up for, up to a number (`catch_up(n)`).
    `jitter`: each tick starts up to that much later, by chance, so that many do not start together; ticks that come
    while one still waits for its start are missed. `exclude`: dates, Period(start, end), Daily(start, end) without
    ticks.
    """
    hourly = _check_expression(expression)
    return Cron(
        expression,
        zone,
        ("skip" if hourly else "shift") if skipped is None else skipped,
        ("both" if hourly else "once") if repeated is None else repeated,
        misfire,
        jitter,
        check_exclusions(exclude),
    )


def catch_up(limit: int) -> CatchUp:
    """As `misfire`: run every tick that was missed, one after the other, but at most the `limit` newest."""
    return CatchUp(limit)


def _check_expression(expression: object) -> bool:
    if not isinstance(expression, str):
        raise InvalidCron(shown(expression), f"is no text but {type(expression).__name__}")
    return covers_every_hour(expression)


def _check_common(repeat: Repeat) -> None:
    check_zone(repeat.zone)
    check_duration("jitter", repeat.jitter)
    if repeat.misfire not in ("once", "skip") and not isinstance(repeat.misfire, CatchUp):
        raise BadInput(f'misfire is {shown(repeat.misfire)}, but must be "once", "skip" or catch_up(n)')
    object.__setattr__(repeat, "exclude", check_exclusions(repeat.exclude))


def check_repeat(repeat: object) -> Repeat:
    if not isinstance(repeat, Every | Cron):
        raise BadInput(
            f"repeat must be made by every() or cron(), for example every(timedelta(hours=1)), not {shown(repeat)}"
        )
    return repeat


# What follows from a rule.


def begin(repeat: Repeat, start: datetime) -> tuple[Repeat, datetime]:
    """The repetition as it is stored, and its first tick, when it begins at `start`.

    A grid without an anchor gets its beginning as anchor, so that it stays the same grid whatever is moved later.
    """
    if isinstance(repeat, Every) and repeat.after_end:
        first = _allowed(repeat, start)
    else:
        if isinstance(repeat, Every) and repeat.anchor is None:
            repeat = replace(repeat, anchor=start)
        first = next(ticks(repeat, start - _INSTANT), None)
    if first is None:
        raise NeverRuns(start.isoformat(timespec="seconds"))
    return repeat, first


def next_tick(repeat: Repeat, tick_at: datetime, now: datetime) -> datetime | None:
    """The tick after the one at `tick_at` that ended just now, or None when the rule has none left.

    Never at or before `tick_at`, whatever the clock did meanwhile: a tick is not repeated.
    """
    latest = max(tick_at, now)
    if isinstance(repeat, Every) and repeat.after_end:
        return _allowed(repeat, latest + repeat.interval)
    if isinstance(repeat.misfire, CatchUp):
        return _first_to_make_up(repeat, tick_at, now, repeat.misfire.limit)
    return next(ticks(repeat, latest), None)


def is_misfire(repeat: Repeat, *, tick_at: datetime, due_at: datetime, now: datetime, may_be_late: bool) -> bool:
    """Whether a tick that nobody has begun yet is to be dropped; what was moved by hand is no tick, and runs late.

    `due_at` is the tick with its jitter; `may_be_late` says that the call set a limit of its own for being late.
    """
    if isinstance(repeat.misfire, CatchUp):
        is_late = len(_oldest_missed(repeat, tick_at, now, repeat.misfire.limit)) == repeat.misfire.limit
    else:
        is_late = repeat.misfire == "skip" and not may_be_late and now > due_at + MISFIRE_GRACE
    return is_late and _is_tick(repeat, tick_at)


def _is_tick(repeat: Repeat, moment: datetime) -> bool:
    if isinstance(repeat, Every) and repeat.after_end:
        return True  # any moment can be one
    return next(ticks(repeat, moment - _INSTANT), None) == moment


def upcoming(repeat: Repeat, after: datetime, count: int) -> list[datetime]:
    """A preview: the next `count` ticks after an instant, fewer when the rule ends before; jitter is left out.

    Without an anchor the grid goes through `after`; after_end is shown as if runs took no time.
    """
    check_repeat(repeat)
    check_integer("count", count, least=1, most=PREVIEW_MAX)
    return list(islice(_preview(repeat, check_time("after", after)), count))


def _preview(repeat: Repeat, after: datetime) -> Iterator[datetime]:
    if not (isinstance(repeat, Every) and repeat.after_end):
        yield from ticks(repeat, after)
        return
    moment: datetime | None = after
    while moment is not None and (moment := _allowed(repeat, moment + repeat.interval)) is not None:
        yield moment


def ticks(repeat: Repeat, after: datetime) -> Iterator[datetime]:
    """The ticks after an instant that are not excluded, strictly increasing, up to the last time there is."""
    if isinstance(repeat, Every) and repeat.anchor is None:
        repeat = replace(repeat, anchor=after)
    candidates = _candidates(repeat, after)
    in_a_row = 0
    while in_a_row <= EXCLUDED_MAX and (tick := next(candidates, None)) is not None:
        until = excluded_until(repeat.exclude, repeat.zone, tick)
        if until is None:
            in_a_row = 0
            yield tick
        else:
            in_a_row += 1
            candidates = _candidates(repeat, until - _INSTANT)


def _candidates(repeat: Repeat, after: datetime) -> Iterator[datetime]:
    """The ticks after an instant, excluded ones among them."""
    if isinstance(repeat, Cron):
        yield from instants(
            repeat.expression, repeat.zone, skipped=repeat.skipped, repeated=repeat.repeated, after=after
        )
        return
    assert repeat.anchor is not None
    tick = grid_point(repeat.anchor, repeat.interval, after)
    while tick <= TIME_MAX:
        yield tick
        tick += repeat.interval


def grid_point(anchor: datetime, interval: timedelta, after: datetime) -> datetime:
    """The first point of the grid `anchor + n * interval` after an instant; n may be negative."""
    return anchor + ((after - anchor) // interval + 1) * interval


def _allowed(repeat: Repeat, moment: datetime) -> datetime | None:
    """That moment, or the end of the exclusions that it lies in."""
    for _ in range(EXCLUDED_MAX):
        if moment > TIME_MAX:
            return None
        until = excluded_until(repeat.exclude, repeat.zone, moment)
        if until is None:
            return moment
        moment = until
    return None


def _missed(repeat: Repeat, after: datetime, now: datetime) -> Iterator[datetime]:
    return takewhile(lambda tick: tick <= now, ticks(repeat, after))


def _oldest_missed(repeat: Repeat, after: datetime, now: datetime, count: int) -> list[datetime]:
    """The `count` oldest ticks between the two, or none if there are fewer; no look at a time too short for so many."""
    closest = repeat.interval if isinstance(repeat, Every) else _MINUTE
    if now - after < (count - 1) * closest:
        return []
    missed = list(islice(_missed(repeat, after, now), count))
    return missed if len(missed) == count else []


def _first_to_make_up(repeat: Repeat, tick_at: datetime, now: datetime, limit: int) -> datetime | None:
    """The oldest of the `limit` newest ticks between `tick_at` and now; if there is none, the next one to come.

    Rules know no way back. So where more were missed, a beginning is sought after which there are enough of them, but
    not too many: first as long ago as so many took after `tick_at`, which is right for most rules; then by doubling the
    time and halving what is between.
    """
    oldest = _oldest_missed(repeat, tick_at, now, limit + 1)
    if not oldest:
        return next(ticks(repeat, tick_at), None)
    early, late, since = tick_at, now, max(tick_at, now - (oldest[-1] - oldest[0]))
    while late - early > _INSTANT:
        missed = list(islice(_missed(repeat, since, now), 2 * limit + 1))
        if limit <= len(missed) <= 2 * limit:
            return missed[-limit]
        if len(missed) < limit:
            late = since
        else:
            early = since
        since = max(early + (late - early) / 2, now - 2 * (now - since))
    return next(ticks(repeat, late), None)
