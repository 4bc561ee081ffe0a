"""`matrixsched plan`, as an operator types it, and its chart."""

from __future__ import annotations

import re
import shlex
from datetime import UTC, datetime, timedelta

import pytest
from rich.cells import cell_len
from support.command import Answer, Matrixsched, on
from support.scene import GATES, Scene

from matrixsched import App, call
from matrixsched.clock import ManualClock
from matrixsched.ops.chart import chart

FIELDS = ["template", "waiting", "inside", "planned", "held", "finishes_at", "expires", "left", "sent"]
BEGINS = datetime(2030, 1, 1, 6, tzinfo=UTC)


class Plan:
    """The command on an installation with two campaigns at two messages a minute, and one that is paused."""

    def __init__(self, matrixsched: Matrixsched, url: str) -> None:
        self._matrixsched = matrixsched
        self.url = url
        on(url, _fill)

    def __call__(self, *options: str) -> Answer:
        return self._matrixsched("plan", *options, "--database", self.url)


async def _fill(app: App) -> None:
    await app.limits.set("global", "2/min")
    for name, count in (("news", 90), ("offers", 30), ("paused", 7)):
        await app.templates.set(name)
        await app.schedule_many(call("mail", template=name) for _ in range(count))
    await app.schedule_many(call("mail", template="offers", delay=timedelta(days=3)) for _ in range(5))
    await app.templates.pause("paused")
    await app.schedule_many(call("mail", priority=1) for _ in range(3))


async def _nothing(app: App) -> None: ...


@pytest.fixture
def plan(matrixsched: Matrixsched, database_url: str) -> Plan:
    return Plan(matrixsched, database_url)


def test_without_a_template_it_is_said_how_to_make_one(matrixsched: Matrixsched, database_url: str) -> None:
    on(database_url, _nothing)
    answer = matrixsched("plan", "--database", database_url)
    assert answer.code == 0
    assert re.search(r"^max to send +-$", answer.out, re.MULTILINE)
    assert (
        f"there is no template. To make one: `matrixsched templates set --database {shlex.quote(database_url)} NAME`."
        in answer.err
    )


def test_it_shows_what_goes_now_what_is_held_and_how_it_goes_on(plan: Plan) -> None:
    answer = plan("--hours", "6")
    assert answer.code == 0
    assert re.search(r"^max to send +2$", answer.out, re.MULTILINE)
    assert re.search(r"^planned +[012]$", answer.out, re.MULTILINE)  # as many slots as are left of the minute
    assert re.search(r"^without template +3$", answer.out, re.MULTILINE)
    assert re.search(r"^not counted +retries, later runs of what repeats, ", answer.out, re.MULTILINE)
    number = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\+00:00"
    assert re.search(rf"^news +90 +0 +[01] +share 89(, limit 1)? +{number} +0 +0$", answer.out, re.MULTILINE)
    assert re.search(r"^offers +35 +0 +[01] +share 29, not due 5(, limit 1)? +- +0 +5$", answer.out, re.MULTILINE)
    assert re.search(r"^paused +7 +0 +0 +paused 7 +- +0 +7$", answer.out, re.MULTILINE)
    assert "2 templates will not be through within 6 hours." in answer.err
    assert re.search(r"1 template paused: `matrixsched templates resume .* paused`\.", answer.err)


def test_it_shows_the_hours_as_bars_and_without_colours_when_piped(plan: Plan) -> None:
    _, _, drawn = plan("--hours", "6").out.partition("SENT PER HOUR\n")
    _, news, offers, everything = drawn.splitlines()
    # 120 at two a minute; a place or two is left free where one of them has less than its share.
    assert re.fullmatch(r"news    ███(▁▁▁)? +\d\d", news)
    assert re.fullmatch(r"offers  ███ +30", offers)
    assert re.fullmatch(r"\(all\)   ███(▁▁▁)? +1\d\d", everything)
    assert "paused" not in drawn
    assert "\x1b" not in drawn


