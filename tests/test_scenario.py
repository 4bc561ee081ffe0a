"""The scenario's judge: it must see whatever goes wrong, or a run that passes shows nothing."""

from __future__ import annotations

import importlib
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import pytest
from support.pacing import share_used, starts_too_many

from matrixsched.ops.evidence import Account, Kind, Note
from matrixsched.rules.rates import parse_rate

TOOLS = Path(__file__).resolve().parent.parent / "tools"
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
SPEED = parse_rate("10/s")
SECOND = timedelta(seconds=1)
LIVED, KILLED = 1, 2


@pytest.fixture(autouse=True)
def judging(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(TOOLS))
    return importlib.import_module("sending.judging")


# Keeping to a rate.


@pytest.mark.parametrize(
    ("starts", "excess"),
    [
        ([0.0], -0.5),
        ([0.0, 0.1, 0.2], -0.5),
        ([0.0, 0.05, 0.15], 0.0),  # late by all that is allowed, and then on time
        ([0.0, 0.0], 0.5),
        ([0.0, 5.0, 5.0, 5.01], 1.4),  # what was not used before does not count
    ],
)
def test_the_fullest_stretch_of_time_is_found(starts: list[float], excess: float) -> None:
    assert starts_too_many(starts, SPEED) == pytest.approx(excess)


def test_a_pool_may_go_at_once() -> None:
    assert starts_too_many([7.0] * 5, SPEED, pool=5) == pytest.approx(-0.5)
    assert starts_too_many([7.0] * 6, SPEED, pool=5) == pytest.approx(0.5)


def test_the_share_that_was_used_counts_only_the_time_in_question() -> None:
    assert share_used([0.5, 1.0, 1.1, 1.9, 2.0], SPEED, 1.0, 2.0) == pytest.approx(0.3)


# The formula, by examples worked out by hand from the words of the specification.


def formula() -> ModuleType:
    return importlib.import_module("sending.formula")


def granted(waiting: dict[tuple[str, int, bool], int], campaigns: list[Any], **maxima: int) -> dict[Any, int]:
    """What is granted of MaxToSend = 1000, with the groups in the order in which they are named."""
    kinds = {formula().Kind(*kind): count for kind, count in waiting.items()}
    by_name = {campaign.name: campaign for campaign in campaigns}
    turns = dict.fromkeys(kind.group for kind in kinds)
    found = formula().grants(kinds, by_name, turns, max_to_send=1000, template_max=maxima)
    return {tuple(kind): count for kind, count in found.items()}


def fifty(**changes: Any) -> tuple[list[Any], dict[tuple[str, int, bool], int]]:
    """Templates enough for the constants to matter, and a message of each but the first."""
    campaigns = [formula().Campaign("c0", **changes), *(formula().Campaign(f"c{n}") for n in range(1, 50))]
    return campaigns, {(f"c{n}", 1, False): 1 for n in range(1, 50)}


@pytest.mark.parametrize(
    ("changes", "inside", "outside", "expected"),
    [
        ({"distribution": "morning"}, 900, 900, (50, 0)),  # 0.05
        ({"distribution": "morning"}, 0, 900, (0, 20)),  # 1/50, which is more than 0.01
        ({"distribution": "morning"}, 7, 900, (7, 13)),  # filled up to the count for outside
        ({"distribution": "morning"}, 30, 900, (30, 0)),  # more than that already
        ({}, 0, 900, (0, 30)),  # 0.03
        ({"weight": 2.0}, 0, 900, (0, 60)),
        ({"distribution": "day", "weight": 2.0}, 0, 900, (0, 39)),  # 2 of 51
        ({"distribution": "day", "weight": 0.001}, 0, 900, (0, 1)),  # rounded down, but not to nothing
    ],
)
def test_the_formula_gives_what_is_written(
    changes: dict[str, Any], inside: int, outside: int, expected: tuple[int, int]
) -> None:
    campaigns, others = fifty(**changes)
    mine = {key: count for key, count in {("c0", 0, True): inside, ("c0", 0, False): outside}.items() if count}
    found = granted(mine | others, campaigns)
    assert (found.get(("c0", 0, True), 0), found.get(("c0", 0, False), 0)) == expected


