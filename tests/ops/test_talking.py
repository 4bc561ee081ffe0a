"""How the command talks: next moves that can be typed, on streams of any kind, about texts of any kind."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from support.command import Matrixsched, on

from matrixsched import App, Retry, State
from matrixsched.errors import MatrixSchedError
from matrixsched.ops.bulk import TOGETHER
from matrixsched.ops.remedies import REMEDIES
from matrixsched.scheduler import Scheduler
from matrixsched.worker import Worker

MAIN = "from matrixsched.ops.cli import main; main()"


def suggested(said: str) -> list[str]:
    """The command between backticks, without its name."""
    return shlex.split(said.split("`")[-2])[1:]


# Next moves.


def errors(root: type[MatrixSchedError] = MatrixSchedError) -> list[type[MatrixSchedError]]:
    return [root, *(error for kind in root.__subclasses__() for error in errors(kind))]


def test_remedies_are_for_errors_whose_own_one_speaks_of_python() -> None:
    assert set(REMEDIES) <= set(errors())
    assert not [remedy for remedy in REMEDIES.values() if "()" in remedy or "timedelta" in remedy or '="' in remedy]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--cron", "* * *"], "`matrixsched actions next --cron CRON` shows the runs."),
        (["--cron", "0 9 * * *", "--exclude", "08:00-10:00"], "`matrixsched actions next` with the same rule"),
        (["--at", "1900-01-01T00:00Z"], "Write times as in 2026-03-29T09:00:00Z"),
        (["--delay", "99999d"], "--delay is longer than ten years (99999 days). Choose another duration, as in 5m."),
        (["--delay", "5x"], "Write it as 250ms, 10s"),
        (["--priority", "-1"], "--priority is -1, but must be between 0 and 1000000. Choose such a number."),
        (["--payload-version=0"], "matrixsched: --payload-version is 0, but"),
        (["--every", "0"], "matrixsched: --every is zero. Choose another duration, as in 5m."),
        (
            ["--limit", "*"],
            "limit is *, but key:* stands for every key that has no limit of its own: choose another. Correct",
        ),
        (["--request-id", ""], "matrixsched: --request-id is empty. Use 1 to 256 bytes"),
        (["--payload", "NaN"], "Give JSON that the handler's model takes"),
        (["--id", "there", "--exists", "error"], "Use --exists replace to overwrite it or --exists keep to leave it."),
    ],
)
def test_errors_name_commands_and_options_not_calls(
    matrixsched: Matrixsched, tmp_path: Path, options: list[str], said: str
) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    on(url, lambda app: app.schedule("mail", id="there", delay=timedelta(days=1)))
    refused = matrixsched("schedule", "mail", "--database", url, *options)
    assert refused.code in (1, 2)
    assert said in refused.err


def test_a_missing_schema_is_told_to_be_made_by_a_command(matrixsched: Matrixsched, database_url: str) -> None:
    for command in (["actions", "list"], ["check"]):
        answer = matrixsched(*command, "--database", database_url)
        assert "Run `matrixsched init` once" in answer.out + answer.err
        assert "app.init()" not in answer.out + answer.err


def test_an_installation_that_is_missing_is_told_to_be_made_under_its_name(
    matrixsched: Matrixsched, database_url: str
) -> None:
    for _ in range(2):  # without a database, and without the installation
        refused = matrixsched("actions", "list", "--database", database_url, "--installation", "second")
        assert "Run `matrixsched init --installation second` once" in refused.err
        matrixsched("init", "--database", database_url)


def test_a_rule_without_runs_is_not_said_to_be_an_action(matrixsched: Matrixsched) -> None:
    none = matrixsched("actions", "next", "--every", "1h", "--after", "2199-12-31T23:30Z")
    assert (none.code, none.out) == (0, "")
    assert none.err == "the rule has no run after 2199-12-31 23:30:00+00:00: choose an earlier --after.\n"


def test_an_id_that_looks_like_an_option_is_suggested_so_that_it_can_be_typed(
    matrixsched: Matrixsched, database_url: str
) -> None:
    on(database_url, lambda app: app.schedule("mail", id="--yes", delay=timedelta(days=1)))
    asked = matrixsched("actions", "cancel", "--database", database_url, "--", "--yes")
    assert asked.code == 2
    assert matrixsched(*suggested(asked.err)).code == 0
    shown = matrixsched("actions", "show", "--database", database_url, "--", "--yes")
    assert "state                 cancelled" in shown.out
    refused = matrixsched(*suggested(shown.err), "other")
    assert "there is no action 'other'" in refused.err, "the suggestion was not understood"


# Streams.


def typed(*arguments: str, **streams: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", MAIN, *arguments], text=True, timeout=60, **streams)


def test_a_stream_that_is_closed_or_full_makes_no_trace(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    on(url, lambda app: app.schedule("mail", id="ünï", delay=timedelta(days=1)))
    command = ["actions", "list", "--database", url]
    closed = typed(*command, stderr=subprocess.PIPE, preexec_fn=lambda: os.close(1))
    assert (closed.returncode, "Traceback" in closed.stderr) == (0, False)
    silent = typed(*command, stdout=subprocess.PIPE, preexec_fn=lambda: os.close(2))
    assert (silent.returncode, "ünï" in silent.stdout) == (0, True)
    for options in ([], ["--json"]):
        with Path("/dev/full").open("w") as full:
            lost = typed(*command, *options, stdout=full, stderr=subprocess.PIPE)
        assert lost.returncode == 1
        assert lost.stderr.splitlines()[-1] == (
            "matrixsched: the answer cannot be written (No space left on device): send it somewhere else."
        )
        assert "Traceback" not in lost.stderr


def test_json_is_json_and_a_table_is_a_table_whatever_letters_a_terminal_has(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    on(url, lambda app: app.schedule("mail", id="ünï", delay=timedelta(days=1)))
    for options, seen in (([], r"\xfcn\xef"), (["--json"], r"\u00fcn\u00ef")):
        answer = typed(
            *["actions", "list", "--database", url, *options],
            capture_output=True,
            env=os.environ | {"PYTHONIOENCODING": "ascii"},
        )
        assert answer.returncode == 0
        assert seen in answer.stdout
    assert json.loads(answer.stdout)[0]["id"] == "ünï"


@pytest.mark.parametrize("columns", [20, 60, 80])
def test_a_narrow_terminal_gets_whole_ids(
    matrixsched: Matrixsched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    on(url, lambda app: app.schedule("mail", id="invoice:2026-1", delay=timedelta(days=1)))
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    listed = matrixsched("actions", "list", "--database", url)
    assert "invoice:2026-1" in listed.out
    for column in ("SCHEDULED AT", "INTERRUPTED", "LAST OUTCOME"):
        assert column in listed.out
    assert matrixsched("actions", "list", "--prefix", "none", "--database", url).code == 0


# Texts of others.


def test_an_error_of_a_handler_cannot_command_the_terminal_nor_break_the_table(
    matrixsched: Matrixsched, database_url: str
) -> None:
    async def work(app: App) -> None:
        @app.action("break", retry=Retry(max_attempts=1))
        async def fail() -> None:
            raise ValueError("first\nsecond \x1b[31m[red]red[/red]")

        await app.schedule(fail, id="bad")
        while await Worker(app).run_due():
            pass

    on(database_url, work)
    shown = matrixsched("actions", "show", "bad", "--database", database_url)
    assert "\x1b" not in shown.out
    assert shown.out.count(r"ValueError: first\nsecond \x1b[31m[red]red[/red]") == 2
    plain = matrixsched("actions", "show", "bad", "--database", database_url, "--json").json
    assert plain["status"]["last_error"].startswith("ValueError: first\nsecond \x1b[31m[red]red[/red]")


# Ctrl-C.


def test_who_stops_it_half_way_is_told_how_far_it_came(
    matrixsched: Matrixsched, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def plant(app: App) -> None:
        for number in range(3 * TOGETHER):
            await app.schedule("mail", id=f"mail:{number}", delay=timedelta(days=1))

    on(database_url, plant)
    change, calls = Scheduler.change_together, [0]

    async def change_and_press(scheduler: Scheduler, operations: Sequence[Any]) -> Any:
        calls[0] += 1
        if calls[0] == 2:
            signal.raise_signal(signal.SIGINT)
        return await change(scheduler, operations)

    monkeypatch.setattr(Scheduler, "change_together", change_and_press)
    stopped = matrixsched("actions", "cancel", "--prefix", "mail:", "--database", database_url, "--yes", "--json")
    assert stopped.code == 130
    assert "stopped half-way: what is done stays done." in stopped.err
    left = on(database_url, lambda app: app.list(state=State.LIVE))
    assert 3 * TOGETHER - len(left) - stopped.json["cancelled"] in (0, TOGETHER)  # what is under way may have arrived
    assert stopped.json["cancelled"] >= TOGETHER
    assert matrixsched(*suggested(stopped.err)).json["cancelled"] == len(left)


def test_what_ends_by_itself_meanwhile_is_not_counted_as_cancelled(
    matrixsched: Matrixsched, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(database_url, lambda app: app.schedule("mail", id="mail"))
    change = Scheduler.change

    async def change_too_late(scheduler: Scheduler, *arguments: Any) -> Any:
        other = App(database_url)
        other.action("mail")(lambda: None)
        async with other:
            while await Worker(other).run_due():
                pass
        return await change(scheduler, *arguments)

    monkeypatch.setattr(Scheduler, "change", change_too_late)
    late = matrixsched("actions", "cancel", "mail", "--database", database_url, "--yes", "--json")
    assert (late.json["cancelled"], late.json["skipped"]) == (0, 1)
    assert "1 were started, changed or locked by others, or in another state." in late.err
