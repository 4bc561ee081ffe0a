"""Settings: which source counts, what is wrong with them, and what is shown of them."""

from __future__ import annotations

from dataclasses import fields
from datetime import timedelta
from pathlib import Path

import pytest
from support.command import Matrixsched

from matrixsched import App
from matrixsched.config import Settings, read_settings, settings_table, variable_of, without_password
from matrixsched.errors import ConfigurationError, DatabaseNotNamed
from matrixsched.ops.settings import policy_of
from matrixsched.worker import WorkerPolicy

PASSWORD = "hunter2"
SECOND = timedelta(seconds=1)

pytestmark = pytest.mark.usefixtures("matrixsched")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(text: str, name: str = "matrixsched.toml") -> None:
    Path(name).write_text(text)


# Which source counts.


def test_flags_come_before_the_environment_that_before_the_file_that_before_defaults(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write("concurrency = 3\nbatch_max = 30\nattempt_lease = '30s'\n")
    monkeypatch.setenv("MATRIXSCHED_CONCURRENCY", "2")
    monkeypatch.setenv("MATRIXSCHED_BATCH_MAX", "20")
    reading = read_settings({"concurrency": "1"})
    settings = reading.checked()
    assert (settings.concurrency, settings.batch_max, settings.attempt_lease) == (1, 20, 30 * SECOND)
    assert settings.shard_lease == 10 * SECOND
    wanted = ("concurrency", "batch_max", "attempt_lease", "shard_lease")
    assert [reading.origins[name] for name in wanted] == [
        "--concurrency",
        "MATRIXSCHED_BATCH_MAX",
        "matrixsched.toml",
        "default",
    ]


def test_the_file_is_that_of_the_working_directory_or_the_one_named(monkeypatch: pytest.MonkeyPatch) -> None:
    write("concurrency = 1\n")
    write("concurrency = 2\n", "second.toml")
    write("concurrency = 3\n", "third.toml")
    assert read_settings().settings.concurrency == 1
    monkeypatch.setenv("MATRIXSCHED_CONFIG", "second.toml")
    assert read_settings().settings.concurrency == 2
    assert read_settings(file="third.toml").settings.concurrency == 3


@pytest.mark.parametrize("text", ["'2m'", "120", "120.0", "'PT2M'", "'120'"])
def test_durations_are_read_in_every_form(text: str) -> None:
    write(f"stop_grace = {text}\n")
    assert read_settings().checked().stop_grace == 120 * SECOND


def test_an_empty_variable_is_as_good_as_none_and_off_is_no_port(monkeypatch: pytest.MonkeyPatch) -> None:
    write("metrics_port = 9100\nconcurrency = 7\n")
    monkeypatch.setenv("MATRIXSCHED_CONCURRENCY", "")
    assert read_settings().settings.concurrency == 7
    assert read_settings({"metrics_port": "off"}).settings.metrics_port is None


def test_the_defaults_are_those_of_the_policy() -> None:
    assert policy_of(read_settings()) == WorkerPolicy()


def test_every_number_of_the_policy_but_three_can_be_set() -> None:
    names = {field.name for field in fields(WorkerPolicy)}
    assert names - Settings.model_fields.keys() == {"look_again", "suspects_max", "tidy_batch"}


def test_numbers_that_follow_from_others_follow_them() -> None:
    policy = policy_of(read_settings({"shard_lease": "2s", "attempt_lease": "2s"}))
    assert (policy.heartbeat, policy.lease_margin) == (0.6 * SECOND, 0.3 * SECOND)


# Faults.


def test_all_faults_are_told_at_once_with_their_places_and_remedies(monkeypatch: pytest.MonkeyPatch) -> None:
    write("concurency = 5\nlog_level = 'loud'\nhold_max = '8s'\n[worker]\nprocesses = 2\n")
    monkeypatch.setenv("MATRIXSCHED_HEARTBEAT", "5s")
    monkeypatch.setenv("MATRIXSCHED_METRICS_PORT", "70000")
    with pytest.raises(ConfigurationError) as caught:
        policy_of(read_settings({"stop_grace": "soon"}))
    assert set(caught.value.faults) == {
        "concurency in matrixsched.toml is no setting: perhaps concurrency is meant",
        "[worker] in matrixsched.toml is a table: settings stand above all tables, as in `concurrency = 50`",
        "log_level is 'loud' (from matrixsched.toml): choose 'debug', 'info', 'warning' or 'error'",
        "metrics_port is '70000' (from MATRIXSCHED_METRICS_PORT): choose 65535 or less",
        "stop_grace is 'soon' (from --stop-grace): write it as 250ms, 10s, 5m, 1h30m, 7d, as ISO 8601 (PT10S) or as a "
        "number of seconds",
        "(heartbeat from MATRIXSCHED_HEARTBEAT) heartbeat (5 s) must be at most a third of shard_lease (10 s): lower "
        "heartbeat or raise shard_lease",
        "(hold_max from matrixsched.toml) hold_max (8 s) must be less than half of shard_lease (10 s): lower hold_max "
        "or raise shard_lease",
    }


def test_a_setting_that_cannot_be_read_is_not_blamed_for_its_default_as_well() -> None:
    with pytest.raises(ConfigurationError) as caught:
        policy_of(read_settings({"shard_lease": "soon", "heartbeat": "5s"}))
    assert len(caught.value.faults) == 1


@pytest.mark.parametrize(
    ("flags", "fault"),
    [
        ({"concurrency": "0"}, "concurrency is 0: choose 1 to 100000"),
        ({"concurrency": "many"}, "write a whole number"),
        ({"processes": "0"}, "choose 1 or more"),
        ({"leaked_max": "half"}, "write a number"),
        ({"leaked_max": "2"}, "choose a share between 0 and 1"),
        ({"rest_max": "0"}, "rest_max must be more than zero: raise it"),
        ({"stop_grace": "2d"}, "stop_grace is 172800 s: choose at most a day"),
        ({"attempt_lease": "10ms"}, "attempt_lease (0.01 s) must be at least 0.1 s"),
        ({"lease_margin": "4s"}, "lower lease_margin or raise attempt_lease"),
        ({"log_format": "xml"}, "choose 'text' or 'json'"),
        ({"keep_done": "9999d"}, "keep_done"),
    ],
)
def test_numbers_that_make_no_sense_are_refused_with_the_next_move(flags: dict[str, str], fault: str) -> None:
    (name,) = flags
    with pytest.raises(ConfigurationError, match="Change the settings named above") as caught:
        policy_of(read_settings(flags))
    (only,) = caught.value.faults
    assert fault in only
    assert f"from --{name.replace('_', '-')}" in only


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"concurrency = \n", "matrixsched.toml is not TOML: "),
        (b"installation = '\xff'\n", "matrixsched.toml is not UTF-8: save it as such"),
        (b"colour = 'red'\n", "colour in matrixsched.toml is no setting: remove it; `matrixsched settings` shows all"),
        (b"database = 5\n", "database (from matrixsched.toml): write a text in quotes"),
        (b"heartbeat = true\n", "heartbeat is True (from matrixsched.toml): write it as 250ms"),
        (b"concurrency = true\n", "concurrency is True (from matrixsched.toml): write a whole number"),
        (b"heartbeat = [1]\n", "heartbeat is [1] (from matrixsched.toml): write it as 250ms"),
    ],
)
def test_a_file_that_cannot_be_used_is_told_so(content: bytes, fault: str) -> None:
    Path("matrixsched.toml").write_bytes(content)
    assert read_settings().faults[0].startswith(fault)


