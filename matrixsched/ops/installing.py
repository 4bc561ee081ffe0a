"""Making an installation and bringing it up to date."""

from __future__ import annotations

from contextlib import suppress

from matrixsched.app import App
from matrixsched.errors import SchemaMismatch
from matrixsched.ops.render import Facts


async def init(app: App, shards: int, *, distributed: bool | None = None) -> Facts:
    """Create the tables, or bring them to the newest schema."""
    return await _described(app, await app.init(shards=shards, distributed=distributed))


async def upgrade(app: App) -> Facts:
    """Bring an installation that exists to the newest schema; SchemaMissing if there is none."""
    with suppress(SchemaMismatch):
        async with app:
            pass
    return await _described(app, await app.init())


async def _described(app: App, applied: list[str]) -> Facts:
    async with app:
        shards = await app.store.run(app.scheduler.installing())
    return {
        "database": app.store.description,
        "installation": app.installation,
        "shards": shards,
        "applied": applied,
    }
