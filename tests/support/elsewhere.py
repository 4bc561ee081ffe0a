"""What other processes do, as far as this one can tell."""

from __future__ import annotations

from matrixsched import App


async def schedule_elsewhere(app: App, id: str, handler: str = "work") -> None:
    """In another process, as it were: in this one it would be heard of at once."""
    async with App(app.url, clock=app.clock) as other:
        await other.schedule(handler, id=id)
