"""Cron in a time zone: the two odd days of the year, exclusions, what is refused, and laws that always hold."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from matrixsched import Cron, Daily, Every, Period, catch_up, cron, every, upcoming
from matrixsched.errors import BadInput, InvalidCron, InvalidDuration, InvalidNumber, InvalidTime, UnknownZone
from matrixsched.rules.schedule import begin, is_misfire, next_tick, ticks

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
NEW_YEAR = datetime(2030, 1, 1, tzinfo=UTC)

BERLIN, NEW_YORK, HOWE = "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"
APIA, MOROCCO = "Pacific/Apia", "Africa/Casablanca"
SHIFT, SKIP = {"skipped": "shift"}, {"skipped": "skip"}
ONCE, BOTH, NEITHER = {"repeated": "once"}, {"repeated": "both"}, {"repeated": "skip"}


def shown(rule: Cron | Every, after: str, count: int) -> list[str]:
    """The next ticks as clocks in the rule's zone show them."""
    zone = ZoneInfo(rule.zone)
    moments = upcoming(rule, datetime.fromisoformat(after), count)
    return [moment.astimezone(zone).isoformat(timespec="minutes") for moment in moments]


# The two odd days.


@pytest.mark.parametrize(
    ("zone", "expression", "policy", "after", "expected"),
    [
        # Berlin goes from 02:00 to 03:00.
        (BERLIN, "30 2 * * *", {}, "2030-03-30T12:00+01:00", ["2030-03-31T03:00+02:00", "2030-04-01T02:30+02:00"]),
        (BERLIN, "30 2 * * *", SHIFT, "2030-03-30T12:00+01:00", ["2030-03-31T03:00+02:00", "2030-04-01T02:30+02:00"]),
        (BERLIN, "30 2 * * *", SKIP, "2030-03-30T12:00+01:00", ["2030-04-01T02:30+02:00", "2030-04-02T02:30+02:00"]),
        (BERLIN, "0 2,3 * * *", SHIFT, "2030-03-30T12:00+01:00", ["2030-03-31T03:00+02:00", "2030-04-01T02:00+02:00"]),
        (BERLIN, "0 3 * * *", SHIFT, "2030-03-30T12:00+01:00", ["2030-03-31T03:00+02:00", "2030-04-01T03:00+02:00"]),
        (BERLIN, "0,30 2 * * *", SHIFT, "2030-03-31T00:00+01:00", ["2030-03-31T03:00+02:00", "2030-04-01T02:00+02:00"]),
        (BERLIN, "30 * * * *", {}, "2030-03-31T01:00+01:00", ["2030-03-31T01:30+01:00", "2030-03-31T03:30+02:00"]),
        (BERLIN, "30 * * * *", SHIFT, "2030-03-31T01:30+01:00", ["2030-03-31T03:00+02:00", "2030-03-31T03:30+02:00"]),
        # And from 03:00 back to 02:00.
        (BERLIN, "30 2 * * *", {}, "2030-10-27T00:00+02:00", ["2030-10-27T02:30+02:00", "2030-10-28T02:30+01:00"]),
        (BERLIN, "30 2 * * *", ONCE, "2030-10-27T00:00+02:00", ["2030-10-27T02:30+02:00", "2030-10-28T02:30+01:00"]),
        (BERLIN, "30 2 * * *", BOTH, "2030-10-27T00:00+02:00", ["2030-10-27T02:30+02:00", "2030-10-27T02:30+01:00"]),
        (BERLIN, "30 2 * * *", NEITHER, "2030-10-27T00:00+02:00", ["2030-10-28T02:30+01:00", "2030-10-29T02:30+01:00"]),
        (BERLIN, "0 2 * * *", ONCE, "2030-10-27T00:00+02:00", ["2030-10-27T02:00+02:00", "2030-10-28T02:00+01:00"]),
        (BERLIN, "0 2 * * *", BOTH, "2030-10-27T00:00+02:00", ["2030-10-27T02:00+02:00", "2030-10-27T02:00+01:00"]),
        (BERLIN, "0 3 * * *", NEITHER, "2030-10-27T00:00+02:00", ["2030-10-27T03:00+01:00", "2030-10-28T03:00+01:00"]),
        (BERLIN, "30 * * * *", {}, "2030-10-27T02:00+02:00", ["2030-10-27T02:30+02:00", "2030-10-27T02:30+01:00"]),
        (BERLIN, "30 * * * *", ONCE, "2030-10-27T02:00+02:00", ["2030-10-27T02:30+02:00", "2030-10-27T03:30+01:00"]),
        # Begun between the two: the second 02:30 still is one that came before.
        (BERLIN, "30 2 * * *", ONCE, "2030-10-27T02:00+01:00", ["2030-10-28T02:30+01:00", "2030-10-29T02:30+01:00"]),
        (NEW_YORK, "30 2 * * *", {}, "2030-03-09T12:00-05:00", ["2030-03-10T03:00-04:00", "2030-03-11T02:30-04:00"]),
        (NEW_YORK, "30 2 * * *", SKIP, "2030-03-09T12:00-05:00", ["2030-03-11T02:30-04:00", "2030-03-12T02:30-04:00"]),
        (NEW_YORK, "15 1 * * *", {}, "2030-11-03T00:00-04:00", ["2030-11-03T01:15-04:00", "2030-11-04T01:15-05:00"]),
        (NEW_YORK, "15 1 * * *", BOTH, "2030-11-03T00:00-04:00", ["2030-11-03T01:15-04:00", "2030-11-03T01:15-05:00"]),
        (NEW_YORK, "9 1 * * *", NEITHER, "2030-11-03T00:00-04", ["2030-11-04T01:09-05:00", "2030-11-05T01:09-05:00"]),
        # Lord Howe changes by half an hour: from 02:00 to 02:30, from 02:00 back to 01:30.
        (HOWE, "15 2 * * *", {}, "2030-10-05T12:00+10:30", ["2030-10-06T02:30+11:00", "2030-10-07T02:15+11:00"]),
        (HOWE, "15 2 * * *", SKIP, "2030-10-05T12:00+10:30", ["2030-10-07T02:15+11:00", "2030-10-08T02:15+11:00"]),
        (HOWE, "30 2 * * *", SKIP, "2030-10-05T12:00+10:30", ["2030-10-06T02:30+11:00", "2030-10-07T02:30+11:00"]),
        (HOWE, "45 1 * * *", {}, "2030-04-07T00:00+11:00", ["2030-04-07T01:45+11:00", "2030-04-08T01:45+10:30"]),
        (HOWE, "45 1 * * *", BOTH, "2030-04-07T00:00+11:00", ["2030-04-07T01:45+11:00", "2030-04-07T01:45+10:30"]),
        (HOWE, "45 1 * * *", NEITHER, "2030-04-07T00:00+11:00", ["2030-04-08T01:45+10:30", "2030-04-09T01:45+10:30"]),
        (HOWE, "15 1 * * *", NEITHER, "2030-04-07T00:00+11:00", ["2030-04-07T01:15+11:00", "2030-04-08T01:15+10:30"]),
        # Apia had no 30 December 2011.
        (APIA, "0 9 * * *", {}, "2011-12-29T00:00-10:00", ["2011-12-29T09:00-10:00", "2011-12-31T00:00+14:00"]),
        (APIA, "0 9 * * *", SKIP, "2011-12-29T00:00-10:00", ["2011-12-29T09:00-10:00", "2011-12-31T09:00+14:00"]),
        (APIA, "0 9 30 * *", SHIFT, "2011-12-29T00:00-10:00", ["2011-12-31T00:00+14:00", "2012-01-30T09:00+14:00"]),
        (APIA, "0 9 31 * *", SHIFT, "2011-12-29T00:00-10:00", ["2011-12-31T09:00+14:00", "2012-01-31T09:00+14:00"]),
        # Casablanca goes back for Ramadan and forward after it.
        (MOROCCO, "30 2 * * *", {}, "2023-03-18T12:00+01:00", ["2023-03-19T02:30+01:00", "2023-03-20T02:30+00:00"]),
        (MOROCCO, "30 2 * * *", BOTH, "2023-03-18T12:00+01:00", ["2023-03-19T02:30+01:00", "2023-03-19T02:30+00:00"]),
        (MOROCCO, "30 2 * * *", {}, "2023-04-22T12:00+00:00", ["2023-04-23T03:00+01:00", "2023-04-24T02:30+01:00"]),
        (MOROCCO, "30 2 * * *", SKIP, "2023-04-22T12:00+00:00", ["2023-04-24T02:30+01:00", "2023-04-25T02:30+01:00"]),
    ],
)  # fmt: skip
def test_local_times_that_are_skipped_or_repeated_run_as_the_policy_says(zone, expression, policy, after, expected):
    assert shown(cron(expression, zone, **policy), after, 2) == expected


