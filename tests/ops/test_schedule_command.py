"""`matrixsched schedule`: what is written, what is refused, what is replaced."""

from __future__ import annotations

import io
import shlex
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from support.command import Answer, Matrixsched, on

from matrixsched import Action, App
from matrixsched.rules.schedule import Cron, Every, catch_up

pytestmark = pytest.mark.installed

SECRET = "canary"
LATER = "2190-01-01T09:00:00+01:00"


class Scene:
    def __init__(self, matrixsched: Matrixsched, url: str) -> None:
        self._matrixsched = matrixsched
        self.url = url
        matrixsched("init", "--database", url, "--shards", "4")

    def schedule(self, *arguments: str) -> Answer:
        return self._matrixsched("schedule", *arguments, "--database", self.url)

    def get(self, id: str) -> Action:
        async def work(app: App) -> Action:
            return await app.get(id)

        return on(self.url, work)

    def count(self) -> int:
        async def work(app: App) -> int:
            return len(await app.list())

        return on(self.url, work)


@pytest.fixture
def scene(matrixsched: Matrixsched, database_url: str) -> Scene:
    return Scene(matrixsched, database_url)


@pytest.fixture
def sqlite_scene(matrixsched: Matrixsched, tmp_path: Path) -> Scene:
    return Scene(matrixsched, f"sqlite:///{tmp_path}/x.db")


def test_an_action_is_written_with_all_that_was_asked_for(scene: Scene) -> None:
    done = scene.schedule(
        *("remind", "--id", "r 1", "--payload", '{"user": 1}', "--at", LATER, "--priority", "3", "--json"),
        *("--start-within", "90s", "--expires-at", "2191-01-01T00:00:00Z", "--payload-version", "2"),
    )
    assert done.code == 0
    assert list(done.json) == ["id", "guid", "created", "changed", "running"]
    assert (done.json["id"], done.json["created"]) == ("r 1", True)
    assert f"created. See `matrixsched actions show --database {shlex.quote(scene.url)} 'r 1'`." in done.err
    action = scene.get("r 1")
    assert (action.spec.handler, action.spec.payload, action.spec.priority) == ("remind", b'{"user":1}', 3)
    assert action.status.scheduled_at == datetime(2190, 1, 1, 8, tzinfo=UTC)
    assert (action.spec.terms.start_within, action.spec.terms.payload_version) == (timedelta(seconds=90), 2)
    assert action.spec.expires_at == datetime(2191, 1, 1, tzinfo=UTC)


def test_a_delay_counts_from_now(scene: Scene) -> None:
    scene.schedule("remind", "--id", "r", "--delay", "1h30m")
    action = scene.get("r")
    assert action.status.scheduled_at - action.meta.created_at == timedelta(minutes=90)


@pytest.mark.parametrize("source", ["-", "@payload.json"])
def test_a_payload_comes_from_stdin_or_a_file(
    sqlite_scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "payload.json").write_text('["ä"]')
    monkeypatch.setattr(sys, "stdin", io.StringIO('["ä"]'))
    assert sqlite_scene.schedule("remind", "--id", "r", "--payload", source).code == 0
    assert sqlite_scene.get("r").spec.payload == '["ä"]'.encode()


def test_a_rule_by_the_calendar_is_stored_as_it_was_said(scene: Scene) -> None:
    rule = ["--cron", "30 2 * * *", "--zone", "Europe/Berlin", "--skipped", "skip", "--repeated", "both"]
    more = ["--misfire", "catch-up:3", "--jitter", "2m", "--exclude", "2026-12-25", "--exclude", "22:00-01:00"]
    assert scene.schedule("report", "--id", "r", *rule, *more).code == 0
    repeat = scene.get("r").spec.terms.repeat
    assert isinstance(repeat, Cron)
    assert (repeat.expression, repeat.zone, repeat.skipped, repeat.repeated) == (
        "30 2 * * *",
        "Europe/Berlin",
        "skip",
        "both",
    )
    assert (repeat.misfire, repeat.jitter, len(repeat.exclude)) == (catch_up(3), timedelta(minutes=2), 2)


def test_a_rule_by_interval_is_stored(scene: Scene) -> None:
    window = "2026-12-24T12:00Z/2026-12-27T06:00Z"
    assert scene.schedule("report", "--id", "r", "--every", "1h", "--misfire", "skip", "--exclude", window).code == 0
    repeat = scene.get("r").spec.terms.repeat
    assert isinstance(repeat, Every)
    assert (repeat.interval, repeat.misfire, len(repeat.exclude)) == (timedelta(hours=1), "skip", 1)


# What exists.


def test_an_action_that_exists_is_replaced_with_yes_only(scene: Scene) -> None:
    first = scene.schedule("remind", "--id", "r", "--payload", "1", "--delay", "1d", "--json").json
    asked = scene.schedule("remind", "--id", "r", "--payload", "2", "--json")
    assert asked.code == 2
    assert asked.json == {"id": "r", "guid": first["guid"], "created": False, "changed": False, "running": False}
    assert "action 'r' exists and will be replaced." in asked.err
    command = "matrixsched schedule remind --id r --payload JSON --json"
    assert f"To do it: `{command} --database {shlex.quote(scene.url)} --yes`" in asked.err
    assert scene.get("r").spec.payload == b"1"
    done = scene.schedule("remind", "--id", "r", "--payload", "2", "--yes", "--json")
    assert (done.code, done.json["created"], done.json["changed"]) == (0, False, True)
    assert scene.get("r").spec.payload == b"2"


