"""The README tells the truth: its tour works when pasted, its tables are those of the code."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from matrixsched.config import settings_table

README = Path(__file__).parent.parent / "README.md"
DEADLINE_S = 60


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README.read_text("utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.timeout(120)
def test_the_five_minute_tour_works_when_pasted(tmp_path):
    (tmp_path / "reminders.py").write_text(blocks("python")[0])
    init, run, worker = [line.partition("#")[0].split() for line in blocks("sh")[1].strip().splitlines()]
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONUNBUFFERED": "1"}
    for command in (init, run):
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=DEADLINE_S
        )
        assert done.returncode == 0, done.stderr
    assert done.stdout == "live\n"
    daemon = subprocess.Popen(
        worker, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        said = said_until(daemon, {"user 1: tea (attempt 1)", "user 2: cake (attempt 1)", "a report every second"})
    finally:
        daemon.send_signal(signal.SIGINT)
        rest, log = daemon.communicate(timeout=DEADLINE_S)
    assert daemon.returncode == 0, log
    assert (said + rest.splitlines()).count("user 1: tea (attempt 1)") == 1
    look_around(tmp_path, environment)


def look_around(folder: Path, environment: dict[str, str]) -> None:
    """The commands that show what became of it all; they go together, as the first one names the database."""
    done = subprocess.run(
        ["sh", "-e"],
        input=blocks("sh")[2],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stderr
    for told in ("remind:1", "daily", "succeeded", "no faults"):
        assert told in done.stdout + done.stderr


def said_until(daemon: subprocess.Popen[str], expected: set[str]) -> list[str]:
    """Lines of the daemon's output until all expected ones were among them."""
    assert daemon.stdout is not None
    said: list[str] = []
    deadline = time.monotonic() + DEADLINE_S
    while not expected <= set(said) and time.monotonic() < deadline:
        said.append(daemon.stdout.readline().rstrip("\n"))
    return said


def test_every_python_block_of_the_readme_compiles():
    for block in blocks("python"):
        compile(block, "README.md", "exec", flags=0x2000)  # await at top level is allowed


def test_the_table_of_settings_is_that_of_the_code():
    (table,) = re.findall(
        r"<!-- settings: begin -->\n(.*?)<!-- settings: end -->", README.read_text("utf-8"), re.DOTALL
    )
    assert table == settings_table().rstrip("\n") + "\n", "put the output of `matrixsched settings --markdown` there"


def test_every_file_the_documents_link_to_is_there():
    for document in (README, *(README.parent / name for name in ("CONTRIBUTING.md", "docs/testing.md"))):
        for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text("utf-8")):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"
