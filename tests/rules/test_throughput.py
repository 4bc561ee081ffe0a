"""Slots in time: how many are at hand after which rest, and the law that no window ever sees more."""

from __future__ import annotations

import math
from datetime import timedelta
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrixsched.rules.rates import Rate
from matrixsched.rules.throughput import Bucket, first_slot, slots_at_hand

PERIOD = 200
SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("now", "pool", "first", "at_hand"),
    [
        (0, 0, 1000, 0),  # too early
        (999, 5, 1000, 0),
        (1000, 0, 1000, 1),  # just on time
        (1199, 5, 1000, 1),
        (1200, 5, 1000, 2),  # the pool fills …
        (1800, 5, 1000, 5),  # … until it is full
        (9999, 5, 9199, 5),
        (1001, 0, 1001, 1),  # nothing is kept without a pool, and what comes next comes a whole period later
        (1001, 1, 1001, 1),
        (9999, 0, 9999, 1),
    ],
)
def test_after_idling_at_most_the_pool_is_at_hand(now, pool, first, at_hand):
    assert first_slot(1000, now, PERIOD, pool) == first
    assert slots_at_hand(1000, now, PERIOD, pool) == at_hand


@pytest.mark.parametrize(
    ("now", "pool", "first", "at_hand"),
    [
        (1010, 0, 1000, 1),  # late by a little: the next one comes at 1200 all the same
        (1050, 0, 1000, 1),
        (1051, 0, 1001, 1),  # too late: void
        (9999, 0, 9949, 1),
        (1810, 5, 1010, 5),  # a pool keeps more than that
    ],
)
def test_a_slot_that_was_waited_for_is_kept_a_little(now, pool, first, at_hand):
    assert first_slot(1000, now, PERIOD, pool, late_ns=50) == first
    assert slots_at_hand(1000, now, PERIOD, pool, late_ns=50) == at_hand


@given(
    rests=st.lists(st.integers(0, 1000), min_size=1, max_size=30),
    period=st.integers(30, 300),
    pool=st.integers(0, 6),
    late=st.integers(0, 500),
)
def test_no_window_sees_more_turns_than_its_share_and_the_pool(rests, period, pool, late):
    now, next_slot = 0, period
    taken: list[int] = []
    for rest in rests:
        now += rest
        for _ in range(slots_at_hand(next_slot, now, period, pool, late)):
            slot = first_slot(next_slot, now, period, pool, late)
            assert slot <= now
            taken.append(now)
            next_slot = slot + period
        assert first_slot(next_slot, now, period, pool, late) > now, "as many as were said to be at hand"
    for begin in range(len(taken)):
        for end in range(begin, len(taken)):
            window = taken[end] - taken[begin]
            assert end - begin + 1 <= (window + late) / period + max(1, pool)


@given(period=st.integers(1, 10**12), count=st.integers(1, 1000))
def test_turns_taken_as_they_come_keep_to_the_grid(period, count):
    next_slot = period
    for number in range(1, count + 1):
        assert first_slot(next_slot, number * period, period, 0) == number * period
        next_slot += period


# A bucket of them.

THREE_A_SECOND = Rate(3, timedelta(seconds=1))


def test_slots_of_a_third_of_a_second_come_on_time_for_ever():
    bucket = Bucket(THREE_A_SECOND, pool=0, last_ns=0)
    for number in range(1, 100_000):
        assert bucket.next_ns == math.ceil(Fraction(number * SECOND, 3))
        assert bucket.take(bucket.next_ns - 1) is None
        assert bucket.take(bucket.next_ns, late_ns=1) is not None


def test_a_slot_that_was_not_used_is_kept_as_long_as_the_pool_would_have_kept_it():
    bucket = Bucket(Rate(1, timedelta(seconds=1)), pool=3, last_ns=0)
    first, second, third = (bucket.take(3 * SECOND) for _ in range(3))
    assert bucket.at_hand(3 * SECOND) == 0
    bucket.give_back(first)
    bucket.give_back(second)
    assert bucket.at_hand(3 * SECOND) == 2
    assert bucket.at_hand(3 * SECOND + 1) == 1, "the first is too old now"
    assert bucket.take(3 * SECOND + 1) == second
    assert bucket.take(3 * SECOND + 1) is None
    bucket.give_back(second)
    bucket.give_back(third)
    assert bucket.next_ns == 2 * SECOND, "as if neither had been taken"


def test_another_rate_goes_from_the_last_slot_on():
    bucket = Bucket(THREE_A_SECOND, pool=0, last_ns=0)
    assert bucket.take(SECOND // 2) is not None
    assert bucket.at_rate(Rate(1, timedelta(hours=1))).next_ns == SECOND // 2 + 3600 * SECOND
