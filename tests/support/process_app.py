"""The application that worker processes of the tests run: its handlers note what they do in a file."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio

from matrixsched import App, Context
from matrixsched.ops.evidence import Evidence, Kind

app = App(os.environ["TEST_DATABASE"], installation=os.environ.get("TEST_INSTALLATION", "default"))
evidence = Evidence(Path(os.environ["TEST_EVIDENCE"]))


@app.middleware
async def take_notes(context: Context, call_next: Callable[[], Awaitable[Any]]) -> Any:
    evidence.note(Kind.BEGUN, context)
    answer = await call_next()
    evidence.note(Kind.DONE, context)
    return answer


@app.action("sleep")
async def sleep(seconds: float) -> None:
    await anyio.sleep(seconds)


@app.action("stubborn")
async def stubborn(seconds: float) -> None:
    with anyio.CancelScope(shield=True):
        await anyio.sleep(seconds)
