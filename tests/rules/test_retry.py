"""When a failed attempt is tried again."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrixsched.errors import BadInput
from matrixsched.rules.retry import Retry, is_suspect, retry_delay

SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(("failures", "seconds"), [(1, 1.0), (2, 2.0), (3, 4.0), (4, 8.0), (5, None), (6, None)])
def test_delays_double_until_the_attempts_are_used_up(failures, seconds):
    policy = Retry(max_attempts=5, first_delay=SECOND, jitter=0)
    expected = None if seconds is None else timedelta(seconds=seconds)
    assert retry_delay(policy, failures, 0.5) == expected


@pytest.mark.parametrize(("failures", "seconds"), [(1, 1), (6, 32), (7, 60), (2_000_000, 60)])
def test_without_a_number_of_attempts_it_is_tried_without_end(failures, seconds):
    policy = Retry(max_attempts=None, max_delay=60 * SECOND, jitter=0)
    assert retry_delay(policy, failures, 0.5) == timedelta(seconds=seconds)


@given(
    st.integers(1, 10_000),
    st.floats(0, 1, exclude_max=True),
    st.floats(1, 1000),
    st.floats(0, 1),
    st.timedeltas(timedelta(0), timedelta(days=30)),
)
def test_a_delay_is_never_longer_than_the_longest_and_never_shortened_by_more_than_the_jitter(
    failures, spread, factor, jitter, longest
):
    policy = Retry(max_attempts=10_001, factor=factor, jitter=jitter, max_delay=longest)
    delay = retry_delay(policy, failures, spread)
    assert delay is not None
    assert timedelta(0) <= delay <= longest
    full = retry_delay(policy, failures, 0)
    assert full is not None
    assert delay >= full * (1 - jitter) - timedelta(microseconds=1)


def test_the_shortest_delay_holds_from_the_first_retry_on():
    policy = Retry(first_delay=SECOND, min_delay=10 * SECOND, jitter=0)
    assert retry_delay(policy, 1, 0) == 10 * SECOND


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_attempts": 0},
        {"max_attempts": -1},
        {"max_attempts": 1.5},
        {"factor": float("nan")},
        {"factor": float("inf")},
        {"factor": 0.5},
        {"jitter": -0.1},
        {"jitter": 2},
        {"first_delay": timedelta(seconds=-1)},
        {"max_delay": timedelta(days=10_000)},
        {"max_interruptions": -1},
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(wrong):
    with pytest.raises(BadInput):
        Retry(**wrong)


def test_an_action_is_suspect_from_its_second_interruption_on():
    assert [is_suspect(count) for count in range(4)] == [False, False, True, True]
