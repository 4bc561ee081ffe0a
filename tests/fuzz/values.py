"""Single values: good ones, and odd ones of every sort."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, timezone
from fractions import Fraction
from math import inf, nan
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from hypothesis import strategies as st

from fuzz.inputs import SECRET, Made

Strategy = st.SearchStrategy[Any]

START = datetime(2030, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
KNOWN_IDS = ("due", "later", "daily", "sent", "over", "failed")
"""Those of the actions that are there from the beginning; some of them finished."""

# Texts.

ODD_TEXTS: list[Any] = [
    "",
    " ",
    "\x00",
    "a\x00b",
    "a\nb",
    "\x7f",
    "\x9f",
    "\ud800",
    "a\udfffb",
    "\u202eabc",
    "אבג",
    "😀" * 10,
    "e\u0301",
    "é",
    "ß",
    "İ",
    "'; drop table matrixsched.actions; --",
    '"quoted"',
    "%",
    "_",
    "\\",
    "$1",
    ":now",
    "{now}",
    "a|b",
    "a:b",
    "key:*",
    "*",
    "global",
    "acquired:pool",
    "try_release:pool",
    "queue:mixed",
    "null",
    "\ufeff",
    "\uffff",
    "\U0010ffff",
    "x" * 256,
    "x" * 257,
    "é" * 128,
    "é" * 129,
    Made("long", ("x", 100_000)),
]
odd_texts: Strategy = st.sampled_from(ODD_TEXTS) | st.text(max_size=30)

# What is of a wrong type, wherever it is passed.

WRONG: list[Any] = [
    None,
    True,
    False,
    0,
    1,
    -1,
    5,
    2**31,
    2**63 - 1,
    2**63,
    -(2**63) - 1,
    2**70,
    -(2**70),
    Made("power", (10, 5000)),
    0.0,
    -0.0,
    1.5,
    1e308,
    nan,
    inf,
    -inf,
    b"",
    b"bytes",
    bytearray(b"x"),
    "",
    "text",
    "5",
    [],
    [None],
    {},
    {"a": 1},
    (),
    (1, 2),
    frozenset(),
    Made("Decimal", ("1.5",)),
    Fraction(1, 3),
    date(2030, 1, 1),
    time(12),
    timedelta(0),
    timedelta(hours=1),
    START,
    UUID(int=7),
    Made("object"),
    Made("function"),
    Made("type"),
    Made("iterator", (1, "a")),
    Made("nested", (5,)),
]
wrong: Strategy = st.sampled_from(WRONG)
uncallable: Strategy = st.sampled_from([one for one in WRONG if one not in (Made("function"), Made("type"))])
"""A function of the caller's own that fails is the caller's own business."""
odd_names: Strategy = odd_texts | wrong

# Numbers.

odd_numbers: Strategy = wrong | st.integers(-(2**70), 2**70) | st.floats() | st.sampled_from([-1, 0, 1, 10**4, 10**6])

# Times.

OFFSETS = [UTC, timezone(timedelta(hours=23, minutes=59)), timezone(timedelta(seconds=-1)), ZoneInfo("Europe/Berlin")]
OFFSETS += [timezone(-timedelta(hours=23, minutes=59)), ZoneInfo("Pacific/Apia"), ZoneInfo("America/New_York")]
EXTREMES = [datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999)]  # noqa: DTZ001
zones_of_times = st.none() | st.sampled_from(OFFSETS)


@st.composite
def any_times(draw: st.DrawFn) -> datetime:
    """From the year 1 to 9999, naive and aware, before and after a clock was turned."""
    moment = draw(st.datetimes() | st.sampled_from(EXTREMES))
    return moment.replace(tzinfo=draw(zones_of_times), fold=draw(st.integers(0, 1)))


near = st.integers(-100_000, 1_000_000).map(lambda seconds: START + seconds * SECOND)
good_times: Strategy = near | near.map(lambda at: at.astimezone(ZoneInfo("Europe/Berlin")))
EDGES = [
    datetime(1970, 1, 1, tzinfo=UTC),
    datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    datetime(2200, 1, 1, tzinfo=UTC),
    datetime(2200, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
    datetime(2030, 10, 27, 2, 30, fold=0, tzinfo=ZoneInfo("Europe/Berlin")),
    datetime(2030, 10, 27, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin")),
    datetime(2030, 3, 31, 2, 30, tzinfo=ZoneInfo("Europe/Berlin")),
    datetime.min.replace(tzinfo=timezone(timedelta(hours=1))),
    datetime.max.replace(tzinfo=timezone(timedelta(hours=-1))),
]
odd_times: Strategy = st.sampled_from(EDGES) | any_times() | wrong

# Durations.

good_durations: Strategy = st.integers(1, 1_000_000).map(lambda ms: timedelta(milliseconds=ms)) | st.sampled_from(
    [SECOND, timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)]
)
odd_durations: Strategy = (
    st.sampled_from(
        [
            timedelta(0),
            -SECOND,
            timedelta(microseconds=1),
            timedelta(microseconds=999),
            timedelta(days=3653),
            timedelta(days=3653, microseconds=1),
            timedelta.min,
            timedelta.max,
        ]
    )
    | st.timedeltas()
    | wrong
)

# Zones, rates, windows, cron.

good_zones = st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Pacific/Apia"])
odd_zones: Strategy = odd_names | st.sampled_from(
    [
        "europe/berlin",
        "Europe",
        "../etc/passwd",
        "/etc/localtime",
        "localtime",
        "posix/UTC",
        "right/UTC",
        "EST5EDT",
        ".",
    ]
)
good_rates = st.sampled_from(["10/s", "1000/min", "7/100ms", "5/h", "100000/day", "1/366d"]) | st.builds(
    lambda number, ms: Made("Rate", (number, timedelta(milliseconds=ms))), st.integers(1, 1000), st.integers(1, 10_000)
)
odd_rates: Strategy = (
    st.sampled_from(
        ["0/s", "-1/s", "1/0s", "1/", "/s", "1e3/s", "١/s", "9" * 400 + "/s", "1/9999999999d", "1/1us", "1 / s", "none"]
    )
    | st.builds(lambda *args: Made("Rate", args), odd_numbers, odd_durations)
    | odd_names
)
good_windows = st.sampled_from(["08:00-12:00", "22:00-06:00", "8-12", "18:00-24:00", "00:00-00:01"])
odd_windows: Strategy = (
    st.sampled_from(["00:00-24:00", "12:00-12:00", "25:00-26:00", "08:60-09:00", "8", "08:00–12:00", "٠٨-١٢", "-"])
    | st.builds(lambda *args: Made("SendWindow", args), st.times() | wrong, st.times() | wrong)
    | odd_names
)
good_crons = st.sampled_from(["0 9 * * *", "*/5 * * * *", "0 0 1 1 *", "30 2 * * 7", "0 9 * * MON#1", "0 0 L * *"])
odd_crons: Strategy = (
    st.sampled_from(["", "* * * *", "* * * * * *", "60 * * * *", "0 0 30 2 *", "@daily", "*/0 * * * *", "0-99 * * * *"])
    | st.text("0123456789*/-,#LW ", max_size=20)
    | odd_names
)

# Payloads. Every text in one holds the secret, and so must no message.

secrets: Strategy = st.sampled_from([SECRET, f"\x00{SECRET}", f"{SECRET}\ud800", f"\u202e{SECRET}", f"{SECRET}😀"])
leaves: Strategy = (
    secrets
    | st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.sampled_from([b"hunter2", START, timedelta(hours=1), UUID(int=7), Made("object"), Made("power", (10, 5000))])
)
keys: Strategy = st.sampled_from(["a", "b", "text", "", 1, 1.5, None, True, b"a", "\ud800", "\x00"])
json_values: Strategy = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3), max_leaves=6
)
good_payloads: Strategy = st.fixed_dictionaries({"text": st.just(SECRET)}, optional={"times": st.integers(0, 9)})
large = st.sampled_from(
    [
        Made("long", (SECRET, 150_000)),
        {"text": Made("long", (SECRET, 150_000))},
        {"text": Made("long", (SECRET, 1_000))},
        Made("nested", (100_000,)),
        {"text": Made("nested", (100_000,))},
        [Made("nested", (900,))],
    ]
)
odd_payloads: Strategy = json_values | large | st.fixed_dictionaries({"text": json_values, "times": leaves})

# Repetitions and retries.

excluded: Strategy = st.lists(
    st.sampled_from([date(2030, 1, 2), Made("Daily", (time(22), time(6))), Made("Period", (START, START + 9 * SECOND))])
    | st.builds(lambda *ends: Made("Daily", ends), st.times() | wrong, st.times() | wrong)
    | st.builds(lambda *ends: Made("Period", ends), good_times | odd_times, good_times | odd_times)
    | wrong,
    max_size=3,
)
misfires: Strategy = st.sampled_from(["once", "skip", Made("catch_up", (3,))])
common: dict[str, Strategy] = {"misfire": misfires, "jitter": good_durations, "zone": good_zones}
good_repeats: Strategy = st.builds(
    lambda interval, options: Made("every", (interval,), options),
    st.sampled_from([timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)]),
    st.fixed_dictionaries({}, optional={"misfire": misfires, "zone": good_zones}),
) | st.builds(
    lambda cron, zone, options: Made("cron", (cron, zone), options),
    good_crons,
    good_zones,
    st.fixed_dictionaries({}, optional={"misfire": misfires, "skipped": st.sampled_from(["shift", "skip"])}),
)
odd_repeats: Strategy = (
    st.builds(
        lambda interval, options: Made("every", (interval,), options),
        good_durations | odd_durations,
        st.fixed_dictionaries(
            {},
            optional={
                "anchor": good_times | odd_times,
                "after_end": st.booleans() | wrong,
                "misfire": misfires | wrong | st.builds(lambda limit: Made("catch_up", (limit,)), odd_numbers),
                "jitter": good_durations | odd_durations,
                "zone": good_zones | odd_zones,
                "exclude": excluded | wrong,
            },
        ),
    )
    | st.builds(
        lambda cron, zone, options: Made("cron", (cron, zone), options),
        good_crons | odd_crons,
        good_zones | odd_zones,
        st.fixed_dictionaries(
            {},
            optional={
                "skipped": st.sampled_from(["shift", "skip"]) | odd_names,
                "repeated": st.sampled_from(["once", "both", "skip"]) | odd_names,
                "jitter": good_durations | odd_durations,
                "exclude": excluded,
            },
        ),
    )
    | wrong
)
good_retries: Strategy = st.builds(
    lambda attempts, delay: Made("Retry", (), {"max_attempts": attempts, "first_delay": delay}),
    st.none() | st.integers(1, 9),
    good_durations,
)
odd_retries: Strategy = wrong | st.builds(
    lambda options: Made("Retry", (), options),
    st.fixed_dictionaries(
        {},
        optional={
            "max_attempts": odd_numbers,
            "max_interruptions": odd_numbers,
            "factor": odd_numbers,
            "jitter": odd_numbers,
            "first_delay": good_durations | odd_durations,
            "min_delay": good_durations | odd_durations,
            "max_delay": good_durations | odd_durations,
        },
    ),
)
