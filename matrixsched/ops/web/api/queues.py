"""Typed queues: what waits in them, what was set aside."""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from collections.abc import Sequence
from datetime import timedelta
from http import HTTPStatus
from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue

from matrixsched.errors import BadInput, WrongUse
from matrixsched.ops import changes, queues
from matrixsched.ops.queues import COUNT_MAX, Named, Standing
from matrixsched.ops.web.access import Role
from matrixsched.ops.web.api.cursors import cursor_of, number_in
from matrixsched.ops.web.api.endpoint import CREATED, Asked, Endpoint, Reply
from matrixsched.ops.web.api.values import (
    PAGE_DEFAULT,
    ConfidedFlag,
    Cursor,
    Duration,
    Given,
    Instant,
    Limit,
    Moment,
    Told,
    wording,
)
from matrixsched.ops.web.problems import Refused
from matrixsched.rules.contract import QueueContract
from matrixsched.rules.queues import DATA_BYTES_MAX, ID_MAX, NewItem

BATCH_MAX = 1000
_COUNTED = f"Counted up to {COUNT_MAX:,}."


# How queues stand.


class QueueTold(Told):
    queue: int
    name: str | None = Field(description="As a contract or the settings tell it.")
    ready: int = Field(description=_COUNTED)
    taken: int = Field(description=_COUNTED)
    delayed: int = Field(description=_COUNTED)
    dead: int = Field(description=_COUNTED)
    oldest_ready_at: Moment | None
    paused: bool
    batch_size: int | None = Field(description="null, as for the next two: as each worker was started.")
    visibility: Duration | None
    processors: int | None


class QueuesTold(Told):
    items: list[QueueTold]


async def list_queues(asked: Asked) -> QueuesTold:
    """All queues that have or had tasks, have settings, or are known to the application; by number."""
    return QueuesTold(items=[_told(one) for one in await queues.listed(asked.app, queues.declared(asked.app))])


async def get_queue(asked: Asked) -> QueueTold:
    """A queue, by its number or name."""
    return _told(await queues.standing(asked.app, await _named(asked)))


async def pause_queue(asked: Asked) -> QueueTold:
    """Hand out nothing of a queue, to nobody. What is taken may be settled."""
    return _told(await changes.pause_queue(asked.operator, await _named(asked)))


async def resume_queue(asked: Asked) -> QueueTold:
    """Hand out its tasks again."""
    return _told(await changes.resume_queue(asked.operator, await _named(asked)))


def _told(standing: Standing) -> QueueTold:
    stat, settings = standing.stat, standing.settings
    return QueueTold(
        queue=standing.queue.number,
        name=standing.queue.name,
        ready=stat.ready,
        taken=stat.taken,
        delayed=stat.delayed,
        dead=stat.dead,
        oldest_ready_at=stat.oldest_ready_at,
        paused=settings.paused,
        batch_size=settings.batch_size,
        visibility=settings.visibility,
        processors=settings.processors_max,
    )


async def _named(asked: Asked) -> Named:
    try:
        return await queues.named(asked.app, queues.declared(asked.app), asked.path["queue"])
    except WrongUse:
        raise Refused(
            HTTPStatus.NOT_FOUND,
            "there is no such queue: it has neither tasks nor settings, and no worker or contract here knows it. "
            "GET /queues tells which there are",
        ) from None


# What is in them.


class PeekQuery(Given):
    limit: Limit = PAGE_DEFAULT
    data: ConfidedFlag = Field(False, description="Tell what is in the tasks, too; it may hold secrets.")


class QueueTaskTold(Told):
    id: int
    state: Literal["ready", "taken", "delayed"]
    attempts: int
    created_at: Moment
    start_at: Moment
    due_at: Moment = Field(description="When it can be taken, or comes back if nobody settles it.")
    bytes: int
    data: dict[str, JsonValue] | None = Field(None, description="Only if it was asked for, and a contract is known.")
    base64: str | None = Field(None, description="Instead of `data`, where no contract is known or it does not fit.")


class QueueTasksTold(Told):
    items: list[QueueTaskTold]


async def peek_tasks(asked: Asked, query: PeekQuery) -> QueueTasksTold:
    """The first tasks of a queue in the order in which they are due; nothing is taken."""
    queue = await _named(asked)
    found = await queues.storage_of(asked.app).peek(queue.number, limit=query.limit)
    return QueueTasksTold(
        items=[
            QueueTaskTold.model_validate(
                {
                    "id": task.id,
                    "state": task.state,
                    "attempts": task.attempts,
                    "created_at": task.created_at,
                    "start_at": task.start_at,
                    "due_at": task.due_at,
                    "bytes": len(task.data),
                    **(_data(queue.contract, task.data) if query.data else {}),
                }
            )
            for task in found
        ]
    )


class LettersQuery(PeekQuery):
    cursor: Cursor | None = None


class LetterTold(Told):
    id: int
    attempts: int
    created_at: Moment
    died_at: Moment
    reason: str
    bytes: int
    data: dict[str, JsonValue] | None = Field(None, description="Only if it was asked for, and a contract is known.")
    base64: str | None = Field(None, description="Instead of `data`, where no contract is known or it does not fit.")


class LettersTold(Told):
    items: list[LetterTold]
    next_cursor: str | None = Field(description="For the next page; null: this is the last one.")


