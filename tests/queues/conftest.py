"""One behaviour suite for the three storages; processors over queues in memory."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from support.crew import Crew
from support.postgres import PostgresServer
from support.queues import KINDS, Storage, opened, storage_of

from matrixsched.clock import ManualClock, SeededChance
from matrixsched.queues.database import DatabaseStorage
from matrixsched.queues.memory import MemoryStorage
from matrixsched.store.store import Store


@pytest.fixture(scope="session")
def queues_dsn(postgres_server: PostgresServer) -> Iterator[str]:
    """One database for all tests here, for making one takes longer than most of them."""
    name = f"queues_{uuid.uuid4().hex}"
    postgres_server.create_database(name)
    yield postgres_server.url(name)
    postgres_server.drop_database(name)


@pytest.fixture(params=KINDS[1:])
def queues_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/test.db"
    dsn: str = request.getfixturevalue("queues_dsn")
    return dsn


@pytest.fixture
async def store(queues_url: str, clock: ManualClock, anyio_backend: str) -> AsyncIterator[Store]:
    async with opened(queues_url, clock) as store:
        yield store


@pytest.fixture
def database(store: Store) -> DatabaseStorage:
    return storage_of(store)


@pytest.fixture(params=KINDS)
async def storage(
    request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock, anyio_backend: str
) -> AsyncIterator[Storage]:
    if request.param == "memory":
        yield MemoryStorage(clock=clock, chance=SeededChance(1))
        return
    url = f"sqlite:///{tmp_path}/test.db" if request.param == "sqlite" else request.getfixturevalue("queues_dsn")
    async with opened(url, clock) as store:
        yield storage_of(store)


@pytest.fixture
def crew(clock: ManualClock) -> Crew:
    return Crew(clock)
