"""The part of the protocol that semaphores are made of. One implementation for each database, the same promises.

Whoever enqueues, releases or changes writes a mark beside it, in the same transaction; a balance takes the marks away,
reads, decides (rules/semaphore.py), and writes the new states and the events that tell of them, all in one transaction.
Only a balance gives places, and there is one of a semaphore at a time: so there are never more holders than places.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol
from uuid import UUID

from matrixsched.rules.action import EVENT, Terms
from matrixsched.rules.names import shard_of
from matrixsched.rules.semaphore import (
    Balance,
    Semaphore,
    Task,
    TaskState,
    acquired_handler,
    balance,
    event_id,
    try_release_handler,
    waiting_needed,
)
from matrixsched.store.transition import Conversation, Transition, transaction
from matrixsched.store.values import NewAction, Written

EVENTS_PATIENCE = timedelta(seconds=1)
"""How long a balance waits for whoever writes an event of the same task, before it is tried anew as a whole."""


@dataclass(frozen=True, slots=True)
class NewTask:
    id: str
    priority: float
    guid: UUID


@dataclass(frozen=True, slots=True)
class TaskName:
    """A task, in any of its times or in the one of this guid."""

    id: str
    guid: UUID | None = None


@dataclass(frozen=True, slots=True)
class Enqueued:
    created: int
    changed: int
    """That were there already, and have another priority now."""


@dataclass(frozen=True, slots=True)
class TaskCounts:
    now: datetime
    held: int
    asked: int
    """Of those that hold."""
    waiting: int
    oldest_at: datetime | None
    """Since when the one has waited that has waited longest; as far as was counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Balanced:
    """What a balance changed, by the ids of the tasks."""

    acquired: tuple[str, ...]
    asked: tuple[str, ...]
    kept: tuple[str, ...]
    lapsed: tuple[str, ...]
    is_complete: bool
    """Not, if a transaction of somebody else held a task: then it is to be balanced again."""


class Semaphoring(Protocol):
    def make_semaphore(self, semaphore: Semaphore) -> Transition[Semaphore]:
        """The semaphore of that key as it is; made as given if there is none."""
        ...

    def find_semaphore(self, key: str) -> Transition[Semaphore | None]: ...

    def semaphores(self, *, after: str, limit: int) -> Transition[list[Semaphore]]:
        """A page of them, by key."""
        ...

    def update_semaphore(self, semaphore: Semaphore, change_guid: UUID) -> Transition[Semaphore | None]:
        """Change it to what is given; None if there is none of that key."""
        ...

    def enqueue_tasks(
        self, key: str, tasks: Sequence[NewTask], request_guid: UUID, *, change_guid: UUID, tell: bool
    ) -> Transition[Enqueued | None]:
        """Let tasks wait, or change their priorities; None if there is no such semaphore. Each id once."""
        ...

    def release_tasks(
        self,
        key: str,
        tasks: Sequence[TaskName],
        request_guid: UUID,
        *,
        change_guid: UUID,
        missing_ok: bool = False,
        tell: bool,
    ) -> Transition[list[str] | None]:
        """Let tasks go; those of them that were there. Without `missing_ok` none goes unless all are there. None if the
        request was carried out before."""
        ...

    def renew_tasks(self, key: str, tasks: Sequence[TaskName]) -> Transition[list[str]]:
        """Let tasks hold their places for another while; those that do."""
        ...

    def held_tasks(self, key: str, *, limit: int) -> Transition[list[Task]]: ...

    def waiting_tasks(self, key: str, *, limit: int) -> Transition[list[Task]]: ...

    def find_task(self, key: str, task_id: str) -> Transition[Task | None]: ...

    def task_position(self, key: str, task_id: str, *, count_max: int) -> Transition[int | None]:
        """How many wait before it; None if it does not wait. Counting stops at `count_max`."""
        ...

    def count_tasks(self, key: str, *, count_max: int) -> Transition[TaskCounts]: ...

    def changed_semaphores(self, *, limit: int) -> Transition[list[str]]:
        """The keys of semaphores that are to be balanced."""
        ...

    def balance(self, key: str, make_guid: Callable[[], UUID], *, shards: int) -> Transition[Balanced | None]:
        """Give places to the most important tasks and say so; None if somebody else does it now, or there is none."""
        ...


