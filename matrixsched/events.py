"""Facts in the past tense, and who wants to hear them. Logs, metrics and traces are subscribers like any other.

    @app.on(AttemptEnded)
    def tell(event: AttemptEnded) -> None:
        if event.state is State.FAILED: ...

Subscribers are called at once, in the thread where it happened (that of the worker, the one that keeps its leases, or
the one behind `app.sync`), and must be quick. One that raises is reported by Python's own `sys.unraisablehook` and
heard no more: an observer must never stop the work.

What happens to all attempts is told by AttemptStarted, then either AttemptEnded or AttemptDropped; an attempt whose
handler was not called at all (expired, missed, unreadable) only ends. The texts in events, such as the error of an
attempt, may hold what a handler wrote into them: mind where you send them.
"""

from __future__ import annotations

import inspect
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypeVar, get_args
from uuid import UUID

from matrixsched.errors import BadInput
from matrixsched.rules.action import Outcome, State
from matrixsched.rules.gate_report import GateReport
from matrixsched.rules.processors import QueueLoad
from matrixsched.rules.queues import CYCLE_S_MAX, QueueSample
from matrixsched.rules.rates import Rate
from matrixsched.rules.semaphore import SemaphoreSample
from matrixsched.unraisable import report_unraisable

__all__ = [
    "AttemptDropped",
    "AttemptEnded",
    "AttemptStarted",
    "BacklogSampled",
    "BatchEnded",
    "BatchTaken",
    "CallsWritten",
    "ClaimsGivenBack",
    "ClaimsLost",
    "Event",
    "Events",
    "GatesSampled",
    "HandlerLeaked",
    "InterruptionsFound",
    "LoopSampled",
    "OutcomesRecorded",
    "ProcessorsRunning",
    "QueueHandlerFailed",
    "ProcessorsAssigned",
    "QueuesSampled",
    "SemaphoreBalanced",
    "SemaphoresSampled",
    "ShardSynced",
    "SlotsVoided",
    "SlowDownTold",
    "StepFailed",
    "TaskSetAside",
    "TemplatePaused",
    "TemplateResumed",
    "Tidied",
    "WindowPlanned",
    "WorkerStarted",
    "WorkerStopped",
]


@dataclass(frozen=True, slots=True)
class CallsWritten:
    """One statement of the scheduler carried so many calls to the database.

    `coalesced`: they were made one by one, at the same time; otherwise they are a part of `schedule_many`. Calls in a
    transaction of the caller's own are not told: whether they take effect is not for us to know.
    """

    calls: int
    coalesced: bool


@dataclass(frozen=True, slots=True)
class WorkerStarted:
    worker: str
    handlers: tuple[str, ...]
    concurrency: int
    queues: tuple[str, ...] = ()
    """Whose batches it handles."""


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
    template: str | None = None


class AttemptDropped(NamedTuple):
    """A handler was called, but how that ended is not for us to say: the lease was lost, or the worker stopped and the
    handler's thread did not. The row comes due by itself, as interrupted."""

    id: str
    guid: UUID
    handler: str
    attempt: int


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
class InterruptionsFound:
    """Actions were claimed whose attempt before had begun and never ended: its worker died, or lost it."""

    of: Mapping[str, int]
    """How many of each handler."""


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
    """What is old, dead or too late was tidied away."""

    actions: int
    """Finished actions that were kept long enough."""
    requests: int
    rows: int
    """Queue rows that no action stood behind any more."""
    expired: int = 0
    """Actions that waited past their expiry, perhaps for a handler that no worker knows."""
    leases: int = 0
    """Leases that the database's clock had left behind, cut to the longest there are."""
    history: int = 0
    """Past attempts beyond those that are remembered."""
    expired_of: Mapping[str, int] = field(default_factory=dict)
    """How many of the expired ones were of each template."""


@dataclass(frozen=True, slots=True)
class SemaphoreBalanced:
    """Places of a semaphore were given out, or asked for; how many of each."""

    key: str
    acquired: int
    asked: int
    kept: int
    """That were asked before, and are so no longer."""
    lapsed: int
    """That held their places for too long without renewing them."""
    took_s: float


@dataclass(frozen=True, slots=True)
class ProcessorsRunning:
    """So many job processors of this process handle batches of queues from now on, or wait for some."""

    count: int


@dataclass(frozen=True, slots=True)
class BatchTaken:
    """A processor took tasks of a queue; BatchEnded follows."""

    queue: int
    name: str
    tasks: int


@dataclass(frozen=True, slots=True)
class BatchEnded:
    """A cycle of a processor ended: what became of the tasks it took."""

    queue: int
    name: str
    tasks: int
    processed: int
    """Done, by a receipt that was good."""
    retried: int
    dead: int
    """Set aside by the handler, or because they cannot be read."""
    stale: int
    """Lost before they were settled: whatever the handler did, somebody else has them, or will."""
    left: int
    """Settled by nobody: they come back when their visibility timeout is over."""
    errors: int
    """As the handler counts them in its HandlerStats; otherwise what was set aside, or all that a failure left."""
    duration_s: float
    """How long the handler ran."""
    cycle_s: float
    """From the request for tasks to the last of them settled."""
    stated_s: float | None = None
    """How long the handler says that it was at work, if its HandlerStats do."""
    last_error: str | None = None
    """The handler's own words, from its HandlerStats. They may hold what tasks hold: keep them out of logs."""

    @property
    def busy_s(self) -> float:
        """How long a processor was at these tasks: as the handler says, or all of the cycle."""
        return self.cycle_s if self.stated_s is None else self.stated_s

    @property
    def is_overlong(self) -> bool:
        """Whether the cycle took longer than is good for whoever wants the worker to stop."""
        return self.cycle_s > CYCLE_S_MAX