def test_a_file_that_was_named_must_be_there(tmp_path: Path) -> None:
    for name in ("nowhere.toml", str(tmp_path)):
        (fault,) = read_settings(file=name).faults
        assert fault == f"there is no settings file {name}: correct --config or MATRIXSCHED_CONFIG, or create it"


# App().


def test_an_app_without_a_url_takes_it_from_the_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write("database = 'sqlite:///from_file.db'\ninstallation = 'third'\n")
    assert (App().url, App().installation) == ("sqlite:///from_file.db", "third")
    monkeypatch.setenv("MATRIXSCHED_DATABASE", "sqlite:///from_environment.db")
    assert App().url == "sqlite:///from_environment.db"
    assert App("sqlite:///from_code.db", installation="second").url == "sqlite:///from_code.db"


def test_an_app_without_any_url_says_where_to_name_one() -> None:
    with pytest.raises(DatabaseNotNamed, match="MATRIXSCHED_DATABASE in the environment, or database in matrixsched"):
        App()


def test_an_app_refuses_settings_that_are_wrong() -> None:
    write("databse = 'sqlite:///x.db'\n")
    with pytest.raises(ConfigurationError, match="perhaps database is meant"):
        App()


@pytest.mark.parametrize(
    "text",
    ["concurrency = 'many'\n", "concurency = 5\n", "databse = 'sqlite:///x.db'\n", "database = 5\n", "[worker]\n"],
)
def test_an_app_with_a_url_does_not_mind_settings_that_are_not_its_own(text: str) -> None:
    write("installation = 'third'\n" + text)
    assert App("sqlite:///from_code.db").installation == "third"