def test_the_formula_gives_no_more_than_there_is_room_for() -> None:
    one, two = formula().Campaign("one"), formula().Campaign("two")
    assert granted({("one", 0, False): 5000}, [one]) == {("one", 0, False): 1000}
    both = granted({("one", 0, False): 5000, ("one", 1, False): 5000, ("two", 1, False): 5000}, [one, two])
    assert list(both.values()) == [500, 500, 0]
    limited = granted({("one", 0, False): 90, ("one", 1, False): 5000, ("two", 1, False): 5000}, [one, two], one=100)
    assert list(limited.values()) == [90, 10, 500]


@pytest.mark.parametrize(
    ("distribution", "windows", "zone", "inside"),
    [
        ("uniform", (), "UTC", False),
        ("morning", (), "UTC", False),  # noon is not of the morning any more
        ("day", (), "UTC", True),
        ("morning", (), "America/New_York", False),
        ("morning", (), "America/Sao_Paulo", True),
        ("evening", (), "Asia/Tokyo", True),
        ("evening", (), "", True),  # the template's own zone
        ("own", ("22:00-06:00",), "Pacific/Auckland", True),
        ("own", ("22:00-06:00", "07:00-07:30"), "America/New_York", True),
        ("own", ("22:00-06:00", "07:00-07:30"), "America/Denver", True),
        ("own", ("22:00-06:00", "07:00-07:30"), "Asia/Tokyo", False),
    ],
)
def test_the_right_time_of_the_day_is_that_on_the_wall(
    distribution: str, windows: tuple[str, ...], zone: str, inside: bool
) -> None:
    campaign = formula().Campaign("promo", distribution=distribution, windows=windows, zone="Asia/Shanghai")
    assert campaign.is_inside(zone, NOON) is inside


def test_what_is_left_of_a_message_counts_for_the_next_window() -> None:
    counts = [formula().most_between(parse_rate("2/3s"), NOON + n * SECOND, NOON + (n + 1) * SECOND) for n in range(6)]
    assert (sum(counts), max(counts)) == (4, 1)


def test_whoever_was_served_longest_ago_has_the_next_turn() -> None:
    turns, group = formula().Turns(), formula().Group
    first, second, urgent = group("a", 1), group("b", 1), group("c", 0)
    assert turns.order([second, first, urgent]) == [urgent, first, second]
    turns.note([urgent, first, second], {urgent, first})
    assert turns.order([first, second]) == [second, first]
    turns.note([second, first], {second, first})
    assert turns.order([first, second]) == [second, first]


# A run: one template, a window of a second, ten messages and one that expired.

LATE_AT = NOON + SECOND / 2


def a_run(**changes: Any) -> Any:
    judging, records, campaigns, formula = (
        importlib.import_module(f"sending.{name}") for name in ("judging", "records", "campaigns", "formula")
    )
    grant = records.Grant(kind=formula.Kind("promo", 0, False), waiting=10, granted=10, used=10)
    window = records.Window(
        begins=NOON, ends=NOON + SECOND, planned_at=NOON, max_to_send=10, templates=1, grants=[grant]
    )
    letters = {f"m{n}": campaigns.Letter(id=f"m{n}", template="promo") for n in range(10)}
    letters["late"] = campaigns.Letter(id="late", template="promo", expires_at=LATE_AT)
    messages = {f"m{n}": records.Message(f"m{n}", "promo", "done", 1, NOON + SECOND) for n in range(10)}
    messages["late"] = records.Message("late", "promo", "expired", 0, NOON + SECOND)
    run = judging.Run(
        campaigns={"promo": formula.Campaign("promo")},
        letters=letters,
        speed=SPEED,
        pool=0,
        interval=SECOND,
        account=an_account([(f"m{n}", LIVED, n * 0.1 + 0.02) for n in range(10)]),
        records=records.Records([window], messages, (0, 0)),
        killed={KILLED: (NOON - 10 * SECOND).timestamp()},
        settled_at=NOON.timestamp() - 1,
    )
    return replace(run, **changes)


