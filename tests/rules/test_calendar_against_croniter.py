"""The same expressions, read by another library: in UTC, where there is nothing to disagree about but the reading."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice

from croniter import CroniterBadDateError, croniter
from hypothesis import example, given, settings
from hypothesis import strategies as st

from matrixsched import cron
from matrixsched.errors import InvalidCron
from matrixsched.rules.schedule import ticks

DAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]
MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]


def fields(least: int, most: int, names: list[str] | None = None) -> st.SearchStrategy[str]:
    """One field, never a star: numbers or names, ranges with and without steps, lists of them."""
    numbers = st.integers(least, most).map(str)
    ranges = st.tuples(st.integers(least, most), st.integers(least, most)).map(sorted)
    plain = ranges.filter(lambda ends: ends[0] < ends[1]).map(lambda ends: f"{ends[0]}-{ends[1]}")
    stepped = st.builds("{}/{}".format, plain, st.integers(1, 5))
    terms = numbers | plain | stepped
    if names is not None:
        terms |= st.sampled_from(names) | st.sampled_from([name.lower() for name in names])
    return st.lists(terms, min_size=1, max_size=3).map(",".join)


def steps(most: int) -> st.SearchStrategy[str]:
    return st.just("*") | st.integers(1, most).map("*/{}".format)


# A star with a step in a day field is taken by some as a restriction and by others as none: it is left out.
days = st.one_of(
    st.just(("*", "*")),
    st.tuples(fields(1, 31), st.just("*")),
    st.tuples(st.just("*"), fields(0, 6, DAYS)),
    st.tuples(fields(1, 31), fields(0, 6, DAYS)),
)
expressions = st.builds(
    lambda minute, hour, day, month: f"{minute} {hour} {day[0]} {month} {day[1]}",
    steps(59) | fields(0, 59),
    steps(23) | fields(0, 23),
    days,
    steps(11) | fields(1, 12, MONTHS),
)
moments = st.datetimes(datetime(2000, 1, 1), datetime(2090, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001


@settings(deadline=None, max_examples=300)
@given(expressions, moments)
@example("0 0 29 2 *", datetime(2096, 3, 1, tzinfo=UTC))
@example("0 0 13 * FRI", datetime(2030, 1, 1, tzinfo=UTC))
@example("0 0 31 2 *", datetime(2030, 1, 1, tzinfo=UTC))
def test_both_libraries_read_an_expression_alike(expression, start):
    other = croniter(expression, start, ret_type=datetime, max_years_between_matches=50)
    assert first_ticks(expression, start) == first_of(other)


def first_ticks(expression: str, start: datetime) -> list[datetime]:
    try:
        return list(islice(ticks(cron(expression), start), 8))
    except InvalidCron:
        return []


def first_of(other: croniter) -> list[datetime]:
    try:
        return [other.get_next() for _ in range(8)]
    except CroniterBadDateError:
        return []
