"""The database's time told from the answers it gave."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from matrixsched.worker.database_time import FORGET_AFTER_S, DatabaseTime

EPOCH = datetime(2030, 1, 1, tzinfo=UTC)
DELAYS = st.floats(0, 0.5)


def at(seconds: float) -> datetime:
    return EPOCH + timedelta(seconds=seconds)


@given(
    st.floats(-1000, 1000),
    st.lists(st.tuples(DELAYS, DELAYS, st.floats(0, 3)), min_size=1, max_size=20),
    st.floats(-5, 5),
)
def test_a_moment_is_reached_between_perhaps_and_surely(
    apart: float, answers: list[tuple[float, float, float]], moment: float
):
    """`apart`: what the database's clock shows when ours is at nought."""
    time, now = DatabaseTime(), 0.0
    for there, back, pause in answers:
        time.learn(now, now + there + back, at(apart + now + there))
        now += there + back + pause
    really = now + moment
    told = at(apart + really)
    # Microseconds are all that a datetime holds.
    assert time.perhaps_reached(told) <= really + 2e-6
    assert time.surely_reached(told) >= really - 2e-6
    latest = time.latest(really)
    assert latest is not None
    assert latest >= told - timedelta(microseconds=2)


def test_the_quickest_answer_counts():
    time = DatabaseTime()
    time.learn(0, 0.2, at(0.1))
    time.learn(1, 1.002, at(1.001))
    assert time.surely_reached(at(5)) - time.perhaps_reached(at(5)) < 0.0021


def test_a_clock_that_was_set_is_followed_at_once():
    time = DatabaseTime()
    time.learn(0, 0.002, at(0.001))
    time.learn(1, 1.002, at(3601.001))
    assert abs(time.surely_reached(at(3605)) - 5) < 0.01
    time.learn(2, 2.002, at(2.001))
    assert abs(time.surely_reached(at(5)) - 5) < 0.01


def test_what_was_learned_long_ago_is_forgotten():
    time, drift = DatabaseTime(), 0.001
    for second in range(100):
        # Its clock goes a thousandth faster: after a while no two brackets of a millisecond would meet.
        time.learn(second, second + 0.001, at(second * (1 + drift)))
    reached = time.surely_reached(at(100 * (1 + drift)))
    assert abs(reached - 100) < 2 * FORGET_AFTER_S * drift + 0.002


def test_before_the_first_answer_nothing_is_surely_reached():
    assert DatabaseTime().surely_reached(at(0)) == float("inf")
    assert DatabaseTime().perhaps_reached(at(0)) == float("-inf")
