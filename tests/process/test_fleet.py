"""A short form of `./tools/dev fleet`: workers join, are restarted under load and leave."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 5
"""This may run beside others: what is judged here is that nothing is lost or doubled."""


def test_workers_are_restarted_one_after_another_and_nothing_runs_twice(
    database_url: str, tmp_path: Path, form_option: list[str]
) -> None:
    where = ["--sqlite"] if database_url.startswith("sqlite") else ["--url", database_url]
    size = ["--processes", "3", "--shards", "8", "--restarts", "3", "--rate", "40", "--steady", "2", "--no-rest"]
    figures = tmp_path / "figures.json"
    command = [
        sys.executable,
        "tools/fleet_play.py",
        *where,
        *form_option,
        *size,
        "--patience",
        f"{PATIENCE_S}",
        "--json",
        str(figures),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    checks = {check["promise"]: check for check in json.loads(figures.read_text())["checks"]}
    assert checks["everybody who is stopped leaves in order"]["found"] == "6 left"
    assert all(check["kept"] is not False for check in checks.values())