def test_an_app_that_is_told_all_it_needs_does_not_open_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    write("concurrency = \n")
    with pytest.raises(ConfigurationError, match="is not TOML"):
        App("sqlite:///from_code.db")  # the installation may stand in there
    monkeypatch.setenv("MATRIXSCHED_INSTALLATION", "second")
    assert App("sqlite:///from_code.db").installation == "second"


def test_a_check_blames_an_app_only_for_settings_that_it_takes(matrixsched: Matrixsched, folder: Path) -> None:
    (folder / "checked_app.py").write_text("from matrixsched import App\napp = App('sqlite:///x.db')\n")
    write("concurrency = 'many'\nlog_level = 'loud'\n")
    rows = matrixsched("check", "checked_app:app", "--json").json
    assert [row["check"] for row in rows if row["verdict"] == "fault"] == ["settings", "settings", "handlers", "schema"]


# What is shown.


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (f"postgresql://user:{PASSWORD}@host/db", "postgresql://user:***@host/db"),
        (f"postgresql://user:{PASSWORD}@x@host/db", "postgresql://user:***@host/db"),
        (f"postgresql://user@host/db?a=1&password={PASSWORD}&b=2", "postgresql://user@host/db?a=1&password=***&b=2"),
        (f"postgresql://host/db?sslpassword={PASSWORD}", "postgresql://host/db?sslpassword=***"),
        ("sqlite:///a b.db", "sqlite:///a b.db"),
        ("postgresql://user@host:5432/db", "postgresql://user@host:5432/db"),
    ],
)
def test_a_password_is_never_shown(matrixsched: Matrixsched, url: str, shown: str) -> None:
    assert without_password(url) == shown
    rows = {row["setting"]: row for row in matrixsched("settings", "--database", url, "--json").json}
    assert rows["database"]["value"] == shown
    assert PASSWORD not in repr(read_settings({"database": url}).settings)


def test_the_settings_command_says_where_each_value_comes_from(
    matrixsched: Matrixsched, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("concurrency = 3\n")
    monkeypatch.setenv("MATRIXSCHED_STOP_GRACE", "2m")
    answer = matrixsched("settings", "--log-format", "json", "--json")
    assert answer.code == 0
    found = {row["setting"]: (row["value"], row["from"]) for row in answer.json}
    assert found["concurrency"] == ("3", "matrixsched.toml")
    assert found["stop_grace"] == ("2m", "MATRIXSCHED_STOP_GRACE")
    assert found["log_format"] == ("json", "--log-format")
    assert found["keep_failed"] == ("30d", "default")
    assert found.keys() == Settings.model_fields.keys()


def test_the_table_of_settings_holds_each_with_its_variable_default_and_meaning(matrixsched: Matrixsched) -> None:
    table = settings_table()
    assert matrixsched("settings", "--markdown").out == table
    header, line, *rows = table.splitlines()
    assert header == "| Setting | Environment variable | Default | Meaning |"
    assert line == "|---|---|---|---|"
    cells = [row.strip("| ").split(" | ") for row in rows]
    assert [cell[:2] for cell in cells] == [[f"`{name}`", f"`{variable_of(name)}`"] for name in Settings.model_fields]
    assert ["`stop_grace`", "`MATRIXSCHED_STOP_GRACE`", "30s", "How long handlers may go on after SIGTERM."] in cells
    assert all(len(cell) == 4 and all(cell) for cell in cells)


def test_faulty_settings_stop_a_command_before_it_does_anything(matrixsched: Matrixsched, tmp_path: Path) -> None:
    write("concurency = 5\n")
    refused = matrixsched("init", "--database", f"sqlite:///{tmp_path}/x.db")
    assert refused.code == 2
    assert refused.err == (
        "matrixsched: concurency in matrixsched.toml is no setting: perhaps concurrency is meant. "
        "Change the settings named above.\n"
    )
    assert not (tmp_path / "x.db").exists()
