"""A stage to play on."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator

import anyio
import pytest
from support.interleaving import install
from support.postgres import PostgresServer

from interleaver.stage import Stage, a_stage


@pytest.fixture(scope="module")
def stage_database(postgres_server: PostgresServer) -> Iterator[str]:
    name = f"stage_{uuid.uuid4().hex}"
    dsn = postgres_server.create_database(name)
    anyio.run(install, dsn)
    yield dsn
    postgres_server.drop_database(name)


@pytest.fixture
async def stage(stage_database: str) -> AsyncIterator[Stage]:
    async with a_stage(stage_database) as stage:
        yield stage
