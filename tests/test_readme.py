"""The README tells the truth: its tour works when pasted, its tables are those of the code."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from matrixsched import App
from matrixsched.config import settings_table
from matrixsched.observe import Metrics

README = Path(__file__).parent.parent / "README.md"
DEADLINE_S = 60


def blocks(language: str, text: str | None = None) -> list[str]:
    """Of the whole README, or of a part of it."""
    text = README.read_text("utf-8") if text is None else text
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def chapter(title: str) -> str:
    return README.read_text("utf-8").partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def commands(block: str) -> list[list[str]]:
    return [line.partition("#")[0].split() for line in block.strip().splitlines()]


@pytest.mark.timeout(120)
def test_the_five_minute_tour_works_when_pasted(tmp_path):
    (tmp_path / "reminders.py").write_text(blocks("python")[0])
    init, run, worker = commands(blocks("sh")[1])
    ran(init, tmp_path)
    assert ran(run, tmp_path).stdout == "live\n"
    said = worked(worker, tmp_path, {"user 1: tea (attempt 1)", "user 2: cake (attempt 1)", "a report every second"})
    assert said.count("user 1: tea (attempt 1)") == 1
    look_around(tmp_path)


@pytest.mark.timeout(120)
def test_the_chapter_on_queues_works_when_pasted(tmp_path):
    text = chapter("Typed queues")
    (contract,), (module,), (shell,) = blocks("yaml", text), blocks("python", text), blocks("sh", text)
    (tmp_path / "queues.yaml").write_text(contract)
    (tmp_path / "mails.py").write_text(module)
    (generate,) = re.findall(r"`(matrixsched contract generate [^`]+)`", text)
    init, run, worker, show = commands(shell)
    for command in (generate.split(), init, run):
        ran(command, tmp_path)
    busy, morning = "busy@example.org: Hi (attempts before: 1)", "ada@example.org: Good morning (attempts before: 0)"
    news = {f"{n}@example.org: News (attempts before: 0)" for n in range(1000)}
    said = worked(worker, tmp_path, {busy, morning, *news})
    assert sorted(one for one in said if one) == sorted({busy, morning, *news}), "each of them once"
    shown = ran(show, tmp_path).stdout
    assert "it has no address" in shown
    assert re.search(r"^ready +0$", shown, re.MULTILINE)


def environment() -> dict[str, str]:
    return os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONUNBUFFERED": "1"}


def ran(command: list[str], folder: Path, typed: str | None = None) -> subprocess.CompletedProcess[str]:
    ended = subprocess.run(
        command, input=typed, cwd=folder, env=environment(), capture_output=True, text=True, timeout=DEADLINE_S
    )
    assert ended.returncode == 0, ended.stderr
    return ended


def worked(worker: list[str], folder: Path, expected: set[str]) -> list[str]:
    """All that a worker says until it has said what is expected and is stopped."""
    daemon = subprocess.Popen(
        worker, cwd=folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        said = said_until(daemon, expected)
    finally:
        daemon.send_signal(signal.SIGINT)
        rest, log = daemon.communicate(timeout=DEADLINE_S)
    assert daemon.returncode == 0, log
    return said + rest.splitlines()


def look_around(folder: Path) -> None:
    """The commands that show what became of it all; they go together, as the first one names the database."""
    ended = ran(["sh", "-e"], folder, typed=blocks("sh")[2])
    for told in ("remind:1", "daily", "succeeded", "no faults"):
        assert told in ended.stdout + ended.stderr


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


def test_every_metric_of_queues_is_named():
    registry = CollectorRegistry()
    Metrics(App("sqlite:///never-opened.db"), registry=registry)
    told = chapter("Operating it")
    found = [f"{one.name}_total" if one.type == "counter" else one.name for one in registry.collect()]
    of_queues = [name for name in found if name.startswith(("queue_", "matrixsched_queue_"))]
    assert len(of_queues) == 10
    assert [name for name in of_queues if not re.search(rf"`{name}[`{{]", told)] == []


def test_no_command_stands_twice_in_the_table():
    rows = re.findall(r"^\| `(matrixsched [a-z-]+(?: [a-z-]+)?)", chapter("Operating it"), re.MULTILINE)
    assert len(rows) > 10
    assert sorted(rows) == sorted(set(rows))


def test_every_file_the_documents_link_to_is_there():
    for document in (README, *(README.parent / name for name in ("CONTRIBUTING.md", "docs/testing.md"))):
        for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text("utf-8")):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"
