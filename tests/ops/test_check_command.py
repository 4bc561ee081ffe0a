"""`matrixsched check` and `matrixsched prune`."""

from __future__ import annotations

import shlex
import sys
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from support.command import Matrixsched, on

from matrixsched import App, State

PASSWORD = "hunter2"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path / "work"


def module(text: str) -> str:
    """A module in the working directory, under a name that no other test has imported."""
    name = f"tasks_{uuid4().hex}"
    Path(f"{name}.py").write_text(f"from matrixsched import App\n{text}")
    return name


def findings(matrixsched: Matrixsched, *arguments: str) -> tuple[int, list[tuple[str, str, str]]]:
    answer = matrixsched("check", *arguments, "--json")
    return answer.code, [(row["check"], row["verdict"], row["detail"]) for row in answer.json]


def test_a_good_installation_has_no_faults(
    matrixsched: Matrixsched, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    matrixsched("init", "--database", database_url, "--shards", "4")
    monkeypatch.setenv("MATRIXSCHED_DATABASE", database_url)
    name = module("app = App()\n@app.action('remind')\ndef remind() -> None: ...\n")
    for target, checks in (
        ([], ["settings", "database", "schema"]),
        ([f"{name}:app"], ["settings", "app", "handlers", "database", "schema", "waiting"]),
    ):
        code, found = findings(matrixsched, *target)
        assert code == 0
        assert [(check, verdict) for check, verdict, _ in found] == [(check, "ok") for check in checks]
    assert "start a worker" in matrixsched("check", f"{name}:app").err


def test_all_faults_are_found_at_once(
    matrixsched: Matrixsched, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    Path("matrixsched.toml").write_text("concurency = 5\nheartbeat = '5s'\n")
    monkeypatch.setenv("MATRIXSCHED_STOP_GARCE", "5s")
    name = module(f"app = App('postgresql://user:{PASSWORD}@127.0.0.1:1/db', installation='default')\n")
    code, found = findings(matrixsched, f"{name}:app", "--processes", "0")
    assert code == 2
    faults = [(check, detail) for check, verdict, detail in found if verdict == "fault"]
    assert [check for check, _ in faults] == ["settings"] * 4 + ["handlers", "database"]
    said = " ".join(detail for _, detail in faults)
    for part in ("perhaps concurrency is meant", "--processes", "heartbeat (5 s)", "MATRIXSCHED_STOP_GRACE is meant"):
        assert part in said
    assert "the App has no handlers: register some" in said
    assert "cannot connect to PostgreSQL" in said
    assert PASSWORD not in said
    assert "6 faults: each line says what to change" in matrixsched("check", f"{name}:app", "--processes", "0").err


@pytest.mark.parametrize(
    ("strange", "with_app"), [("concurency", ["settings", "handlers"]), ("installaton", ["settings", "app"])]
)
def test_the_database_is_looked_at_however_wrong_the_settings_are(
    matrixsched: Matrixsched, database_url: str, strange: str, with_app: list[str]
) -> None:
    Path("matrixsched.toml").write_text(f"database = '{database_url}'\n{strange} = 5\n")
    name = module("app = App()\n")
    for target, checks in (([], ["settings"]), ([f"{name}:app"], with_app)):
        _, found = findings(matrixsched, *target)
        assert [check for check, verdict, _ in found if verdict == "fault"] == [*checks, "schema"]


def test_a_database_that_is_not_there_is_not_said_to_answer(matrixsched: Matrixsched, tmp_path: Path) -> None:
    _, found = findings(matrixsched, "--database", f"sqlite:///{tmp_path}/nowhere.db")
    assert [(check, verdict) for check, verdict, _ in found] == [("settings", "ok"), ("schema", "fault")]


@pytest.mark.parametrize(
    ("text", "target", "check", "said"),
    [
        ("other = App('sqlite://')\n", "app", "app", "found instead: "),
        ("1 / 0\n", "app", "app", "cannot be imported: ZeroDivisionError"),
        ("app = App('mysql://x')\n", "app", "app", "the scheme 'mysql' is not supported"),
        ("app = App()\n", "app", "app", "no database is named"),
        (
            "app = App('sqlite://')\n@app.action('x', version=3)\ndef x(text: str) -> None: ...\n",
            "app",
            "handlers",
            "has no upcaster from version 1",
        ),
        ("app = App('sqlite:///nowhere.db')\n", "app", "schema", "Run `matrixsched init`"),
        ("app = App('sqlite://')\n", "app", "database", "it is in memory, where no other process sees it"),
        ("app = App('sqlite:///x.db?timeout=5')\n", "app", "app", "sqlite takes no options"),
        ("app = App('sqlite:///x.db', installation='No')\n", "app", "app", "Use at most 40 of a-z"),
    ],
)
def test_what_is_wrong_with_an_app_is_told(
    matrixsched: Matrixsched, text: str, target: str, check: str, said: str
) -> None:
    code, found = findings(matrixsched, f"{module(text)}:{target}")
    assert code == 2
    assert [detail for name, verdict, detail in found if (name, verdict) == (check, "fault") and said in detail]


def test_a_database_without_schema_is_told_to_be_initialised(matrixsched: Matrixsched, database_url: str) -> None:
    code, found = findings(matrixsched, "--database", database_url)
    assert code == 2
    assert "matrixsched init" in dict((check, detail) for check, _, detail in found)["schema"]
    assert "no database is named" in findings(matrixsched)[1][-1][2]


def test_actions_that_wait_for_a_handler_that_is_not_there_are_a_fault(
    matrixsched: Matrixsched, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(app: App) -> None:
        for number in range(3):
            await app.schedule("lost" if number else "remind", delay=timedelta(days=1))

    on(database_url, work)
    monkeypatch.setenv("MATRIXSCHED_DATABASE", database_url)
    name = module("app = App()\n@app.action('remind')\ndef remind() -> None: ...\n")
    code, found = findings(matrixsched, f"{name}:app")
    assert code == 2
    assert "handlers that this App does not have: lost (2)" in found[-1][2]


def test_the_file_of_the_command_line_counts_for_the_app_too(matrixsched: Matrixsched, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/named.db"
    matrixsched("init", "--database", url)
    Path("other.toml").write_text(f"database = '{url}'\n")
    name = module("app = App()\n@app.action('remind')\ndef remind() -> None: ...\n")
    assert findings(matrixsched, f"{name}:app", "--config", "other.toml")[0] == 0


# prune


def ended(url: str) -> None:
    """Two cancelled actions and one that waits."""

    async def work(app: App) -> None:
        for number in range(3):
            await app.schedule("x", id=f"x:{number}", delay=timedelta(days=1))
        for number in range(2):
            await app.cancel(f"x:{number}")

    on(url, work)


def left(url: str) -> dict[str, State]:
    async def work(app: App) -> dict[str, State]:
        return {action.id: action.status.state for action in await app.list()}

    return on(url, work)


def test_only_what_is_old_is_pruned_and_only_with_yes(matrixsched: Matrixsched, database_url: str) -> None:
    ended(database_url)
    nothing = matrixsched("prune", "--database", database_url, "--yes", "--json")
    assert (nothing.code, sum(nothing.json.values())) == (0, 0)
    assert "nothing to do: " in nothing.err

    asked = matrixsched("prune", "--database", database_url, "--keep-cancelled", "0", "--json")
    assert (asked.code, asked.json["cancelled"]) == (2, 2)
    assert "2 actions will be deleted for good" in asked.err
    assert f"`matrixsched prune --database {shlex.quote(database_url)} --keep-cancelled 0 --json --yes`" in asked.err
    assert len(left(database_url)) == 3

    done = matrixsched("prune", "--database", database_url, "--keep-cancelled", "0", "--yes", "--json")
    assert (done.code, done.json) == (0, asked.json)
    assert left(database_url) == {"x:2": State.LIVE}


def test_how_long_to_keep_comes_from_the_settings(matrixsched: Matrixsched, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    ended(url)
    Path("matrixsched.toml").write_text("keep_cancelled = 0\n")
    assert matrixsched("prune", "--database", url, "--json").json["cancelled"] == 2
    assert matrixsched("prune", "--database", url, "--keep-cancelled", "soon").code == 2
