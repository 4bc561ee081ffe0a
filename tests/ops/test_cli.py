"""The command line: what it says, where it says it, and with which exit code it ends."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from datetime import timedelta
from functools import partial
from pathlib import Path
from uuid import uuid4

import anyio
import pytest
from support.command import Answer, Matrixsched
from support.processes import environment

from matrixsched import App, __version__
from matrixsched.ops.render import Count, Id, age, show_facts, show_rows

PASSWORD = "hunter2"


def hold_shard(url: str, holder: str) -> int:
    """Take a shard's lock and never give it back, as a worker does that is killed at the wrong moment."""

    async def hold() -> int:
        app = App(url)
        async with app:
            await app.schedule("somewhere", id="waiting")
            acquiring = app.store.transitions.acquire_shard(
                sync_guid=uuid4(), holder=holder, lease=timedelta(seconds=10), lanes=[]
            )
            acquired = await app.store.run(acquiring)
        assert acquired.shard is not None
        return acquired.shard

    return anyio.run(hold)


# The installation.


def test_init_says_what_it_did_and_what_comes_next(matrixsched: Matrixsched, database_url: str) -> None:
    first = matrixsched("init", "--database", database_url, "--shards", "4", "--json")
    assert first.code == 0
    assert json.loads(first.out)["shards"] == 4
    assert json.loads(first.out)["applied"][0] == "0001_initial"
    assert "matrixsched worker" in first.err

    again = matrixsched("init", "--database", database_url)
    assert again.code == 0
    assert "keeps its 4 shards" in again.err
    assert "shards        4" in again.out


@pytest.mark.undistributed("it makes one in the usual form, too")
def test_the_distributed_form_is_kept_and_found_as_it_was_made(matrixsched: Matrixsched, postgres_dsn: str) -> None:
    made = matrixsched("init", "--database", postgres_dsn, "--shards", "4", "--distributed")
    assert made.code == 0
    assert "0009_distributed" in made.out
    assert matrixsched("init", "--database", postgres_dsn, "--distributed").code == 0
    assert matrixsched("init", "--database", postgres_dsn).code == 0
    assert matrixsched("upgrade", "--database", postgres_dsn).code == 0
    told = matrixsched("doctor", "--database", postgres_dsn, "--json").json
    by_check = {row["check"]: (row["verdict"], row["detail"]) for row in told}
    assert by_check["schema"] == ("ok", "schema 9, the newest that this library knows, in distributed form")
    assert by_check["drift"][0] == "ok"
    usual = matrixsched("init", "--database", postgres_dsn, "--installation", "usual")
    assert usual.code == 0
    refused = matrixsched("init", "--database", postgres_dsn, "--installation", "usual", "--distributed")
    assert refused.code == 2
    assert "'usual' exists, not in distributed form; nothing was changed. The form is fixed at init" in refused.err


def test_the_distributed_form_is_not_for_sqlite(matrixsched: Matrixsched, tmp_path: Path) -> None:
    refused = matrixsched("init", "--database", f"sqlite:///{tmp_path}/a.db", "--distributed")
    assert refused.code == 2
    assert "Leave --distributed" in refused.err
    assert list(tmp_path.iterdir()) == []


def test_upgrade_needs_an_installation(matrixsched: Matrixsched, database_url: str) -> None:
    refused = matrixsched("upgrade", "--database", database_url)
    assert refused.code == 2
    assert "matrixsched init" in refused.err
    matrixsched("init", "--database", database_url)
    done = matrixsched("upgrade", "--database", database_url)
    assert done.code == 0
    assert "nothing to do" in done.err