@dataclass(frozen=True, slots=True)
class QueueHandlerFailed:
    """The handler of a queue raised, or returned what makes no sense: what it left unsettled comes back by itself."""

    queue: int
    name: str
    tasks: int
    error: str
    """What kind, and where; not its message."""


@dataclass(frozen=True, slots=True)
class TaskSetAside:
    """A task became a dead letter."""

    queue: int
    name: str
    task_id: int
    reason: str
    unreadable: bool
    """It was not the handler who said so: the task does not fit its contract."""


@dataclass(frozen=True, slots=True)
class ProcessorsAssigned:
    """This worker decided, for the whole fleet, how many processors each queue gets."""

    loads: tuple[QueueLoad, ...]
    """What is to be done of each queue, as it was counted."""
    assigned: Mapping[str, Mapping[int, int]]
    """Processors by the name of the worker and the number of the queue; what is left of a worker's goes round."""
    moved: int
    """Those that were assigned to another queue, or to none, before."""
    took_s: float

    @property
    def processors(self) -> Mapping[int, int]:
        """How many each queue has, in the whole fleet."""
        return dict(sorted(sum(map(Counter, self.assigned.values()), Counter[int]()).items()))


@dataclass(frozen=True, slots=True)
class QueuesSampled:
    """How queues stood in the whole installation, looked up every now and then by every worker that handles some."""

    samples: tuple[QueueSample, ...]


@dataclass(frozen=True, slots=True)
class BacklogSampled:
    """What was due in the whole installation, looked up every now and then by every worker."""

    due: int
    """Counting stops at ten thousand."""
    oldest_due_s: float
    """How long the oldest of them had been due; 0 if nothing was."""
    oldest_open_s: float = 0.0
    """How long the oldest of those that stand before no gate, and whose handler is known."""
    oldest_parked_s: float = 0.0
    """How long the oldest of those whose handler no worker knows that met them."""


@dataclass(frozen=True, slots=True)
class GatesSampled:
    """What the gates held back in the whole installation, looked up every now and then by every worker."""

    report: GateReport


@dataclass(frozen=True, slots=True)
class SemaphoresSampled:
    """How semaphores stood, looked up every now and then by the workers that are told of their events."""

    samples: tuple[SemaphoreSample, ...]


@dataclass(frozen=True, slots=True)
class WindowPlanned:
    """This worker planned the present window of the quota, for the whole fleet."""

    worker: str
    took_s: float


@dataclass(frozen=True, slots=True)
class SlotsVoided:
    """Actions that had passed their gates could not start in their slots, and wait for others."""

    count: int


@dataclass(frozen=True, slots=True)
class SlowDownTold:
    """This process told a limit to slow down, for the whole fleet; what is in force since."""

    limit: str
    until: datetime
    rate: Rate | None
    """None: it is closed."""


@dataclass(frozen=True, slots=True)
class TemplatePaused:
    """This process paused a template, for the whole fleet."""

    template: str
    until: datetime | None
    """None: until somebody resumes it."""


@dataclass(frozen=True, slots=True)
class TemplateResumed:
    template: str


@dataclass(frozen=True, slots=True)
class LoopSampled:
    """How late a timer of the worker's event loop fired; much more than nothing means that a handler blocks it."""

    late_s: float


Event = (
    CallsWritten
    | WorkerStarted
    | WorkerStopped
    | ShardSynced
    | AttemptStarted
    | AttemptEnded
    | AttemptDropped
    | OutcomesRecorded
    | ClaimsLost
    | ClaimsGivenBack
    | InterruptionsFound
    | HandlerLeaked
    | StepFailed
    | Tidied
    | SemaphoreBalanced
    | SemaphoresSampled
    | ProcessorsRunning
    | BatchTaken
    | BatchEnded
    | QueueHandlerFailed
    | TaskSetAside
    | ProcessorsAssigned
    | QueuesSampled
    | BacklogSampled
    | GatesSampled
    | WindowPlanned
    | SlotsVoided
    | SlowDownTold
    | TemplatePaused
    | TemplateResumed
    | LoopSampled
)

E = TypeVar("E")


class Events:
    def __init__(self) -> None:
        self._subscribers: dict[type[Any], list[Callable[[Any], object]]] = defaultdict(list)

    def subscribe(self, kind: type[E], subscriber: Callable[[E], object]) -> Callable[[], None]:
        """Call `subscriber` at every event of a kind, until the function that is returned is called."""
        _check(kind, subscriber)
        subscribers = self._subscribers[kind]
        subscribers.append(subscriber)
        ends = [subscriber]

        def unsubscribe() -> None:
            with suppress(IndexError, ValueError):  # asked twice, or heard no more because it raised
                subscribers.remove(ends.pop())

        return unsubscribe

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

    def _tell(self, subscribers: list[Callable[[Any], object]], event: Event) -> None:
        for subscriber in list(subscribers):
            try:
                subscriber(event)
            except Exception as error:
                with suppress(ValueError):  # it ended its subscription before it raised
                    subscribers.remove(subscriber)
                report_unraisable(error)


def _check(kind: object, subscriber: object) -> None:
    kinds = get_args(Event)
    if kind not in kinds:
        names = ", ".join(sorted(one.__name__ for one in kinds))
        shown = getattr(kind, "__name__", type(kind).__name__)
        raise BadInput(f"{shown} is not an event: subscribe to one of {names}, from matrixsched.events")
    if not callable(subscriber) or inspect.iscoroutinefunction(subscriber):
        raise BadInput(
            "a subscriber to events must be a plain function: it is called in whatever thread the event happened in, "
            "and nobody would await it"
        )