class Balances:
    """The transaction, in terms of what a database can be asked."""

    @abstractmethod
    def _hold_semaphore(self, key: str) -> Conversation[Semaphore | None]:
        """The semaphore, which nobody else balances until the transaction ends; None if somebody does."""

    @abstractmethod
    def _forget_changes(self, key: str) -> Conversation[None]:
        """What has changed until now is seen by this balance."""

    @abstractmethod
    def _lapse(self, key: str) -> Conversation[list[str]]:
        """Take back the places that were held for too long."""

    @abstractmethod
    def _write_states(self, semaphore: Semaphore, changes: Sequence[tuple[Task, TaskState]]) -> Conversation[set[str]]:
        """Let tasks have these states, if they are as they were read; the ids of those that have."""

    @abstractmethod
    def _end_balance(self, key: str, again: UUID | None) -> Conversation[None]: ...

    @abstractmethod
    def held_tasks(self, key: str, *, limit: int) -> Transition[list[Task]]: ...

    @abstractmethod
    def waiting_tasks(self, key: str, *, limit: int) -> Transition[list[Task]]: ...

    @abstractmethod
    def schedule(
        self,
        batch: Sequence[NewAction],
        request_guid: UUID,
        *,
        replace: bool,
        only_if_new: bool = False,
        lock_timeout: timedelta | None,
        tell: bool,
    ) -> Transition[list[Written]]: ...

    @transaction
    def balance(self, key: str, make_guid: Callable[[], UUID], *, shards: int) -> Conversation[Balanced | None]:
        semaphore = yield from self._hold_semaphore(key)
        if semaphore is None:
            return None
        yield from self._forget_changes(key)
        lapsed = yield from self._lapse(key)
        held = yield from self.held_tasks(key, limit=HELD_MAX).begin()
        needed = waiting_needed(semaphore, len(held))
        waiting = (yield from self.waiting_tasks(key, limit=needed).begin()) if needed else []
        changes = _changes(balance(semaphore, held, waiting))
        written = (yield from self._write_states(semaphore, changes)) if changes else set()
        done = [(task, state) for task, state in changes if task.id in written]
        if events := _events(key, done, make_guid, shards):
            yield from self.schedule(events, make_guid(), replace=True, lock_timeout=EVENTS_PATIENCE, tell=True).begin()
        is_complete = len(done) == len(changes)
        yield from self._end_balance(key, None if is_complete else make_guid())
        return Balanced(
            acquired=_ids(done, TaskState.WAITING, TaskState.ACQUIRED),
            asked=_ids(done, TaskState.ACQUIRED, TaskState.ASKED),
            kept=_ids(done, TaskState.ASKED, TaskState.ACQUIRED),
            lapsed=tuple(lapsed),
            is_complete=is_complete,
        )


HELD_MAX = 1_000_000
"""Above what any semaphore holds: places may have become fewer since they were given."""


def _changes(plan: Balance) -> list[tuple[Task, TaskState]]:
    return [
        *((task, TaskState.ACQUIRED) for task in plan.acquire),
        *((task, TaskState.ASKED) for task in plan.ask),
        *((task, TaskState.ACQUIRED) for task in plan.keep),
    ]


def _ids(done: Iterable[tuple[Task, TaskState]], before: TaskState, after: TaskState) -> tuple[str, ...]:
    return tuple(task.id for task, state in done if task.state is before and state is after)


def _events(
    key: str, done: Iterable[tuple[Task, TaskState]], make_guid: Callable[[], UUID], shards: int
) -> list[NewAction]:
    """The actions that tell of what was done, in the order in which actions are written."""
    events = []
    for task, state in done:
        if state is TaskState.ASKED:
            handler = try_release_handler(key)
        elif task.state is TaskState.WAITING:
            handler = acquired_handler(key)
        else:
            continue  # it is no longer asked: what told of that is void by itself
        id = event_id(handler, task.id)
        payload = {"semaphore_key": key, "task_id": task.id, "hold": str(task.guid)}
        events.append(
            NewAction(
                shard=shard_of(id, shards),
                id=id,
                guid=make_guid(),
                request_guid=None,
                handler=handler,
                payload=json.dumps(payload, ensure_ascii=False, separators=(",", ":")).encode(),
                terms=Terms(),
                lane=EVENT,
                priority=0,
                template=None,
                zone=None,
                expires_at=None,
                at=None,
                delay=timedelta(0),
            )
        )
    return sorted(events, key=lambda event: (event.shard, event.id.encode()))
