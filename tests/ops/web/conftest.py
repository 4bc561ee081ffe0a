"""The dashboard of an installation in each database."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from support.furnished import furnish
from support.visits import Visitor, visiting

from matrixsched import App
from matrixsched.clock import ManualClock


@pytest.fixture
async def visitor(app: App) -> AsyncIterator[Visitor]:
    async with visiting(app) as one:
        yield one


@pytest.fixture
async def furnished(app: App, clock: ManualClock, visitor: Visitor) -> Visitor:
    """The dashboard of an installation with something of everything in it."""
    await furnish(app, clock)
    return visitor
