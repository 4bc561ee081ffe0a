"""The short form of chaos: processes killed and stopped, PostgreSQL restarted, answers to commits lost; judged."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.processes import environment

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent.parent
JUDGES = 34


def played(tmp_path: Path, *options: str) -> str:
    """What it says at the end. Other tests run beside it: recovery may take longer than it should."""
    fixed = ["--workers", "4", "--patience", "20", "--keep", str(tmp_path / "kept")]
    command = [sys.executable, "tools/chaos_play.py", *fixed, *options]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=58)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("\nok ") == JUDGES
    return " ".join(done.stdout.split())


@pytest.mark.postgresql
@pytest.mark.direct("the proxy reads what servers say, and the audit knows writers by their sessions")
def test_postgresql(tmp_path: Path, form_option: list[str]) -> None:
    amounts = {"kills": 12, "stops": 3, "restarts": 2, "lost-commits": 12, "terminations": 2, "cuts": 3}
    options = [f"--{name}={amount}" for name, amount in amounts.items()]
    said = played(tmp_path, *form_option, *options, "--seconds", "8", "--actions", "200")
    for name, amount in amounts.items():
        assert f" {amount} {name.replace('-', ' ')}" in said, name


def test_sqlite(tmp_path: Path) -> None:
    said = played(tmp_path, "--sqlite", "--kills", "6", "--stops", "2", "--seconds", "5", "--actions", "100")
    assert " 6 kills" in said
    assert " 2 stops" in said
