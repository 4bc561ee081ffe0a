"""`matrixsched limits`, as an operator types it."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from support.command import Answer, Matrixsched, on

from matrixsched import App

pytestmark = pytest.mark.installed

FIELDS = ["limit", "rate", "pool", "left", "slowed_until", "slowed_to", "reason"]


class Limits:
    """The command on a fresh installation."""

    def __init__(self, matrixsched: Matrixsched, url: str) -> None:
        self._matrixsched = matrixsched
        self.url = url
        on(url, _nothing)

    def __call__(self, *arguments: str) -> Answer:
        return self._matrixsched("limits", *arguments, "--database", self.url)

    def names(self, *options: str) -> list[str]:
        return [row["limit"] for row in self("list", "--json", *options).json]


async def _nothing(app: App) -> None: ...


@pytest.fixture
def limits(matrixsched: Matrixsched, database_url: str) -> Limits:
    return Limits(matrixsched, database_url)


def suggestion(said: str) -> list[str]:
    """The arguments of the suggested `matrixsched limits …`, without those that name the database."""
    return re.sub(r" --database \S+", "", said.split("`")[-2]).split()[2:]


def test_without_limits_it_is_said_how_to_set_one(limits: Limits) -> None:
    empty = limits("list")
    assert (empty.code, empty.out) == (0, "")
    assert suggestion(empty.err) == ["set", "global", "10000/min"]
    assert limits(*suggestion(empty.err)).code == 0
    assert limits.names() == ["global"]


def test_a_limit_is_set_and_shown(limits: Limits) -> None:
    answer = limits("set", "global", "10000/min", "--pool", "100", "--json")
    assert answer.code == 0
    assert list(answer.json) == [*FIELDS, "updated_at"]
    assert (answer.json["rate"], answer.json["pool"], answer.json["slowed_until"]) == ("10000/min", 100, None)
    (row,) = limits("list", "--json").json
    assert list(row) == FIELDS
    assert 0 <= row["left"] <= 100
    shown = limits("show", "global")
    assert re.search(r"^rate +10000/min$", shown.out, re.MULTILINE)
    assert "to change it: `matrixsched limits set" in shown.err
    assert re.search(r"^global +10000/min +100 +\d+ +- +- +-$", limits("list").out, re.MULTILINE)


def test_one_that_exists_is_changed_only_when_that_is_meant(limits: Limits) -> None:
    limits("set", "handler:send", "50/s")
    asked = limits("set", "handler:send", "5/s", "--json")
    assert asked.code == 2
    assert asked.json["rate"] == "50/s"
    assert "handler:send is 50/s with a pool of 0 and will be 5/s with a pool of 0." in asked.err
    assert "nothing was done. To do it: `matrixsched limits set" in asked.err
    assert limits("show", "handler:send", "--json").json["rate"] == "50/s"
    assert limits("set", "handler:send", "5/s", "--yes").code == 0
    assert limits("show", "handler:send", "--json").json["rate"] == "5/s"
    assert limits("set", "handler:send", "5/s").code == 0  # it is so already


def test_one_that_is_removed_is_gone(limits: Limits) -> None:
    limits("set", "global", "50/s")
    asked = limits("remove", "global")
    assert asked.code == 2
    assert "global (at 50/s) will be removed: what it holds back starts at once." in asked.err
    assert limits.names() == ["global"]
    done = limits("remove", "global", "--yes", "--json")
    assert (done.code, done.json["rate"]) == (0, "50/s")
    assert limits.names() == []


@pytest.mark.parametrize("verb", ["show", "remove", "resume"])
def test_what_is_not_there_is_said_so(limits: Limits, verb: str) -> None:
    refused = limits(verb, "key:acme")
    assert (refused.code, refused.out) == (2, "")
    assert refused.err == "matrixsched: there is no limit 'key:acme'. `matrixsched limits list` shows those that are.\n"


def test_it_is_told_to_slow_down_and_goes_on_again(limits: Limits) -> None:
    limits("set", "handler:send", "50/s")
    told = limits("slow-down", "handler:send", "--for", "1h", "--rate", "1/s", "--reason", "HTTP 429", "--json")
    assert told.code == 0
    assert (told.json["slowed_to"], told.json["reason"]) == ("1/s", "HTTP 429")
    assert "handler:send is at 1/s. To end that:" in told.err
    until = (datetime.now(UTC) + timedelta(days=1)).isoformat(timespec="seconds")
    closed = limits("slow-down", "handler:send", "--until", until, "--json").json
    assert (closed["slowed_to"], closed["left"], closed["slowed_until"]) == ("nothing", 0, until)
    shown = limits("show", "handler:send")
    assert "it was told to slow down" in shown.err
    assert "but it was told to slow down: closed until" in limits("set", "handler:send", "50/s").err
    asked = limits(*suggestion(shown.err))
    assert asked.code == 2
    assert "will go on at once." in asked.err
    resumed = limits(*suggestion(asked.err), "--json")
    assert (resumed.code, resumed.json["slowed_until"]) == (0, None)
    assert "handler:send goes on at 50/s." in resumed.err
    again = limits("resume", "handler:send")
    assert again.code == 0
    assert "nothing to do: handler:send is not slowed down." in again.err


def test_keys_are_counted_and_listed_on_request_page_by_page(limits: Limits) -> None:
    for name in ("key:*", "key:a", "key:b", "global"):
        limits("set", name, "1/s")
    few = limits("list", "--json")
    assert [row["limit"] for row in few.json] == ["global", "key:*"]
    assert "2 keys have limits of their own: `matrixsched limits list" in few.err
    assert "--keys" in suggestion(few.err)
    page = limits("list", "--keys", "--limit", "3", "--json")
    assert [row["limit"] for row in page.json] == ["global", "key:*", "key:a"]
    assert limits.names(*suggestion(page.err)[1:]) == ["key:b"]
    assert limits.names("--keys") == ["global", "key:*", "key:a", "key:b"]
    assert few.json[1]["left"] is None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["set", "promo", "1/s"], "did you mean handler:promo, template:promo or key:promo? A limit is called"),
        (["set", "Global", "1/s"], "did you mean global? A limit is called"),
        (["set", "", "1/s"], "the limit '' cannot be used: it is empty. A limit is called"),
        (["set", "handler:acquired:pool", "1/s"], "events of semaphores pass no gate"),
        (["slow-down", "handler:try_release:pool", "--for", "1m"], "events of semaphores pass no gate"),
        (["set", "template:promo", "1/s"], "there is no template 'promo'"),
        (["set", "global", "10"], "Write a whole number above zero and a time, for example 10000/min"),
        (["set", "global", "0/min"], "must be between 1 and 1,000,000,000"),
        (["set", "global", "nan/min"], "Write a whole number above zero"),
        (["set", "global", "1/s", "--pool", "-1"], "matrixsched: --pool is -1, but must be between 0 and"),
        (["set", "global", "1/s", "--pool", "some"], "Invalid value for '--pool'"),
        (["slow-down", "global"], "say how long, either by --for or by --until"),
        (["slow-down", "global", "--for", "1m", "--until", "2030-01-01T00:00Z"], "either by --for or by --until"),
        (["slow-down", "global", "--for", "0s"], "matrixsched: --for is zero"),
        (["slow-down", "global", "--until", "2020-01-01T00:00Z"], "matrixsched: --until has passed already"),
        (["slow-down", "global", "--until", "2030-01-01"], "has no offset from UTC"),
        (["slow-down", "global", "--for", "soon"], "--for is 'soon'"),
        (["slow-down", "global", "--for", "1m", "--rate", "1"], "Write a whole number above zero"),
        (["slow-down", "key:*", "--for", "1m"], "slow one of them down"),
        (["list", "--after", "promo"], "did you mean"),
    ],
)
def test_what_cannot_be_done_is_refused_and_changes_nothing(limits: Limits, arguments: list[str], said: str) -> None:
    refused = limits(*arguments)
    assert (refused.code, refused.out) == (2, "")
    assert said in refused.err
    assert refused.err.count("\n") == 1
    assert limits.names() == []


def test_a_reason_cannot_command_the_terminal(limits: Limits) -> None:
    limits("slow-down", "global", "--for", "1h", "--reason", "\x1b[31mred\nline")
    assert "\x1b" not in limits("show", "global").out
    assert "\\x1b[31mred\\nline" in limits("list").out
