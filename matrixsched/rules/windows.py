"""Windows: the parts of the recipient's day in which the messages of a template have priority.

A window is meant in local time, from its beginning up to, not including, its end: 08:00-12:00. One whose end lies
before its beginning goes over midnight: 22:00-06:00. Whether an instant is inside is asked of the clock on the
recipient's wall, and of nothing else: where a change of the clock skips an hour of a window, the window is shorter on
that day, and where an hour comes twice, both are inside. In a zone that this machine does not know, because its data
are older than the zone, it is never known to be the right time: then messages go as those outside do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, time, timedelta
from typing import TYPE_CHECKING

from matrixsched.errors import InvalidWindow, UnknownZone
from matrixsched.rules.templates import Distribution, SendWindow, Template
from matrixsched.rules.zones import instant_of, local_of, stretches

if TYPE_CHECKING:
    from matrixsched.rules.quota import QuotaSettings

WINDOWS_MAX = 24

_DAY = timedelta(days=1)
_TIME = r"(\d{1,2})(?::(\d{2}))?"
_TEXT = re.compile(rf"\s*{_TIME}\s*[-–]\s*{_TIME}\s*", re.ASCII)


def parse_window(text: str) -> SendWindow:
    """The window that was written: 08:00-12:00, 8-12, 18:00-24:00, or 22:00-06:00 over midnight."""
    found = _TEXT.fullmatch(text)
    if found is None:
        raise InvalidWindow(text, "it must be two times of the day with a dash between them")
    begin_hour, begin_minute, end_hour, end_minute = (int(part or 0) for part in found.groups())
    if (begin_hour, begin_minute, end_hour, end_minute) == (0, 0, 24, 0):
        raise InvalidWindow(text, "it is the whole day, for which there is the distribution uniform")
    if (end_hour, end_minute) == (24, 0):
        end_hour = 0
    try:
        window = SendWindow(time(begin_hour, begin_minute), time(end_hour, end_minute))
    except ValueError:
        raise InvalidWindow(text, "its times go from 00:00 to 23:59, and it may end at 24:00") from None
    return _check_ends(window, text)


def window_text(window: SendWindow) -> str:
    """A window as it is read again: 08:00-12:00."""
    return f"{window.begins:%H:%M}-{window.ends:%H:%M}"


def check_window(window: object) -> SendWindow:
    """The window that was given, or written as text."""
    if isinstance(window, str):
        return parse_window(window)
    if not isinstance(window, SendWindow):
        raise InvalidWindow(window, "it must be text such as 08:00-12:00, or a SendWindow")
    for edge in (window.begins, window.ends):
        if not isinstance(edge, time) or edge.tzinfo is not None:
            raise InvalidWindow(edge, "its ends must be times of the day without a zone: it is the recipient's")
        if edge.second or edge.microsecond:
            raise InvalidWindow(edge, "its ends must be whole minutes")
    return _check_ends(window, window_text(window))


def _check_ends(window: SendWindow, written: str) -> SendWindow:
    if window.begins == window.ends:
        raise InvalidWindow(written, "it ends when it begins; for the whole day use the distribution uniform")
    return window


def check_windows(windows: object) -> tuple[SendWindow, ...]:
    """The windows that were given, or written as text; they may overlap."""
    if isinstance(windows, str) or not isinstance(windows, Iterable):
        raise InvalidWindow(windows, "pass a list of windows")
    checked = tuple(map(check_window, windows))
    if not checked:
        raise InvalidWindow((), "there must be at least one")
    if len(checked) > WINDOWS_MAX:
        raise InvalidWindow(f"{len(checked)} windows", f"at most {WINDOWS_MAX} are allowed")
    return checked


def windows_of(template: Template, settings: QuotaSettings) -> tuple[SendWindow, ...]:
    """The windows in which the messages of a template have priority; none where no time is better than others."""
    match template.distribution:
        case Distribution.UNIFORM:
            return ()
        case Distribution.MORNING:
            return (settings.morning,)
        case Distribution.DAY:
            return (settings.day,)
        case Distribution.EVENING:
            return (settings.evening,)
        case Distribution.OWN:
            return template.windows


def is_inside(windows: Sequence[SendWindow], zone: str, at: datetime) -> bool:
    """Whether clocks in the zone then show a time inside one of the windows."""
    moment = at.astimezone(UTC)
    try:
        here = next(stretches(zone, moment))
    except UnknownZone:
        return False
    return _covers(windows, local_of(moment, here.offset).time())


def next_change(windows: Sequence[SendWindow], zone: str, after: datetime) -> datetime | None:
    """The first instant after `after` from which on the answer of `is_inside` is another; None: it never is."""
    try:
        return _next_change(windows, zone, after.astimezone(UTC))
    except UnknownZone:
        return None


def _next_change(windows: Sequence[SendWindow], zone: str, moment: datetime) -> datetime | None:
    inside = is_inside(windows, zone, moment)
    edges = sorted({edge for window in windows for edge in (window.begins, window.ends)})
    changing = [edge for edge in edges if _covers(windows, edge) != inside]
    if not changing:
        return None
    for stretch in stretches(zone, moment):
        begins = max(stretch.begins, moment)
        local = local_of(begins, stretch.offset)
        if _covers(windows, local.time()) != inside:
            return begins  # a change of the clock leapt over the edge
        change = instant_of(_next_of(changing, local), stretch.offset)
        if change < stretch.ends:
            return change
    return None


def _covers(windows: Sequence[SendWindow], clock: time) -> bool:
    return any(
        window.begins <= clock < window.ends
        if window.begins < window.ends
        else clock >= window.begins or clock < window.ends
        for window in windows
    )


def _next_of(clocks: Sequence[time], local: datetime) -> datetime:
    """The first local time after `local` at which clocks show one of the times given."""
    today = (datetime.combine(local, clock) for clock in clocks)
    later = [moment for moment in today if moment > local]
    return min(later) if later else datetime.combine(local.date() + _DAY, min(clocks))
