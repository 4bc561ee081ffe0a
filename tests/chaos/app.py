"""The application that workers run under chaos: handlers of every kind, whose calls are noted outside the database."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import anyio

from chaos.notes import Notes
from chaos.setting import PATIENT, QUEUE, SEMAPHORE, open_app
from matrixsched import Acquired, Cancel, Context, TryRelease

WRITER = os.environ["CHAOS_WRITER"]
app = open_app(os.environ["CHAOS_DATABASE"], WRITER)
notes = Notes(Path(os.environ["CHAOS_NOTES"]))


def note(kind: str, context: Context, **more: object) -> None:
    notes.write(
        kind=kind,
        at=time.time(),
        writer=WRITER,
        pid=os.getpid(),
        id=context.id,
        guid=context.guid,
        tick=context.tick,
        attempt=context.attempt,
        due=context.scheduled_at.timestamp(),
        handler=context.handler,
        **more,
    )


@app.middleware
async def take_notes(context: Context, call_next: Callable[[], Awaitable[Any]]) -> Any:
    note("begun", context)
    try:
        answer = await call_next()
    except Exception:
        note("failed", context)
        raise
    except BaseException:
        note("cancelled", context)
        raise
    note("void" if isinstance(answer, Cancel) else "done", context)
    return answer


@app.action("work", retry=PATIENT)
async def work(seconds: float) -> None:
    await anyio.sleep(seconds)


@app.action("thread", retry=PATIENT)
def work_in_a_thread(seconds: float) -> None:
    time.sleep(seconds)


@app.action("flaky", retry=PATIENT)
async def fail_at_first(failures: int, context: Context) -> None:
    await anyio.sleep(0.01)
    if context.failures < failures:
        raise RuntimeError("as it was asked to")


@app.action("die", retry=PATIENT)
async def die(moment: str, context: Context) -> None:
    """At its first attempt, before or after what it has to do."""
    if moment == "before" and context.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    note("effect", context, key=context.idempotency_key)
    if moment == "after" and context.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)


@app.action("tick", retry=PATIENT)
async def tick() -> None:
    await anyio.sleep(0.02)


@app.on_acquired(SEMAPHORE, retry=PATIENT)
async def use_place(event: Acquired) -> None:
    notes.write(kind="told", at=time.time(), writer=WRITER, task=event.task_id, hold=event.hold)
    await anyio.sleep(0.1)
    places = await app.semaphores.get(SEMAPHORE)
    await places.release(event.task_id, hold=event.hold, missing_ok=True)


@app.on_try_release(SEMAPHORE, retry=PATIENT)
async def step_back(event: TryRelease) -> None:
    places = await app.semaphores.get(SEMAPHORE)
    await places.step_back(event.task_id, hold=event.hold)


@app.queues.handler(QUEUE, batch_size=5)
async def deliver(parcels: Sequence[Any]) -> None:
    for parcel in parcels:
        _note_parcel("taken", parcel)
    await anyio.sleep(0.02)
    for parcel in parcels:
        _note_parcel("delivered", parcel)


def _note_parcel(kind: str, parcel: Any) -> None:
    task_id, guid = parcel.receipt
    notes.write(kind=kind, at=time.time(), writer=WRITER, task=task_id, receipt=guid, token=parcel.token)
