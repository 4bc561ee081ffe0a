"""Facts in the past tense, and who wants to hear them. Logs and metrics are subscribers like any other.

Subscribers are called at once, in the thread where it happened (that of the worker, or the one that keeps its leases),
and must be quick. One that raises is reported by Python's own `sys.unraisablehook` and heard no more: an observer must
never stop the work.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from matrixsched.rules.action import Outcome, State


@dataclass(frozen=True, slots=True)
class WorkerStarted:
    worker: str
    handlers: tuple[str, ...]
    concurrency: int


@dataclass(frozen=True, slots=True)
class WorkerStopped:
    worker: str
    given_back: int
    cancelled: int


@dataclass(frozen=True, slots=True)
class ShardSynced:
    """A sync iteration ended: what it moved and claimed while it held the shard."""

    shard: int
    sync_guid: UUID
    moved: int
    claimed: int
    held_s: float
    lost: bool


class AttemptStarted(NamedTuple):
    """A handler is about to be called. A tuple, like its end: made for every attempt, and a quarter of the cost."""

    id: str
    guid: UUID
    handler: str
    attempt: int
    late: timedelta


class AttemptEnded(NamedTuple):
    id: str
    guid: UUID
    handler: str
    attempt: int
    outcome: Outcome
    state: State
    error: str | None
    run_s: float
    late: timedelta
    next_at: datetime | None


@dataclass(frozen=True, slots=True)
class OutcomesRecorded:
    """A batch of outcomes reached the database; what was busy is sent again."""

    recorded: int
    superseded: int
    lost: int
    busy: int


@dataclass(frozen=True, slots=True)
class ClaimsLost:
    """Attempts whose lease could not be kept: somebody else may run them now."""

    count: int


@dataclass(frozen=True, slots=True)
class ClaimsGivenBack:
    """Claimed rows that could not be started soon enough."""

    count: int


@dataclass(frozen=True, slots=True)
class HandlerLeaked:
    """A handler ignored its cancellation; its slot is gone until it ends by itself."""

    id: str
    handler: str
    leaked: int


@dataclass(frozen=True, slots=True)
class StepFailed:
    """A step of the worker failed and will be repeated after a rest."""

    step: str
    error: str
    failures: int
    rest_s: float


@dataclass(frozen=True, slots=True)
class Tidied:
    """Old finished actions, requests and dead queue rows were removed."""

    actions: int
    requests: int
    rows: int


Event = (
    WorkerStarted
    | WorkerStopped
    | ShardSynced
    | AttemptStarted
    | AttemptEnded
    | OutcomesRecorded
    | ClaimsLost
    | ClaimsGivenBack
    | HandlerLeaked
    | StepFailed
    | Tidied
)

E = TypeVar("E")


class Events:
    def __init__(self) -> None:
        self._subscribers: dict[type[Any], list[Callable[[Any], None]]] = defaultdict(list)

    def subscribe(self, kind: type[E], subscriber: Callable[[E], None]) -> None:
        self._subscribers[kind].append(subscriber)

    def copy(self) -> Events:
        """Events of their own with the subscribers of now: whoever subscribes later hears only one of the two."""
        copied = Events()
        copied._subscribers.update({kind: list(subscribers) for kind, subscribers in self._subscribers.items()})
        return copied

    def wants(self, kind: type[Any]) -> bool:
        """Whether anybody listens; so that hot paths need not make events nobody hears."""
        return bool(self._subscribers.get(kind))

    def emit(self, event: Event) -> None:
        subscribers = self._subscribers.get(type(event))
        if subscribers:
            self._tell(subscribers, event)

    def _tell(self, subscribers: list[Callable[[Any], None]], event: Event) -> None:
        for subscriber in list(subscribers):
            try:
                subscriber(event)
            except Exception as error:
                subscribers.remove(subscriber)
                sys.unraisablehook(
                    _Unraisable(type(error), error, error.__traceback__, "a subscriber to events raised", subscriber)  # type: ignore[arg-type]
                )


@dataclass(frozen=True, slots=True)
class _Unraisable:
    exc_type: type[BaseException]
    exc_value: BaseException
    exc_traceback: object
    err_msg: str
    object: object
