"""One behaviour suite for the protocol: every test runs on SQLite and on PostgreSQL."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from support.postgres import PostgresServer
from support.scene import SHARDS, Scene

from matrixsched.clock import ManualClock
from matrixsched.store.opening import open_store


@pytest.fixture(scope="session")
def shared_postgres_dsn(postgres_server: PostgresServer) -> Iterator[str]:
    """One database for all tests here, for making one takes longer than most of them."""
    name = f"scenes_{uuid.uuid4().hex}"
    postgres_server.create_database(name)
    yield postgres_server.url(name)
    postgres_server.drop_database(name)


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/test.db"
    dsn: str = request.getfixturevalue("shared_postgres_dsn")
    return dsn


@pytest.fixture
async def scene(database_url: str, clock: ManualClock, anyio_backend: str) -> AsyncIterator[Scene]:
    """An empty installation. However a test ends, every live action must have exactly one row."""
    store = open_store(database_url, clock=clock)
    await store.open()
    try:
        await store.upgrade(SHARDS)
        scene = Scene(store, clock)
        await scene.clear()
        yield scene
        await scene.check_one_live_row()
    finally:
        await store.close()
