"""What is stored comes back exactly: terms as JSON, times as integer microseconds."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from matrixsched import Daily, Exclusion, Period, Repeat, Retry, catch_up, cron, every
from matrixsched.payloads import VERSION_MAX
from matrixsched.rules.action import Terms
from matrixsched.rules.retry import ATTEMPTS_MAX
from matrixsched.rules.schedule import CATCH_UP_MAX, INTERVAL_MIN
from matrixsched.rules.times import DURATION_MAX, TIME_MAX, TIME_MIN, check_time
from matrixsched.store.codec import NO_TERMS, decode_terms, encode_terms
from matrixsched.store.sqlite.rows import in_microseconds, moment_of, span

TICK = timedelta(microseconds=1)
DAILY = {"daily_from": "01:00:00", "daily_to": "02:00:00"}


def durations(least: timedelta = timedelta(0)) -> st.SearchStrategy[timedelta]:
    return st.timedeltas(min_value=least, max_value=DURATION_MAX)


def moments() -> st.SearchStrategy[datetime]:
    bounds = {"min_value": TIME_MIN.replace(tzinfo=None), "max_value": TIME_MAX.replace(tzinfo=None)}
    return st.datetimes(**bounds, timezones=st.just(UTC))


def retries() -> st.SearchStrategy[Retry]:
    return st.builds(
        Retry,
        max_attempts=st.none() | st.integers(1, ATTEMPTS_MAX),
        first_delay=durations(),
        factor=st.floats(1, 1000) | st.integers(1, 1000),
        min_delay=durations(),
        max_delay=durations(),
        jitter=st.floats(0, 1),
        max_interruptions=st.integers(0, ATTEMPTS_MAX),
    )


def exclusions() -> st.SearchStrategy[list[Exclusion]]:
    periods = st.tuples(moments(), moments()).map(sorted).filter(lambda ends: ends[0] < ends[1])
    hours = st.lists(st.times(), min_size=2, max_size=2, unique=True)
    dates = st.dates(TIME_MIN.date(), TIME_MAX.date())
    return st.lists(dates | periods.map(lambda ends: Period(*ends)) | hours.map(lambda ends: Daily(*ends)), max_size=3)


def repeats() -> st.SearchStrategy[Repeat]:
    any_repeat = {
        "misfire": st.sampled_from(["once", "skip"]) | st.builds(catch_up, st.integers(1, CATCH_UP_MAX)),
        "jitter": st.just(timedelta(0)) | durations(),
        "zone": st.just("UTC") | st.sampled_from(["Europe/Berlin", "Australia/Lord_Howe"]),
        "exclude": exclusions(),
    }
    after_end = any_repeat | {"misfire": st.sampled_from(["once", "skip"]), "after_end": st.just(True)}
    policies = {
        "skipped": st.sampled_from([None, "shift", "skip"]),
        "repeated": st.sampled_from([None, "once", "both", "skip"]),
    }
    return st.one_of(
        st.builds(every, durations(INTERVAL_MIN), anchor=st.none() | moments(), **any_repeat),
        st.builds(every, durations(INTERVAL_MIN), **after_end),
        st.builds(cron, st.sampled_from(["0 9 * * *", "*/5 * * * 1-5", " 0  0 L\t* 5#2 "]), **policies, **any_repeat),
    )


def some_terms() -> st.SearchStrategy[Terms]:
    return st.builds(
        Terms,
        retry=st.none() | retries(),
        repeat=st.none() | repeats(),
        timeout=st.none() | durations(TICK),
        start_within=st.none() | durations(TICK),
        payload_version=st.none() | st.integers(2, VERSION_MAX),
        trace=st.none() | st.from_regex(r"00-[0-9a-f]{32}-[0-9a-f]{16}-01( [a-z]+=[ -~]{1,20})?", fullmatch=True),
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


def test_a_repetition_stored_before_there_were_calendars_still_reads():
    text = '{"repeat":{"every_s":60.0,"anchor":"2030-01-01T00:00:00+00:00","after_end":false}}'
    terms = Terms(repeat=every(timedelta(minutes=1), anchor=datetime(2030, 1, 1, tzinfo=UTC)))
    assert decode_terms(text) == terms
    assert encode_terms(terms) == text


def test_a_zone_that_is_unknown_here_makes_terms_unreadable_and_says_so():
    text = encode_terms(Terms(repeat=cron("0 9 * * *", "Europe/Berlin"))).replace("Europe/Berlin", "Mars/Olympus")
    terms = decode_terms(text)
    assert terms.repeat is None
    assert terms.unreadable is not None
    assert "no time zone 'Mars/Olympus'" in terms.unreadable
    assert "tzdata" in terms.unreadable


@pytest.mark.parametrize(
    "repeat",
    [
        {"every_s": 60.0, "anchor": None, "after_end": False, "moon": "full"},
        {"cron": "0 9 * * *", "skipped": "shift", "repeated": "once", "moon": "full"},
        {"cron": "0 9 * * *", "skipped": "shift"},
        {"cron": "0 9 * * * *", "skipped": "shift", "repeated": "once"},
        {"every_s": 60.0, "anchor": None, "after_end": False, "misfire": {"catch_up": 0}},
        {"every_s": 60.0, "anchor": None, "after_end": False, "exclude": [{"moon": "full"}]},
        {"every_s": 60.0, "anchor": None, "after_end": False, "exclude": [{"date": "2030-01-01", "moon": "full"}]},
        {"every_s": 60.0, "anchor": None, "after_end": False, "exclude": [DAILY | {"moon": "full"}]},
        {"every_s": 60.0, "anchor": None, "after_end": False, "misfire": {"catch_up": 3, "moon": "full"}},
        {"every_s": 60.0, "anchor": None, "after_end": False, "exclude": 5},
        {"every_s": 60.0, "anchor": None, "after_end": False, "jitter_s": "long"},
        {"every_s": 1e300, "anchor": None, "after_end": False},
        [],
    ],
    ids=repr,
)
def test_a_repetition_of_a_newer_version_is_unreadable_and_no_error(repeat):
    assert decode_terms(json.dumps({"repeat": repeat})).unreadable is not None


def test_a_retry_policy_of_a_newer_version_is_unreadable():
    stored = json.loads(encode_terms(Terms(retry=Retry())))
    stored["retry"]["moon"] = "full"
    assert decode_terms(json.dumps(stored)).unreadable is not None


def test_what_is_too_deep_to_be_read_is_unreadable_and_no_error():
    assert decode_terms("[" * 100_000).unreadable is not None


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
