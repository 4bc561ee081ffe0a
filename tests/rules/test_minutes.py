"""What the minutes of workers add up to."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrixsched import Outcome
from matrixsched.rules.minutes import (
    LATE_BOUNDS_S,
    MINUTE,
    MinuteTally,
    WorkerMinute,
    fleet_minutes,
    late_quantile,
    minute_of,
)

NOW = datetime(2026, 3, 29, 9, 30, 20, tzinfo=UTC)


def a_minute(worker: str, *, back: int = 0, late: tuple[float, ...] = (), **more: object) -> WorkerMinute:
    tally = MinuteTally()
    for late_s in late:
        tally.add(Outcome.SUCCEEDED, late_s)
    facts = {"outcomes": tally.outcomes, "late": tally.late} | more
    return WorkerMinute(minute=minute_of(NOW) - back * MINUTE, worker=worker, **facts)  # type: ignore[arg-type]


def test_minutes_of_all_workers_are_added_and_those_of_nobody_are_empty() -> None:
    told = [a_minute("a", late=(0.004,)), a_minute("b", late=(0.004, 40.0)), a_minute("a", back=2, late=(0.1,))]
    minutes = fleet_minutes(told, now=NOW, count=4)
    assert [one.minute for one in minutes] == [minute_of(NOW) - back * MINUTE for back in (3, 2, 1, 0)]
    assert [one.attempts for one in minutes] == [0, 1, 0, 3]
    assert minutes[-1].late_s(0.5) == 0.005
    assert minutes[-1].late_s(0.99) == 60
    assert minutes[0].late_s(0.5) is None


def test_what_each_saw_of_the_whole_is_told_by_the_worst_and_not_added() -> None:
    told = [a_minute("a", due=5, oldest_due_s=3.0), a_minute("b", due=7, oldest_due_s=2.0), a_minute("c")]
    (minute,) = fleet_minutes(told, now=NOW, count=1)
    assert (minute.due, minute.oldest_due_s) == (7, 3.0)


def test_minutes_that_are_too_old_or_of_a_clock_ahead_are_left_out() -> None:
    told = [a_minute("a", back=60, late=(1.0,)), a_minute("b", back=-1, late=(1.0,))]
    assert sum(one.attempts for one in fleet_minutes(told, now=NOW, count=60)) == 0


def test_what_went_wrong_is_told_apart_from_what_asked_to_come_again() -> None:
    outcomes = {
        Outcome.FAILED: 1,
        Outcome.TIMED_OUT: 2,
        Outcome.RETRIED: 4,
        Outcome.SUCCEEDED: 8,
        Outcome.INTERRUPTED: 16,
    }
    (minute,) = fleet_minutes([a_minute("a", outcomes=outcomes)], now=NOW, count=1)
    assert (minute.attempts, minute.went_wrong) == (31, 19)


@given(st.lists(st.floats(-10, 10_000), min_size=1), st.floats(0.01, 1))
def test_at_least_that_share_began_by_the_bound_that_is_told(late: list[float], share: float) -> None:
    tally = MinuteTally()
    for late_s in late:
        tally.add(Outcome.SUCCEEDED, late_s)
    bound = late_quantile(tally.late, share)
    assert bound is not None
    assert sum(late_s <= bound for late_s in late) >= share * len(late) - 1e-6
    smaller = [one for one in LATE_BOUNDS_S if one < bound]
    if smaller:
        assert sum(late_s <= smaller[-1] for late_s in late) < share * len(late) + 1e-6


@pytest.mark.parametrize("second", [0, 1, 59])
def test_a_minute_begins_with_its_first_second(second: int) -> None:
    assert minute_of(NOW.replace(second=second)) == datetime(2026, 3, 29, 9, 30, tzinfo=UTC)
    assert minute_of(NOW + timedelta(minutes=1)) == datetime(2026, 3, 29, 9, 31, tzinfo=UTC)
