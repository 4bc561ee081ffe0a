"""A semaphore under real processes, one of two killed with events in its hands: the best hold, nothing is lost."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.processes import environment

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent.parent


def test_places_go_to_the_most_important_also_when_a_worker_is_killed_between_balance_and_events(
    database_url: str, tmp_path: Path, form_option: list[str]
) -> None:
    where = ["--sqlite"] if database_url.startswith("sqlite") else ["--url", database_url]
    size = ["--waiting", "3000", "--active", "100", "--try-release", "90", "--urgent", "20"]
    figures = tmp_path / "figures.json"
    command = [sys.executable, "tools/pool.py", *where, *form_option, *size, "--json", str(figures)]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr.count("killed with") == 1
    assert "killed with 0" not in done.stderr
    checks = json.loads(figures.read_text())["checks"]
    assert [check for check in checks if check["kept"] is False] == []
    assert sum(check["kept"] is True for check in checks) == 6
