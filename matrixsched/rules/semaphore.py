"""The semaphore: which of many tasks may be active. The most important ones hold the places there are; the others wait.

    waiting ──► acquired ◄──► asked
       ▲            │           │
       └────────────┴───────────┤      when it steps back, or has not renewed the place in time
                                └─► released, also from waiting, whenever its owner says so

A larger priority is more important; among equals who was enqueued first. Free places go to the best of those that wait.
Where more important tasks wait than hold, the least important holders are asked to release their places, and keep them
until they do. Only the last `try_release` holders are ever asked: the others may be in somebody's hands. Who is not to
go after all, because its own priority rose or others left, is no longer asked.

Balancing is a function of the tasks alone. Once those that were asked have released, the next one brings in whom they
made room for; so after a few rounds without anything new the best tasks hold the places. A `try_release` of 1 is enough
for that; with 0 nobody makes room for them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from hashlib import blake2b
from math import isfinite
from uuid import UUID

from matrixsched.errors import BadInput, InvalidDuration, InvalidId, InvalidSemaphoreKey, ReservedName
from matrixsched.rules.lanes import escaped
from matrixsched.rules.names import NAME_BYTES_MAX, check_name
from matrixsched.rules.retry import Retry
from matrixsched.rules.times import check_duration, check_integer

ACTIVE_DEFAULT = 1000
TRY_RELEASE_DEFAULT = 900
ACTIVE_MAX = 10_000
"""All holders of a semaphore are read whenever it is balanced: with so many that takes some tenths of a second, and a
second or two if all of them change."""
HOLD_FOR_MIN = timedelta(seconds=1)
"""Places that are lost sooner would be given and taken without end, and nobody could renew them in time."""


class TaskState(StrEnum):
    WAITING = "waiting"
    ACQUIRED = "acquired"
    ASKED = "asked"
    """It holds a place and was asked to release it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Semaphore:
    """How many tasks may be active."""

    key: str
    active: int = ACTIVE_DEFAULT
    try_release: int = TRY_RELEASE_DEFAULT
    """How many of the active ones, the least important, may be asked to make room."""
    hold_for: timedelta | None = None
    """How long a place is held unless it is renewed; None: until it is released."""

    def __post_init__(self) -> None:
        check_integer("active", self.active, least=0, most=ACTIVE_MAX)
        check_integer("try_release", self.try_release, least=0, most=ACTIVE_MAX)
        if self.try_release > self.active:
            raise BadInput(
                f"try_release is {self.try_release}, but only {self.active} are active: choose at most as many"
            )
        if self.hold_for is not None:
            check_duration("hold_for", self.hold_for, zero=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    id: str
    priority: float
    state: TaskState
    guid: UUID
    """New for every time in which it waits and holds."""
    enqueued_at: datetime
    acquired_at: datetime | None = None
    asked_at: datetime | None = None
    hold_until: datetime | None = None

    @property
    def order(self) -> tuple[float, datetime, str]:
        """The more important come first."""
        return -self.priority, self.enqueued_at, self.id


@dataclass(frozen=True, slots=True)
class Balance:
    """What is to change so that the most important tasks hold the places."""

    acquire: tuple[Task, ...]
    """Of those that wait, the best first."""
    ask: tuple[Task, ...]
    """To release their places, the least important first."""
    keep: tuple[Task, ...]
    """Who was asked, and is so no longer."""

    def __bool__(self) -> bool:
        return bool(self.acquire or self.ask or self.keep)


@dataclass(frozen=True, slots=True, kw_only=True)
class SemaphoreSample:
    """How a semaphore stood."""

    key: str
    held: int
    asked: int
    """Of those that hold."""
    waiting: int
    """Counting stops at ten thousand, the most important first."""
    oldest_wait_s: float
    """How long the one of those had waited that waited longest; 0 if nobody did."""


def check_hold_for(hold_for: object, argument: str = "hold_for") -> timedelta:
    """The duration itself. What is stored may be shorter, from earlier versions, and stays as it is."""
    duration = check_duration(argument, hold_for, zero=False)
    if duration < HOLD_FOR_MIN:
        raise InvalidDuration(argument, f"is {duration.total_seconds():g} s, and a second is the least")
    return duration


def check_priority(priority: object) -> float:
    if isinstance(priority, bool) or not isinstance(priority, int | float):
        raise BadInput(f"priority must be a number, not {type(priority).__name__}")
    try:
        number = float(priority)
    except OverflowError:
        # Without its digits: there may be more than Python agrees to write.
        raise BadInput("priority is beyond 1.8e308, the largest there is: choose a number closer to zero") from None
    if not isfinite(number):
        raise BadInput(f"priority is {number}: choose a finite number, larger for what is more important")
    if isinstance(priority, int) and int(number) != priority:
        raise BadInput(
            f"priority is an integer near {number:g} that a double cannot hold: it would tie with its neighbours; "
            "choose one of at most 2**53, or a float"
        )
    return number


def changed_semaphore(
    present: Semaphore,
    active: int | None,
    try_release: int | None,
    hold_for: timedelta | None,
    *,
    holds_for_good: bool = False,
) -> Semaphore:
    """As it is after a change; what is not given stays, but nobody can ask more than there are places."""
    places = present.active if active is None else check_integer("active", active, least=0, most=ACTIVE_MAX)
    return replace(
        present,
        active=places,
        try_release=_following(present, places) if try_release is None else try_release,
        hold_for=None if holds_for_good else present.hold_for if hold_for is None else hold_for,
    )


def _following(present: Semaphore, places: int) -> int:
    """Lowered with the places, and where all may be asked raised with them: a pool that was closed for a night, with no
    places at all, is then as it was."""
    if present.try_release == present.active < places:
        return max(present.try_release, usual_try_release(places))
    return min(present.try_release, places)


def usual_try_release(active: object) -> int:
    """How many may be asked to make room where nobody says so."""
    return min(TRY_RELEASE_DEFAULT, check_integer("active", active, least=0, most=ACTIVE_MAX))


def late_holders(held: Iterable[Task], now: datetime) -> list[Task]:
    """Who has held a place for longer than was agreed, and not renewed it."""
    return [task for task in held if task.hold_until is not None and task.hold_until <= now]


def waiting_needed(semaphore: Semaphore, held: int) -> int:
    """How many of those that wait decide about a balance, the best ones: they fill free places or replace others."""
    return max(0, semaphore.active - held) + semaphore.try_release


def balance(semaphore: Semaphore, held: Iterable[Task], waiting: Iterable[Task]) -> Balance:
    """Who gets a place, and who is asked to release one; of `waiting` the best `waiting_needed` suffice."""
    holders = sorted(held, key=_order)
    queue = sorted(waiting, key=_order)
    free = max(0, semaphore.active - len(holders))
    acquire, others = queue[:free], queue[free:]
    active = sorted([*holders, *acquire], key=_order)
    best = {task.id for task in sorted([*active, *others], key=_order)[: semaphore.active]}
    protected = {task.id for task in active[: semaphore.active - semaphore.try_release]}
    leaving = {task.id for task in holders} - best - protected
    return Balance(
        acquire=tuple(acquire),
        ask=tuple(task for task in reversed(holders) if task.id in leaving and task.state is not TaskState.ASKED),
        keep=tuple(task for task in holders if task.id not in leaving and task.state is TaskState.ASKED),
    )


def _order(task: Task) -> tuple[float, datetime, str]:
    return task.order


# What tells of it.

ACQUIRED_PREFIX = "acquired:"
TRY_RELEASE_PREFIX = "try_release:"
KEY_BYTES_MAX = NAME_BYTES_MAX - len(TRY_RELEASE_PREFIX)
"""What leaves room for the longer prefix in the name of a handler."""

EVENT_RETRY = Retry(max_attempts=None, first_delay=timedelta(seconds=1), max_delay=timedelta(minutes=1))
"""Without end: a place of which nobody was told would be held for good."""


def check_semaphore_key(key: object) -> str:
    """The key itself if handlers can be called after it."""
    try:
        return check_name("semaphore key", key, bytes_max=KEY_BYTES_MAX)
    except InvalidId as error:
        raise InvalidSemaphoreKey(error.why) from None


_PREFIXES = (ACQUIRED_PREFIX, TRY_RELEASE_PREFIX)


def acquired_handler(key: str) -> str:
    """The name of the handler that is told that tasks of a semaphore have a place."""
    return f"{ACQUIRED_PREFIX}{key}"


def try_release_handler(key: str) -> str:
    """The name of the handler that is told to release places of a semaphore, if it can."""
    return f"{TRY_RELEASE_PREFIX}{key}"


def semaphore_of(handler: str) -> str | None:
    """The key of the semaphore that a handler is told of; None if it is told of none."""
    prefix = _prefix_of(handler)
    return None if prefix is None else handler.removeprefix(prefix)


def check_unreserved(what: str, name: str) -> str:
    """The name itself, of a handler or an action, if it is none by which semaphores tell of their tasks.

    An event replaces the action of its id, so an action of the user's own by that id would be lost without a word.
    """
    if (prefix := _prefix_of(name)) is not None:
        raise ReservedName(what, prefix)
    return name


def event_id(handler: str, task_id: str) -> str:
    """The action that tells of a task: a later event of the same kind takes the place of an earlier one.

    Where that would be too long for an id, a digest stands for it; it holds no |, so it is like none of the others.
    """
    whole = f"{escaped(handler)}|{escaped(task_id)}"
    if len(whole.encode()) <= NAME_BYTES_MAX:
        return whole
    return f"{_prefix_of(handler) or ''}#{blake2b(whole.encode(), digest_size=32).hexdigest()}"


def _prefix_of(name: str) -> str | None:
    """What marks a handler or an action as one that tells of a semaphore; None if nothing does."""
    if not name.startswith(_PREFIXES):
        return None
    return next(prefix for prefix in _PREFIXES if name.startswith(prefix))
