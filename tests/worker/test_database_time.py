"""Telling the time of the database by our own clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from matrixsched.worker.database_time import FORGET_AFTER_S, DatabaseTime

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def test_one_answer_leaves_open_as_much_as_it_took() -> None:
    time = DatabaseTime()
    time.learn(100.0, 100.2, NOON)
    assert time.surely_reached(at(1)) == pytest.approx(101.2)
    assert time.perhaps_reached(at(1)) == pytest.approx(101.0)


def test_a_quick_answer_counts_for_the_slow_ones_after_it() -> None:
    time = DatabaseTime()
    time.learn(100.0, 100.002, at(0.001))
    time.learn(101.0, 101.4, at(1.3))
    assert time.surely_reached(at(5)) == pytest.approx(105.001)
    assert time.perhaps_reached(at(5)) == pytest.approx(104.999)


def test_two_answers_that_say_little_say_more_together() -> None:
    time = DatabaseTime()
    time.learn(100.0, 100.1, at(0.09))
    time.learn(100.1, 100.2, at(0.11))
    assert time.surely_reached(at(1)) - time.perhaps_reached(at(1)) == pytest.approx(0.02)


def test_what_was_learned_long_ago_is_forgotten() -> None:
    time = DatabaseTime()
    time.learn(100.0, 100.002, at(0.001))
    for turn in (1, 2):
        began = 100 + turn * (FORGET_AFTER_S + 1)
        time.learn(began, began + 0.4, at(began - 100 + 0.2))
    assert time.surely_reached(at(50)) - time.perhaps_reached(at(50)) == pytest.approx(0.4)


def test_a_clock_that_was_set_is_noticed_at_once() -> None:
    time = DatabaseTime()
    time.learn(100.0, 100.002, NOON)
    time.learn(101.0, 101.002, at(3600))
    assert time.surely_reached(at(3600)) == pytest.approx(101.002)
    assert time.perhaps_reached(at(3600)) == pytest.approx(101.0)
