"""Rates as people write them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrixsched.errors import InvalidRate
from matrixsched.rules.rates import PER_MAX, PER_MIN, REQUESTS_MAX, Rate, check_rate, parse_rate

RATES = st.builds(Rate, st.integers(1, REQUESTS_MAX), st.timedeltas(PER_MIN, PER_MAX))


@pytest.mark.parametrize(
    ("text", "requests", "per"),
    [
        ("10000/min", 10_000, timedelta(minutes=1)),
        ("5/s", 5, timedelta(seconds=1)),
        (" 7 / 100ms ", 7, timedelta(milliseconds=100)),
        ("1/Hour", 1, timedelta(hours=1)),
        ("1000/day", 1000, timedelta(days=1)),
        ("3/1h30m", 3, timedelta(minutes=90)),
    ],
)
def test_a_rate_is_read_as_it_was_meant(text: str, requests: int, per: timedelta):
    assert parse_rate(text) == Rate(requests, per)


@given(RATES)
def test_a_rate_that_is_written_is_read_as_the_same(rate: Rate):
    assert parse_rate(str(rate)) == rate


@given(RATES)
def test_rounding_never_exceeds_a_rate_and_misses_it_by_less_than_a_nanosecond(rate: Rate):
    exact = rate.per_us * 1000 / rate.requests
    assert rate.period_ns * rate.requests >= rate.per_us * 1000
    assert (rate.period_ns - 1) * rate.requests < rate.per_us * 1000
    assert rate.period_ns >= exact or rate.period_ns == pytest.approx(exact)


@pytest.mark.parametrize(
    "text",
    [
        "0/min",
        "-5/s",
        "nan/s",
        "inf/s",
        "1.5/s",
        "5",
        "5/",
        "/s",
        "5/fortnight",
        "5/0s",
        f"{10**10}/s",
        "5/800d",
        "５/s",
    ],
)
def test_what_is_no_rate_is_refused_as_it_was_written(text: str):
    with pytest.raises(InvalidRate) as refused:
        check_rate(text)
    assert repr(text) in str(refused.value)
    assert "for example 10000/min" in str(refused.value)


def test_a_number_with_more_digits_than_can_be_read_is_refused():
    with pytest.raises(InvalidRate):
        check_rate("9" * 5000 + "/s")


@pytest.mark.parametrize("given", [None, 5, 5.0, True, ("5", "s")])
def test_what_is_not_text_is_no_rate(given: object):
    with pytest.raises(InvalidRate, match="text such as 100/min"):
        check_rate(given)


@pytest.mark.parametrize(
    ("requests", "per"),
    [(0, PER_MIN), (-1, PER_MIN), (True, PER_MIN), (1.0, PER_MIN), (1, timedelta(0)), (1, -PER_MIN), (1, 60)],
)
def test_a_rate_is_made_of_whole_numbers_and_times(requests: object, per: object):
    with pytest.raises(InvalidRate):
        Rate(requests, per)  # type: ignore[arg-type]
