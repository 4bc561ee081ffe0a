"""Requests that programs name over HTTP: sent again they are done once, and under the name of another one refused.

Of the library's own calls a name alone is asked for: whoever names a request in a program knows what it says. Of these
what they ask for is kept beside it (`naming`), which takes a transaction and a statement more.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from matrixsched.app import App
from matrixsched.calls import Call, Exists, Request, Scheduled, ScheduledMany, id_of, request_guid
from matrixsched.naming import Named, named
from matrixsched.operations import bound


async def schedule(app: App, call: Call, *, exists: Exists, expected_guid: UUID | None, asked: str | None) -> Scheduled:
    """`asked`: what the caller sent, by which a request is known from another one of its name."""
    request = _named("schedule" if expected_guid is None else "replace", id_of(call), call.request_id, asked)
    if request is None:
        return await app.schedule(**call._asdict(), exists=exists, expected_guid=expected_guid)
    do, scheduler = app.store.transitions, app.scheduler
    plain = scheduler.scheduling(call, exists) if expected_guid is None else scheduler.replacing(call, expected_guid)
    with app.tracer.producing(call) as answered:
        done = await scheduler.change(bound(do, plain, [request]), None)
        answered(done)
    return done


async def schedule_many(
    app: App, calls: Sequence[Call], *, exists: Exists, asked: Sequence[str] | None
) -> ScheduledMany:
    """In one transaction; `asked` is that of each."""
    texts: Sequence[str | None] = [None] * len(calls) if asked is None else asked
    found = [_named("schedule", id_of(call), call.request_id, text) for call, text in zip(calls, texts, strict=True)]
    requests = [one for one in found if one is not None]
    if not requests:
        return await app.schedule_many(calls, exists=exists)
    with app.tracer.producing(None) as answered:
        many = await app.scheduler.schedule_named(calls, exists, requests)
        answered(many)
    return many


async def reschedule(
    app: App,
    id: str,
    *,
    at: datetime | None,
    delay: timedelta | None,
    expected_guid: UUID | None,
    request_id: str | None,
    asked: str | None,
) -> Scheduled:
    request = _named("reschedule", id, request_id, asked)
    moving = app.scheduler.rescheduling(id, at=at, delay=delay, expected_guid=expected_guid, request_id=request_id)
    if request is not None:
        moving = bound(app.store.transitions, moving, [request])
    return await app.scheduler.change(moving, None)


def _named(operation: Request, id: str | None, request_id: str | None, asked: str | None) -> Named | None:
    guid = None if id is None else request_guid(operation, id, request_id)
    return None if guid is None or request_id is None or asked is None else named(request_id, guid, asked)
