"""The tools that the other tests stand on."""

from __future__ import annotations

import os
import re
import select
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import psycopg
import pytest
import sqlalchemy
from support import debian
from support.drivers import connect_psycopg, engine_of_either
from support.postgres import PostgresServer, PostgresUnavailable, start_postgres, sweep_abandoned_folders
from support.processes import environment
from support.refusing import REQUIRE_PG, REQUIRE_TOOLS, refuse

ROOT = Path(__file__).resolve().parent.parent


def run_dev(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(ROOT / "tools" / "dev"), *arguments], capture_output=True, text=True)


UNREACHABLE = "postgresql://ada:hunter2@127.0.0.1:1/none"


@pytest.mark.parametrize(
    ("play", "options", "code", "why"),
    [
        ("scenario", ["--url", UNREACHABLE], 1, "cannot connect to PostgreSQL at 127.0.0.1:1"),
        ("pool", ["--url", UNREACHABLE], 1, "cannot connect to PostgreSQL at 127.0.0.1:1"),
        ("fleet_play", ["--url", UNREACHABLE], 1, "cannot connect to PostgreSQL at 127.0.0.1:1"),
        ("queue_play", ["--url", UNREACHABLE], 1, "cannot connect to PostgreSQL at 127.0.0.1:1"),
        ("queue_play", ["--url", "postgresql://ada:hunter2@[/none"], 2, "database URL: it is malformed"),
        ("queue_play", ["--url", "sqlite:///play.db"], 2, "a file of SQLite is made where --sqlite is given"),
        ("queue_play", ["--sqlite", "--url", UNREACHABLE], 2, "not allowed with argument --sqlite"),
    ],
)
def test_a_play_without_a_database_ends_with_one_line(play: str, options: list[str], code: int, why: str) -> None:
    command = [sys.executable, str(ROOT / "tools" / f"{play}.py"), *options]
    done = subprocess.run(command, capture_output=True, text=True, env=environment())
    assert (done.returncode, done.stdout) == (code, "")
    (line,) = done.stderr.splitlines()
    assert why in line
    assert ("--sqlite" in line or "--help" in line, "hunter2" in line) == (True, False)


def test_both_databases_answer(database_url: str) -> None:
    engine = engine_of_either(database_url)
    with engine.connect() as connection:
        assert connection.scalar(sqlalchemy.text("select 1")) == 1
    engine.dispose()


def test_a_database_is_empty_and_its_own(postgres_dsn: str) -> None:
    with connect_psycopg(postgres_dsn) as connection:
        tables = connection.execute("select count(*) from pg_tables where schemaname = 'public'").fetchone()
    assert tables == (0,)


def test_a_database_is_dropped_even_if_a_connection_was_left_open(postgres_server: PostgresServer) -> None:
    with psycopg.connect(postgres_server.create_database("left_open")) as forgotten:
        postgres_server.drop_database("left_open")
        with pytest.raises(psycopg.OperationalError):
            forgotten.execute("select 1")


def test_committed_rows_survive_a_crash_of_a_durable_server() -> None:
    with start_postgres(durable=True) as server:
        if not server.restartable:
            pytest.skip("the server in MATRIXSCHED_TEST_PG is not ours to crash")
        with psycopg.connect(server.admin_dsn) as connection:
            assert connection.execute("show fsync").fetchone() == ("on",)
            connection.execute("create table kept as select 7 as number")
        server.restart("immediate")
        with psycopg.connect(server.admin_dsn) as connection:
            assert connection.execute("select number from kept").fetchone() == (7,)
        folder = server.process.folder if server.process else Path()
    assert not folder.exists()


def test_a_given_server_is_used_and_not_restarted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MATRIXSCHED_TEST_PG", "postgresql+asyncpg://me:secret@db.example:5433")
    with start_postgres() as server:
        assert server.admin_dsn == "postgresql://me:secret@db.example:5433/postgres"
        assert server.dsn("orders") == "postgresql://me:secret@db.example:5433/orders"
        with pytest.raises(PostgresUnavailable, match="not ours to restart"):
            server.restart()


@pytest.fixture
def open_temporary_root() -> Iterator[Path]:
    """A temporary root of the test's own that the server's user may enter, unlike pytest's."""
    root = Path(tempfile.mkdtemp(prefix="ms-"))
    root.chmod(0o1777)
    yield root
    shutil.rmtree(root)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its parent")
