"""Databases for tests: every test that asks for `database_url` runs on SQLite and on PostgreSQL."""

from __future__ import annotations

import contextlib
import gc
import shutil
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

import anyio
import pytest
from support.databases import Databases
from support.debian import ToolUnavailable, provided
from support.pgbouncer import start_pgbouncer
from support.postgres import PostgresServer, PostgresUnavailable, start_postgres
from support.refusing import REQUIRE_PG, REQUIRE_TOOLS, refuse
from support.scene import SHARDS
from support.ways import (  # noqa: F401
    pytest_addoption,
    pytest_collection_modifyitems,
    pytest_configure,
    pytest_sessionfinish,
    pytest_terminal_summary,
    pytest_testnodedown,
    way_of,
)

from matrixsched import App, testing
from matrixsched.clock import ManualClock, SeededChance
from matrixsched.testing import Stage

# A run in the background of a script inherits an ignored SIGINT, and so would every process that tests start and stop.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Look for no garbage among what stays until the end: twelve thousand tests, and all modules."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session")
def postgres_server(pytestconfig: pytest.Config) -> Iterator[PostgresServer]:
    """One server for each pytest process, reached as the options of the run say."""
    way = way_of(pytestconfig)
    with contextlib.ExitStack() as stack:
        try:
            server = replace(stack.enter_context(start_postgres()), default_isolation=way.default_isolation)
        except PostgresUnavailable as error:
            reason = str(error)
        else:
            if way.through_pgbouncer:
                port = stack.enter_context(start_pgbouncer(server, "transaction"))
                server = replace(server, pooler_port=port)
            yield server
            return
    # Outside the except block: the reason alone is shown, without the trace of how it was found.
    refuse(reason, unless=REQUIRE_PG)


@pytest.fixture(scope="session")
def debian_tool() -> Callable[[str], Path]:
    """A program of Debian's by its name, fetched if need be."""

    def tool(name: str) -> Path:
        try:
            return provided(name)
        except ToolUnavailable as error:
            reason = str(error)
        refuse(reason, unless=REQUIRE_TOOLS)

    return tool


@pytest.fixture(scope="session")
def installed_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite database with an installation, to be copied: to make one takes three times as long."""
    file = tmp_path_factory.mktemp("installed") / "test.db"
    anyio.run(partial(App(f"sqlite:///{file}").init, shards=SHARDS))
    return file


@pytest.fixture(scope="session")
def installed_databases(postgres_server: PostgresServer) -> Iterator[Databases]:
    """PostgreSQL databases with an installation."""
    with contextlib.closing(
        Databases(postgres_server, install=lambda dsn: anyio.run(partial(App(dsn).init, shards=SHARDS)))
    ) as databases:
        yield databases


@pytest.fixture(scope="session")
def empty_databases(postgres_server: PostgresServer) -> Iterator[Databases]:
    with contextlib.closing(Databases(postgres_server)) as databases:
        yield databases


@pytest.fixture
def postgres_dsn(postgres_server: PostgresServer, request: pytest.FixtureRequest) -> Iterator[str]:
    """A PostgreSQL database as new: empty, unless the test makes an installation at once, as all with an `app` do."""
    databases: Databases = request.getfixturevalue(f"{_found_in(request)}_databases")
    used = databases.take()
    yield postgres_server.url(used.name)
    databases.give_back(used)


def _found_in(request: pytest.FixtureRequest) -> Literal["furnished", "installed", "empty"]:
    """What a test finds in its database."""
    if "furnished" in request.fixturenames:
        return "furnished"
    is_installed = "app" in request.fixturenames or request.node.get_closest_marker("installed") is not None
    return "installed" if is_installed else "empty"


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A fresh, empty database of each kind in turn."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/test.db"
    # Asked for by name only here, so that a run of the SQLite half starts no server.
    dsn: str = request.getfixturevalue("postgres_dsn")
    return dsn


@pytest.fixture
def form_option(pytestconfig: pytest.Config) -> list[str]:
    """What tells a command or a tool in another process to make an installation in the form that the run says."""
    return ["--distributed"] if way_of(pytestconfig).distributed else []


@pytest.fixture
def form_of_the_run(request: pytest.FixtureRequest, pytestconfig: pytest.Config) -> None:
    """For programs that make their own installation in another process: they take one that is there as it is."""
    if way_of(pytestconfig).distributed:
        App(request.getfixturevalue("database_url")).sync.init()


@pytest.fixture
def anyio_backend() -> str:
    """SQLAlchemy's async engine, aiosqlite and asyncpg know asyncio only."""
    return "asyncio"


@pytest.fixture
def clock() -> ManualClock:
    """The time of the database, and of everybody else."""
    return ManualClock()


@pytest.fixture
def installed_url(database_url: str, request: pytest.FixtureRequest) -> str:
    """A database of each kind in turn, with an installation of four shards; PostgreSQL's has one already."""
    if database_url.startswith("sqlite"):
        # Asked for here and not by `app`: no second event loop can be run inside of a test's.
        kind = "furnished" if _found_in(request) == "furnished" else "installed"
        shutil.copy(request.getfixturevalue(f"{kind}_file"), database_url.removeprefix("sqlite:///"))
    return database_url


@pytest.fixture
async def app(installed_url: str, clock: ManualClock, anyio_backend: str) -> AsyncIterator[App]:
    """An application on a fresh installation of four shards, whose time stands still."""
    async with App(installed_url, clock=clock, chance=SeededChance(1)) as app:
        yield app


@pytest.fixture
def stage(database_url: str) -> Iterator[Stage]:
    """An application on a stage, in an installation of its own in a database of each kind in turn."""
    with testing.stage(App(database_url), url=database_url) as staged:
        yield staged
