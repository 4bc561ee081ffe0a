"""Actions that become tasks: `app.schedule(put_into("emails"), task, at=nine)`.

When such an action is due, its task is put into the queue by the transaction that records the action as done: once,
whatever crashes. No handler is called; a worker that runs actions and uses the contract carries it out.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import PlainSerializer, PlainValidator

from matrixsched.errors import BadInput, MatrixSchedError, TaskTooLarge
from matrixsched.handlers import Handlers
from matrixsched.queues.codec import encode
from matrixsched.queues.tasks import QueueTask
from matrixsched.rules.contract import QueueContract, name_fault
from matrixsched.rules.outcome import Delivered
from matrixsched.rules.queues import DATA_BYTES_MAX, NewItem

PREFIX = "queue:"
QUOTES = 2
"""Around a text in JSON."""


def put_into(queue: str) -> str:
    """What to schedule in place of a handler, for a task that is to be put into this queue when it is due."""
    if not isinstance(queue, str):
        raise BadInput(f"put_into takes the name of a queue, as in put_into('emails'), not {type(queue).__name__}")
    if why := name_fault(queue):
        raise BadInput(f"put_into takes the name of a queue, as in put_into('emails'): {queue!r:.80} {why}")
    return f"{PREFIX}{queue}"


def register_delivery(handlers: Handlers, queue: QueueContract) -> None:
    """Let workers put the tasks of actions that are scheduled by `put_into`."""
    if put_into(queue.name) in handlers:
        return

    async def deliver(task: _Wire) -> Delivered:
        return Delivered(NewItem(queue=queue.id, data=task.data))

    def check_size(encoded: bytes, payload_max: int) -> None:
        size, text_max = 3 * (len(encoded) - QUOTES) // 4 - encoded.count(b"="), (payload_max - QUOTES) // 4 * 3
        if size > DATA_BYTES_MAX:
            raise TaskTooLarge(queue.name, size, DATA_BYTES_MAX)
        if size > text_max:
            raise TaskTooLarge(
                queue.name,
                size,
                text_max,
                f"until it is due it is the payload of an action, in base64, of {payload_max:,} bytes at most "
                f"(payload_bytes_max of the App); app.queues.put(task, at=...) takes {DATA_BYTES_MAX:,}",
            )

    handlers.register(
        put_into(queue.name),
        deliver,
        retry=None,
        timeout=None,
        payload_type=_payload_of(queue),
        check_size=check_size,
    )


def refuse_delivery(handlers: Handlers, queue: QueueContract, storage: str) -> None:
    """Let nobody schedule tasks of a queue that is not where actions are: no transaction could do both."""
    handlers.refuse(
        put_into(queue.name),
        f"put_into({queue.name!r}) is for queues in the database, where actions are, but this App keeps its queues in "
        f"a {storage}: put the task itself, by app.queues.put(task, at=...), or make the App without queue_storage",
    )


@dataclass(frozen=True, slots=True)
class _Wire:
    """A task as it is stored. It is not read here: a newer contract may have written it, for workers that know it."""

    data: bytes


def _payload_of(queue: QueueContract) -> Any:
    """A task as the payload of an action: its bytes, as text."""

    def read(value: object) -> _Wire:
        if isinstance(value, str):
            return _Wire(b64decode(value, validate=True))
        if not isinstance(value, QueueTask) or not value.__contract__.is_like(queue):
            raise ValueError(f"must be a task of queue {queue.name!r}")
        try:
            return _Wire(encode(value))
        except MatrixSchedError as error:
            raise ValueError(error.args[0]) from None

    def write(task: _Wire) -> str:
        return b64encode(task.data).decode()

    return Annotated[Any, PlainValidator(read), PlainSerializer(write, return_type=str)]
