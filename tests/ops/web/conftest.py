"""The dashboard of an installation in each database."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from support.databases import Databases
from support.furnished import furnish, register
from support.installed import done
from support.postgres import PostgresServer
from support.visits import Visitor, visiting

from matrixsched import App
from matrixsched.clock import ManualClock


def fill(url: str) -> None:
    clock = ManualClock()
    done(url, clock, lambda app: furnish(app, clock))


@pytest.fixture(scope="session")
def furnished_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite database to be copied: to furnish it takes longer than any test with it."""
    file = tmp_path_factory.mktemp("furnished") / "test.db"
    fill(f"sqlite:///{file}")
    return file


@pytest.fixture(scope="session")
def furnished_databases(postgres_server: PostgresServer) -> Iterator[Databases]:
    with contextlib.closing(Databases(postgres_server, install=fill)) as databases:
        yield databases


@pytest.fixture
async def visitor(app: App) -> AsyncIterator[Visitor]:
    async with visiting(app) as one:
        yield one


@pytest.fixture
def furnished(app: App, visitor: Visitor) -> Visitor:
    """The dashboard of an installation with something of everything in it."""
    register(app)
    return visitor
