"""The scenario's judge: it must see whatever goes wrong, or a run that passes shows nothing."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from support.pacing import share_used, starts_too_many

from matrixsched.ops.evidence import Account, Kind, Note
from matrixsched.rules.quota import Grant, QuotaSettings
from matrixsched.rules.rates import parse_rate
from matrixsched.rules.templates import Template

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


# A run: one template, a window of a second, ten messages and one that expired.


def a_run(**changes: Any) -> Any:
    judging, records = importlib.import_module("sending.judging"), importlib.import_module("sending.records")
    grant = Grant(template="promo", priority=0, inside=False, waiting=10, granted=10, last_served_at=None)
    window = records.Window(
        begins=NOON,
        ends=NOON + SECOND,
        planned_at=NOON,
        max_to_send=10,
        templates=1,
        grants=[records.Spent(grant, 10)],
    )
    messages = {f"m{n}": records.Message(f"m{n}", "promo", "done", 1, 0, 0) for n in range(10)}
    messages["late"] = records.Message("late", "promo", "expired", 0, 0, 0)
    run = judging.Run(
        settings=QuotaSettings(interval=SECOND),
        templates={"promo": Template(name="promo")},
        speed=SPEED,
        pool=0,
        messages=11,
        account=an_account([(f"m{n}", LIVED, n * 0.1) for n in range(10)]),
        records=records.Records([window], messages, (0, 0)),
        killed=[KILLED],
    )
    return replace(run, **changes)


def an_account(sent: list[tuple[str, int, float]]) -> Account:
    account = Account()
    for id, pid, at in sent:
        moment = NOON.timestamp() + at
        account.add([Note(Kind.BEGUN, pid, moment, id, 1), Note(Kind.DONE, pid, moment, id, 1)])
    return account


def broken(judging: ModuleType, run: Any) -> list[str]:
    return [check.promise for check in judging.judge(run) if not check.kept]


def test_a_run_that_kept_every_promise_passes(judging: ModuleType) -> None:
    assert broken(judging, a_run()) == []


def test_a_message_that_nobody_sent_is_lost(judging: ModuleType) -> None:
    run = a_run()
    lost = replace(run.records.messages["m3"], state="live", succeeded=0)
    records = replace(run.records, messages=run.records.messages | {"m3": lost})
    assert "nothing is lost" in broken(judging, replace(run, records=records))[0]


def test_a_message_that_is_done_without_a_note_of_its_handler_is_lost(judging: ModuleType) -> None:
    account = an_account([(f"m{n}", LIVED, n * 0.1) for n in range(9)])
    assert "nothing is lost" in broken(judging, a_run(account=account))[0]


def test_rows_that_are_left_in_queues_are_no_good_end(judging: ModuleType) -> None:
    run = a_run()
    assert "nothing is lost" in broken(judging, replace(run, records=replace(run.records, rows_left=(0, 1))))[0]


@pytest.mark.parametrize(("first", "faults"), [(KILLED, 0), (LIVED, 1)])
def test_only_a_killed_worker_may_have_begun_what_another_sends(judging: ModuleType, first: int, faults: int) -> None:
    notes = [("m0", first, 0.0), *((f"m{n}", LIVED, (n + 1) * 0.1) for n in range(9))]
    run = a_run(account=an_account([*notes, ("m9", LIVED, 1.0)]))
    again = an_account([("m0", first, 0.0), ("m0", LIVED, 0.1)])
    run.account.begun_at["m0"] = again.begun_at["m0"]
    found = [promise for promise in broken(judging, run) if "sent twice" in promise]
    assert len(found) == faults


def test_starts_above_the_limit_on_all_are_seen(judging: ModuleType) -> None:
    account = an_account([(f"m{n}", LIVED, n * 0.09) for n in range(10)])
    assert any("the limit on all" in promise for promise in broken(judging, a_run(account=account)))


def test_starts_above_a_maximum_of_the_template_are_seen(judging: ModuleType) -> None:
    run = a_run(templates={"promo": Template(name="promo", max_speed=parse_rate("5/s"))})
    assert any("maximum of a template's own" in promise for promise in broken(judging, run))


@pytest.mark.parametrize(
    ("change", "promise"),
    [
        (lambda grant: (replace(grant, granted=9), 9), "what the formula makes"),
        (lambda grant: (replace(grant, granted=11), 11), "more than MaxSendSpeed"),
        (lambda grant: (grant, 11), "overdrawn"),
        (lambda grant: (replace(grant, granted=4), 4), "than it was granted"),
    ],
)
def test_a_grant_that_is_not_what_it_should_be_is_seen(
    judging: ModuleType, change: Callable[[Grant], tuple[Grant, int]], promise: str
) -> None:
    records = importlib.import_module("sending.records")
    run = a_run()
    (window,) = run.records.windows
    grants = [records.Spent(*change(spent.grant)) for spent in window.grants]
    changed = replace(run.records, windows=[replace(window, grants=grants)])
    assert any(promise in found for found in broken(judging, replace(run, records=changed)))


def test_a_start_just_after_the_end_belongs_to_the_window_that_granted_it(judging: ModuleType) -> None:
    (window,) = a_run().records.windows
    end = window.ends.timestamp()
    following = replace(window, begins=window.ends, ends=window.ends + SECOND)
    assert judging.starts_beyond([end + 0.04], [window, following], [1, 0]) == 0
    assert judging.starts_beyond([end + 0.04, end + 0.05], [window, following], [1, 0]) == 1
    assert judging.starts_beyond([end + 0.2], [window, following], [1, 0]) == 1
    assert judging.starts_beyond([end - 0.1], [window, following], [0, 1]) == 1


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
