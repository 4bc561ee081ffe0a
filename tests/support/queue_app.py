"""The application that queue workers of the tests run: its handlers note each task of a batch, and take their time."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio

from matrixsched import App
from matrixsched.ops.evidence import Evidence, Kind, Noted
from support.queue_contract import CONTRACT, NAMES, TASK_S

app = App(os.environ["TEST_DATABASE"], installation=os.environ.get("TEST_INSTALLATION", "default"))
app.queues.use(CONTRACT)
evidence = Evidence(Path(os.environ["TEST_EVIDENCE"]))


async def work(tasks: Sequence[Any]) -> None:
    for task in tasks:
        evidence.note(Kind.BEGUN, Noted(f"{task.receipt.task_id}", task.attempts))
    await anyio.sleep(TASK_S * len(tasks))
    for task in tasks:
        evidence.note(Kind.DONE, Noted(f"{task.receipt.task_id}", task.attempts))


for name in NAMES:
    app.queues.handler(name)(work)