@pytest.mark.parametrize("zone", [BERLIN, NEW_YORK, HOWE, APIA, MOROCCO])
def test_a_rule_for_every_quarter_of_an_hour_never_pauses_and_never_hurries(zone):
    for start in (datetime(2011, 12, 25, tzinfo=UTC), *(datetime(2023, month, 1, tzinfo=UTC) for month in (3, 4, 10))):
        moments = upcoming(cron("*/15 * * * *", zone), start, 10 * 96)
        assert {later - earlier for earlier, later in pairwise(moments)} == {HOUR / 4}


def test_the_policy_is_settled_when_the_rule_is_made():
    assert (cron("30 2 * * *").skipped, cron("30 2 * * *").repeated) == ("shift", "once")
    assert (cron("30 * * * *").skipped, cron("30 * * * *").repeated) == ("skip", "both")
    assert (cron("30 0-23 * * *", skipped="shift").skipped, cron("5 */2 * * *").repeated) == ("shift", "once")


# Exclusions.


def test_an_excluded_date_is_a_day_in_the_zone_of_the_rule():
    rule = cron("0 */12 * * *", NEW_YORK, exclude=[date(2030, 12, 25)])
    assert shown(rule, "2030-12-24T11:00-05:00", 3) == [
        "2030-12-24T12:00-05:00",
        "2030-12-26T00:00-05:00",
        "2030-12-26T12:00-05:00",
    ]