def test_the_environment_names_database_and_installation(
    matrixsched: Matrixsched, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MATRIXSCHED_DATABASE", database_url)
    monkeypatch.setenv("MATRIXSCHED_INSTALLATION", "second")
    assert json.loads(matrixsched("init", "--json").out)["installation"] == "second"
    assert matrixsched("shards", "list").code == 0
    assert matrixsched("shards", "list", "--installation", "default").code == 2


# Shards.


def test_shards_list_shows_every_lock_and_its_queues(matrixsched: Matrixsched, database_url: str) -> None:
    matrixsched("init", "--database", database_url, "--shards", "4")
    held = hold_shard(database_url, "worker-a/411/x")

    listed = matrixsched("shards", "list", "--database", database_url)
    assert listed.code == 0
    header, *rows = listed.out.splitlines()
    assert header.split("  ")[0] == "SHARD"
    assert [row.split()[1] for row in rows] == ["worker-a/411/x" if one == held else "-" for one in range(4)]
    assert "4 shards, 1 held" in listed.err

    as_json = json.loads(matrixsched("shards", "list", "--database", database_url, "--json").out)
    assert list(as_json[0]) == [
        "shard",
        "holder",
        "since",
        "heartbeat_age_s",
        "incoming",
        "processing",
        "oldest_due_age_s",
    ]
    assert as_json[held]["incoming"] == 1
    assert 0 <= as_json[held]["heartbeat_age_s"] < 60


def test_a_shard_is_released_only_with_yes_and_only_from_the_holder_that_was_seen(
    matrixsched: Matrixsched, database_url: str
) -> None:
    matrixsched("init", "--database", database_url, "--shards", "4")
    shard = str(hold_shard(database_url, "worker-a/411/x"))
    release = partial(matrixsched, "shards", "release", shard, "--database", database_url)

    asked = release()
    assert asked.code == 2
    assert "worker-a/411/x" in asked.out
    guid = json.loads(release("--json").out)["guid"]
    suggested = f"`matrixsched shards release {shard} --database {shlex.quote(database_url)} --guid {guid} --yes`"
    assert suggested in asked.err
    assert suggested in release("--guid", guid).err

    stale = str(uuid4())
    for confirmed in (["--yes"], []):
        lost = release(*confirmed, "--guid", stale)
        assert lost.code == 1
        assert f"has another guid, {guid}, not {stale}" in lost.err
        assert f"`matrixsched shards list --database {shlex.quote(database_url)}`" in lost.err

    done = release("--yes", "--json")
    assert done.code == 0
    assert json.loads(done.out)["verdict"] == "released"

    again = release("--yes")
    assert again.code == 0
    assert "is free: nothing to do" in again.err


def test_a_suggested_command_repeats_what_was_typed_but_no_password(
    matrixsched: Matrixsched, tmp_path: Path, postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spaced = f"sqlite:///{tmp_path}/a b.db"
    secret = postgres_dsn.replace("postgres@", f"postgres:{PASSWORD}@")
    assert PASSWORD in secret
    for url, shown in ((spaced, f"'{spaced}'"), (secret, "URL")):
        matrixsched("init", "--database", url, "--shards", "1")
        hold_shard(url, "worker-a/411/x")
        asked = matrixsched("shards", "release", "0", "--database", url, "--installation", "default")
        assert f"release 0 --database {shown} --installation default --guid " in asked.err
        assert PASSWORD not in asked.err
    monkeypatch.setenv("MATRIXSCHED_DATABASE", spaced)
    assert "release 0 --guid " in matrixsched("shards", "release", "0").err


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:"])
@pytest.mark.parametrize("command", [["init"], ["upgrade"], ["shards", "list"], ["shards", "release", "1"], ["demo"]])
def test_a_database_in_memory_is_of_no_use_to_a_command(matrixsched: Matrixsched, command: list[str], url: str) -> None:
    refused = matrixsched(*command, "--database", url)
    assert refused.code == 2
    assert "is gone when this command ends" in refused.err
    assert "Use sqlite:///path/to/file.db" in refused.err
    assert "ready" not in refused.err


def test_rows_that_only_wait_to_be_moved_are_not_called_due(matrixsched: Matrixsched, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    matrixsched("init", "--database", url, "--shards", "1")
    app = App(url)
    with app.sync:
        app.sync.schedule("somewhere", delay=timedelta(hours=1))
    assert "1 with incoming rows or work that is due." in matrixsched("shards", "list", "--database", url).err


def test_an_unknown_shard_is_wrong_use(matrixsched: Matrixsched, database_url: str) -> None:
    matrixsched("init", "--database", database_url, "--shards", "4")
    refused = matrixsched("shards", "release", "4", "--yes", "--database", database_url)
    assert refused.code == 2
    assert "has 0 to 3" in refused.err


def test_a_database_without_schema_is_told_to_be_initialised(matrixsched: Matrixsched, database_url: str) -> None:
    for command in (["shards", "list"], ["shards", "release", "1"]):
        refused = matrixsched(*command, "--database", database_url)
        assert refused.code == 2
        assert "Run `matrixsched init`" in refused.err
        assert refused.out == ""


# Wrong addresses.


@pytest.mark.parametrize(
    "url",
    [
        f"mysql://user:{PASSWORD}@localhost/db",
        f"user:{PASSWORD}@localhost/db",
        f"postgresql://user:{PASSWORD}@localhost:notaport/db",
        f"postgresql://user:{PASSWORD}@[::1/db",
        f"postgresql://user:{PASSWORD}@localhost/db?listen=perhaps",
        f"sqlite://user:{PASSWORD}@x",
    ],
)
def test_a_wrong_address_is_wrong_use_and_never_repeated(matrixsched: Matrixsched, url: str) -> None:
    refused = matrixsched("init", "--database", url)
    assert refused.code == 2
    assert refused.err.count("\n") == 1
    assert "database URL: " in refused.err
    assert PASSWORD not in refused.out + refused.err


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://user:{PASSWORD}@127.0.0.1:1/db",
        f"postgresql://user@127.0.0.1:1/db?password={PASSWORD}",
        f"postgresql://user:{PASSWORD}@nowhere.invalid/db",
    ],
)
def test_an_unreachable_database_is_a_failure_without_its_password(matrixsched: Matrixsched, url: str) -> None:
    failed = matrixsched("shards", "list", "--database", url)
    assert failed.code == 1
    assert failed.err.count("\n") == 1
    assert "cannot connect to PostgreSQL" in failed.err
    assert PASSWORD not in failed.out + failed.err


@pytest.mark.direct("a pooler asks nobody for a password here")
def test_a_wrong_password_is_not_shown_either(matrixsched: Matrixsched, postgres_dsn: str) -> None:
    wrong = postgres_dsn.replace("postgres@", f"nobody:{PASSWORD}@")
    failed = matrixsched("init", "--database", wrong)
    assert failed.code == 1
    assert PASSWORD not in failed.err


def test_a_missing_folder_is_named(matrixsched: Matrixsched, tmp_path: Path) -> None:
    failed = matrixsched("init", "--database", f"sqlite:///{tmp_path}/nowhere/x.db")
    assert failed.code == 1
    assert f"there is no folder {tmp_path}/nowhere" in failed.err


def test_a_mistyped_path_makes_no_file(matrixsched: Matrixsched, tmp_path: Path) -> None:
    for command in (["shards", "list"], ["shards", "release", "1", "--yes"], ["upgrade"]):
        refused = matrixsched(*command, "--database", f"sqlite:///{tmp_path}/typo.db")
        assert refused.code == 2
        assert f"there is no SQLite database {tmp_path}/typo.db" in refused.err
        assert "Run `matrixsched init`" in refused.err
    assert list(tmp_path.iterdir()) == []


def test_the_database_must_be_named(matrixsched: Matrixsched) -> None:
    refused = matrixsched("init")
    assert refused.code == 2
    assert "--database" in refused.err


@pytest.mark.parametrize("shards", ["0", "-1", "100000", "many"])
def test_a_senseless_number_of_shards_is_wrong_use(matrixsched: Matrixsched, tmp_path: Path, shards: str) -> None:
    refused = matrixsched("init", "--database", f"sqlite:///{tmp_path}/x.db", "--shards", shards)
    assert refused.code == 2
    assert not (tmp_path / "x.db").exists()


def test_an_installation_name_that_cannot_be_one_is_wrong_use(matrixsched: Matrixsched, tmp_path: Path) -> None:
    refused = matrixsched("init", "--database", f"sqlite:///{tmp_path}/x.db", "--installation", "x; drop table")
    assert refused.code == 2
    assert refused.err == (
        "matrixsched: --installation is 'x; drop table'. Use at most 40 of a-z, 0-9 and _, beginning with a letter.\n"
    )


# MODULE:APP.


@pytest.fixture
def tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module in the working directory, under a name that no other test has imported."""
    name = f"tasks_{uuid4().hex}"
    (tmp_path / f"{name}.py").write_text(
        f"from matrixsched import App\napplication = App('sqlite:///{tmp_path}/x.db')\nnumber = 3\nbroken = None\n"
        "in_memory = App('sqlite://')\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return name


def test_a_wrong_target_is_wrong_use_and_says_what_was_found(matrixsched: Matrixsched, tasks: str) -> None:
    def refusal(target: str) -> str:
        refused = matrixsched("worker", target)
        assert refused.code == 2
        return refused.err

    assert "does not name a module" in refusal(tasks)
    assert "there is no module 'nowhere'" in refusal("nowhere:app")
    assert f"there is no module '{tasks}.sub'" in refusal(f"{tasks}.sub:app")
    assert f"found instead: {tasks}:application" in refusal(f"{tasks}:app")
    assert f"of type int; found instead: {tasks}:application" in refusal(f"{tasks}:number")
    assert "no App was found" in refusal("json:app")
    assert "not a module's full name" in refusal(".x:app")


def test_a_worker_on_a_database_in_memory_is_wrong_use(matrixsched: Matrixsched, tasks: str) -> None:
    refused = matrixsched("worker", f"{tasks}:in_memory")
    assert refused.code == 2
    assert "is in memory" in refused.err


def test_an_app_without_handlers_cannot_be_run(matrixsched: Matrixsched, tasks: str) -> None:
    refused = matrixsched("worker", f"{tasks}:application")
    assert refused.code == 2
    assert "no handlers" in refused.err


@pytest.mark.parametrize("option", ["--attempt-lease", "--shard-lease", "--stop-grace"])
@pytest.mark.parametrize("seconds", ["-1", "nan", "inf", "soon"])
def test_senseless_durations_are_wrong_use(matrixsched: Matrixsched, tasks: str, option: str, seconds: str) -> None:
    assert matrixsched("worker", f"{tasks}:application", option, seconds).code == 2


@pytest.mark.parametrize("processes", ["1", "2"])
@pytest.mark.parametrize(
    ("text", "kind", "shown"),
    [
        ("import os\nimport nowhere_to_be_found\n", "ModuleNotFoundError", "nowhere_to_be_found"),
        ("def divide():\n    1 / 0\n\ndivide()\n", "ZeroDivisionError", "in divide"),
        ("app = (\n", "SyntaxError", "never closed"),
    ],
)
def test_a_module_that_raises_shows_its_own_trace_and_ends_with_one_line(
    tmp_path: Path, text: str, kind: str, shown: str, processes: str
) -> None:
    (tmp_path / "broken_tasks.py").write_text(text)
    command = [sys.executable, "-m", "matrixsched", "worker", "broken_tasks:app", "--processes", processes]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), cwd=tmp_path, timeout=30)
    assert done.returncode == 2
    assert shown in done.stderr
    assert "importlib" not in done.stderr
    assert "matrixsched/ops" not in done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("matrixsched: ")]
    assert f"module 'broken_tasks' cannot be imported: {kind} at {tmp_path}/broken_tasks.py, line " in lines[-1]


def test_an_error_of_ours_in_a_module_is_told_without_its_source(tmp_path: Path) -> None:
    (tmp_path / "broken_tasks.py").write_text(f"from matrixsched import App\napp = App('mysql://u:{PASSWORD}@h/d')\n")
    command = [sys.executable, "-m", "matrixsched", "worker", "broken_tasks:app"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), cwd=tmp_path, timeout=30)
    assert done.returncode == 2
    assert PASSWORD not in done.stderr


# The rest.


def test_the_version_is_shown(matrixsched: Matrixsched) -> None:
    assert matrixsched("--version") == Answer(0, f"{__version__}\n", "")


def test_an_unknown_command_is_wrong_use(matrixsched: Matrixsched) -> None:
    assert matrixsched("wrokre").code == 2


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(-3, "0.0 s"), (0.04, "0.0 s"), (9.96, "10.0 s"), (41, "41 s"), (60, "1 min 0 s"), (7500, "2 h 5 min")],
)
def test_ages_are_shown_in_their_largest_units(seconds: float, shown: str) -> None:
    assert age(timedelta(seconds=seconds)) == shown


def test_ids_are_shown_as_they_are_typed_and_counts_in_groups(capsys: pytest.CaptureFixture[str]) -> None:
    facts = {"task": Id(12345), "attempts": 12345}
    show_rows([facts], as_json=False)
    assert capsys.readouterr().out.split() == ["TASK", "ATTEMPTS", "12345", "12,345"]
    show_facts(facts, as_json=True)
    assert json.loads(capsys.readouterr().out) == {"task": 12345, "attempts": 12345}


def test_counts_that_stopped_at_the_limit_say_so() -> None:
    assert [str(Count(value, 10_000)) for value in (9_999, 10_000)] == ["9,999", "10,000+"]
