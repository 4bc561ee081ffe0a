"""What a limit lets through, and what follows from changing it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrixsched.errors import BadInput, InvalidLimit
from matrixsched.rules.limits import Closed, Limit, check_key, check_limit_name, in_nanoseconds, slower
from matrixsched.rules.rates import Rate, parse_rate
from matrixsched.rules.throughput import first_slot

NOW = datetime(2030, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
FAST, SLOW = parse_rate("5/s"), parse_rate("1/min")


def a_limit(rate: str | None = None, **facts: object) -> Limit:
    """Set at NOW, never used."""
    limit = Limit(name="global", updated_at=NOW, **facts)  # type: ignore[arg-type]
    return limit if rate is None else limit.set_to(parse_rate(rate), limit.pool, NOW)


def take(limit: Limit, at: datetime) -> tuple[int, Limit]:
    """All that can be had at that time."""
    count = limit.left(at)
    rate = limit.effective(at)
    assert count is not None
    assert isinstance(rate, Rate)
    for _ in range(count):
        slot = first_slot(limit.next_slot_ns, in_nanoseconds(at), rate.period_ns, limit.pool_at(at))
        limit = replace(limit, next_slot_ns=limit.following(slot, at))
    return count, limit


# Names.


@pytest.mark.parametrize("name", ["global", "handler:send", "template:spring sale", "key:acme", "key:*", "key:a:b"])
def test_a_limit_is_called_after_what_it_limits(name):
    assert check_limit_name(name) == name


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("promo", "did you mean handler:promo, template:promo or key:promo?"),
        ("tenant:acme", "did you mean handler:acme, template:acme or key:acme?"),
        ("Global", "did you mean global?"),
        ("Key:acme", "did you mean key:acme?"),
        ("key", "key: of what?"),
        ("key:", "the name after key: is empty"),
        ("key:" + "x" * 257, "the name after key: has 257 bytes, 256 are allowed"),
        ("handler:a\n", "the name after handler: holds the control character U+000A at position 1"),
        ("global:", "global: of what?"),
        ("", "the limit '' cannot be used: it is empty."),
        (7, "it must be text, not int"),
        (None, "it must be text, not NoneType"),
    ],
)
def test_any_other_name_is_refused_with_what_was_probably_meant(name, said):
    with pytest.raises(InvalidLimit) as refused:
        check_limit_name(name)
    assert said in str(refused.value)
    assert "global, handler:<name>, template:<name>, key:<key>" in str(refused.value)


def test_no_action_can_be_under_the_key_that_stands_for_all_others():
    assert check_key("acme") == "acme"
    with pytest.raises(BadInput, match="every key that has no limit of its own: choose another") as refused:
        check_key("*")
    assert "control characters" not in str(refused.value)


# What holds.


def test_a_limit_is_none_a_rate_or_closed():
    assert a_limit().effective(NOW) is None
    assert a_limit().left(NOW) is None
    assert a_limit("5/s").effective(NOW) == FAST
    closed = a_limit("5/s").slowed(NOW + MINUTE, None, "429", NOW)
    assert closed.effective(NOW) == Closed(NOW + MINUTE)
    assert closed.left(NOW + MINUTE - timedelta(microseconds=1)) == 0
    assert closed.effective(NOW + MINUTE) == FAST
    assert closed.left(NOW + MINUTE) == 1


def test_slowed_down_the_slower_rate_holds():
    assert a_limit("5/s").slowed(NOW + MINUTE, SLOW, "", NOW).effective(NOW) == SLOW
    assert a_limit("1/min").slowed(NOW + MINUTE, FAST, "", NOW).effective(NOW) == SLOW
    assert a_limit().slowed(NOW + MINUTE, SLOW, "", NOW).effective(NOW) == SLOW
    assert slower(Rate(60, timedelta(hours=1)), SLOW) == Rate(60, timedelta(hours=1))  # the same, written otherwise


def test_a_key_without_a_rate_goes_at_that_of_all_keys():
    default, key = a_limit("5/s", pool=3), a_limit()
    assert key.under(default).effective(NOW) == FAST
    assert key.under(default).pool == 3
    assert key.under(None) is key
    own = a_limit("1/min")
    assert own.under(default) is own


# Slots.


def test_slots_come_evenly_and_the_first_after_one_period():
    limit = a_limit("5/s")
    taken = []
    for ms in range(0, 1001, 50):
        count, limit = take(limit, NOW + timedelta(milliseconds=ms))
        taken += [ms] * count
    assert taken == [200, 400, 600, 800, 1000]


def test_what_nobody_took_is_kept_as_far_as_the_pool_reaches():
    limit = a_limit("5/s", pool=3)
    assert limit.left(NOW) == 0
    assert limit.left(NOW + timedelta(milliseconds=400)) == 2
    count, limit = take(limit, NOW + MINUTE)
    assert count == 3
    assert limit.left(NOW + MINUTE) == 0
    assert limit.left(NOW + MINUTE + timedelta(milliseconds=200)) == 1


def test_slowed_down_nothing_is_kept():
    limit = a_limit("5/s", pool=100).slowed(NOW + 10 * MINUTE, SLOW, "", NOW)
    assert limit.left(NOW + MINUTE - timedelta(microseconds=1)) == 0
    assert limit.left(NOW + 9 * MINUTE) == 1


def test_a_closed_limit_opens_without_a_burst():
    limit = a_limit("5/s", pool=100).slowed(NOW + 10 * MINUTE, None, "", NOW)
    assert limit.left(NOW + 10 * MINUTE) == 1


def test_the_last_slot_of_a_slow_down_delays_nothing_after_its_end():
    until = NOW + timedelta(seconds=61)
    count, limit = take(a_limit("5/s").slowed(until, SLOW, "", NOW), NOW + MINUTE)
    assert count == 1
    assert limit.left(until) == 0
    assert limit.left(until + timedelta(milliseconds=200)) == 1


rates = st.builds(Rate, st.integers(1, 10_000), st.sampled_from([SECOND, MINUTE, timedelta(milliseconds=7)]))
pauses = st.lists(st.integers(0, 3_000_000), min_size=1, max_size=40)


@given(rates, st.integers(0, 50), pauses)
def test_in_no_time_more_are_taken_than_the_rate_and_the_pool_allow(rate, pool, steps):
    limit = a_limit(str(rate), pool=pool)
    now, taken = NOW, []
    for step in steps:
        now += timedelta(microseconds=step)
        count, limit = take(limit, now)
        taken.append((now, count))
    for first in range(len(taken)):
        for last in range(first, len(taken)):
            width_ns = in_nanoseconds(taken[last][0]) - in_nanoseconds(taken[first][0])
            assert sum(count for _, count in taken[first : last + 1]) <= width_ns // rate.period_ns + max(1, pool)


@given(rates, rates, st.integers(0, 20), pauses)
def test_changing_the_rate_gives_no_slot_out_twice_and_holds_nothing_longer_than_a_period(old, new, pool, steps):
    limit, now = a_limit(str(old), pool=pool), NOW
    for step in steps:
        now += timedelta(microseconds=step)
        _, limit = take(limit, now)
    left = limit.left(now)
    changed = limit.set_to(new, pool, now)
    assert changed.left(now) == left == 0
    assert changed.next_slot_ns <= in_nanoseconds(now) + new.period_ns + 1
    same = limit.set_to(old, pool, now)
    assert same.next_slot_ns == limit.next_slot_ns


# Changes.


def test_a_limit_that_was_very_slow_opens_at_once_when_it_is_raised():
    _, limit = take(a_limit("1/day"), NOW + timedelta(days=1))
    raised = limit.set_to(FAST, 0, NOW + timedelta(days=1))
    assert raised.left(NOW + timedelta(days=1) + timedelta(milliseconds=200)) == 1


@pytest.mark.parametrize("lowered", ["10/s", "1/h", "1/366d"])
def test_what_was_taken_ahead_of_a_limit_that_is_lowered_holds_it_up_for_one_period(lowered: str):
    taken_until = in_nanoseconds(NOW + timedelta(milliseconds=100))
    busy = replace(a_limit("3000/s"), next_slot_ns=taken_until)
    rate = parse_rate(lowered)
    assert busy.set_to(rate, 0, NOW).next_slot_ns == taken_until + rate.period_ns < 2**63


def test_a_rate_set_while_it_is_closed_leaves_it_closed():
    closed = a_limit("1/min").slowed(NOW + MINUTE, None, "429", NOW).set_to(FAST, 7, NOW)
    assert closed.effective(NOW) == Closed(NOW + MINUTE)
    assert closed.left(NOW + MINUTE) == 1


def test_of_two_that_are_told_to_slow_down_the_later_end_and_the_slower_rate_win():
    once = a_limit().slowed(NOW + MINUTE, SLOW, "first", NOW)
    assert once.slowed(NOW + SECOND, SLOW, "second", NOW) is once
    assert once.slowed(NOW + SECOND, FAST, "second", NOW) is once
    later = once.slowed(NOW + 2 * MINUTE, FAST, "second", NOW)
    assert (later.slow_until, later.slow_rate, later.slow_reason) == (NOW + 2 * MINUTE, SLOW, "second")
    stronger = once.slowed(NOW + SECOND, None, "second", NOW)
    assert (stronger.slow_until, stronger.slow_rate, stronger.slow_reason) == (NOW + MINUTE, None, "first")
    assert stronger.slowed(NOW + SECOND, SLOW, "third", NOW) is stronger


def test_a_slow_down_that_is_over_counts_no_more():
    before = a_limit().slowed(NOW + SECOND, None, "first", NOW)
    anew = before.slowed(NOW + MINUTE, SLOW, "second", NOW + SECOND)
    assert (anew.slow_until, anew.slow_rate, anew.slow_reason) == (NOW + MINUTE, SLOW, "second")
    assert before.slowed(NOW + SECOND, None, "late", NOW + SECOND) is before


def test_resumed_it_goes_on_within_a_period():
    limit = a_limit("5/s").slowed(NOW + timedelta(days=1), None, "429", NOW).resumed(NOW + SECOND)
    assert limit.effective(NOW + SECOND) == FAST
    assert (limit.slow_until, limit.slow_rate, limit.slow_reason) == (None, None, None)
    assert limit.left(NOW + SECOND + timedelta(milliseconds=200)) == 1