def test_a_period_is_excluded_up_to_its_end_but_not_with_it():
    rest = Period(datetime(2030, 1, 1, 10, tzinfo=UTC), datetime(2030, 1, 1, 12, tzinfo=UTC))
    rule = every(HOUR, anchor=NEW_YEAR, exclude=[rest])
    assert [tick.hour for tick in upcoming(rule, NEW_YEAR + 8 * HOUR, 3)] == [9, 12, 13]


def test_a_daily_window_may_go_past_midnight():
    rule = cron("0 * * * *", BERLIN, exclude=[Daily(time(22), time(6))])
    assert shown(rule, "2030-01-01T20:30+01:00", 3) == [
        "2030-01-01T21:00+01:00",
        "2030-01-02T06:00+01:00",
        "2030-01-02T07:00+01:00",
    ]


def test_a_daily_window_keeps_its_local_hours_when_clocks_change():
    rule = every(HOUR, anchor=NEW_YEAR, zone=BERLIN, exclude=[Daily(time(0), time(12))])
    assert shown(rule, "2030-03-30T23:00+01:00", 1) == ["2030-03-31T12:00+02:00"]
    assert shown(rule, "2030-10-26T23:00+02:00", 1) == ["2030-10-27T12:00+01:00"]


def test_a_time_shifted_out_of_an_excluded_window_runs():
    rule = cron("30 2 * * *", BERLIN, exclude=[Daily(time(2), time(3))])
    assert shown(rule, "2030-01-01T00:00+01:00", 1) == ["2030-03-31T03:00+02:00"]


def test_after_the_end_the_next_run_is_pushed_out_of_what_is_excluded():
    rule = every(HOUR, after_end=True, exclude=[Daily(time(1), time(5)), date(2030, 1, 2)])
    assert begin(rule, NEW_YEAR + 2 * HOUR)[1] == NEW_YEAR + 5 * HOUR
    assert next_tick(rule, NEW_YEAR, NEW_YEAR + timedelta(minutes=1)) == NEW_YEAR + 5 * HOUR
    assert next_tick(rule, NEW_YEAR, NEW_YEAR + 23 * HOUR + HOUR / 2) == NEW_YEAR + 2 * DAY
    assert upcoming(rule, NEW_YEAR, 2) == [NEW_YEAR + 5 * HOUR, NEW_YEAR + 6 * HOUR]


