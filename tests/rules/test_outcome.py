"""What is recorded of an attempt, as a table."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrixsched.errors import BadInput, InvalidLimit
from matrixsched.rules.action import Attempt, Claim, Outcome, State, Terms
from matrixsched.rules.outcome import (
    SLOW_DOWN_MIN,
    Cancel,
    Done,
    Expired,
    Failed,
    Missed,
    RetryAt,
    SlowDown,
    Stopped,
    TimedOut,
    Unrunnable,
    judge,
    refusal,
)
from matrixsched.rules.retry import Retry
from matrixsched.rules.schedule import catch_up, cron, every
from matrixsched.rules.texts import TEXT_CHARACTERS_MAX

NOW = datetime(2030, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
HOURLY = every(timedelta(hours=1), anchor=NOW)
TWICE = Retry(max_attempts=2, first_delay=SECOND, jitter=0)


def an_attempt(**facts):
    defaults = {
        "claim": Claim(0, "a", UUID(int=1), 1, UUID(int=2)),
        "claimed_at": NOW,
        "due_at": NOW,
        "handler": "h",
        "payload": b"null",
        "terms": Terms(),
        "version": 1,
        "priority": 0,
        "template": None,
        "zone": None,
        "expires_at": None,
        "tick": 0,
        "tick_at": NOW,
        "tick_failures": 0,
        "interruptions": 0,
    }
    return Attempt(**(defaults | facts))


def overdue(late, *, moved=timedelta(0), **repeat):
    """An attempt at an hourly tick that long ago, due `moved` after it."""
    hourly = every(timedelta(hours=1), anchor=NOW - late, **repeat)
    return an_attempt(terms=Terms(repeat=hourly), tick_at=NOW - late, due_at=NOW - late + moved)


ONCE = an_attempt()
REPEATING = an_attempt(terms=Terms(repeat=HOURLY))
FAILED_BEFORE = an_attempt(tick_failures=1)
REPEATING_FAILED_BEFORE = an_attempt(terms=Terms(repeat=HOURLY), tick_failures=1)
EXPIRING = an_attempt(expires_at=NOW + timedelta(milliseconds=500))


@pytest.mark.parametrize(
    ("attempt", "ending", "outcome", "state", "tick", "next_at", "delay"),
    [
        (ONCE, Done(), Outcome.SUCCEEDED, State.DONE, 0, None, None),
        (REPEATING, Done(), Outcome.SUCCEEDED, State.LIVE, 1, NOW + timedelta(hours=1), None),
        (ONCE, Failed("x"), Outcome.FAILED, State.LIVE, 0, None, SECOND),
        (FAILED_BEFORE, Failed("x"), Outcome.FAILED, State.FAILED, 0, None, None),
        (REPEATING_FAILED_BEFORE, Failed("x"), Outcome.FAILED, State.LIVE, 1, NOW + timedelta(hours=1), None),
        (ONCE, TimedOut(SECOND), Outcome.TIMED_OUT, State.LIVE, 0, None, SECOND),
        (EXPIRING, Failed("x"), Outcome.FAILED, State.EXPIRED, 0, None, None),
        (ONCE, RetryAt(NOW + 5 * SECOND), Outcome.RETRIED, State.LIVE, 0, NOW + 5 * SECOND, None),
        (FAILED_BEFORE, RetryAt(5 * SECOND), Outcome.RETRIED, State.LIVE, 0, None, 5 * SECOND),
        (ONCE, SlowDown(NOW + 5 * SECOND), Outcome.RETRIED, State.LIVE, 0, NOW + 5 * SECOND, None),
        (FAILED_BEFORE, SlowDown(5 * SECOND, rate="1/s"), Outcome.RETRIED, State.LIVE, 0, None, 5 * SECOND),
        (EXPIRING, SlowDown(HOUR), Outcome.RETRIED, State.EXPIRED, 0, None, None),
        (ONCE, SlowDown(NOW - HOUR), Outcome.RETRIED, State.LIVE, 0, None, SECOND),
        (FAILED_BEFORE, SlowDown(timedelta(0)), Outcome.RETRIED, State.LIVE, 0, None, SECOND),
        (REPEATING, Cancel("enough"), Outcome.CANCELLED, State.CANCELLED, 0, None, None),
        (ONCE, Stopped(), Outcome.INTERRUPTED, State.LIVE, 0, None, timedelta(0)),
        (ONCE, Unrunnable("no such field"), Outcome.QUARANTINED, State.QUARANTINED, 0, None, None),
        (REPEATING, Expired(), Outcome.EXPIRED, State.EXPIRED, 0, None, None),
        (ONCE, Missed(), Outcome.MISSED, State.EXPIRED, 0, None, None),
        (REPEATING, Missed(), Outcome.MISSED, State.LIVE, 1, NOW + timedelta(hours=1), None),
    ],
)
def test_what_follows_from_how_an_attempt_ended(attempt, ending, outcome, state, tick, next_at, delay):
    verdict = judge(attempt, ending, TWICE, NOW, 0)
    assert (verdict.outcome, verdict.state, verdict.tick) == (outcome, state, tick)
    assert (verdict.next_at, verdict.delay) == (next_at, delay)


def test_a_snooze_keeps_the_failures_counted_so_far():
    assert judge(FAILED_BEFORE, RetryAt(SECOND), TWICE, NOW, 0).tick_failures == 1


def test_being_told_to_slow_down_is_recorded_with_its_reason():
    assert judge(ONCE, SlowDown(SECOND, reason="HTTP 429"), TWICE, NOW, 0).error == "HTTP 429"


@pytest.mark.parametrize("until", [timedelta(0), 59 * SECOND, NOW - HOUR, NOW, NOW + 59 * SECOND])
def test_told_to_slow_down_an_action_waits_no_less_than_before_its_first_retry(until):
    """However many retries it has left, and none that are in no hurry."""
    slowly = Retry(max_attempts=1, first_delay=MINUTE, jitter=0.5)
    assert judge(ONCE, SlowDown(until), slowly, NOW, 0).delay == MINUTE
    at_once = Retry(first_delay=timedelta(0))
    assert judge(ONCE, SlowDown(timedelta(0)), at_once, NOW, 0).delay == SLOW_DOWN_MIN


@pytest.mark.parametrize(
    ("until", "lasts"),
    [
        (MINUTE, MINUTE),
        (NOW + MINUTE, NOW + MINUTE),
        (NOW + SLOW_DOWN_MIN, NOW + SLOW_DOWN_MIN),
        (timedelta(0), SLOW_DOWN_MIN),
        (SLOW_DOWN_MIN / 2, SLOW_DOWN_MIN),
        (NOW + SLOW_DOWN_MIN / 2, SLOW_DOWN_MIN),
        (NOW - HOUR, SLOW_DOWN_MIN),
    ],
)
def test_a_slow_down_lasts_a_second_at_least(until, lasts):
    assert SlowDown(until).lasting(NOW) == lasts


def test_what_is_slowed_down_is_the_key_or_else_the_handler_unless_it_is_named():
    with_key = an_attempt(limit="acme")
    assert SlowDown(SECOND).limit_of(an_attempt(handler="send")) == "handler:send"
    assert SlowDown(SECOND).limit_of(with_key) == "key:acme"
    assert SlowDown(SECOND, limit="global").limit_of(with_key) == "global"


def test_an_event_that_is_slowed_down_is_under_no_limit_unless_one_is_named():
    event = an_attempt(handler="acquired:pool")
    assert SlowDown(SECOND).limit_of(event) is None
    assert SlowDown(SECOND, limit="global").limit_of(event) == "global"
    with pytest.raises(InvalidLimit, match="pass no gate"):
        SlowDown(SECOND, limit="handler:acquired:pool")


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"until": -SECOND}, "SlowDown.until is negative"),
        ({"until": datetime(2030, 1, 1)}, "SlowDown.until has no time zone"),  # noqa: DTZ001
        ({"until": 60}, "SlowDown.until must be a datetime"),
        ({"until": None}, "SlowDown.until must be a datetime"),
        ({"until": SECOND, "limit": "promo"}, "did you mean"),
        ({"until": SECOND, "limit": "key:*"}, "slow one of them down"),
        ({"until": SECOND, "rate": "0/min"}, "must be between 1 and"),
        ({"until": SECOND, "rate": 10}, "it must be text such as 100/min"),
        ({"until": SECOND, "reason": 429}, "SlowDown.reason must be a string, not int"),
    ],
)
def test_slowing_down_to_nowhere_is_refused(given, error):
    with pytest.raises(BadInput, match=error):
        SlowDown(**given)


def test_a_new_tick_has_its_retries_back():
    assert judge(REPEATING_FAILED_BEFORE, Failed("x"), TWICE, NOW, 0).tick_failures == 0


def test_a_repetition_ends_with_its_expiry():
    attempt = an_attempt(terms=Terms(repeat=HOURLY), expires_at=NOW + timedelta(minutes=30))
    assert judge(attempt, Done(), TWICE, NOW, 0).state is State.DONE
    assert judge(attempt, Missed(), TWICE, NOW, 0).state is State.EXPIRED


def test_jitter_moves_the_next_start_and_leaves_the_tick():
    attempt = an_attempt(terms=Terms(repeat=every(timedelta(hours=1), anchor=NOW, jitter=8 * SECOND)))
    verdict = judge(attempt, Done(), TWICE, NOW, 0.25)
    assert (verdict.tick_at, verdict.next_at) == (NOW + timedelta(hours=1), NOW + timedelta(hours=1) + 2 * SECOND)


def test_a_repetition_whose_next_start_comes_too_late_ends_with_its_expiry():
    repeat = every(timedelta(hours=1), anchor=NOW, jitter=8 * SECOND)
    attempt = an_attempt(terms=Terms(repeat=repeat), expires_at=NOW + timedelta(hours=1) + SECOND)
    assert judge(attempt, Done(), TWICE, NOW, 0).state is State.LIVE
    assert judge(attempt, Done(), TWICE, NOW, 0.25).state is State.DONE


def test_a_rule_without_a_further_tick_is_done():
    last = datetime(2199, 12, 31, 12, tzinfo=UTC)
    attempt = an_attempt(terms=Terms(repeat=cron("0 12 * * *")), tick_at=last)
    assert judge(attempt, Done(), TWICE, last, 0).state is State.DONE


@given(st.text(st.characters(codec=None, categories=None), max_size=3 * TEXT_CHARACTERS_MAX))
def test_any_error_text_becomes_one_that_every_database_stores(text):
    stored = judge(ONCE, Failed(text), TWICE, NOW, 0).error
    assert stored is not None
    assert len(stored) <= TEXT_CHARACTERS_MAX
    assert "\x00" not in stored
    stored.encode()


@pytest.mark.parametrize(
    ("attempt", "refused"),
    [
        (ONCE, None),
        (an_attempt(expires_at=NOW), Expired),
        (an_attempt(expires_at=NOW + SECOND), None),
        (an_attempt(interruptions=4), None),
        (an_attempt(interruptions=5), Unrunnable),
        (an_attempt(terms=Terms(start_within=SECOND), tick_at=NOW - SECOND), None),
        (an_attempt(terms=Terms(start_within=SECOND), tick_at=NOW - 2 * SECOND), Missed),
        (overdue(60 * SECOND, misfire="skip"), None),
        (overdue(61 * SECOND, misfire="skip"), Missed),
        (overdue(61 * SECOND, misfire="once"), None),
        (overdue(61 * SECOND, misfire="skip", jitter=80 * SECOND, moved=20 * SECOND), None),
        (overdue(61 * SECOND, misfire="skip", moved=40 * SECOND), None),  # a retry
        (overdue(99 * SECOND, misfire="skip", jitter=HOUR, moved=20 * SECOND)._replace(tick_failures=1), None),
        (overdue(99 * SECOND, misfire="skip", jitter=HOUR, moved=20 * SECOND)._replace(interruptions=1), None),
        (overdue(99 * SECOND, misfire="skip", jitter=HOUR, moved=20 * SECOND), Missed),
        (overdue(timedelta(hours=2), misfire=catch_up(3)), None),
        (overdue(timedelta(hours=3), misfire=catch_up(3)), Missed),
        (overdue(timedelta(hours=3), misfire=catch_up(3), moved=SECOND), None),  # a retry
    ],
)
def test_what_is_over_or_dangerous_is_not_started(attempt, refused):
    assert type(refusal(attempt, Retry(), NOW)) is (refused or type(None))


def test_an_action_that_must_not_run_twice_after_a_crash_is_quarantined_at_its_first_interruption():
    assert isinstance(refusal(an_attempt(interruptions=1), Retry(max_interruptions=0), NOW), Unrunnable)


def test_a_payload_newer_than_the_handler_waits_for_a_newer_worker():
    newer = an_attempt(terms=Terms(payload_version=3))
    assert refusal(newer, Retry(), NOW, payload_version=3) is None
    assert isinstance(refusal(newer, Retry(), NOW, payload_version=2), RetryAt)
    assert refusal(ONCE, Retry(), NOW, payload_version=2) is None


@pytest.mark.parametrize(
    ("limited", "delay"),
    [
        ({}, 10 * SECOND),
        ({"expires_at": NOW + 100 * SECOND}, 10 * SECOND),
        ({"expires_at": NOW + 8 * SECOND}, 4 * SECOND),
        ({"expires_at": NOW + SECOND}, SECOND),
        ({"terms": Terms(payload_version=2, start_within=6 * SECOND)}, 3 * SECOND),
        ({"terms": Terms(payload_version=2, start_within=6 * SECOND), "expires_at": NOW + 4 * SECOND}, 2 * SECOND),
        ({"terms": Terms(unreadable="newer"), "expires_at": NOW + 4 * SECOND}, 2 * SECOND),
    ],
)
def test_what_is_left_to_newer_workers_leaves_them_the_time_to_run_it(limited, delay):
    refused = refusal(an_attempt(**{"terms": Terms(payload_version=2), "tick_at": NOW} | limited), Retry(), NOW)
    assert isinstance(refused, RetryAt)
    assert refused.when == delay
