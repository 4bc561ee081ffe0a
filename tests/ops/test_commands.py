"""What holds for every command: it explains itself, answers in JSON too, and is completed by the shell."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from support.command import Matrixsched
from support.processes import environment

from matrixsched.config import SECRETS, Settings, flag_of
from matrixsched.ops.cli import cli

PASSWORD = "hunter2"
WORKERS = {"worker", "queue-worker"}
ANSWERS_NOTHING = {*WORKERS, "serve"}
"""It talks to the log, or over HTTP, alone."""
CHANGES = {"actions cancel", "actions run-now", "actions redrive", "shards release", "prune", "schedule"}
CHANGES |= {"limits set", "limits remove", "limits resume"}
CHANGES |= {f"templates {verb}" for verb in ("set", "resume", "stop", "remove")} | {"quota set"}
CHANGES |= {"fsck"}
CHANGES |= {"semaphores set", "semaphores release"}
CHANGES |= {f"queues {verb}" for verb in ("retry", "redrive", "purge", "resume", "set")}
CONTRACTS = {f"contract {verb}" for verb in ("check", "generate", "diff")}
"""Of files alone: they need neither settings nor a database."""
WITHOUT_SETTINGS = {"demo", *CONTRACTS}
ARGUMENTS = {f"actions {verb}": ["1"] for verb in ("show", "cancel", "run-now", "redrive")}
"""What a command that needs some is given."""
ARGUMENTS |= {"schedule": ["1"], "explain": ["1"], "shards release": ["1"]}
ARGUMENTS |= {f"limits {verb}": ["global"] for verb in ("show", "remove", "resume")}
ARGUMENTS |= {f"templates {verb}": ["promo"] for verb in ("show", "pause", "resume", "stop", "remove")}
ARGUMENTS |= {"templates set": ["promo", "--weight", "2"], "quota set": ["--interval", "1m"]}
ARGUMENTS |= {"limits set": ["global", "1/s"], "limits slow-down": ["global", "--for", "1s"]}
ARGUMENTS |= {"semaphores show": ["pool"], "semaphores set": ["pool"], "semaphores release": ["pool", "a"]}
ARGUMENTS |= {f"queues {verb}": ["7"] for verb in ("show", "pause", "resume")}
ARGUMENTS |= {"queues put": ["emails", "--data", "{}"], "queues set": ["7", "--batch-size", "5"]}
ARGUMENTS |= {
    "queues retry": ["7", "--all"],
    "queues redrive": ["7", "--all"],
    "queues purge": ["7", "--all", "--dead"],
}


def commands(group: Any = None, path: str = "") -> Iterator[tuple[str, Any]]:
    for name, command in (group or typer.main.get_command(cli)).commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{path}{name} ")
        else:
            yield f"{path}{name}", command


ALL = dict(commands())


def options(command: Any) -> set[str]:
    return {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}


def test_all_commands_are_there() -> None:
    actions = {f"actions {verb}" for verb in ("list", "show", "cancel", "run-now", "redrive", "next")}
    shards = {"shards list", "shards release"}
    limits = {f"limits {verb}" for verb in ("list", "show", "set", "remove", "slow-down", "resume")}
    verbs = ("list", "show", "set", "pause", "resume", "stop", "remove")
    templates = {f"templates {verb}" for verb in verbs} | {"quota show", "quota set"}
    semaphores = {f"semaphores {verb}" for verb in ("list", "show", "set", "release")}
    queues = {f"queues {verb}" for verb in ("list", "show", "put", "retry", "redrive", "purge")}
    queues |= {f"queues {verb}" for verb in ("pause", "resume", "set")}
    single = {
        "init",
        "upgrade",
        "worker",
        "queue-worker",
        "demo",
        "schedule",
        "explain",
        "plan",
        "check",
        "doctor",
        "fsck",
        "serve",
        "top",
        "prune",
        "settings",
    }
    assert set(ALL) == single | actions | shards | limits | templates | semaphores | queues | CONTRACTS


@pytest.mark.parametrize("path", ALL)
def test_every_command_explains_itself_and_its_options(matrixsched: Matrixsched, path: str) -> None:
    command = ALL[path]
    assert command.help.endswith(".")
    for parameter in command.params:
        assert parameter.help, f"{parameter.name} of {path} is not explained"
        assert not re.search(r"\bNone\b", parameter.help)
    shown = matrixsched(*path.split(), "--help")
    assert shown.code == 0
    assert f"matrixsched {path}" in shown.out


@pytest.mark.parametrize("path", ALL)
def test_every_command_that_answers_does_so_in_json_too(path: str) -> None:
    assert ("--json" in options(ALL[path])) == (path not in ANSWERS_NOTHING)


@pytest.mark.parametrize("path", ALL)
def test_what_changes_something_that_is_there_needs_yes(path: str) -> None:
    assert ("--yes" in options(ALL[path])) == (path in CHANGES)


@pytest.mark.parametrize("path", sorted(ALL.keys() - WITHOUT_SETTINGS))
def test_every_command_takes_a_file_of_settings(path: str) -> None:
    assert "--config" in options(ALL[path])


def test_every_setting_is_an_option_of_the_commands_it_is_for() -> None:
    flags = {flag_of(name) for name in Settings.model_fields}
    database = {"--database", "--installation"}
    tokens = {flag_of(name) for name in SECRETS}
    web = {"--web-host", "--web-port", "--web-public-url"}
    assert tokens < flags
    assert not any(tokens & options(command) for command in ALL.values()), "what is typed is seen by others"
    assert flags - tokens <= options(ALL["check"])
    assert web <= options(ALL["serve"])
    for path in WORKERS:
        assert flags - database - web - tokens <= options(ALL[path])
        assert not database & options(ALL[path]), "the App says which database"
    for path in ALL.keys() - WORKERS - WITHOUT_SETTINGS:
        assert database <= options(ALL[path])


# Wrong command lines.


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["wrokre"], "No such command 'wrokre'"),
        (["actions", "lst"], "No such command 'lst'"),
        (["init", "--shards", "many"], "Invalid value for '--shards'"),
        (["init", "--shrads", "4"], "No such option"),
        (["init", f"postgresql://user:{PASSWORD}@host/db"], "unexpected extra argument"),
        (["shards", "release", "x"], "Invalid value for 'shard'"),
        (["shards", "release", "1", "--guid", "x"], "Invalid value for '--guid'"),
    ],
)
def test_a_wrong_command_line_is_told_in_one_line_that_ends_with_the_next_move(
    matrixsched: Matrixsched, arguments: list[str], said: str
) -> None:
    refused = matrixsched(*arguments)
    assert refused.code == 2
    assert refused.err.startswith("matrixsched: ")
    assert said in refused.err
    assert refused.err.count("\n") == 1
    assert re.search(r"See `matrixsched[a-z ]* --help`\.\n$", refused.err)
    assert PASSWORD not in refused.err
    assert refused.out == ""


@pytest.mark.parametrize("group", [[], ["actions"], ["shards"], ["limits"], ["semaphores"], ["queues"]])
def test_without_a_command_the_help_is_shown(matrixsched: Matrixsched, group: list[str]) -> None:
    shown = matrixsched(*group)
    assert shown.code == 2
    assert "Commands" in shown.out
    assert shown.err == f"matrixsched: no command is given. See `{' '.join(['matrixsched', *group])} --help`.\n"


@pytest.mark.parametrize(
    "path", sorted(ALL.keys() - ANSWERS_NOTHING - WITHOUT_SETTINGS - {"check", "settings", "actions next"})
)
def test_without_a_database_it_is_said_where_to_name_one(
    matrixsched: Matrixsched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.chdir(tmp_path)
    refused = matrixsched(*path.split(), *ARGUMENTS.get(path, ()))
    assert refused.code == 2
    assert "no database is named. Name it in one place: --database on the command line" in refused.err


NEEDS_SCHEMA = sorted(ALL.keys() - WORKERS - WITHOUT_SETTINGS - {"settings", "init"})


@pytest.mark.parametrize("path", NEEDS_SCHEMA)
def test_a_database_without_schema_is_told_to_be_initialised(
    matrixsched: Matrixsched, database_url: str, path: str
) -> None:
    named = ["1"] if path == "actions next" else ARGUMENTS.get(path, ())
    refused = matrixsched(*path.split(), *named, "--database", database_url)
    assert refused.code == (1 if path == "doctor" else 2)  # to the doctor it is one fault among others
    # Whoever is judged by the doctor is reached again; a file is not even there to be judged.
    reach = (
        f" --database {shlex.quote(database_url)}" if path == "doctor" and database_url.startswith("postgresql") else ""
    )
    assert f"Run `matrixsched init{reach}`" in refused.out + refused.err


def test_tables_in_a_pipe_have_no_spaces_at_the_end_of_lines(matrixsched: Matrixsched) -> None:
    assert not [line for line in matrixsched("settings").out.splitlines() if line.endswith(" ")]


# Completion.


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_can_complete(shell: str) -> None:
    def asked(**variables: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "matrixsched"],
            env=environment(**variables),
            capture_output=True,
            text=True,
            timeout=30,
        )
        return done.stdout

    script = asked(_MATRIXSCHED_COMPLETE=f"source_{shell}")
    assert f"complete_{shell}" in script
    words = {"COMP_WORDS": "matrixsched actions re", "COMP_CWORD": "2"}
    found = asked(
        _MATRIXSCHED_COMPLETE=f"complete_{shell}",
        _TYPER_COMPLETE_ARGS="matrixsched actions re",
        _TYPER_COMPLETE_FISH_ACTION="get-args",
        **words,
    )
    assert "redrive" in found
    assert "cancel" not in found


# Secrets.


@pytest.mark.parametrize("form", ["{} {}", "{}={}"])
def test_a_suggested_command_holds_no_password(
    matrixsched: Matrixsched, postgres_dsn: str, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = postgres_dsn.replace("postgres@", f"postgres:{PASSWORD}@")
    database = form.format("--database", secret).split()
    matrixsched("init", *database, "--shards", "4")
    matrixsched("schedule", "x", "--id", "a", "--delay", "1d", *database)
    asked = matrixsched("actions", "cancel", "a", *database)
    assert asked.code == 2
    assert f"`matrixsched actions cancel a {form.format('--database', 'URL')} --yes`" in asked.err
    assert PASSWORD not in asked.out + asked.err


# Progress.


def test_long_work_shows_how_far_it_is_on_a_terminal_only(
    matrixsched: Matrixsched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    matrixsched("init", "--database", url)
    for attempt, is_terminal in enumerate((False, True)):
        for number in range(3):
            matrixsched("schedule", "x", "--id", f"{attempt}:{number}", "--delay", "1d", "--database", url)
        monkeypatch.setattr("sys.stderr.isatty", lambda is_terminal=is_terminal: is_terminal, raising=False)
        monkeypatch.setitem(os.environ, "TERM", "xterm")
        done = matrixsched("actions", "cancel", "--prefix", f"{attempt}:", "--yes", "--database", url)
        assert done.code == 0
        assert ("3/3" in done.err) == is_terminal
        assert "3/3" not in done.out
