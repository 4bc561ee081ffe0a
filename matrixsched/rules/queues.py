"""Typed queues: what a task goes through, and what is said of it.

    put ──► delayed ──► ready ──get──► taken ──done──► gone
               ▲          ▲              │
               │          └── timeout ───┤   nobody settled it in time: attempts + 1, it starts now
               └────────── retry ────────┤   attempts + 1, it starts when the handler says
                                         └── dead letter: set aside with its reason, until it is redriven or purged

Who takes a task has a *receipt* for it, good until the visibility timeout is over. Done, retry, dead letter and extend
name it, and change nothing once it is void: then somebody else has the task, or may have it at any moment. A task that
nobody settled needs nobody to bring it back: it is due again when the timeout is over, and is known by the receipt that
it still bears.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from matrixsched.errors import BadInput, InvalidDuration, TaskTooLarge
from matrixsched.rules.arguments import each, pair
from matrixsched.rules.durations import duration_text
from matrixsched.rules.names import check_name
from matrixsched.rules.texts import storable
from matrixsched.rules.times import check_duration, check_integer, check_time

QUEUE_MAX = 2**31 - 1
"""The largest number of a queue."""
BATCH_SIZE_DEFAULT = 10
BATCH_SIZE_MAX = 10_000
VISIBILITY_DEFAULT = timedelta(seconds=60)
VISIBILITY_MIN = timedelta(seconds=1)
VISIBILITY_MAX = timedelta(hours=12)
LOOK_WITHIN = timedelta(minutes=1)
"""So far ahead a look tells what comes due, unless it is said otherwise."""
CYCLE_S_MAX = 10.0
"""A batch should be taken, handled and settled within this time, so that a worker stops soon after it is told to."""
DATA_BYTES_MAX = 1024 * 1024
ID_MAX = 2**63 - 1
PAGE_MAX = 10_000
PROCESSORS_MAX = 1_000_000
"""Above what any fleet has; the bound is for slips of the keyboard."""


class Receipt(NamedTuple):
    """That a task was taken, this one time."""

    task_id: int
    guid: UUID


class Taken(Protocol):
    """Whatever bears a receipt: a task as it is stored, or a typed one."""

    @property
    def receipt(self) -> Receipt: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTask:
    """A task as it was taken."""

    id: int
    queue: int
    data: bytes
    attempts: int
    """How often it has come back to the queue; 0 the first time."""
    created_at: datetime
    start_at: datetime
    """Since when it could be taken."""
    previous_start_at: datetime | None
    """The same of the time before; None the first time."""
    receipt: Receipt


@dataclass(frozen=True, slots=True, kw_only=True)
class NewItem:
    """A task to be put; it can be taken from `at` on, or after `delay` by the clock of the storage."""

    queue: int
    data: bytes
    at: datetime | None = None
    delay: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of tasks that were to be settled, by id."""

    settled: frozenset[int]
    stale: frozenset[int]
    """Of which nothing was changed: the receipt was no longer good."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStat:
    """How many tasks a queue has.

    A database counts no further than a limit, 1,000,000 unless its `stat(count_max=...)` says otherwise: of those that
    are ready, of those that are taken or delayed together, and of the dead. A number that is at it means: or more.
    """

    queue: int
    total: int
    ready: int
    taken: int
    delayed: int
    dead: int = 0
    """Dead letters; they are not part of the total."""
    oldest_ready_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Outlook:
    """What can be taken of a queue, and when: a hint, for others may be quicker."""

    is_ready: bool
    """Something can be taken now."""
    next_due_s: float | None = None
    """How long until the next of what cannot be taken yet is due, if that is soon; whoever has it may settle it before,
    or extend it."""
    settings_at: datetime | None = None
    """When its settings were changed last, where there are any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSample:
    """How a queue stood at a time; counting may have stopped."""

    queue: int
    name: str
    ready: int
    taken: int
    delayed: int
    dead: int
    oldest_ready_s: float
    """How long the oldest had been ready; 0 if none was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadTask:
    """A task that was set aside."""

    id: int
    queue: int
    data: bytes
    attempts: int
    created_at: datetime
    start_at: datetime
    previous_start_at: datetime | None
    died_at: datetime
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    """What may be changed of a queue while workers run; None: as they were started."""

    queue: int
    name: str | None = None
    paused: bool = False
    batch_size: int | None = None
    visibility: timedelta | None = None
    processors_max: int | None = None
    """How many processors may work on it, in the whole fleet."""

    def __post_init__(self) -> None:
        check_queue(self.queue)
        if self.name is not None:
            check_name("name of a queue", self.name)
        if self.batch_size is not None:
            check_count("batch_size", self.batch_size)
        if self.visibility is not None:
            check_visibility(self.visibility)
        if self.processors_max is not None:
            check_integer("processors_max", self.processors_max, least=0, most=PROCESSORS_MAX)


# What is refused, by every storage alike, before anything is written.


def check_queue(queue: object) -> int:
    return check_integer("queue", queue, least=0, most=QUEUE_MAX)


def check_queues(queues: object) -> list[int]:
    return [check_queue(queue) for queue in each("queues", queues, "a list of numbers of queues")]


def check_count(argument: str, count: object) -> int:
    return check_integer(argument, count, least=1, most=BATCH_SIZE_MAX)


def check_visibility(visibility: object) -> timedelta:
    """The duration itself if tasks can be held for so long."""
    checked = check_duration("visibility", visibility)
    if not VISIBILITY_MIN <= checked <= VISIBILITY_MAX:
        raise InvalidDuration(
            "visibility",
            f"is {duration_text(checked)}, but must be between {duration_text(VISIBILITY_MIN)} and "
            f"{duration_text(VISIBILITY_MAX)}; it is prolonged while a batch is worked on",
        )
    return checked


def check_item(item: object) -> NewItem:
    """The item itself, its time in UTC."""
    if not isinstance(item, NewItem):
        raise BadInput(f"each item must be a NewItem, not {type(item).__name__}")
    check_queue(item.queue)
    if not isinstance(item.data, bytes):
        raise BadInput(f"data must be bytes, not {type(item.data).__name__}: encode the task first")
    if len(item.data) > DATA_BYTES_MAX:
        raise TaskTooLarge(item.queue, len(item.data), DATA_BYTES_MAX)
    check_duration("delay", item.delay)
    if item.at is None:
        return item
    if item.delay:
        raise BadInput("at and delay contradict each other: pass one of them")
    return replace(item, at=check_time("at", item.at))


def check_when(when: object) -> datetime | timedelta:
    """When a task comes back: at a time, or after a delay."""
    if isinstance(when, timedelta):
        return check_duration("the delay of a retry", when)
    return check_time("the time of a retry", when)


def check_reason(reason: object) -> str:
    if not isinstance(reason, str) or not reason.strip():
        raise BadInput("a dead letter needs a reason in words: pass a text that is not empty")
    return storable(reason)


def check_ids(ids: Iterable[int] | None) -> list[int] | None:
    """Each once, by number."""
    if ids is None:
        return None
    return sorted({check_integer("id", id, least=1, most=ID_MAX) for id in each("ids", ids, "a list of ids")})


def check_items(items: object) -> list[NewItem]:
    return [check_item(item) for item in each("items", items, "a list of NewItems")]


def check_retries(retries: object) -> dict[Receipt, datetime | timedelta]:
    """When which task comes back."""
    return {receipt_of(task): check_when(when) for task, when in each_retry(retries)}


def check_letters(letters: object) -> dict[Receipt, str]:
    """Why which task is set aside."""
    return {receipt_of(task): check_reason(reason) for task, reason in each_letter(letters)}


def each_retry(retries: object) -> Iterator[tuple[Any, Any]]:
    return _pairs("retries", retries, "a time or a delay")


def each_letter(letters: object) -> Iterator[tuple[Any, Any]]:
    return _pairs("letters", letters, "a reason")


def each_taken(tasks: object) -> Iterator[Any]:
    return each("tasks", tasks, "a list of tasks that were taken")


def _pairs(argument: str, given: object, second: str) -> Iterator[tuple[Any, Any]]:
    wanted = f"pairs of a task that was taken and {second}"
    return (pair(argument, one, wanted) for one in each(argument, given, wanted))


def receipts_of(tasks: object) -> dict[Receipt, None]:
    """Of each task once, in the order given."""
    return dict.fromkeys(receipt_of(task) for task in each_taken(tasks))


def receipt_of(task: object) -> Receipt:
    receipt = getattr(task, "receipt", None)
    if not isinstance(receipt, Receipt):
        raise BadInput(f"a task that was taken has a receipt, this {type(task).__name__} has none")
    return receipt


def check_page(limit: object) -> int:
    return check_integer("limit", limit, least=1, most=PAGE_MAX)
