"""Durations as people write them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrixsched.errors import InvalidDurationText
from matrixsched.rules.durations import duration_text, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10", 10),
        ("0.5", 0.5),
        ("0", 0),
        ("250ms", 0.25),
        ("10s", 10),
        ("5m", 300),
        ("5min", 300),
        ("1h30m", 5400),
        ("1h 30m", 5400),
        (" 2 H ", 7200),
        ("7d", 604_800),
        ("2w", 1_209_600),
        ("1.5h", 5400),
        ("PT10S", 10),
        ("P1DT2H", 93_600),
        ("P2W", 1_209_600),
        ("pt0.25s", 0.25),
    ],
)
def test_durations_are_read_in_every_form(text: str, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text", ["", "soon", "-1", "-5m", "nan", "inf", "5 parsecs", "10s later", "P", "PT", "P1Y", "1e9", "9" * 30 + "d"]
)
def test_what_is_no_duration_is_told_how_to_write_one(text: str) -> None:
    with pytest.raises(InvalidDurationText, match=r"--delay is .* Write it as 250ms, 10s"):
        parse_duration(text, "--delay")


@given(st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=3653)))
def test_a_duration_is_written_so_that_it_is_read_as_the_same(duration: timedelta) -> None:
    assert parse_duration(duration_text(duration)) == duration


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (timedelta(0), "0s"),
        (timedelta(milliseconds=250), "250ms"),
        (timedelta(seconds=90), "90s"),
        (timedelta(minutes=5), "5m"),
        (timedelta(days=7), "7d"),
        (timedelta(microseconds=1), "0.000001s"),
    ],
)
def test_durations_are_written_in_their_largest_whole_unit(duration: timedelta, text: str) -> None:
    assert duration_text(duration) == text