def an_account(sent: list[tuple[str, int, float]]) -> Account:
    account = Account()
    for id, pid, at in sent:
        moment = NOON.timestamp() + at
        account.add([Note(Kind.BEGUN, pid, moment, id, 1), Note(Kind.DONE, pid, moment, id, 1)])
    return account


def with_message(run: Any, id: str, **changes: Any) -> Any:
    changed = replace(run.records.messages[id], **changes)
    return replace(run, records=replace(run.records, messages=run.records.messages | {id: changed}))


def with_window(run: Any, **changes: Any) -> Any:
    (window,) = run.records.windows
    return replace(run, records=replace(run.records, windows=[replace(window, **changes)]))


def with_grant(run: Any, **changes: Any) -> Any:
    (window,) = run.records.windows
    return with_window(run, grants=[replace(grant, **changes) for grant in window.grants])


def broken(judging: ModuleType, run: Any) -> list[str]:
    return [check.promise for check in judging.judge(run) if check.kept is False]


def test_a_run_that_kept_every_promise_passes(judging: ModuleType) -> None:
    assert [check.kept for check in judging.judge(a_run())] == [True] * 12


# Messages.


def test_a_message_that_nobody_sent_is_lost(judging: ModuleType) -> None:
    run = with_message(a_run(), "m3", state="live", succeeded=0)
    assert "nothing is lost" in broken(judging, run)[0]


def test_a_message_that_the_store_does_not_know_is_lost(judging: ModuleType) -> None:
    run = a_run()
    run.records.messages.pop("late")
    assert "nothing is lost" in broken(judging, run)[0]


def test_a_message_that_is_done_without_a_note_of_its_handler_is_lost(judging: ModuleType) -> None:
    account = an_account([(f"m{n}", LIVED, n * 0.1) for n in range(9)])
    assert "nothing is lost" in broken(judging, a_run(account=account))[0]


def test_a_message_that_expired_without_an_end_is_lost(judging: ModuleType) -> None:
    run = a_run(account=an_account([(f"m{n}", LIVED, n * 0.1) for n in range(9)]))
    run = with_message(run, "m9", state="expired", succeeded=0)
    assert "nothing is lost" in broken(judging, run)[0]


def test_rows_that_are_left_in_queues_are_no_good_end(judging: ModuleType) -> None:
    run = a_run()
    assert "nothing is lost" in broken(judging, replace(run, records=replace(run.records, rows_left=(0, 1))))[0]


@pytest.mark.parametrize(("ends_at", "is_late"), [(0.4, True), (0.48, False), (0.6, False)])
def test_nothing_may_start_after_its_end(judging: ModuleType, ends_at: float, is_late: bool) -> None:
    run = a_run()  # m5 starts at 0.52; its note may be a little later than that
    ended = replace(run.letters["m5"], expires_at=NOON + ends_at * SECOND)
    found = broken(judging, replace(run, letters=run.letters | {"m5": ended}))
    assert ["nothing starts after its end, and nothing expires before it"][: int(is_late)] == found


def test_nothing_may_expire_before_its_end(judging: ModuleType) -> None:
    run = with_message(a_run(), "late", finished_at=LATE_AT - SECOND / 10)
    assert broken(judging, run) == ["nothing starts after its end, and nothing expires before it"]


@pytest.mark.parametrize(("first", "faults"), [(KILLED, 0), (LIVED, 1)])
def test_only_a_killed_worker_may_have_begun_what_another_sends(judging: ModuleType, first: int, faults: int) -> None:
    notes = [("m0", first, 0.0), *((f"m{n}", LIVED, (n + 1) * 0.1) for n in range(9))]
    run = a_run(account=an_account([*notes, ("m9", LIVED, 1.0)]))
    again = an_account([("m0", first, 0.0), ("m0", LIVED, 0.1)])
    run.account.begun_at["m0"] = again.begun_at["m0"]
    found = [promise for promise in broken(judging, run) if "sent twice" in promise]
    assert len(found) == faults