def test_a_killed_starter_leaves_no_server_and_its_folder_is_swept(open_temporary_root: Path) -> None:
    script = """if True:
        import os, signal
        from support.postgres import start_postgres
        with start_postgres() as server:
            print(server.process.postmaster.pid, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
    """
    environment = os.environ | {"PYTHONPATH": str(ROOT / "tests"), "TMPDIR": str(open_temporary_root)}
    environment.pop("MATRIXSCHED_TEST_PG", None)
    starter = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=environment)
    wait_for_end(int(starter.stdout))
    assert list(open_temporary_root.iterdir())
    sweep_abandoned_folders(open_temporary_root)
    assert not list(open_temporary_root.iterdir())


def wait_for_end(pid: int) -> None:
    """Return once the process is gone, without asking again and again."""
    try:
        watch = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([watch], [], [], 30)[0], f"process {pid} outlived its starter"
    finally:
        os.close(watch)


def test_a_program_that_cannot_be_had_is_named_with_its_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(debian.TOOLS, "weighing", debian.Tool("scales", "usr/bin/weighing"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(debian.ToolUnavailable, match="weighing is not on the path .*: install scales"):
        debian.provided("weighing")


def test_a_program_on_the_path_is_used_as_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(debian.TOOLS, "weighing", debian.Tool("scales", "usr/bin/weighing"))
    (tmp_path / "weighing").touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert debian.provided("weighing") == tmp_path / "weighing"


@pytest.mark.parametrize(("required", "end"), [("1", pytest.fail.Exception), ("", pytest.skip.Exception)])
def test_what_is_missing_is_left_out_unless_it_is_required(
    monkeypatch: pytest.MonkeyPatch, required: str, end: type[Exception]
) -> None:
    monkeypatch.setenv(REQUIRE_TOOLS, required)
    with pytest.raises(end, match="no promtool"):
        refuse("no promtool", unless=REQUIRE_TOOLS)


@pytest.fixture
def dev(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """The script of all tools, which starts nothing, on a machine with room in memory."""
    loader = SourceFileLoader("dev", str(ROOT / "tools" / "dev"))
    module = module_from_spec(spec_from_loader("dev", loader))
    loader.exec_module(module)
    monkeypatch.setattr(module, "become_python", lambda *_: None)
    monkeypatch.setattr(module, "IN_MEMORY", tmp_path)
    monkeypatch.setattr(module, "IN_MEMORY_MIN", 1)
    for variable in ("TMPDIR", REQUIRE_PG):
        monkeypatch.setenv(variable, "")  # first: what the script sets is then undone as well
        monkeypatch.delenv(variable)
    return module


def test_databases_of_tests_are_made_in_memory(dev: ModuleType, tmp_path: Path) -> None:
    dev.test([])
    assert os.environ["TMPDIR"] == str(tmp_path)


def test_they_are_made_where_somebody_wants_them(dev: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", "/chosen")
    dev.test([])
    assert os.environ["TMPDIR"] == "/chosen"


@pytest.mark.parametrize(("name", "value"), [("IN_MEMORY", Path("/nowhere")), ("IN_MEMORY_MIN", 1 << 60)])
def test_they_are_made_where_they_always_were_if_memory_is_small_or_no_folder(
    dev: ModuleType, monkeypatch: pytest.MonkeyPatch, name: str, value: object
) -> None:
    monkeypatch.setattr(dev, name, value)
    dev.test([])
    assert "TMPDIR" not in os.environ


@pytest.mark.parametrize(
    ("given", "decides"),
    [
        (["tests/store", "-q", "--distributed"], False),
        (["-n4"], True),
        (["-n", "4"], True),
        (["--dist=load"], True),
        (["--pdb"], True),
        (["-p", "no:xdist"], True),
    ],
)
def test_a_few_workers_run_the_tests_unless_the_caller_decides(
    dev: ModuleType, given: list[str], decides: bool
) -> None:
    assert (dev.parallel_options(given) == []) is decides


def test_dev_without_a_command_lists_them_and_exits_2() -> None:
    done = run_dev()
    assert done.returncode == 2
    for command in ("demo", "test", "check", "bench"):
        assert re.search(rf"^  {command} ", done.stderr, re.MULTILINE)


def test_dev_names_the_command_that_it_does_not_know() -> None:
    done = run_dev("tset")
    assert done.returncode == 2
    assert "unknown command 'tset'" in done.stderr
