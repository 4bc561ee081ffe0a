"""How fast attempts end, which says how many may be claimed ahead of the handlers that are free."""

from __future__ import annotations

from datetime import timedelta

import pytest

from matrixsched.clock import ManualClock
from matrixsched.worker.slots import Pace


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def pace(clock: ManualClock) -> Pace:
    return Pace(clock)


def test_handlers_that_end_together_are_not_taken_for_quick_ones(clock: ManualClock, pace: Pace):
    measured = []
    for step in range(200):
        if step % 20 == 0:
            pace.ended += 20  # twenty slots, handlers of 0.2 s: a hundred in a second
        measured.append(pace.measured())
        clock.advance(timedelta(seconds=0.01))

    assert max(measured) <= 160
    assert min(measured[50:]) >= 75


def test_quick_handlers_are_believed_at_once(clock: ManualClock, pace: Pace):
    clock.advance(timedelta(seconds=0.002))
    pace.ended += 500

    assert pace.measured() == 2_000


def test_also_after_a_lull(clock: ManualClock, pace: Pace):
    for _ in range(2):
        clock.advance(timedelta(seconds=1))
        assert pace.measured() == 0
    clock.advance(timedelta(seconds=0.05))
    pace.ended += 100

    assert pace.measured() == 400


def test_a_pace_asked_for_seldom_is_that_of_all_the_time_since(clock: ManualClock, pace: Pace):
    clock.advance(timedelta(seconds=10))
    pace.ended += 500

    assert pace.measured() == 50


def test_a_lull_is_forgotten_slowly(clock: ManualClock, pace: Pace):
    clock.advance(timedelta(seconds=0.25))
    pace.ended += 100
    assert pace.measured() == 400

    for _ in range(10):
        clock.advance(timedelta(seconds=0.05))
        last = pace.measured()
    assert 0 < last < 100