# Limits.


def test_starts_above_the_limit_on_all_are_seen(judging: ModuleType) -> None:
    account = an_account([(f"m{n}", LIVED, n * 0.09) for n in range(10)])
    assert any("the limit on all" in promise for promise in broken(judging, a_run(account=account)))


def test_starts_above_a_maximum_of_the_template_are_seen(judging: ModuleType) -> None:
    run = a_run(campaigns={"promo": formula().Campaign("promo", max_speed=parse_rate("5/s"))})
    assert any("maximum of a template's own" in promise for promise in broken(judging, run))


# The plan.


@pytest.mark.parametrize(
    ("changes", "promise"),
    [
        ({"granted": 9, "used": 9}, "what the formula makes"),
        ({"granted": 11, "used": 11}, "more than MaxSendSpeed"),
        ({"waiting": 12}, "what is counted was waiting"),  # one of the eleven is counted twice
        ({"waiting": 5, "granted": 5}, "what the formula makes"),  # right for five, but more were waiting
        ({"used": 11}, "overdrawn"),
        ({"granted": 4, "used": 4}, "beyond what its kind was granted"),
    ],
)
def test_a_grant_that_is_not_what_it_should_be_is_seen(
    judging: ModuleType, changes: dict[str, int], promise: str
) -> None:
    assert any(promise in found for found in broken(judging, with_grant(a_run(), **changes)))


def test_what_no_plan_has_counted_is_missed(judging: ModuleType) -> None:
    assert any("what was waiting is counted" in promise for promise in broken(judging, with_window(a_run(), grants=[])))


def test_what_was_in_somebodys_hands_when_the_window_was_planned_need_not_be_counted(judging: ModuleType) -> None:
    before = a_run(account=an_account([(f"m{n}", LIVED, n * 0.01) for n in range(10)]))
    promises = broken(judging, with_window(before, grants=[], templates=0))
    assert not any("is counted" in promise or "formula" in promise for promise in promises)


def test_what_was_claimed_in_vain_need_not_be_counted(judging: ModuleType) -> None:
    run = with_grant(a_run(), waiting=8, granted=8, used=8)  # of nine that were waiting for sure
    assert any("formula" in promise for promise in broken(judging, run))
    run = with_grant(a_run(), waiting=8, granted=8, used=8)
    run.account.first_attempt["m9"] = 2
    assert not any("formula" in promise for promise in broken(judging, run))


def test_a_plan_that_was_made_before_all_were_before_their_gates_need_not_count_them(judging: ModuleType) -> None:
    run = with_grant(a_run(settled_at=None), waiting=8, granted=8, used=8)
    assert not any("formula" in promise for promise in broken(judging, run))


@pytest.mark.parametrize(
    "changes",
    [
        {"planned_at": NOON + 2 * SECOND},
        {"begins": NOON - SECOND / 2},
        {"ends": NOON + SECOND / 2},
    ],
)
def test_a_window_that_is_not_one_of_the_grid_is_seen(judging: ModuleType, changes: dict[str, datetime]) -> None:
    assert any("every interval is planned" in promise for promise in broken(judging, with_window(a_run(), **changes)))


def test_an_interval_that_nobody_planned_is_seen(judging: ModuleType) -> None:
    run = a_run(account=an_account([(f"m{n}", LIVED, n * 0.1 + (2 if n > 4 else 0)) for n in range(10)]))
    (window,) = run.records.windows
    after_next = replace(
        window, begins=NOON + 2 * SECOND, ends=NOON + 3 * SECOND, planned_at=NOON + 2 * SECOND, grants=window.grants
    )
    run = replace(run, records=replace(run.records, windows=[window, after_next]))
    assert any("every interval is planned" in promise for promise in broken(judging, run))


# The time of the day: half of the messages go to Berlin, where it is day, and half to Tokyo, where it is not.


