"""What is stored comes back exactly: terms as JSON, times as integer microseconds."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from matrixsched import Retry
from matrixsched.payloads import VERSION_MAX
from matrixsched.rules.action import Terms
from matrixsched.rules.retry import ATTEMPTS_MAX
from matrixsched.rules.schedule import INTERVAL_MIN, Every, every
from matrixsched.rules.times import DURATION_MAX, TIME_MAX, TIME_MIN, check_time
from matrixsched.store.codec import NO_TERMS, decode_terms, encode_terms
from matrixsched.store.sqlite.rows import in_microseconds, moment_of, span

TICK = timedelta(microseconds=1)


def durations(least: timedelta = timedelta(0)) -> st.SearchStrategy[timedelta]:
    return st.timedeltas(min_value=least, max_value=DURATION_MAX)


def moments() -> st.SearchStrategy[datetime]:
    bounds = {"min_value": TIME_MIN.replace(tzinfo=None), "max_value": TIME_MAX.replace(tzinfo=None)}
    return st.datetimes(**bounds, timezones=st.just(UTC))


def retries() -> st.SearchStrategy[Retry]:
    return st.builds(
        Retry,
        max_attempts=st.integers(1, ATTEMPTS_MAX),
        first_delay=durations(),
        factor=st.floats(1, 1000) | st.integers(1, 1000),
        min_delay=durations(),
        max_delay=durations(),
        jitter=st.floats(0, 1),
        max_interruptions=st.integers(0, ATTEMPTS_MAX),
    )


def repeats() -> st.SearchStrategy[Every]:
    on_a_grid = st.builds(every, durations(INTERVAL_MIN), anchor=st.none() | moments())
    return on_a_grid | st.builds(every, durations(INTERVAL_MIN), after_end=st.just(True))


def some_terms() -> st.SearchStrategy[Terms]:
    return st.builds(
        Terms,
        retry=st.none() | retries(),
        repeat=st.none() | repeats(),
        timeout=st.none() | durations(TICK),
        start_within=st.none() | durations(TICK),
        payload_version=st.none() | st.integers(2, VERSION_MAX),
        trace=st.none()
        | st.from_regex(r"00-[0-9a-f]{32}-[0-9a-f]{16}-01( [a-z]+=[ !#-\[\]-~]{1,20})?", fullmatch=True),
    )


@given(some_terms())
@example(Terms(timeout=DURATION_MAX - TICK, start_within=TICK))
@example(Terms(repeat=every(DURATION_MAX - TICK, anchor=TIME_MAX - TICK)))
@example(Terms(retry=Retry(factor=1.1, jitter=0.1, first_delay=timedelta(days=3652, microseconds=999_999))))
def test_terms_come_back_as_they_were_stored(terms):
    assert decode_terms(encode_terms(terms)) == terms


@given(some_terms())
def test_equal_terms_are_stored_as_equal_text(terms):
    assert encode_terms(decode_terms(encode_terms(terms))) == encode_terms(terms)


@given(some_terms())
def test_terms_are_stored_as_json_that_every_database_and_language_reads(terms):
    text = encode_terms(terms)
    assert text.isascii()
    assert isinstance(json.loads(text, parse_constant=pytest.fail), dict)


def test_traces_do_not_push_out_terms_that_were_read():
    plain = encode_terms(Terms(timeout=timedelta(seconds=3)))
    read = decode_terms(plain)
    for number in range(10_000):
        decode_terms(encode_terms(Terms(timeout=timedelta(seconds=4), trace=f"00-{number:032x}-{1:016x}-01")))
    assert decode_terms(plain) is read


def test_terms_with_a_trace_are_refused_like_those_without():
    traced = '{"teleport":1,"trace":"00-a-b-01"}'
    unreadable = decode_terms(traced).unreadable
    assert unreadable is not None
    assert "teleport" in unreadable


def test_terms_that_say_nothing_are_stored_as_nothing():
    assert encode_terms(Terms()) == NO_TERMS
    assert decode_terms(NO_TERMS) == Terms()


@given(moments())
@example(TIME_MIN)
@example(TIME_MAX)
def test_times_come_back_exactly_from_integer_microseconds(moment):
    stored = in_microseconds(moment)
    assert isinstance(stored, int)
    assert moment_of(stored) == moment
    assert -(2**63) <= stored < 2**63


@given(moments(), moments())
def test_stored_times_compare_as_the_times_do(one, other):
    assert (in_microseconds(one) < in_microseconds(other)) == (one < other)


@given(moments(), durations())
def test_stored_times_and_durations_add_up_as_the_times_do(moment, duration):
    assert in_microseconds(moment) + span(duration) == in_microseconds(moment + duration)


@given(moments(), st.integers(-1439, 1439))
def test_the_same_instant_is_stored_alike_whatever_zone_it_is_written_in(moment, minutes):
    elsewhere = moment.astimezone(timezone(timedelta(minutes=minutes)))
    assert in_microseconds(elsewhere) == in_microseconds(moment)
    assert check_time("at", elsewhere).tzinfo is UTC
