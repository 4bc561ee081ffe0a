"""`matrixsched templates`, `matrixsched quota`, and messages of a template, as an operator types them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from support.command import Answer, Matrixsched, on

from matrixsched import App, State, call
from matrixsched.rules.quota import QuotaSettings
from matrixsched.rules.rates import Rate
from matrixsched.rules.templates import Template

pytestmark = pytest.mark.installed

FIELDS = [
    *("template", "distribution", "windows", "zone", "weight", "max_speed"),
    *("paused", "paused_until", "last_served_at", "unfinished"),
]
QUOTA_FIELDS = [
    *("interval", "inside_share", "outside_share", "uniform_share", "inside_times_outside", "spare"),
    *("morning", "day", "evening"),
]


class Operator:
    """The command on a fresh installation."""

    def __init__(self, matrixsched: Matrixsched, url: str) -> None:
        self._matrixsched = matrixsched
        self.url = url
        on(url, _nothing)

    def __call__(self, *arguments: str) -> Answer:
        return self._matrixsched(*arguments, "--database", self.url)

    def templates(self, *arguments: str) -> Answer:
        return self("templates", *arguments)

    def get(self, name: str) -> Template:
        return on(self.url, lambda app: app.templates.get(name))

    def fill(self, template: str, count: int) -> None:
        async def work(app: App) -> None:
            later = timedelta(days=1)
            await app.schedule_many(
                call("greet", id=f"{template}{n}", template=template, delay=later) for n in range(count)
            )

        on(self.url, work)


async def _nothing(app: App) -> None: ...


@pytest.fixture
def operator(matrixsched: Matrixsched, database_url: str) -> Operator:
    return Operator(matrixsched, database_url)


def suggestion(said: str) -> list[str]:
    """The arguments of the suggested command, without those that name the database."""
    return re.sub(r" --database \S+", "", said.split("`")[-2]).split()[1:]


def test_without_templates_it_is_said_how_to_create_one(operator: Operator) -> None:
    empty = operator.templates("list")
    assert (empty.code, empty.out) == (0, "")
    assert suggestion(empty.err) == ["templates", "set", "NAME"]
    assert operator(*suggestion(empty.err)).code == 0
    assert [row["template"] for row in operator.templates("list", "--json").json] == ["NAME"]


def test_a_template_is_created_and_shown(operator: Operator) -> None:
    created = operator.templates(
        *("set", "promo", "--window", "08:00-12:00", "--window", "22:00-01:00", "--max-speed", "100/min"),
        *("--zone", "Europe/Berlin", "--weight", "2.5", "--json"),
    )
    assert created.code == 0
    assert list(created.json) == FIELDS
    assert created.json == {
        "template": "promo",
        "distribution": "own",
        "windows": ["08:00-12:00", "22:00-01:00"],
        "zone": "Europe/Berlin",
        "weight": 2.5,
        "max_speed": "100/min",
        "paused": False,
        "paused_until": None,
        "last_served_at": None,
        "unfinished": 0,
    }
    assert operator.templates("list", "--json").json == [created.json]
    assert operator.templates("show", "promo", "--json").json == created.json
    assert "08:00-12:00, 22:00-01:00" in operator.templates("show", "promo").out


def test_a_template_that_exists_is_changed_only_when_that_is_confirmed(operator: Operator) -> None:
    operator.templates("set", "promo", "--max-speed", "100/min")
    refused = operator.templates("set", "promo", "--distribution", "evening")
    assert refused.code == 2
    assert (
        "'promo' will be changed: distribution from uniform to evening, windows from none to 18:00-22:00.\n"
        in refused.err
    )
    assert operator.get("promo").distribution == "uniform"
    assert operator(*suggestion(refused.err)).code == 0
    changed = operator.get("promo")
    assert (changed.distribution, changed.max_speed) == ("evening", Rate(100, timedelta(minutes=1)))
    assert operator.templates("show", "promo", "--json").json["windows"] == ["18:00-22:00"]
    lifted = operator.templates("set", "promo", "--max-speed", "none", "--yes")
    assert "will be changed: max speed from 100/min to none.\n" in lifted.err
    assert operator.get("promo").max_speed is None


def test_a_template_that_exists_is_not_changed_into_itself(operator: Operator) -> None:
    operator.templates("set", "promo", "--weight", "2", "--max-speed", "100/min")
    for same in (["--weight", "2"], ["--max-speed", "100/min", "--zone", "UTC", "--yes"]):
        answer = operator.templates("set", "promo", *same, "--json")
        assert (answer.code, answer.json["weight"]) == (0, 2)
        assert "nothing to do: it is so already" in answer.err
    for yes in ([], ["--yes"]):
        refused = operator.templates("set", "promo", *yes)
        assert (refused.code, refused.out) == (2, "")
        assert "exists, and nothing is given that shall be changed: name it, as in --weight 2." in refused.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("set", "promo", "--distribution", "noon"), "uniform, morning, day, evening, own"),
        (
            ("set", "promo", "--distribution", "own"),
            "--distribution own needs windows: give some, as in --window 08:00-12:00.",
        ),
        (("set", "promo", "--window", "12:00-12:00"), "ends when it begins"),
        (("set", "promo", "--window", "00:00-24:00"), "'00:00-24:00' cannot be used: it is the whole day"),
        (("set", "promo", "--max-speed", "0/min"), "cannot be used"),
        (("set", "promo", "--max-speed", "fast"), "cannot be used"),
        (("set", "promo", "--zone", "Europe/Berln"), "Europe/Berlin"),
        (("set", "promo", "--weight", "0"), "matrixsched: --weight is 0.0, but"),
        (("set", "promo", "--weight", "nan"), "weight"),
        (("show", "newsletter"), "close to it: news-letter"),
        (("pause", "nobody"), "matrixsched templates set NAME"),
        (("resume", "nobody"), "no template"),
        (("stop", "nobody", "--yes"), "no template"),
        (("remove", "nobody", "--yes"), "no template"),
        (("pause", "news-letter", "--for", "1h", "--until", "2190-01-01T00:00:00Z"), "choose one"),
        (("pause", "news-letter", "--for", "soon"), "--for"),
        (("pause", "news-letter", "--for", "0"), "matrixsched: --for is zero."),
        (("pause", "news-letter", "--until", "2020-01-01T00:00:00Z"), "matrixsched: --until is not in the future"),
    ],
)
def test_what_makes_no_sense_is_refused_and_changes_nothing(operator: Operator, arguments, said) -> None:
    operator.templates("set", "news-letter")
    refused = operator.templates(*arguments)
    assert (refused.code, refused.out) == (2, "")
    assert said in refused.err
    assert on(operator.url, lambda app: app.templates.list()) == [Template(name="news-letter")]


def test_a_template_is_paused_at_once_and_resumed_when_that_is_confirmed(operator: Operator) -> None:
    operator.templates("set", "promo")
    paused = operator.templates("pause", "promo", "--json")
    assert (paused.code, paused.json["paused"], paused.json["paused_until"]) == (0, True, None)
    assert "until it is resumed" in paused.err
    assert "paused" in operator.templates("show", "promo").err
    refused = operator(*suggestion(paused.err))
    assert refused.code == 2
    assert operator.get("promo").paused_at is not None
    assert operator(*suggestion(refused.err)).code == 0
    assert operator.get("promo").paused_at is None
    assert "nothing to do" in operator.templates("resume", "promo").err


def test_a_pause_can_have_an_end(operator: Operator) -> None:
    operator.templates("set", "promo")
    assert operator.templates("pause", "promo", "--for", "2h").code == 0
    template = operator.get("promo")
    assert template.paused_at is not None
    assert template.paused_until == template.paused_at + timedelta(hours=2)
    until = operator.templates("pause", "promo", "--until", "2190-01-01T00:00:00Z", "--json")
    assert until.json["paused_until"] == datetime(2190, 1, 1, tzinfo=UTC).isoformat()


def test_a_campaign_is_stopped_when_that_is_confirmed(operator: Operator) -> None:
    operator.templates("set", "promo")
    assert operator.templates("stop", "promo", "--json").json == {"template": "promo", "cancelled": 0}
    operator.fill("promo", 3)
    refused = operator.templates("stop", "promo")
    assert refused.code == 2
    assert "3 messages of the template 'promo' will be cancelled" in refused.err
    stopped = operator(*suggestion(refused.err), "--json")
    assert (stopped.code, stopped.json) == (0, {"template": "promo", "cancelled": 3})
    assert len(on(operator.url, lambda app: app.list(state=State.CANCELLED))) == 3


def test_a_template_is_removed_once_nothing_of_it_is_left(operator: Operator) -> None:
    operator.templates("set", "promo")
    operator.fill("promo", 1)
    in_use = operator.templates("remove", "promo", "--yes")
    assert in_use.code == 1
    assert "`matrixsched templates stop NAME`" in in_use.err
    operator.templates("stop", "promo", "--yes")
    assert operator.templates("remove", "promo").code == 2
    assert operator.templates("remove", "promo", "--yes").code == 0
    assert operator.templates("list", "--json").json == []


# How it is shared.


def test_the_settings_of_the_quota_are_shown_and_changed(operator: Operator) -> None:
    shown = operator("quota", "show", "--json")
    assert list(shown.json) == QUOTA_FIELDS
    assert shown.json["inside_share"] == 0.05
    refused = operator("quota", "set", "--interval", "30s", "--spare", "share", "--day", "11:00-17:00")
    assert refused.code == 2
    changes = "interval from 1m to 30s, spare from leave to share, day from 12:00-18:00 to 11:00-17:00"
    assert f"for all templates will be changed: {changes}.\n" in refused.err
    assert on(operator.url, lambda app: app.quota.settings()) == QuotaSettings()
    assert operator(*suggestion(refused.err)).code == 0
    changed = operator("quota", "show", "--json").json
    assert (changed["interval"], changed["spare"], changed["day"]) == ("30s", "share", "11:00-17:00")
    ratio = operator("quota", "set", "--inside-times-outside", "4", "--yes", "--json").json
    assert (ratio["inside_times_outside"], ratio["inside_share"]) == (4, 0.04)
    same = operator("quota", "set", "--inside-times-outside", "4", "--interval", "30s", "--json")
    assert (same.code, same.json) == (0, ratio)
    assert "nothing to do: it is so already" in same.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "nothing is given"),
        (
            ("--interval", "10ms"),
            "matrixsched: --interval is 10ms, but must be between a second and a day. Choose anoth",
        ),
        (
            ("--interval", "20000d"),
            "is 20000d, but must be between a second and a day. Choose another duration, as in 5m.",
        ),
        (("--inside-share", "2"), "matrixsched: --inside-share is 2.0, but must be between 1e-06 and 1. Choose such a"),
        (("--interval", "soon"), "--interval"),
        (("--uniform-share", "0"), "--uniform-share is 0.0"),
        (("--uniform-share=nan",), "--uniform-share is nan"),
        (("--spare", "burn"), "leave or share. Correct the option and try again; nothing was written."),
        (("--morning", "early"), "cannot be used"),
        (
            ("--inside-share", "0.1", "--inside-times-outside", "3"),
            "--inside-share and --inside-times-outside are both",
        ),
    ],
)
def test_settings_that_make_no_sense_are_refused(operator: Operator, arguments, said) -> None:
    for yes in ([], ["--yes"]):  # told at once, and not only when it is confirmed
        refused = operator("quota", "set", *arguments, *yes)
        assert (refused.code, refused.out) == (2, "")
        assert said in refused.err
    assert on(operator.url, lambda app: app.quota.settings()) == QuotaSettings()


# Messages.


def test_a_message_is_scheduled_listed_and_shown_with_its_template(operator: Operator) -> None:
    refused = operator("schedule", "greet", "--template", "promo")
    assert refused.code == 2
    assert "`matrixsched templates set NAME`" in refused.err
    operator.templates("set", "promo")
    done = operator(
        *("schedule", "greet", "--id", "a", "--template", "promo", "--zone", "Asia/Tokyo", "--limit", "smtp")
    )
    assert done.code == 0
    operator("schedule", "greet", "--id", "b")
    assert [row["id"] for row in operator("actions", "list", "--template", "promo", "--json").json] == ["a"]
    spec = operator("actions", "show", "a", "--json").json["spec"]
    assert (spec["template"], spec["zone"], spec["limit"]) == ("promo", "Asia/Tokyo", "smtp")


def test_a_zone_is_the_rules_or_the_recipients(operator: Operator) -> None:
    operator.templates("set", "promo")
    assert operator("schedule", "greet", "--zone", "Asia/Tokyo").code == 2
    done = operator(
        *("schedule", "greet", "--id", "a", "--cron", "0 9 * * *", "--zone", "Asia/Tokyo", "--template", "promo")
    )
    assert done.code == 0
    spec = operator("actions", "show", "a", "--json").json["spec"]
    assert spec["zone"] == "Asia/Tokyo"
    assert "--zone Asia/Tokyo" in spec["repeat"]