def test_programs_read_the_same_as_json(plan: Plan) -> None:
    answer = plan("--hours", "3", "--json")
    assert list(answer.json) == ["window", "templates"]
    window = answer.json["window"]
    news, offers, paused = answer.json["templates"]
    assert (window["templates"], window["max_to_send"], window["is_planned"], window["hours"]) == (2, 2, False, 3)
    assert window["planned"] == news["planned"] + offers["planned"] <= 2
    assert (window["without_template"], window["not_counted"][0]) == (3, "retries")
    assert list(news) == FIELDS
    assert (news["held"]["share"], offers["held"]["share"], offers["held"]["not_due"]) == (89, 29, 5)
    assert paused["held"] == {"paused": 7}
    assert (sum(news["sent"]), sum(offers["sent"]), paused["sent"]) == (90, 30, [0, 0, 0])
    assert datetime.fromisoformat(news["finishes_at"]).tzinfo is not None


def test_what_will_expire_is_said(matrixsched: Matrixsched, database_url: str) -> None:
    async def fill(app: App) -> None:
        await app.templates.set("news", max_speed="1/h")
        soon = datetime.now(UTC) + timedelta(minutes=30)
        await app.schedule_many(call("mail", template="news", expires_at=soon) for _ in range(4))

    on(database_url, fill)
    answer = matrixsched("plan", "--database", database_url, "--hours", "1")
    assert re.search(r"^all will be through by .* \d messages will expire unsent: HELD says", answer.err)


def test_nothing_is_changed(plan: Plan) -> None:
    async def everything(app: App) -> object:
        scene = Scene(app.store, ManualClock())
        names = (*GATES, "quota_settings", "chores", "installation")
        return await scene.contents() | {name: await scene.table(name) for name in names}

    before = on(plan.url, everything)
    assert plan("--json").json["templates"]
    assert on(plan.url, everything) == before


@pytest.mark.parametrize("hours", ["0", "-1", "337", "soon"])
def test_it_looks_ahead_an_hour_to_two_weeks(plan: Plan, hours: str) -> None:
    answer = plan("--hours", hours)
    assert (answer.code, answer.out) == (2, "")


def test_without_an_installation_it_says_what_to_do(matrixsched: Matrixsched, database_url: str) -> None:
    answer = matrixsched("plan", "--database", database_url)
    assert answer.code == 2
    assert "matrixsched init" in answer.err


# The chart.


def drawn(counts: dict[str, list[int]], width: int = 80, *, is_unicode: bool = True) -> list[str]:
    return [line.plain for line in chart(counts, BEGINS, width=width, is_unicode=is_unicode)]


def test_a_bar_is_as_high_as_its_share_of_the_highest() -> None:
    assert drawn({"promo": [0, 1, 40, 80], "b": [8, 7, 0, 1]}) == [
        "UTC    06 07 08 09   PEAK/H",
        "promo     ▁▁▁▄▄▄███      80",
        "b      ███▇▇▇   ▁▁▁       8",
    ]


def test_a_stream_without_blocks_gets_letters_that_it_has() -> None:
    assert drawn({"b": [8, 7, 0, 1]}, is_unicode=False)[1] == "b    @@@###   ...       8"


@pytest.mark.parametrize("width", [20, 40, 80, 120])
@pytest.mark.parametrize("hours", [1, 24, 336])
def test_a_chart_is_no_wider_than_the_screen(width: int, hours: int) -> None:
    lines = drawn({"promo": list(range(hours)), "通知": [1] * hours}, width)
    assert {cell_len(line) for line in lines} <= set(range(width + 1))
    assert len({cell_len(line) for line in lines}) == 1, "all lines end alike"


def test_several_hours_share_a_bar_where_there_is_no_room() -> None:
    # 4 cells for 12 hours: the highest of each three
    assert drawn({"b": [0, 0, 8, 0, 4, 0, 0, 0, 0, 1, 1, 1]}, 17)[1] == "b    █▄ ▁       8"


def test_on_a_terminal_the_chart_fits_into_it(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "40")
    _, _, bars = plan("--hours", "24").out.partition("SENT PER HOUR")
    assert "\x1b[36m" in bars
    lines = re.sub(r"\x1b\[[\d;]*m", "", bars).splitlines()[1:]
    assert all(cell_len(line) <= 40 for line in lines)
    assert len(lines) == 4
