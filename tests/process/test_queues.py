"""Typed queues under real processes: a worker is killed with batches in its hands, and nothing is lost."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.processes import environment

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent.parent


def test_what_a_killed_worker_had_in_its_hands_comes_back_with_one_attempt_more(
    database_url: str, tmp_path: Path, form_option: list[str]
) -> None:
    where = ["--sqlite"] if database_url.startswith("sqlite") else ["--url", database_url]
    figures = tmp_path / "figures.json"
    # Other tests run beside it: what comes back may be handled later than it should.
    options = ["--no-following", "--patience", "10", "--json", str(figures)]
    command = [sys.executable, "tools/queue_play.py", *where, *form_option, *options]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stdout + done.stderr
    checks = json.loads(figures.read_text())["checks"]
    assert [check["kept"] for check in checks] == [True] * 5