def by_daytime(taken: frozenset[str] = frozenset({"Europe/Berlin"}), **granted: int) -> Any:
    records, run = importlib.import_module("sending.records"), a_run()
    zones = {True: "Europe/Berlin", False: "Asia/Tokyo"}
    letters = {f"m{n}": replace(run.letters[f"m{n}"], zone=zones[n % 2 == 0]) for n in range(10)}
    counts = {"inside": 5, "outside": 5} | granted
    grants = [
        records.Grant(
            kind=formula().Kind("promo", 0, is_inside),
            zones=taken if is_inside else frozenset(),
            waiting=5,
            granted=counts[name],
            used=counts[name],
        )
        for is_inside, name in ((True, "inside"), (False, "outside"))
    ]
    run = replace(
        run,
        campaigns={"promo": formula().Campaign("promo", distribution="day")},
        letters=letters | {"late": replace(run.letters["late"], zone="Asia/Tokyo")},
    )
    return with_window(run, grants=[grant for grant in grants if grant.granted])


def test_a_plan_that_tells_the_time_passes(judging: ModuleType) -> None:
    assert broken(judging, by_daytime()) == []


@pytest.mark.parametrize("inside", [(), ("Asia/Tokyo",), ("Europe/Berlin", "Asia/Tokyo")])
def test_a_plan_that_takes_the_wrong_zones_for_inside_is_seen(judging: ModuleType, inside: tuple[str, ...]) -> None:
    found = broken(judging, by_daytime(frozenset(inside)))
    assert found[0] == "it is the right time of the day where the plan says so, and nowhere else"


def test_what_is_outside_must_not_go_on_the_grants_of_what_is_inside(judging: ModuleType) -> None:
    found = broken(judging, by_daytime(outside=0))
    assert "nothing starts in a window beyond what its kind was granted" in found


@pytest.mark.parametrize(("zones", "beyond"), [((), 0), (("Europe/Berlin",), 1)])
def test_what_is_inside_may_go_as_outside_only_where_no_plan_knows_its_zone(
    judging: ModuleType, zones: tuple[str, ...], beyond: int
) -> None:
    run = by_daytime(frozenset(zones), inside=1)
    spending = judging.Spending(run)
    for start in (0.1, 0.2):
        spending.charge(NOON.timestamp() + start, run.letters["m0"].cell)
    assert (spending.as_outside, sum(spending.beyond.values())) == (2 - 2 * beyond, beyond)


def test_a_start_just_after_the_end_belongs_to_the_window_that_granted_it(judging: ModuleType) -> None:
    run = with_grant(a_run(), granted=1)
    (window,) = run.records.windows
    end, cell = window.ends.timestamp(), run.letters["m0"].cell
    following = replace(window, begins=window.ends, ends=window.ends + SECOND, grants=[])

    def beyond(*starts: float, windows: list[Any]) -> int:
        spending = judging.Spending(replace(run, records=replace(run.records, windows=windows)))
        for start in starts:
            spending.charge(start, cell)
        return sum(spending.beyond.values())

    assert beyond(end + 0.04, windows=[window, following]) == 0
    assert beyond(end + 0.04, end + 0.05, windows=[window, following]) == 1
    assert beyond(end + 0.2, windows=[window, following]) == 1
    nothing, later = replace(window, grants=[]), replace(following, grants=window.grants)
    assert beyond(end - 0.1, windows=[nothing, later]) == 1
    assert beyond(end - 5, windows=[window, following]) == 1


# Using what was granted.


def sent_too_little(**changes: Any) -> Any:
    """Eight of the ten that were granted; the others go in the next window."""
    run = a_run(account=an_account([(f"m{n}", LIVED, n * 0.1 + (1 if n > 7 else 0)) for n in range(10)]), **changes)
    (window,) = run.records.windows
    left = replace(window.grants[0], waiting=2, granted=2, used=2)
    following = replace(window, begins=NOON + SECOND, ends=NOON + 2 * SECOND, planned_at=NOON + SECOND, grants=[left])
    return replace(run, records=replace(run.records, windows=[window, following]))


