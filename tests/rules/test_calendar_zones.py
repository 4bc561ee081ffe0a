"""Every change of every zone from 2000 to 2100, against what zoneinfo itself says of each local time."""

from __future__ import annotations

import struct
from bisect import bisect
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.resources import files
from itertools import pairwise, product, takewhile
from zoneinfo import ZoneInfo, available_timezones

import pytest

from matrixsched.rules.crontab import Repeated, Skipped, instants
from matrixsched.rules.zones import NEAR, Change, stretches

YEARS = range(2000, 2100)
PARTS = 4
HALF_HOUR = timedelta(minutes=30)
POLICIES = list(product(("shift", "skip"), ("once", "both", "skip")))
ZONES = sorted(available_timezones() - {"localtime"})


@dataclass(frozen=True)
class Listed:
    """What the data of a zone says, read from its binary form (RFC 8536)."""

    times: tuple[int, ...]
    """When its offset changed, in seconds since 1970, as far as that is listed one by one."""
    offsets: tuple[int, ...]
    """To which offset, in seconds."""
    rule: bytes
    """For all the time after that."""

    def since(self, moment: datetime) -> Listed:
        """The same without what was before, but for the last offset before."""
        first = bisect(self.times, moment.timestamp())
        return Listed(self.times[first:], self.offsets[max(first - 1, 0) :], self.rule)


@cache
def listed(zone: str) -> Listed:
    data = files("tzdata.zoneinfo").joinpath(zone).read_bytes()
    in_utc, standard, leaps, times, types, letters = struct.unpack(">6l", data[20:44])
    data = data[44 + times * 5 + types * 6 + letters + leaps * 8 + standard + in_utc :]  # again, in 64 bits
    in_utc, standard, leaps, times, types, letters = struct.unpack(">6l", data[20:44])
    moments, kinds = struct.unpack(f">{times}q", data[44 : 44 + 8 * times]), data[44 + 8 * times : 44 + 9 * times]
    offsets = [offset for offset, _, _ in struct.iter_unpack(">l?b", data[44 + 9 * times :][: 6 * types])]
    return Listed(moments, tuple(offsets[kind] for kind in kinds), data.split(b"\n")[-2])


def zones_with_changes() -> list[str]:
    """One of each group of zones whose clocks have shown the same since 2000 and always will."""
    alike = {listed(zone).since(datetime(YEARS[0], 1, 1, tzinfo=UTC)): zone for zone in ZONES}
    return sorted(zone for data, zone in alike.items() if data.times or b"," in data.rule)


def changes(zone: str) -> list[Change]:
    """As the rules see them."""
    since, until = datetime(YEARS[0], 1, 1, tzinfo=UTC), datetime(YEARS[-1] + 1, 1, 1, tzinfo=UTC)
    found = takewhile(lambda stretch: stretch.begins < until, stretches(zone, since))
    return [stretch.entered for stretch in found if stretch.entered and stretch.entered.at == stretch.begins]


def expected(zone: ZoneInfo, local: datetime, skipped: Skipped, repeated: Repeated) -> Iterator[datetime]:
    """At which instants a local time runs, by the rules of zoneinfo for `fold` alone."""
    first, second = (local.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    if first == second:
        yield first
    elif first < second:
        yield from {"once": [first], "both": [first, second], "skip": []}[repeated]
    elif skipped == "shift":
        early, late = second, first  # between them the clocks jump over this local time
        while late - early > timedelta(seconds=1):
            middle = early + (late - early) // timedelta(seconds=1) // 2 * timedelta(seconds=1)
            if middle.astimezone(zone).replace(tzinfo=None) > local:
                late = middle
            else:
                early = middle
        yield late


@pytest.mark.parametrize("part", range(PARTS))
def test_every_skipped_or_repeated_local_time_of_every_zone_runs_as_the_policy_says(part):
    checked = 0
    for zone in zones_with_changes()[part::PARTS]:
        there = ZoneInfo(zone)
        for number, change in enumerate(changes(zone)):
            skipped, repeated = POLICIES[number // 2 % len(POLICIES)]  # every other change is a gap
            margin = abs(change.after - change.before) + HALF_HOUR
            since, until = change.at - margin, change.at + margin
            local, last = (moment.astimezone(there).replace(tzinfo=None) for moment in (since, until))
            local = min(local, last).replace(minute=0, second=0) - margin
            wanted = set()
            while local <= last + margin:
                wanted.update(expected(there, local, skipped, repeated))
                local += HALF_HOUR
            found = instants("0,30 * * * *", zone, skipped=skipped, repeated=repeated, after=since)
            named = list(takewhile(lambda tick, until=until: tick <= until, found))
            assert named == sorted(tick for tick in wanted if since < tick <= until), (zone, change, skipped, repeated)
            checked += 1
    assert checked > 2000


@pytest.mark.parametrize("zone", ["Europe/Berlin", "Australia/Lord_Howe", "Africa/Casablanca", "Pacific/Apia"])
def test_a_change_that_zoneinfo_makes_is_found_to_the_second(zone):
    there = ZoneInfo(zone)
    for change in changes(zone):
        just_before = change.at - timedelta(microseconds=1)
        assert just_before.astimezone(there).utcoffset() == change.before
        assert change.at.astimezone(there).utcoffset() == change.after


def test_changes_lie_further_apart_than_the_steps_in_which_they_are_looked_for():
    moments = {zone: [moment for moment in listed(zone).times if moment > 0] for zone in ZONES}
    apart = [later - earlier for found in moments.values() for earlier, later in pairwise(found)]
    assert len(apart) > 10_000
    assert min(apart) > 2 * NEAR.total_seconds()
