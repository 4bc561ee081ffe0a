"""Versions side by side on one database: it is expanded, the newer one is deployed, then it is contracted."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.processes import PACKAGE, Scene, environment, scene, until

from matrixsched import App, call
from matrixsched.store.migrations import LIBRARY_SCHEMA_VERSION

pytestmark = pytest.mark.slow

NEXT = LIBRARY_SCHEMA_VERSION + 1
LAST = LIBRARY_SCHEMA_VERSION + 2
EXPANDS = f"alter table matrixsched.scheduled_actions add column remark text;\n-- schema {NEXT}\n"
CONTRACTS = f"update matrixsched.installation set oldest_library = {NEXT};\n"


@pytest.fixture
def stage(database_url: str, tmp_path: Path) -> Iterator[Scene]:
    """A database as this version makes it, and nobody at work yet."""
    App(database_url).sync.init(shards=8)
    with scene(database_url, tmp_path) as playing:
        yield playing


@pytest.fixture(scope="session")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This library as it might be in its next version: with one migration more, which adds."""
    return release(tmp_path_factory.mktemp("newer"), {NEXT: EXPANDS})


@pytest.fixture(scope="session")
def newest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The version after that: nobody who does not know the one before may work any more."""
    return release(tmp_path_factory.mktemp("newest"), {NEXT: EXPANDS, LAST: CONTRACTS})


def release(folder: Path, migrations: dict[int, str]) -> Path:
    shutil.copytree(PACKAGE / "matrixsched", folder / "matrixsched", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(PACKAGE / "schema", folder / "schema")
    for number, text in migrations.items():
        for dialect, prefix in (("postgresql", "matrixsched."), ("sqlite", "matrixsched_")):
            (folder / "schema" / dialect / f"{number:04}_next.sql").write_text(text.replace("matrixsched.", prefix))
    knows = folder / "matrixsched" / "store" / "migrations.py"
    line = f"LIBRARY_SCHEMA_VERSION = {LIBRARY_SCHEMA_VERSION}"
    assert knows.read_text().count(line) == 1
    knows.write_text(knows.read_text().replace(line, f"LIBRARY_SCHEMA_VERSION = {max(migrations)}"))
    return folder


def upgrade(package: Path, url: str) -> str:
    command = [sys.executable, "-m", "matrixsched", "upgrade", "--database", url]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(package))
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.mark.direct("which version has a part hangs on who is told first")
def test_a_deploy_goes_through_a_migration_with_both_versions_at_work(stage: Scene, newer: Path, newest: Path) -> None:
    older = stage.start_worker("--concurrency", "5").wait_until_started()
    ids = schedule(stage.url, "expand", 60)
    until(lambda: stage.done() >= 5, "the older one is at work")

    assert f"{NEXT:04}" in upgrade(newer, stage.url)
    successor = stage.start_worker("--concurrency", "5", package=newer).wait_until_started()
    again = stage.start_worker("--concurrency", "5").wait_until_started()
    ids += schedule(stage.url, "deploy", 90)
    pids = (older.pid, successor.pid, again.pid)
    until(lambda: stage.done() == len(ids), "all are done")
    assert all(stage.account.done_by[pid] for pid in pids), "each version had its part, also one that starts late"

    for worker in (older, again):
        worker.process.send_signal(signal.SIGTERM)
        assert worker.exit_code() == 0
    upgrade(newest, stage.url)
    ids += schedule(stage.url, "contract", 20, package=newer)
    until(lambda: stage.done() == len(ids), "the newer one goes on")
    assert "step_failed" not in stage.logs()
    assert not re.search(r" error ", stage.logs()), "nobody met what it does not know"
    assert {count for count in stage.account.done.values()} == {1}

    late = stage.start_worker()
    assert late.exit_code() == 2
    assert f"needs a library that knows schema {NEXT}" in late.said()


def schedule(url: str, prefix: str, count: int, *, package: Path | None = None) -> list[str]:
    """As this version does, or another one in a process of its own."""
    ids = [f"{prefix}:{number}" for number in range(count)]
    if package is None:
        app = App(url)
        with app.sync:
            app.sync.schedule_many(call("sleep", 0.05, id=one) for one in ids)
        return ids
    text = (
        "import sys; from matrixsched import App, call\n"
        "with App(sys.argv[1]).sync as app: app.schedule_many(call('sleep', 0.05, id=one) for one in sys.argv[2:])"
    )
    subprocess.run([sys.executable, "-c", text, url, *ids], check=True, env=environment(package))
    return ids
