"""The systemd unit fits the command it starts."""

from __future__ import annotations

import configparser
import getpass
import shlex
import shutil
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from support.processes import WorkerUnderTest, environment, until

from matrixsched import App
from matrixsched.ops.exits import WRONG_USE
from matrixsched.worker import WorkerPolicy

UNIT = Path(__file__).resolve().parents[2] / "tools" / "matrixsched.service"
APP = "support.process_app:app"


@pytest.fixture
def unit() -> configparser.ConfigParser:
    parsed = configparser.ConfigParser(interpolation=None)
    parsed.optionxform = str  # type: ignore[assignment, method-assign]
    parsed.read(UNIT)
    return parsed


def arguments(unit: configparser.ConfigParser) -> list[str]:
    program, *rest = shlex.split(unit["Service"]["ExecStart"])
    assert program.endswith("/bin/matrixsched")
    return [APP if one == "${MATRIXSCHED_APP}" else one for one in rest]


def test_handlers_get_their_grace_before_systemd_kills(unit: configparser.ConfigParser) -> None:
    service = unit["Service"]
    given = arguments(unit)
    grace_s = float(given[given.index("--stop-grace") + 1])
    assert timedelta(seconds=grace_s) == WorkerPolicy().stop_grace
    assert float(service["TimeoutStopSec"]) >= grace_s + WorkerPolicy().farewell.total_seconds() + 10
    assert (service["KillSignal"], service["KillMode"]) == ("SIGTERM", "mixed")


def test_what_would_fail_again_is_not_tried_again(unit: configparser.ConfigParser) -> None:
    service = unit["Service"]
    assert service["Restart"] == "on-failure"
    assert int(service["RestartPreventExitStatus"]) == WRONG_USE


@pytest.mark.slow
def test_the_command_of_the_unit_starts_a_worker_and_its_signal_ends_it(
    unit: configparser.ConfigParser, database_url: str, tmp_path: Path
) -> None:
    App(database_url).sync.init(shards=8)
    log = tmp_path / "log"
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "matrixsched", *arguments(unit)],
            stderr=stderr,
            env=environment(TEST_DATABASE=database_url, TEST_EVIDENCE=str(tmp_path / "notes")),
        )
    worker = WorkerUnderTest(process, log)
    try:
        until(lambda: "worker started" in worker.said() or process.poll() is not None, "started")
        process.send_signal(signal.Signals[unit["Service"]["KillSignal"]])
        assert worker.exit_code() == 0, worker.said()
    finally:
        process.kill()
        process.wait()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
def test_systemd_understands_every_line(unit: configparser.ConfigParser, tmp_path: Path) -> None:
    here = tmp_path / UNIT.name
    program = shlex.split(unit["Service"]["ExecStart"])[0]
    text = UNIT.read_text().replace(program, sys.executable).replace("User=matrixsched", f"User={getpass.getuser()}")
    here.write_text(text)
    verified = subprocess.run(["systemd-analyze", "verify", str(here)], capture_output=True, text=True)
    # It looks at other units as well, which are none of our business.
    assert [line for line in verified.stderr.splitlines() if UNIT.name in line] == []
