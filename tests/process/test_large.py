"""A short form of `./tools/dev large`: each of its steps is done, and nothing is lost on the way."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.direct("it starts a server of its own, and measures that")
@pytest.mark.undistributed("it tells what the usual form does beside ten million actions")
@pytest.mark.usefixtures("postgres_server")  # where there is none it is said there
def test_a_database_is_filled_worked_on_looked_at_swept_pruned_dumped_and_restored(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    command = [sys.executable, "tools/large.py", "--actions", "2000", "--due", "300", "--json", str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(file.read_text())
    assert all(check["kept"] for check in report["checks"])
    assert len(report["checks"]) == 5
    steps = ("scheduling", "drain", "page action, p95", "call list, p95", "pruning, rate", "pg_restore")
    assert all(report["figures"][step][0] > 0 for step in steps)
