"""A world to interleave statements in."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator

import pytest
from support.interleaving import World, a_world, install
from support.postgres import PostgresServer
from support.ways import way_of


@pytest.fixture(scope="session")
def spare_databases(postgres_server: PostgresServer) -> Iterator[list[str]]:
    """Databases with a schema that no case uses now: making one takes longer than most cases."""
    names: list[str] = []
    yield names
    for name in names:
        postgres_server.drop_database(name)


@pytest.fixture
async def world(
    anyio_backend: str, postgres_server: PostgresServer, spare_databases: list[str], pytestconfig: pytest.Config
) -> AsyncIterator[World]:
    """At the end of every case each live action has exactly one row, but for those the case names in `world.wrong`."""
    distributed = way_of(pytestconfig).distributed
    if spare_databases:
        name = spare_databases.pop()
    else:
        name = f"world_{uuid.uuid4().hex}"
        await install(postgres_server.create_database(name), distributed=distributed)
    altered = True
    try:
        async with a_world(postgres_server.dsn(name), is_distributed=distributed) as world:
            yield world
            altered = world.altered
    finally:
        if altered:
            postgres_server.drop_database(name)
        else:
            spare_databases.append(name)
