"""The application that `matrixsched demo` shows: four kinds of work, each of which takes notes of what it does."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio

from matrixsched import App, Context, Retry
from matrixsched.ops.evidence import Evidence, Kind

DATABASE_VARIABLE = "MATRIXSCHED_DEMO_DATABASE"
EVIDENCE_VARIABLE = "MATRIXSCHED_DEMO_EVIDENCE"
INSTALLATION = "demo"
FAILURES = 2
SLOW_S = 0.2

app = App(os.environ.get(DATABASE_VARIABLE, "sqlite:///matrixsched-demo.db"), installation=INSTALLATION)
evidence = Evidence(Path(os.environ.get(EVIDENCE_VARIABLE, "matrixsched-demo.notes")))


class NotToday(Exception):
    """What a service of somebody else's says."""


@app.middleware
async def take_notes(context: Context, call_next: Callable[[], Awaitable[Any]]) -> Any:
    evidence.note(Kind.BEGUN, context)
    try:
        answer = await call_next()
    except Exception:
        evidence.note(Kind.FAILED, context)
        raise
    evidence.note(Kind.DONE, context)
    return answer


@app.action("quick")
async def quick() -> None:
    """Done at once."""


@app.action("slow")
async def slow() -> None:
    await anyio.sleep(SLOW_S)


@app.action("flaky", retry=Retry(max_attempts=5, first_delay=timedelta(milliseconds=300)))
async def flaky(context: Context) -> None:
    if context.failures < FAILURES:
        raise NotToday


@app.action("periodic")
async def periodic() -> None:
    """Comes round again by itself."""
