"""Windows of the recipient's day, against what the clocks of zoneinfo show."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from matrixsched.errors import InvalidWindow
from matrixsched.rules.quota import QuotaSettings
from matrixsched.rules.templates import Distribution, SendWindow, Template
from matrixsched.rules.windows import (
    WINDOWS_MAX,
    check_window,
    check_windows,
    is_inside,
    next_change,
    parse_window,
    window_text,
    windows_of,
)

MINUTE = timedelta(minutes=1)
CHANGING = ["Europe/Berlin", "America/New_York", "Australia/Sydney", "Australia/Lord_Howe", "America/Santiago"]
QUARTERS = ["Asia/Kathmandu", "Australia/Eucla", "Pacific/Chatham"]


def windows(*texts: str) -> tuple[SendWindow, ...]:
    return check_windows(texts)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


# How they are written.


@pytest.mark.parametrize(
    ("text", "begins", "ends"),
    [
        ("08:00-12:00", time(8), time(12)),
        ("8-12", time(8), time(12)),
        (" 8:30 – 12:05 ", time(8, 30), time(12, 5)),
        ("22:00-06:00", time(22), time(6)),
        ("18:00-24:00", time(18), time(0)),
        ("00:00-00:01", time(0), time(0, 1)),
    ],
)
def test_windows_are_read_as_people_write_them(text: str, begins: time, ends: time) -> None:
    assert parse_window(text) == SendWindow(begins, ends)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "two times of the day"),
        ("08:00", "two times of the day"),
        ("morning", "two times of the day"),
        ("08:00-12:00-14:00", "two times of the day"),
        ("8:0-12:00", "two times of the day"),
        ("-08:00-12:00", "two times of the day"),
        ("٠٨:٠٠-١٢:٠٠", "two times of the day"),
        ("25:00-26:00", "from 00:00 to 23:59"),
        ("24:00-08:00", "from 00:00 to 23:59, and it may end at 24:00"),
        ("08:00-24:30", "from 00:00 to 23:59"),
        ("08:60-12:00", "from 00:00 to 23:59"),
        ("08:00-08:00", "it ends when it begins"),
        ("8-8", "it ends when it begins"),
        ("00:00-24:00", "it is the whole day, for which there is the distribution uniform"),
        ("0-24", "it is the whole day"),
    ],
)
def test_what_is_no_window_is_told_how_to_write_one(text: str, why: str) -> None:
    with pytest.raises(InvalidWindow, match=why) as raised:
        parse_window(text)
    assert f"the window {text!r} cannot be used" in str(raised.value), "it is shown as it was written"
    assert "08:00-12:00, or 22:00-06:00 over midnight" in str(raised.value)


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        ("08:00", "12:00"),
        SendWindow(time(8), time(12, 0, 30)),
        SendWindow(time(8, tzinfo=UTC), time(12)),
        SendWindow(8, 12),  # type: ignore[arg-type]
    ],
)
def test_windows_made_by_hand_are_checked_as_well(wrong: object) -> None:
    with pytest.raises(InvalidWindow):
        check_window(wrong)


@pytest.mark.parametrize("wrong", [(), "08:00-12:00", ["08:00-12:00"] * (WINDOWS_MAX + 1), ["08:00-12:00", "noon"]])
def test_a_list_of_windows_has_one_to_a_few(wrong: object) -> None:
    with pytest.raises(InvalidWindow):
        check_windows(wrong)


times_of_day = st.integers(0, 24 * 60 - 1).map(lambda minute: time(*divmod(minute, 60)))
any_window = st.builds(SendWindow, times_of_day, times_of_day).filter(lambda window: window.begins != window.ends)


@given(any_window)
def test_a_window_is_written_so_that_it_is_read_as_the_same(window: SendWindow) -> None:
    assert parse_window(window_text(window)) == window


# Which windows a template has.


@pytest.mark.parametrize(
    ("distribution", "texts"),
    [
        (Distribution.UNIFORM, []),
        (Distribution.MORNING, ["08:00-12:00"]),
        (Distribution.DAY, ["12:00-18:00"]),
        (Distribution.EVENING, ["18:00-22:00"]),
        (Distribution.OWN, ["06:00-07:00", "20:00-21:00"]),
    ],
)
def test_a_template_has_the_windows_of_its_distribution(distribution: Distribution, texts: list[str]) -> None:
    own = windows("06:00-07:00", "20:00-21:00") if distribution is Distribution.OWN else ()
    template = Template(name="promo", distribution=distribution, windows=own)
    assert [window_text(window) for window in windows_of(template, QuotaSettings())] == texts


def test_the_morning_is_when_the_settings_say() -> None:
    late = QuotaSettings(morning=parse_window("10:00-13:00"))
    assert windows_of(Template(name="promo", distribution=Distribution.MORNING), late) == windows("10:00-13:00")


# What is inside.


@pytest.mark.parametrize(
    ("zone", "at", "inside"),
    [
        ("UTC", "2026-03-01T07:59:59.999999", False),
        ("UTC", "2026-03-01T08:00:00", True),
        ("UTC", "2026-03-01T11:59:59.999999", True),
        ("UTC", "2026-03-01T12:00:00", False),
        ("Asia/Tokyo", "2026-02-28T23:00:00", True),
        ("Asia/Kathmandu", "2026-03-01T02:14:59", False),
        ("Asia/Kathmandu", "2026-03-01T02:15:00", True),
        ("Europe/Berlin", "2026-03-28T07:00:00", True),  # winter: UTC+1
        ("Europe/Berlin", "2026-03-29T06:00:00", True),  # summer: UTC+2
        ("Europe/Berlin", "2026-03-29T10:00:00", False),
    ],
)
def test_the_morning_is_the_recipients(zone: str, at: str, inside: bool) -> None:
    assert is_inside(windows("08:00-12:00"), zone, utc(at)) is inside


@pytest.mark.parametrize(("clock", "inside"), [(21, False), (22, True), (0, True), (5, True), (6, False), (12, False)])
def test_a_window_may_lie_over_midnight(clock: int, inside: bool) -> None:
    assert is_inside(windows("22:00-06:00"), "UTC", utc(f"2026-03-01T{clock:02}:00")) is inside


def test_the_instant_counts_not_the_zone_in_which_it_is_written() -> None:
    new_year = datetime(2027, 1, 1, 4, tzinfo=ZoneInfo("Pacific/Kiritimati"))  # still 2026 in UTC
    assert is_inside(windows("14:00-15:00"), "UTC", new_year)
    assert next_change(windows("14:00-15:00"), "UTC", new_year) == utc("2026-12-31T15:00")


def test_in_a_zone_that_this_machine_does_not_know_it_is_never_the_right_time() -> None:
    for hour in range(24):
        assert not is_inside(windows("08:00-12:00"), "Mars/Olympus", utc(f"2026-03-01T{hour:02}:00"))
    assert next_change(windows("08:00-12:00"), "Mars/Olympus", utc("2026-03-01T08:00")) is None


# When that changes.


@pytest.mark.parametrize(
    ("zone", "window", "after", "change"),
    [
        ("UTC", "08:00-12:00", "2026-03-01T00:00", "2026-03-01T08:00"),
        ("UTC", "08:00-12:00", "2026-03-01T08:00", "2026-03-01T12:00"),
        ("UTC", "08:00-12:00", "2026-03-01T12:00", "2026-03-02T08:00"),
        ("UTC", "22:00-06:00", "2026-12-31T23:00", "2027-01-01T06:00"),
        # 02:00-03:00 does not exist: the window begins late, ends early, or is missing on that day
        ("Europe/Berlin", "02:30-05:00", "2026-03-29T00:00", "2026-03-29T01:00"),
        ("Europe/Berlin", "01:00-02:30", "2026-03-29T00:30", "2026-03-29T01:00"),
        ("Europe/Berlin", "02:10-02:50", "2026-03-29T00:00", "2026-03-30T00:10"),
        # 02:00-03:00 comes twice: a window that ends in it opens a second time
        ("Europe/Berlin", "01:00-02:30", "2026-10-25T00:00", "2026-10-25T00:30"),
        ("Europe/Berlin", "01:00-02:30", "2026-10-25T00:30", "2026-10-25T01:00"),
        ("Europe/Berlin", "01:00-02:30", "2026-10-25T01:00", "2026-10-25T01:30"),
        # the south, and half an hour
        ("Australia/Sydney", "02:30-05:00", "2026-10-03T15:00", "2026-10-03T16:00"),
        ("Australia/Lord_Howe", "02:15-05:00", "2026-10-03T15:00", "2026-10-03T15:30"),
        ("Asia/Kathmandu", "08:00-12:00", "2026-03-01T00:00", "2026-03-01T02:15"),
        # a whole day was skipped: 30 December 2011
        ("Pacific/Apia", "08:00-12:00", "2011-12-30T09:00", "2011-12-30T18:00"),
    ],
)
def test_the_next_change_is_found_where_clocks_change(zone: str, window: str, after: str, change: str) -> None:
    assert next_change(windows(window), zone, utc(after)) == utc(change)


@pytest.mark.parametrize("texts", [[], ["00:00-12:00", "12:00-00:00"], ["06:00-20:00", "18:00-08:00"]])
def test_what_never_changes_has_no_next_change(texts: list[str]) -> None:
    always = tuple(map(parse_window, texts))
    assert next_change(always, "Europe/Berlin", utc("2026-03-01T00:00")) is None


def clock_says(chosen: tuple[SendWindow, ...], zone: str, at: datetime) -> bool:
    """Whether it is inside, asked of zoneinfo minute by minute, in another way than the rules do it."""
    shown = at.astimezone(ZoneInfo(zone))
    minute = shown.hour * 60 + shown.minute
    for window in chosen:
        begins = window.begins.hour * 60 + window.begins.minute
        length = (window.ends.hour * 60 + window.ends.minute - begins) % (24 * 60)
        if (minute - begins) % (24 * 60) < length:
            return True
    return False


CHANGES = [
    *("2026-03-29T01:00", "2026-10-25T01:00"),  # Berlin
    *("2026-03-08T07:00", "2026-11-01T06:00"),  # New York
    *("2026-04-04T16:00", "2026-10-03T16:00"),  # Sydney
    *("2026-04-04T15:00", "2026-10-03T15:30"),  # Lord Howe
    *("2026-04-05T03:00", "2026-09-06T04:00"),  # Santiago: at midnight
    *("2026-04-04T14:00", "2026-09-26T14:00"),  # Chatham
]


@settings(max_examples=150, deadline=None)
@given(
    zone=st.sampled_from([*CHANGING, *QUARTERS]),
    near=st.sampled_from(CHANGES),
    before=st.integers(0, 26 * 60),
    chosen=st.lists(any_window, min_size=1, max_size=3).map(tuple),
)
@example("America/Santiago", "2026-09-06T04:00", 120, windows("23:30-00:30"))
def test_the_next_change_is_the_first_minute_at_which_clocks_say_otherwise(
    zone: str, near: str, before: int, chosen: tuple[SendWindow, ...]
) -> None:
    after = utc(near) - before * MINUTE
    inside = is_inside(chosen, zone, after)
    assert inside == clock_says(chosen, zone, after)
    change = next_change(chosen, zone, after)
    until = after + timedelta(days=3) if change is None else change
    minutes = range(1, (until - after) // MINUTE)
    assert all(clock_says(chosen, zone, after + minute * MINUTE) == inside for minute in minutes)
    if change is not None:
        assert clock_says(chosen, zone, change) != inside
