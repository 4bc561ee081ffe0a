"""Repetition by interval: a grid that never drifts, or a delay after the end."""

from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrixsched.errors import BadInput, InvalidDuration, InvalidTime, UnknownZone
from matrixsched.rules.schedule import begin, catch_up, every, grid_point, next_tick

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)

moments = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
intervals = st.timedeltas(timedelta(milliseconds=1), timedelta(days=400))


@given(moments, intervals, moments)
def test_a_grid_point_lies_on_the_grid_and_is_the_first_one_after(anchor, interval, moment):
    after = grid_point(anchor, interval, moment)
    assert (after - anchor) % interval == timedelta(0)
    assert moment < after <= moment + interval


@given(moments, intervals, st.timedeltas(timedelta(0), timedelta(days=30)))
def test_a_grid_never_drifts_and_never_repeats_a_tick(anchor, interval, late):
    repeat, tick = begin(every(interval, anchor=anchor), anchor + 10 * interval)
    following = next_tick(repeat, tick, tick + late)
    assert following > tick
    assert following > tick + late or late == timedelta(0)
    assert (following - anchor) % interval == timedelta(0)


@given(moments, intervals, st.timedeltas(timedelta(0), timedelta(days=30)))
def test_a_clock_that_was_set_back_does_not_repeat_a_tick(start, interval, back):
    repeat, tick = begin(every(interval), start)
    assert next_tick(repeat, tick, tick - back) == tick + interval


def test_ticks_missed_while_nothing_ran_are_made_up_for_once():
    repeat, tick = begin(every(MINUTE), NOON)
    assert next_tick(repeat, tick, NOON + 90 * MINUTE + timedelta(seconds=1)) == NOON + 91 * MINUTE


def test_after_the_end_counts_from_the_end_of_the_run():
    repeat, tick = begin(every(MINUTE, after_end=True), NOON)
    ended = NOON + timedelta(seconds=17)
    assert next_tick(repeat, tick, ended) == ended + MINUTE


def test_a_grid_without_an_anchor_is_fixed_by_its_first_tick():
    repeat, tick = begin(every(MINUTE), NOON + timedelta(seconds=7))
    assert (repeat.anchor, tick) == (NOON + timedelta(seconds=7),) * 2


def test_a_grid_with_an_anchor_begins_at_its_next_point():
    _, tick = begin(every(MINUTE, anchor=NOON), NOON + timedelta(seconds=7))
    assert tick == NOON + MINUTE


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"interval": timedelta(0)}, InvalidDuration),
        ({"interval": timedelta(seconds=-1)}, InvalidDuration),
        ({"interval": timedelta(microseconds=1)}, InvalidDuration),
        ({"interval": timedelta(days=40_000)}, InvalidDuration),
        ({"interval": 5}, InvalidDuration),
        ({"interval": MINUTE, "anchor": datetime(2030, 1, 1)}, InvalidTime),  # noqa: DTZ001
        ({"interval": MINUTE, "anchor": "noon"}, InvalidTime),
        ({"interval": MINUTE, "anchor": NOON, "after_end": True}, BadInput),
        ({"interval": MINUTE, "after_end": "yes"}, BadInput),
        ({"interval": MINUTE, "after_end": True, "misfire": catch_up(3)}, BadInput),
        ({"interval": MINUTE, "misfire": "all"}, BadInput),
        ({"interval": MINUTE, "jitter": -MINUTE}, InvalidDuration),
        ({"interval": MINUTE, "zone": "Mars/Olympus"}, UnknownZone),
        ({"interval": MINUTE, "exclude": date(2030, 12, 24)}, BadInput),
        ({"interval": MINUTE, "exclude": [NOON]}, BadInput),
        ({"interval": MINUTE, "exclude": ["2030-12-24"]}, BadInput),
        ({"interval": MINUTE, "exclude": [date(2000, 1, 1) + timedelta(days=day) for day in range(1001)]}, BadInput),
    ],
    ids=repr,
)
def test_a_repetition_that_makes_no_sense_is_refused(wrong, error):
    with pytest.raises(error) as refused:
        every(**wrong)
    assert str(refused.value).endswith(refused.value.remedy)
