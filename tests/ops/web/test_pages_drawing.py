"""How numbers and hours become lines and bars."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, time, timedelta

import pytest

from matrixsched.ops.web.pages.actions import place_text, read_place
from matrixsched.ops.web.pages.audit import differences
from matrixsched.ops.web.pages.charts import (
    FLOOR,
    TOP,
    WIDTH,
    attempts_chart,
    due_chart,
    late_chart,
    nice,
    short,
)
from matrixsched.ops.web.pages.templates import band
from matrixsched.ops.web.pages.words import from_now, late_text, number
from matrixsched.rules.action import Outcome
from matrixsched.rules.minutes import LATE_BOUNDS_S, FleetMinute
from matrixsched.rules.templates import SendWindow
from matrixsched.store.looking import Place

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)


def hour(**first: object) -> list[FleetMinute]:
    minutes = [FleetMinute(NOW - timedelta(minutes=back)) for back in range(59, -1, -1)]
    for name, value in first.items():
        setattr(minutes[0], name, value)
    return minutes


@pytest.mark.parametrize(
    ("most", "end"), [(0, 4), (4, 4), (5, 5), (6, 10), (10, 10), (11, 20), (21, 50), (51, 100), (5001, 10_000)]
)
def test_a_scale_ends_at_a_round_number_that_holds_all(most: int, end: int) -> None:
    assert nice(most) == end


def test_bars_stand_on_each_other_inside_the_picture() -> None:
    minutes = hour(outcomes=Counter({Outcome.SUCCEEDED: 30, Outcome.FAILED: 20}))
    well, wrong = attempts_chart(minutes).bars
    assert (well.kind, wrong.kind) == ("well", "wrong")
    assert wrong.y + wrong.height == pytest.approx(FLOOR, abs=0.2)
    assert well.y + well.height == pytest.approx(wrong.y, abs=0.2)
    assert well.y == pytest.approx(TOP, abs=0.2)
    assert attempts_chart(minutes).says == "50 attempts in the last hour, 20 went wrong"


def test_a_single_one_among_many_is_seen() -> None:
    minutes = hour(outcomes=Counter({Outcome.SUCCEEDED: 1_000_000, Outcome.FAILED: 1}))
    assert attempts_chart(minutes).bars[1].height == 1.0


def test_an_hour_without_anything_is_drawn_too() -> None:
    for chart in (attempts_chart(hour()), due_chart(hour()), late_chart(hour())):
        assert not chart.bars
        assert len(chart.spots) == 60
        assert all(0 < mark.at < WIDTH for mark in chart.columns)
    assert [line.path for line in late_chart(hour()).lines] == ["", ""]


def test_lateness_has_a_gap_where_nothing_began_and_stays_inside() -> None:
    minutes = hour()
    for at, bucket in ((0, 0), (1, len(LATE_BOUNDS_S)), (5, 3)):
        minutes[at].late[bucket] = 1
    path = late_chart(minutes).lines[0].path
    assert path.count("M") == 2
    heights = [float(part.split(" ")[1]) for part in path.replace("L", "M").split("M")[1:]]
    assert (min(heights), max(heights)) == (TOP, FLOOR)


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0"), (999, "999"), (2500, "2.5k"), (10_000, "10k"), (1_500_000, "1.5M")]
)
def test_counts_are_short(count: int, text: str) -> None:
    assert short(count) == text


@pytest.mark.parametrize(
    ("late_s", "text"),
    [
        (None, "–"),
        (0.0025, "≤ 2.5 ms"),
        (0.25, "≤ 250 ms"),
        (5, "≤ 5 s"),
        (300, "≤ 5 min 0 s"),
        (float("inf"), "> 2 h"),
    ],
)
def test_lateness_in_words(late_s: float | None, text: str) -> None:
    assert late_text(late_s) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (0.0123, "0.012"), (1.26, "1.3"), (113.4, "113"), (2000.0, "2,000")]
)
def test_numbers_have_the_digits_that_matter(value: float, text: str) -> None:
    assert number(value) == text


def test_times_are_told_from_now() -> None:
    assert from_now(NOW + timedelta(minutes=3), NOW) == "in 3 min 0 s"
    assert from_now(NOW - timedelta(seconds=41), NOW) == "41 s ago"
    assert from_now(None, NOW) == "–"


@pytest.mark.parametrize(
    ("zone", "begins", "ends", "parts"),
    [
        ("UTC", time(8), time(12), [(8.0, 4.0)]),
        ("Asia/Tokyo", time(8), time(12), [(23.0, 1.0), (0.0, 3.0)]),
        ("America/New_York", time(18), time(22), [(23.0, 1.0), (0.0, 3.0)]),
        ("Asia/Kolkata", time(9), time(10, 30), [(3.5, 1.5)]),
        ("UTC", time(22), time(6), [(22.0, 2.0), (0.0, 6.0)]),
        ("UTC", time(18), time(0), [(18.0, 6.0)]),
    ],
)
def test_hours_of_a_zone_are_drawn_where_they_lie_in_utc(
    zone: str, begins: time, ends: time, parts: list[tuple[float, float]]
) -> None:
    assert band(zone, [SendWindow(begins, ends)], NOW).parts == parts


def test_a_template_without_hours_is_open_all_day_and_an_unknown_zone_is_said() -> None:
    assert band("UTC", [], NOW).parts == [(0.0, 24.0)]
    assert "does not know" in band("Mars/Base", [SendWindow(time(8), time(9))], NOW).says


@pytest.mark.parametrize("place", [Place(0, "a"), Place(3, "a.b.c~/?", NOW), Place(63, "\U0001f4a5 x")])
def test_where_a_look_goes_on_is_read_as_it_was_written(place: Place) -> None:
    assert read_place(place_text(place)) == place


def test_the_log_shows_what_is_different_first() -> None:
    assert differences({"rate": "5/s", "pool": 0}, {"pool": 0, "rate": "9/s", "left": None}) == [
        ("rate", "5/s", "9/s"),
        ("left", None, "–"),
        ("pool", "0", "0"),
    ]
