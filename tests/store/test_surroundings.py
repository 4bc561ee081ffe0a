"""The behaviour suite in other surroundings (`support/ways.py`): they are what the run says, and a part of it in each.

All of it: `./tools/dev test --through-pgbouncer`, and the same with `--distributed`, and with `--default-isolation
serializable tests/scheduler tests/store tests/worker tests/queues`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from support.drivers import connect_psycopg
from support.pgbouncer import require_pgbouncer
from support.refusing import REQUIRE_PG, REQUIRE_TOOLS
from support.ways import way_of

from matrixsched import App
from matrixsched.clock import SystemClock

ROOT = Path(__file__).resolve().parents[2]
PART = (__file__, "tests/scheduler/test_callers_transaction.py")
STEPS = "tests/store/transitions"
PARTS = {
    ("--through-pgbouncer",): PART,
    ("--default-isolation", "serializable"): PART,
    ("--distributed",): (*PART, *(f"{STEPS}/test_{name}.py" for name in ("claim", "record"))),
}
PASSED_MIN = 20
PART_MAX_S = 240


def test_the_database_is_reached_as_the_run_says(postgres_dsn: str, pytestconfig: pytest.Config):
    way = way_of(pytestconfig)
    with connect_psycopg(postgres_dsn) as connection:
        (port,) = connection.execute("select inet_server_port()").fetchone()
        (isolation,) = connection.execute("show default_transaction_isolation").fetchone()
    assert (port != urlsplit(postgres_dsn).port) == way.through_pgbouncer
    assert isolation == (way.default_isolation or "read committed")


@pytest.mark.anyio
async def test_an_installation_is_made_as_the_run_says(postgres_dsn: str, pytestconfig: pytest.Config):
    app = App(postgres_dsn)
    await app.init(shards=2)
    async with app:
        assert (await app.store.inspect(SystemClock())).schema.is_distributed == way_of(pytestconfig).distributed


@pytest.mark.slow
@pytest.mark.timeout(PART_MAX_S)
@pytest.mark.parametrize("options", PARTS, ids=lambda options: options[0])
def test_a_part_of_the_suite_passes(options: tuple[str, ...]):
    if "--through-pgbouncer" in options:
        require_pgbouncer()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:xdist", "-p", "no:cacheprovider", "-q", *options, *PARTS[options]],
        cwd=ROOT,
        env=environment | {REQUIRE_PG: "1", REQUIRE_TOOLS: "1"},  # what is left out has not passed
        capture_output=True,
        text=True,
        timeout=PART_MAX_S,
    )
    told = done.stdout + done.stderr
    assert done.returncode == 0, told
    assert int(re.findall(r"(\d+) passed", told)[-1]) >= PASSED_MIN, told