def test_a_rule_ends_where_time_does():
    last = datetime(2199, 12, 31, tzinfo=UTC)
    assert upcoming(cron("0 12 * * *"), last, 5) == [last + 12 * HOUR]
    assert next_tick(cron("0 12 * * *"), last + 12 * HOUR, last) is None
    assert next_tick(every(3000 * DAY, after_end=True), last, last) is None


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: Period(NEW_YEAR, NEW_YEAR), InvalidTime),
        (lambda: Period(NEW_YEAR.replace(tzinfo=None), NEW_YEAR), InvalidTime),
        (lambda: Daily(time(1), time(1)), BadInput),
        (lambda: Daily(time(1, tzinfo=UTC), time(2)), BadInput),
        (lambda: Daily("22:00", "06:00"), BadInput),
        (lambda: catch_up(0), InvalidNumber),
        (lambda: catch_up(10_000), InvalidNumber),
        (lambda: cron("0 9 * * *", skipped="twice"), BadInput),
        (lambda: cron("0 9 * * *", repeated=""), BadInput),
        (lambda: cron("0 9 * * *", misfire="never"), BadInput),
        (lambda: cron("0 9 * * *", jitter=5), InvalidDuration),
        (lambda: cron("0 9 * * *", exclude=[5]), BadInput),
        (lambda: upcoming(cron("0 9 * * *"), NEW_YEAR, 0), InvalidNumber),
        (lambda: upcoming("0 9 * * *", NEW_YEAR, 1), BadInput),
        (lambda: upcoming(cron("0 9 * * *"), NEW_YEAR.replace(tzinfo=None), 1), InvalidTime),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_remedy(make, error):
    with pytest.raises(error) as refused:
        make()
    assert str(refused.value).endswith(refused.value.remedy)


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("", "has 0 fields instead of five"),
        ("0 9 * *", "has 4 fields instead of five"),
        ("0 0 9 * * *", "has 6 fields instead of five; there is none for seconds"),
        ("@daily", "has 1 fields instead of five"),
        ("60 * * * *", "cannot be read (Bad minute)"),
        ("* 24 * * *", "cannot be read (Bad hour)"),
        ("* * 0 * *", "cannot be read (Bad day-of-month)"),
        ("* * * * FUNDAY", "cannot be read (Bad day-of-week)"),
        ("*/0 * * * *", "cannot be read (Bad minute)"),
        ("5-1 * * * *", "cannot be read (Bad minute)"),
        ("* * * * 1#6", "cannot be read (Bad day-of-week)"),
        ("*/1#2 * * * *", "cannot be read (Bad minute)"),
        ("* * * * 5L/2", "cannot be read (Bad day-of-week)"),
        ("* * * * 5#1/2", "cannot be read (Bad day-of-week)"),
        ("9" * 5000 + " * * * *", "has 5008 characters, 500 are allowed"),
        ("0 0 30 2 *", "never fires: its months have no such day"),
        ("0 0 31 4,6,9,11 *", "never fires: its months have no such day"),
        (None, "is no text but NoneType"),
    ],
)
def test_an_expression_that_names_no_time_is_refused(expression, why):
    with pytest.raises(InvalidCron) as refused:
        cron(expression)
    assert refused.value.why == why
    assert "Use five fields" in str(refused.value)


@pytest.mark.parametrize(
    ("zone", "close"),
    [
        ("Berlin", "Europe/Berlin"),
        ("europe/berlin", "Europe/Berlin"),
        ("Europe/Berlim", "Europe/Berlin"),
        ("US/Newyork", "America/New_York"),
        ("Europe", None),
        ("../../etc/passwd", None),
        ("/etc/localtime", None),
        ("localtime", None),
        ("right/Europe/Berlin", "Europe/Berlin"),
        ("", None),
        ("a\x00b", None),
        (None, None),
        (timedelta(hours=1), None),
    ],
)
def test_an_unknown_zone_is_refused_and_close_ones_are_named(zone, close):
    with pytest.raises(UnknownZone) as refused:
        cron("0 9 * * *", zone)
    assert close is None or close in refused.value.close
    assert "IANA name" in str(refused.value)


# Laws.

EXPRESSIONS = [
    "*/7 * * * *",
    "30 * * * *",
    "30 2,5 * * *",
    "0,15 1-3,9 * * *",
    "0 8 * * MON",
    "0 12 L * *",
    "45 9 29 2 *",
]
ZONES = ["UTC", BERLIN, NEW_YORK, HOWE, APIA, MOROCCO, "America/Scoresbysund", "Asia/Kathmandu"]

