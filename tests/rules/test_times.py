"""Which times, durations and numbers are accepted."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrixsched.errors import BadInput, InvalidDuration, InvalidNumber, InvalidTime
from matrixsched.rules.times import TIME_MAX, TIME_MIN, check_duration, check_integer, check_number, check_time


@given(st.datetimes(timezones=st.timezones()))
def test_an_aware_time_is_the_same_instant_in_utc_or_refused(moment):
    try:
        checked = check_time("at", moment)
    except InvalidTime:
        assert not TIME_MIN.timestamp() <= moment.timestamp() <= TIME_MAX.timestamp()
    else:
        # Compared as numbers: between zones == is false in an hour that is repeated.
        assert checked.timestamp() == moment.timestamp()
        assert checked.tzinfo is UTC


@pytest.mark.parametrize(
    ("moment", "why"),
    [
        (datetime(2030, 1, 1), "has no time zone"),  # noqa: DTZ001
        (datetime(2200, 1, 2, tzinfo=UTC), "year 2200"),
        (datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-12))), "outside of what can be computed"),
        (datetime(1969, 12, 31, tzinfo=UTC), "year 1969"),
        ("2030-01-01", "must be a datetime, not str"),
        (1893456000, "must be a datetime, not int"),
    ],
)
def test_a_time_that_means_different_things_to_different_machines_is_refused(moment, why):
    with pytest.raises(InvalidTime, match=why) as refused:
        check_time("at", moment)
    assert "aware datetime" in str(refused.value)


@pytest.mark.parametrize("duration", [timedelta(seconds=-1), timedelta(days=4000), 5, 2.5, "1h", None])
def test_a_duration_that_is_negative_absurd_or_of_another_type_is_refused(duration):
    with pytest.raises(InvalidDuration) as refused:
        check_duration("delay", duration)
    assert "Pass a timedelta" in str(refused.value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), -1, 11, True, "3", None])
def test_a_number_that_is_not_finite_or_out_of_bounds_is_refused(value):
    with pytest.raises(InvalidNumber):
        check_number("rate", value, least=0, most=10)


@pytest.mark.parametrize("value", [1.0, True, "3", -1, 2**70])
def test_a_whole_number_must_be_one(value):
    with pytest.raises(BadInput):
        check_integer("priority", value, least=0, most=10)