def test_grants_that_workers_leave_unused_are_seen(judging: ModuleType) -> None:
    assert broken(judging, sent_too_little()) == [
        "at least 90% of what is granted is sent, away from start, end and kills"
    ]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"settled_at": NOON.timestamp() + 1}, "nothing to judge"),
        ({"killed": {KILLED: NOON.timestamp() - 1}}, "nothing to judge"),
        ({"speed": parse_rate("1000/s")}, "the machine decides"),
        ({"load": 1.5}, "wanted to run"),
    ],
)
def test_how_much_is_used_is_only_a_figure_where_something_else_decides(
    judging: ModuleType, changes: dict[str, Any], why: str
) -> None:
    run = sent_too_little(**changes)
    if "speed" in changes:  # as much is granted as then may be
        run = replace(run, records=replace(run.records, windows=[replace(w, max_to_send=10) for w in run.windows]))
    check = judging.judge(run)[-1]
    assert check.kept is None
    assert why in check.found


def test_what_the_limit_leaves_no_time_for_is_not_missed(judging: ModuleType) -> None:
    (window,) = a_run().records.windows
    assert judging.share_sent(a_run(), window) == pytest.approx(1.0)
    assert judging.share_sent(a_run(), replace(window, planned_at=NOON + SECOND / 2)) == pytest.approx(2.0)
    assert judging.share_sent(a_run(), replace(window, grants=[replace(window.grants[0], granted=20)])) == 1.0


# What is shown.


def test_a_minute_holds_what_its_windows_granted_and_what_started_in_them() -> None:
    (minute,) = importlib.import_module("sending.minutes").minutes(sent_too_little())
    assert (minute.name, minute.granted["promo"], minute.started["promo"]) == ("minute 1", 12, 10)


def test_a_long_run_is_shown_in_a_few_columns() -> None:
    run = a_run()
    (window,) = run.records.windows
    later = replace(window, begins=NOON + timedelta(minutes=29), ends=NOON + timedelta(minutes=29, seconds=1))
    run = replace(run, records=replace(run.records, windows=[window, later]))
    names = [minute.name for minute in importlib.import_module("sending.minutes").minutes(run)]
    assert names == ["minutes 1–4", "minutes 29–32"]


def test_the_picture_shows_what_was_sent_granted_and_killed_on_a_dark_page_too(judging: ModuleType) -> None:
    run = sent_too_little(killed={KILLED: NOON.timestamp() + 0.5})
    showing = importlib.import_module("sending.showing").Showing(run, judging.judge(run))
    picture = ElementTree.fromstring(showing.as_svg())
    drawn = [element.get("class") for element in picture.iter()]
    assert (drawn.count("uniform"), drawn.count("kill"), drawn.count("m0")) == (2 + 1, 1, 1 + 1)  # with the legends
    assert "prefers-color-scheme: dark" in showing.as_svg()


# What it is told.


@pytest.mark.parametrize(
    "arguments",
    [
        "--messages 0",
        "--messages -5",
        "--messages many",
        "--templates 0",
        "--zones 25",
        "--workers 0",
        "--workers 2 --kill 2",
        "--kill -1",
        "--speed nan",
        "--speed 0/s",
        "--pool -1",
        "--interval 0s",
        "--interval x",
        "--interval 2d",
        "--svg /no/such/folder/chart.svg",
        "--json /",
    ],
)
def test_what_cannot_be_done_is_refused_in_one_line(arguments: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        importlib.import_module("scenario").parse(arguments.split())
    said = capsys.readouterr()
    assert (ended.value.code, said.out) == (2, "")
    assert said.err.startswith("scenario: ")
    assert said.err.count("\n") == 1


def test_without_arguments_it_sends_as_many_as_readme_says() -> None:
    campaigns = importlib.import_module("scenario").parse([]).campaigns
    assert (campaigns.messages, campaigns.templates, campaigns.zones) == (200_000, 50, 24)
    assert (campaigns.speed, campaigns.interval) == (parse_rate("60000/min"), timedelta(seconds=10))