@pytest.mark.parametrize("payload", [["--payload", f'"{SECRET}"'], [f'--payload="{SECRET}"']])
def test_a_payload_is_not_repeated_in_what_is_suggested(sqlite_scene: Scene, payload: list[str]) -> None:
    sqlite_scene.schedule("remind", "--id", "r", "--delay", "1d")
    asked = sqlite_scene.schedule("remind", *payload, "--id", "r")
    assert asked.code == 2
    assert "JSON --id r" in asked.err
    assert SECRET not in asked.err


@pytest.mark.parametrize(("exists", "code", "payload"), [("replace", 0, b"2"), ("keep", 0, b"1"), ("error", 1, b"1")])
def test_it_can_be_said_what_becomes_of_one_that_exists(scene: Scene, exists: str, code: int, payload: bytes) -> None:
    scene.schedule("remind", "--id", "r", "--payload", "1", "--delay", "1d")
    again = scene.schedule("remind", "--id", "r", "--payload", "2", "--delay", "1d", "--exists", exists)
    assert again.code == code
    assert scene.get("r").spec.payload == payload


def test_a_named_request_is_carried_out_once(scene: Scene) -> None:
    request = ["remind", "--request-id", "order 7", "--exists", "replace", "--delay", "1d", "--json"]
    first, second = scene.schedule(*request), scene.schedule(*request)
    assert (first.json["changed"], second.json["changed"]) == (True, False)
    assert first.json["guid"] == second.json["guid"]
    assert "nothing was written" in second.err
    assert scene.count() == 1


def test_a_named_request_is_carried_out_once_also_with_yes(scene: Scene) -> None:
    request = ["remind", "--request-id", "order 7", "--delay", "1d", "--json"]
    first, asked, confirmed = scene.schedule(*request), scene.schedule(*request), scene.schedule(*request, "--yes")
    assert (first.code, asked.code, confirmed.code) == (0, 0, 0)
    for again in (asked, confirmed):
        assert again.json["changed"] is False
        assert again.json["guid"] == first.json["guid"]


# With an App.


@pytest.fixture
def tasks(sqlite_scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"tasks_{uuid4().hex}"
    (tmp_path / f"{name}.py").write_text(
        "from datetime import date\nfrom pydantic import BaseModel\nfrom matrixsched import App\n"
        f"app = App({sqlite_scene.url!r})\n"
        "class Reminder(BaseModel):\n    user: int\n    on: date\n"
        "@app.action('remind')\ndef remind(reminder: Reminder) -> None: ...\n"
        "@app.action('ping')\ndef ping() -> None: ...\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return f"{name}:app"


def test_with_an_app_the_payload_is_checked(matrixsched: Matrixsched, sqlite_scene: Scene, tasks: str) -> None:
    done = matrixsched(
        "schedule", "remind", "--app", tasks, "--id", "r", "--payload", '{"user": 1, "on": "2026-03-29"}'
    )
    assert done.code == 0
    assert sqlite_scene.get("r").spec.payload == b'{"user":1,"on":"2026-03-29"}'
    refused = matrixsched("schedule", "remind", "--app", tasks, "--payload", f'{{"user": "{SECRET}"}}')
    assert refused.code == 2
    assert "payload for handler 'remind': user: " in refused.err
    assert SECRET not in refused.err
    assert sqlite_scene.count() == 1


def test_with_an_app_a_payload_that_the_handler_does_not_take_is_refused(
    matrixsched: Matrixsched, sqlite_scene: Scene, tasks: str
) -> None:
    refused = matrixsched("schedule", "ping", "--app", tasks, "--payload", "1")
    assert refused.code == 2
    assert "payload for handler 'ping': the handler takes none" in refused.err
    assert matrixsched("schedule", "ping", "--app", tasks).code == 0


def test_with_an_app_the_handler_must_be_one_of_it(matrixsched: Matrixsched, tasks: str) -> None:
    refused = matrixsched("schedule", "remnid", "--app", tasks)
    assert refused.code == 2
    assert "no handler named 'remnid'; registered: ping, remind" in refused.err


# Wrong use.


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "Missing argument 'HANDLER'. See `matrixsched schedule --help`"),
        (["x", "--payload", "{user: 1}"], "--payload is not JSON (line 1, column 2: "),
        (["x", "--payload", '{"user": 1, "user": 2}'], "--payload has an object with the same key twice"),
        (["x", "--payload", "7" * 5000], "--payload has a number of too many digits to be read"),
        (["x", "--payload", "@nowhere.json"], "--payload: nowhere.json cannot be read (No such file or directory)"),
        (["x", "--at", "tomorrow"], "--at is 'tomorrow', but must be a time such as"),
        (["x", "--at", "2026-03-29T09:00"], "has no offset from UTC"),
        (["x", "--at", LATER, "--delay", "5m"], "at and delay are both given: choose one"),
        (["x", "--delay", "soon"], "--delay is 'soon'. Write it as 250ms"),
        (["x", "--priority", "-1"], "priority is -1"),
        (["x", "--exists", "ignore"], "See `matrixsched schedule --help`"),
        (["x", "--id", ""], "id is empty"),
        (["x", "--cron", "every morning"], "cron expression 'every morning'"),
        (["x", "--app", "nowhere:app"], "--app brings its own database"),
        (["x", "y"], "unexpected extra argument"),
        (["x", "--dealy", "5m"], "--dealy"),
    ],
)
def test_wrong_use_writes_nothing(sqlite_scene: Scene, arguments: list[str], said: str) -> None:
    refused = sqlite_scene.schedule(*arguments)
    assert refused.code == 2
    assert said in refused.err
    assert refused.err.count("\n") == 1
    assert sqlite_scene.count() == 0
