"""Retry-After, as web services write it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrixsched import SlowDown, retry_after
from matrixsched.errors import InvalidDuration

MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize(
    ("header", "when"),
    [
        ("120", timedelta(seconds=120)),
        (" 0 ", timedelta(0)),
        ("1.5", timedelta(seconds=1.5)),
        ("Wed, 21 Oct 2026 07:28:00 GMT", datetime(2026, 10, 21, 7, 28, tzinfo=UTC)),
        ("Wed, 21 Oct 2026 09:28:00 +0200", datetime(2026, 10, 21, 7, 28, tzinfo=UTC)),
        ("Wed Oct 21 07:28:00 2026", datetime(2026, 10, 21, 7, 28, tzinfo=UTC)),
    ],
)
def test_seconds_or_a_date(header, when):
    assert retry_after(header) == when


@pytest.mark.parametrize(
    "header",
    [None, "", "soon", "-5", "nan", "inf", "1e9", "9" * 12, "9" * 400, "١٢", "Wed, 99 Oct 2026 07:28:00 GMT"]
    + ["Wed, 21 Oct 1815 07:28:00 GMT", "Wed, 21 Oct 9999 23:59:59 -2300", "2026-10-21", "1\n2"],
)
def test_what_cannot_be_read_is_what_the_caller_says(header):
    assert retry_after(header) == MINUTE
    assert retry_after(header, default=5 * MINUTE) == 5 * MINUTE


@given(st.text())
def test_whatever_is_sent_can_be_told(header):
    SlowDown(retry_after(header))


def test_the_default_is_checked_when_it_is_not_needed_too():
    with pytest.raises(InvalidDuration, match="default"):
        retry_after("1", default=-MINUTE)
