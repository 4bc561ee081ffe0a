"""The application of the tests with a semaphore: whoever is asked steps back, which takes a moment."""

from __future__ import annotations

import anyio

from matrixsched import Acquired, TryRelease
from support.process_app import app, evidence

__all__ = ["app", "evidence"]

STEPPING_BACK_S = 0.05


@app.on_acquired("pool")
async def hand_out(event: Acquired) -> None: ...


@app.on_try_release("pool")
async def step_back(event: TryRelease) -> None:
    await anyio.sleep(STEPPING_BACK_S)
    pool = await app.semaphores.get("pool")
    await pool.step_back(event.task_id, hold=event.hold)