moments = st.datetimes(datetime(2000, 1, 1), datetime(2099, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
exclusions = st.one_of(
    st.dates(date(2000, 1, 1), date(2099, 1, 1)),
    st.builds(lambda start, length: Period(start, start + length), moments, st.timedeltas(HOUR, 400 * DAY)),
    # Never all that a rule names: for what never fires, years are looked through.
    st.sampled_from([Daily(time(0), time(1)), Daily(time(2, 30), time(3)), Daily(time(22), time(4))]),
)
common = {"exclude": st.lists(exclusions, max_size=3), "misfire": st.builds(catch_up, st.integers(1, 5))}
crons = st.builds(
    cron,
    st.sampled_from(EXPRESSIONS),
    st.sampled_from(ZONES),
    skipped=st.sampled_from(["shift", "skip"]),
    repeated=st.sampled_from(["once", "both", "skip"]),
    **common,
)
intervals = st.sampled_from([timedelta(seconds=77), 7 * HOUR, 23 * HOUR, 11 * DAY + HOUR])
grids = st.builds(every, intervals, anchor=moments, zone=st.sampled_from(ZONES), **common)


def is_excluded(rule: Cron | Every, tick: datetime) -> bool:
    local = tick.astimezone(ZoneInfo(rule.zone))

    def holds(exclusion: date | Period | Daily) -> bool:
        if isinstance(exclusion, Period):
            return exclusion.start <= tick < exclusion.end
        if isinstance(exclusion, Daily):
            clock = local.time()
            if exclusion.start < exclusion.end:
                return exclusion.start <= clock < exclusion.end
            return clock >= exclusion.start or clock < exclusion.end
        return local.date() == exclusion

    return any(holds(exclusion) for exclusion in rule.exclude)


@settings(deadline=None)
@given(crons | grids, moments)
def test_ticks_increase_and_none_is_excluded(rule, start):
    found = list(islice(ticks(rule, start), 30))
    assert all(earlier < later for earlier, later in pairwise([start, *found]))
    assert not any(is_excluded(rule, tick) for tick in found)


@settings(deadline=None)
@given(crons | grids, moments)
def test_whoever_asks_again_after_a_restart_gets_the_same_ticks(rule, start):
    found = list(islice(ticks(rule, start), 12))
    for number, tick in enumerate(found[:-1]):
        assert next(ticks(rule, tick)) == found[number + 1]
        assert next_tick(rule, tick, tick - 5 * HOUR) == found[number + 1]  # the clock was set back meanwhile


@settings(deadline=None)
@given(crons | grids, moments, st.integers(0, 40), st.floats(0, 1))
def test_at_most_the_newest_missed_ticks_are_made_up_for(rule, start, missed, part):
    found = list(islice(ticks(rule, start), missed + 2))
    assume(len(found) == missed + 2)
    now = found[-2] + (found[-1] - found[-2] - timedelta(microseconds=1)) * part
    tick, rest = found[0], found[1:-1]
    dropped = is_misfire(rule, tick_at=tick, due_at=tick, now=now, may_be_late=False)
    assert dropped == (len(rest) >= rule.misfire.limit)
    made_up = []
    while (tick := next_tick(rule, tick, now)) <= now:
        assert not is_misfire(rule, tick_at=tick, due_at=tick, now=now, may_be_late=False)
        made_up.append(tick)
    assert made_up == rest[-rule.misfire.limit :]
    assert tick == found[-1]


@settings(deadline=None)
@given(crons | grids, moments, st.integers(0, 40))
def test_a_rule_that_does_not_catch_up_goes_on_after_now(rule, start, missed):
    once = cron(rule.expression, rule.zone, exclude=rule.exclude) if isinstance(rule, Cron) else every(rule.interval)
    once, first = begin(once, start)
    later = list(islice(ticks(once, first), missed + 1))
    assume(len(later) == missed + 1)
    assert next_tick(once, first, later[missed] - timedelta(microseconds=1)) == later[missed]


@pytest.fixture
def looked_at(monkeypatch) -> list[datetime]:
    """The ticks that were looked at: each takes time, in which a worker does nothing else."""
    found: list[datetime] = []

    def noting(*arguments):
        for tick in ticks(*arguments):
            found.append(tick)
            yield tick

    monkeypatch.setattr("matrixsched.rules.schedule.ticks", noting)
    return found


@pytest.mark.parametrize("expression", ["* * * * *", "*/5 8-17 * * MON-FRI", "0 9 * * *"])
def test_catching_up_after_years_takes_no_time_to_speak_of(looked_at, expression):
    rule = cron(expression, BERLIN, misfire=catch_up(100))
    now = NEW_YEAR + 3650 * DAY
    first = next_tick(rule, NEW_YEAR, now)
    assert len(looked_at) < 4 * 100
    assert sum(tick <= now for tick in islice(ticks(rule, first), 100)) == 99


def test_rules_that_come_in_bursts_are_caught_up_with_too(looked_at):
    rule = cron("* * * 12 *", BERLIN, misfire=catch_up(100))
    december = datetime(2029, 12, 31, 22, tzinfo=UTC)
    now = datetime(2039, 12, 20, 12, tzinfo=UTC)
    assert next_tick(rule, december, now) == now - timedelta(minutes=99)
    assert len(looked_at) < 30 * 100


def test_what_cannot_have_been_missed_is_not_counted(looked_at):
    rule = cron("* * * * *", BERLIN, misfire=catch_up(1000))
    tick = NEW_YEAR - timedelta(minutes=900)
    assert not is_misfire(rule, tick_at=tick, due_at=tick, now=NEW_YEAR, may_be_late=False)
    assert next_tick(rule, tick, NEW_YEAR) == tick + timedelta(minutes=1)
    assert len(looked_at) == 1
