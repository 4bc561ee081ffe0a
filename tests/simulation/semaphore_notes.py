"""What happened to semaphores in a run: who held which place from when to when, who was asked, and what told of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from matrixsched.rules.semaphore import ACQUIRED_PREFIX, TRY_RELEASE_PREFIX
from simulation.commit_checkers import Commit
from simulation.database import SimulatedDatabase
from simulation.faults import Noted
from simulation.history import Operation

if TYPE_CHECKING:
    from simulation.world import World

_SEMAPHORES = "select key, active, try_release, hold_for from matrixsched_semaphores"
_TASKS = """
select semaphore, task_id, priority, state, guid, enqueued_at, acquired_at, asked_at, hold_until
  from matrixsched_semaphore_tasks
"""
_MARKS = "select semaphore, change_guid from matrixsched_semaphore_changes"
_EVENTS = """
select action_id, action_guid, cast(payload as text) from matrixsched_scheduled_actions
 where action_id like 'acquired:%' or action_id like 'try_release:%'
"""


class SemaphoreRow(NamedTuple):
    key: str
    active: int
    try_release: int
    hold_for: int | None


class TaskRow(NamedTuple):
    semaphore: str
    id: str
    priority: float
    state: str
    guid: str
    enqueued_at: int
    acquired_at: int | None
    asked_at: int | None
    hold_until: int | None

    @property
    def holds(self) -> bool:
        return self.state != "waiting"

    @property
    def order(self) -> tuple[float, int, str]:
        """The more important come first."""
        return -self.priority, self.enqueued_at, self.id

    @property
    def without_time(self) -> tuple[object, ...]:
        """All but for how long it holds its place."""
        return self[:-1]


TaskKey = tuple[str, str]


@dataclass(frozen=True)
class State:
    """What a commit left behind."""

    semaphores: dict[str, SemaphoreRow] = field(default_factory=dict)
    tasks: dict[TaskKey, TaskRow] = field(default_factory=dict)
    marks: frozenset[tuple[str, str]] = frozenset()

    @classmethod
    def read(cls, database: SimulatedDatabase) -> State:
        semaphores = [SemaphoreRow(*row) for row in database._rows(_SEMAPHORES)]
        tasks = [TaskRow(*row) for row in database._rows(_TASKS)]
        marks = frozenset((key, guid) for key, guid in database._rows(_MARKS))
        return cls({row.key: row for row in semaphores}, {(row.semaphore, row.id): row for row in tasks}, marks)

    def holders(self, key: str) -> list[TaskRow]:
        return [task for task in self._in_order(key) if task.holds]

    def waiting(self, key: str) -> list[TaskRow]:
        return [task for task in self._in_order(key) if not task.holds]

    def _in_order(self, key: str) -> list[TaskRow]:
        return sorted((task for task in self.tasks.values() if task.semaphore == key), key=lambda task: task.order)

    @cached_property
    def held(self) -> dict[str, TaskRow]:
        """Who holds a place, by the guid of that time."""
        return {task.guid: task for task in self.tasks.values() if task.holds}


class Event(NamedTuple):
    """An action that tells of a task, as it was written."""

    id: str
    guid: UUID
    is_ask: bool
    key: str
    task_id: str
    hold: str


@dataclass(slots=True, eq=False)
class Ask:
    """From when to when a holder was asked to release its place, by the numbers of the history."""

    since: int
    until: int | None = None
    told_by: UUID | None = None


@dataclass(slots=True, eq=False)
class Hold:
    """A time in which a task holds a place."""

    key: str
    task_id: str
    since: int
    until: int | None = None
    told_by: UUID | None = None
    """The version of the action that tells of it."""
    asks: list[Ask] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Effect:
    """What a request changed about tasks."""

    number: int
    came: frozenset[str]
    gone: frozenset[str]


@dataclass(slots=True, eq=False)
class Call:
    """What somebody asked of a semaphore; what came of it is in its operation."""

    operation: Operation
    answer: object = None


class SemaphoreNotes:
    def __init__(self, world: World) -> None:
        self._world = world
        self.before = self.after = State()
        self.touched: list[str] = []
        """The semaphores that the last commit changed."""
        self.written: list[Event] = []
        """By the last commit."""
        self.given: list[TaskRow] = []
        """Places, by the last commit."""
        self.asked: list[TaskRow] = []
        self.kept: list[TaskRow] = []
        """Who was asked, and is so no longer since the last commit."""
        self.given_again: list[TaskRow] = []
        """Places, by the last commit, in a time in which the task had one already."""
        self.lost: list[TaskRow] = []
        """Places, by the last commit, as they were held before."""
        self.holds: dict[str, Hold] = {}
        self.told_of: dict[UUID, Hold | Ask] = {}
        """What each version of an action tells of."""
        self.events: dict[UUID, Event] = {}
        self.effects: dict[UUID, list[Effect]] = {}
        """By the guid of the request."""
        self.of_request: list[Effect] = []
        """Of the one that the last commit carried out, again and again if need be."""
        self.calls: list[Call] = []
        self.present: dict[TaskKey, list[tuple[int, bool]]] = {}
        """When each task came and went."""

    def begin(self) -> None:
        """With what is there before anybody works."""
        self.after = State.read(self._world.database)
        for key in self.after.tasks:
            self.present[key] = [(0, True)]

    def committed(self, commit: Commit) -> None:
        self.before = self.after
        found = State.read(self._world.database)
        if found != self.before:
            self.after = found
        self.written, self.of_request = _written(commit), []
        self._compare()
        if self.touched or self.written:
            number = self._world.history.note("semaphores", *self.touched, *(event.id for event in self.written))
            self._follow_holds(number)
            self._follow_events(commit)
            self._follow_presence(number)
            self._follow_request(commit, number)

    def _compare(self) -> None:
        before, after = self.before, self.after
        self.touched = sorted(set(_touched(before, after)))
        given = {guid: task for guid, task in after.held.items() if guid not in before.held}
        both = [(before.held[guid], task) for guid, task in after.held.items() if guid in before.held]
        self.given = list(given.values())
        self.given_again = [task for guid, task in given.items() if guid in self.holds]
        self.lost = [task for guid, task in before.held.items() if guid not in after.held]
        self.asked = [task for earlier, task in both if (earlier.state, task.state) == ("acquired", "asked")]
        self.asked += [task for task in self.given if task.state == "asked"]
        self.kept = [task for earlier, task in both if (earlier.state, task.state) == ("asked", "acquired")]

    def _follow_holds(self, number: int) -> None:
        for task in self.given:
            self.holds[task.guid] = Hold(task.semaphore, task.id, number)
        for task in self.asked:
            self.holds[task.guid].asks.append(Ask(number))
        for task in (*self.kept, *self.lost):
            hold = self.holds[task.guid]
            if hold.asks and hold.asks[-1].until is None:
                hold.asks[-1].until = number
        for task in self.lost:
            self.holds[task.guid].until = number

    def _follow_events(self, commit: Commit) -> None:
        for event in self.written:
            self.events[event.guid] = event
            hold = self.holds.get(event.hold)
            told_of = hold if hold is None or not event.is_ask else hold.asks[-1] if hold.asks else None
            if told_of is not None:
                told_of.told_by, self.told_of[event.guid] = event.guid, told_of
        if self.written:
            self._world.history.caused(commit.host, "tell", {event.id: event.guid for event in self.written})

    def _follow_presence(self, number: int) -> None:
        for key in self.before.tasks.keys() ^ self.after.tasks.keys():
            self.present.setdefault(key, []).append((number, key in self.after.tasks))

    def _follow_request(self, commit: Commit, number: int) -> None:
        request_guid = _request_guid(commit)
        if request_guid is not None:
            came = frozenset(id for _, id in self.after.tasks.keys() - self.before.tasks.keys())
            gone = frozenset(id for _, id in self.before.tasks.keys() - self.after.tasks.keys())
            self.of_request = self.effects.setdefault(request_guid, [])
            self.of_request.append(Effect(number, came, gone))

    def effects_of(self, call: Call) -> list[Effect]:
        return [effect for guid in call.operation.guids for effect in self.effects.get(guid, ())]

    def was_present(self, key: TaskKey, since: int, until: int) -> bool:
        """Whether a task was there at any time between."""
        changes = self.present.get(key, [])
        earlier = [is_there for number, is_there in changes if number < since]
        return bool(earlier and earlier[-1]) or any(there for number, there in changes if since <= number <= until)


def _touched(before: State, after: State) -> Iterator[str]:
    for key in after.semaphores:
        if before.semaphores.get(key) != after.semaphores[key]:
            yield key
    yield from {key for key, _ in before.marks ^ after.marks}
    tasks = before.tasks.items() ^ after.tasks.items()
    yield from {key for (key, _), _ in tasks}


def _written(commit: Commit) -> list[Event]:
    """The events that a commit wrote, each under a guid of its own."""
    fresh = {
        action.guid
        for action in commit.after.actions.values()
        if action.id.startswith((ACQUIRED_PREFIX, TRY_RELEASE_PREFIX))
        and (action.id not in commit.before.actions or commit.before.actions[action.id].guid != action.guid)
    }
    if not fresh:
        return []
    rows = [row for row in commit.world.database._rows(_EVENTS) if row[1] in fresh]
    return [_event(id, guid, json.loads(payload)) for id, guid, payload in rows]


def _event(id: str, guid: str, payload: dict[str, str]) -> Event:
    is_ask = id.startswith(TRY_RELEASE_PREFIX)
    return Event(id, UUID(guid), is_ask, payload["semaphore_key"], payload["task_id"], payload["hold"])


def _request_guid(commit: Commit) -> UUID | None:
    transition = commit.transition
    if not isinstance(transition, Noted):
        return None
    match transition.name:
        case "enqueue_tasks" | "release_tasks" | "step_back" | "update_semaphore":
            guid: UUID = transition.arguments[2]
            return guid
    return None
