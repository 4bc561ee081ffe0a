"""A world to interleave statements in."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from support.interleaving import World, a_world


@pytest.fixture
async def world(anyio_backend: str, postgres_dsn: str) -> AsyncIterator[World]:
    """At the end of every case each live action has exactly one row, but for those the case names in `world.wrong`."""
    async with a_world(postgres_dsn) as world:
        yield world