async def list_dead_letters(asked: Asked, query: LettersQuery) -> LettersTold:
    """What was set aside, by id."""
    queue, after = await _named(asked), number_in("letters", query.cursor)
    found = await queues.storage_of(asked.app).dead_letters(queue.number, after=after, limit=query.limit)
    return LettersTold(
        items=[
            LetterTold.model_validate(
                {
                    "id": dead.id,
                    "attempts": dead.attempts,
                    "created_at": dead.created_at,
                    "died_at": dead.died_at,
                    "reason": dead.reason,
                    "bytes": len(dead.data),
                    **(_data(queue.contract, dead.data) if query.data else {}),
                }
            )
            for dead in found
        ],
        next_cursor=cursor_of("letters", found[-1].id) if len(found) == query.limit else None,
    )


def _data(contract: QueueContract | None, data: bytes) -> dict[str, Any]:
    fields = queues.fields_of(contract, data)
    return {"base64": b64encode(data).decode()} if fields is None else {"data": fields}


# What is put.


class QueueTaskGiven(Given):
    """Its `data` by the contract that the application knows, or its bytes in `base64`: one of the two."""

    data: dict[str, JsonValue] | None = Field(None, description="Its fields; bytes among them in base64.")
    base64: Annotated[str, Field(max_length=DATA_BYTES_MAX * 4 // 3 + 4)] | None = Field(
        None, description="The task as it is stored, for whoever has the contract."
    )
    at: Instant | None = None
    delay: Duration | None = None


class QueueTasksGiven(Given):
    tasks: list[QueueTaskGiven] = Field(min_length=1, max_length=BATCH_MAX)


class PutTold(Told):
    ids: list[int] = Field(description="In their order.")


async def put_tasks(asked: Asked, body: QueueTasksGiven) -> Reply[PutTold]:
    """Put up to 1,000 tasks into a queue, all or none.

    If the answer is lost, or is 504, they may be put or not. Send them again with the same `Idempotency-Key`: they are
    put once, and answered with the ids that they have; other tasks under that key are 422. Without one they are put
    again.
    """
    queue = await _named(asked)
    items = [_item(queue, place, task) for place, task in enumerate(body.tasks)]
    sent = wording(body) if asked.request_id is not None else ""
    ids = await queues.put_many(asked.app, queue, items, request_id=asked.request_id, asked=sent)
    return Reply(PutTold(ids=ids), CREATED)


def _item(queue: Named, place: int, task: QueueTaskGiven) -> NewItem:
    try:
        if (task.data is None) == (task.base64 is None):
            raise BadInput("a task has either data or base64")
        if task.at is not None and task.delay is not None:
            raise BadInput("a task has at or delay, not both")
        return NewItem(queue=queue.number, data=_bytes(queue, task), at=task.at, delay=task.delay or timedelta(0))
    except BadInput as error:
        raise Refused(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            f"#/tasks/{place}: {error.args[0]}. Nothing was put",
            errors=[{"pointer": f"#/tasks/{place}", "detail": str(error.args[0])}],
        ) from None


def _bytes(queue: Named, task: QueueTaskGiven) -> bytes:
    if task.base64 is not None:
        try:
            return b64decode(task.base64, validate=True)
        except (binascii.Error, ValueError):
            raise BadInput("base64 is not base64, as in aGVsbG8=") from None
    if queue.contract is None:
        raise BadInput(
            f"the fields of {queue} are not known here: serve the application that knows its contract "
            "(`matrixsched serve MODULE:APP`), or send base64"
        )
    return queues.data_of(queue, task.data, "data")


# Dead letters.

Ids = Annotated[list[Annotated[int, Field(ge=1, le=ID_MAX)]], Field(min_length=1, max_length=BATCH_MAX)]


class LettersGiven(Given):
    """These, by their `ids`, or `all`: one of the two."""

    ids: Ids | None = None
    all: bool = Field(False, description=f"All of them, {COUNT_MAX:,} at a time.")

    @property
    def chosen(self) -> Sequence[int] | None:
        if (self.ids is None) != self.all:
            raise Refused(HTTPStatus.UNPROCESSABLE_ENTITY, "send either `ids` or `all: true`. Nothing was changed")
        return self.ids


class RedrivenTold(Told):
    redriven: int


class PurgedTold(Told):
    purged: int


async def redrive_letters(asked: Asked, body: LettersGiven) -> RedrivenTold:
    """Put dead letters back as if they were new. Sent again, also after 504, it finds those that are left."""
    chosen = body.chosen
    return RedrivenTold(redriven=await changes.redrive_queue(asked.operator, await _named(asked), chosen))


async def purge_letters(asked: Asked, body: LettersGiven) -> PurgedTold:
    """Delete dead letters for good. Sent again, also after 504, it finds those that are left."""
    chosen = body.chosen
    return PurgedTold(purged=await changes.purge_queue_dead(asked.operator, await _named(asked), chosen))


ENDPOINTS = (
    Endpoint("GET", "/queues", list_queues, Role.VIEWER),
    Endpoint("GET", "/queues/{queue}", get_queue, Role.VIEWER),
    Endpoint("POST", "/queues/{queue}/pause", pause_queue),
    Endpoint("POST", "/queues/{queue}/resume", resume_queue),
    Endpoint("GET", "/queues/{queue}/tasks", peek_tasks, Role.VIEWER),
    Endpoint("POST", "/queues/{queue}/tasks", put_tasks, succeeds=(CREATED,), takes_request_id=True),
    Endpoint("GET", "/queues/{queue}/dead-letters", list_dead_letters, Role.VIEWER),
    Endpoint("POST", "/queues/{queue}/redrive", redrive_letters),
    Endpoint("POST", "/queues/{queue}/purge", purge_letters),
)
