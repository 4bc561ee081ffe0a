"""Time zones as stretches of constant offset to UTC, in which local time is plain arithmetic.

Everything odd about local time happens where two stretches meet: the offset grows and local times are skipped (a gap),
or it shrinks and local times come twice (a fold). The offsets are asked of zoneinfo, so an update of its data counts
from the next start of the process.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import lru_cache
from itertools import pairwise
from zoneinfo import ZoneInfo, available_timezones

from matrixsched.errors import UnknownZone, shown
from matrixsched.rules.times import TIME_MAX

NEAR = timedelta(days=2)
"""How far from a stretch a change may lie and still skip or repeat some of its local times: whole days were skipped."""
_STEP = timedelta(days=2)
"""Shorter than the time between any two changes of a zone since 1970: nearly a week."""
_SECOND = timedelta(seconds=1)
_MACHINES_OWN = {"localtime", "posixrules"}
"""Found on many machines, and another zone on each."""
_MACHINES_COPIES = ("posix/", "right/")
"""Found on some machines: all zones once more, in `right` by clocks that count leap seconds, half a minute off."""


@dataclass(frozen=True, slots=True)
class Change:
    """The instant at which a zone goes from one offset to another."""

    at: datetime
    before: timedelta
    after: timedelta

    @property
    def is_gap(self) -> bool:
        return self.after > self.before

    @property
    def is_fold(self) -> bool:
        return self.after < self.before


@dataclass(frozen=True, slots=True)
class Stretch:
    """Time from `begins` up to `ends` with one offset, at most a year of it.

    `entered` and `left` are the last change up to its beginning and the first from its end on, where they are near.
    """

    begins: datetime
    ends: datetime
    offset: timedelta
    entered: Change | None
    left: Change | None


def check_zone(zone: object) -> str:
    """The name itself if it is an IANA time zone that is known here."""
    if not isinstance(zone, str):
        raise UnknownZone(shown(zone), ())
    _zone(zone)
    return zone


@lru_cache(maxsize=1024)
def _zone(name: str) -> ZoneInfo:
    if name not in _MACHINES_OWN and not name.startswith(_MACHINES_COPIES):
        try:
            return ZoneInfo(name)
        except (KeyError, ValueError, OSError):  # not found, not a name, a folder of zones
            pass
    known = _known_zones()
    raise UnknownZone(name, [known[close] for close in get_close_matches(name.lower(), known)])


@lru_cache(maxsize=1)
def _known_zones() -> dict[str, str]:
    """By their names in small letters. Read from the disk, so only for whoever misspelt one."""
    return {zone.lower(): zone for zone in sorted(available_timezones() - _MACHINES_OWN)}


def stretches(zone: str, moment: datetime) -> Iterator[Stretch]:
    """From the stretch that holds `moment` on, up to the last time that can be scheduled."""
    for year in range(moment.year, TIME_MAX.year):
        for stretch in _stretches(zone, year):
            if moment < stretch.ends:
                yield stretch


def local_of(moment: datetime, offset: timedelta) -> datetime:
    """What clocks show, without a zone."""
    return (moment + offset).replace(tzinfo=None)


def instant_of(local: datetime, offset: timedelta) -> datetime:
    return local.replace(tzinfo=UTC) - offset


@lru_cache(maxsize=4096)
def _stretches(zone: str, year: int) -> tuple[Stretch, ...]:
    first, last = datetime(year, 1, 1, tzinfo=UTC), datetime(year + 1, 1, 1, tzinfo=UTC)
    changes = list(_changes(_zone(zone), first - NEAR, last + NEAR))
    borders = [first, *(change.at for change in changes if first < change.at < last), last]
    return tuple(
        Stretch(
            begins,
            ends,
            _offset(_zone(zone), begins),
            entered=next((change for change in reversed(changes) if begins - NEAR < change.at <= begins), None),
            left=next((change for change in changes if ends <= change.at < ends + NEAR), None),
        )
        for begins, ends in pairwise(borders)
    )


def _changes(zone: ZoneInfo, since: datetime, until: datetime) -> Iterator[Change]:
    moment, before = since, _offset(zone, since)
    while moment < until:
        step = min(moment + _STEP, until)
        after = _offset(zone, step)
        if after != before:
            yield Change(_first_with(after, zone, moment, step), before, after)
        moment, before = step, after


def _first_with(offset: timedelta, zone: ZoneInfo, before: datetime, at: datetime) -> datetime:
    """The second from which on the zone has the offset that it has `at` a time, but not `before`."""
    while at - before > _SECOND:
        middle = before + (at - before) // _SECOND // 2 * _SECOND
        if _offset(zone, middle) == offset:
            at = middle
        else:
            before = middle
    return at


def _offset(zone: ZoneInfo, moment: datetime) -> timedelta:
    offset = moment.astimezone(zone).utcoffset()
    assert offset is not None
    return offset
