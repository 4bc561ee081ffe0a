"""The part of the protocol that semaphores are made of. One implementation for each database, the same promises.

Whoever enqueues, releases or changes writes a mark beside it, in the same transaction; a balance takes the marks away,
reads, decides (rules/semaphore.py), and writes the new states and the events that tell of them, all in one transaction.
Only a balance gives places, and there is one of a semaphore at a time: so there are never more holders than places.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol
from uuid import UUID

from matrixsched.rules.action import EVENT, Terms
from matrixsched.rules.names import shard_of
from matrixsched.rules.semaphore import (
    Semaphore,
    Task,
    TaskState,
    acquired_handler,
    balance,
    event_id,
    late_holders,
    try_release_handler,
    waiting_needed,
)
from matrixsched.store.transition import Ask, Conversation, Row, Transition, transaction, transition
from matrixsched.store.values import NewAction, Written

EVENTS_PATIENCE = timedelta(milliseconds=500)
"""How long a balance waits for whoever writes an event of the same task, before it is tried anew as a whole. Well below
PostgreSQL's deadlock_timeout, which is a second: where they wait for each other the balance gives up, and no user's
transaction is chosen to fail."""
CHANGED_PAGE = 1000
"""How many changed semaphores are looked up at once (balance.sql), and how many for late places."""


@dataclass(frozen=True, slots=True)
class NewTask:
    id: str
    priority: float
    guid: UUID
    position: int = 0
    """Among those that are enqueued at once: the first of its like is the first to have a place."""


@dataclass(frozen=True, slots=True)
class TaskName:
    """A task, in any of its times or in the one of this guid."""

    id: str
    guid: UUID | None = None


@dataclass(frozen=True, slots=True)
class Enqueued:
    created: int
    changed: int
    """That were there already, and have another priority now; 0 if the request was sent before."""


@dataclass(frozen=True, slots=True)
class TaskCounts:
    now: datetime
    held: int
    asked: int
    """Of those that hold."""
    waiting: int
    oldest_at: datetime | None
    """Since when the one has waited that has waited longest; as far as was counted."""
    balanced_at: datetime | None
    """When the semaphore was last balanced."""


@dataclass(frozen=True, slots=True)
class ToBalance:
    """Keys of semaphores."""

    changed: Sequence[str]
    """In their order, those behind a key; a page of them at most."""
    late: Sequence[str]
    """In which a place was held for too long."""


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

    def update_semaphore(
        self, key: str, change: Callable[[Semaphore], Semaphore], change_guid: UUID
    ) -> Transition[Semaphore | None]:
        """Change it to what follows from what it is; None if there is none of that key."""
        ...

    def enqueue_tasks(
        self,
        key: str,
        tasks: Sequence[NewTask],
        request_guid: UUID,
        *,
        change_guid: UUID,
        since: datetime | None = None,
        tell: bool,
    ) -> Transition[Enqueued | None]:
        """Let tasks wait, or change their priorities; None if there is no such semaphore. Each id once. New ones are
        enqueued at `since` (now), each as many microseconds later as its position says. Of a request that was sent
        before, those count as created that it made and that are still there."""
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
        """Let tasks go; those of them that were there. Without `missing_ok` none goes unless all are there. Of a
        request that was sent before: None if it was carried out then, nobody if none went."""
        ...

    def renew_tasks(self, key: str, tasks: Sequence[TaskName]) -> Transition[list[str]]:
        """Let tasks hold their places for another while; those that do."""
        ...

    def step_back(
        self,
        key: str,
        task: TaskName,
        request_guid: UUID,
        *,
        priority: float | None,
        guid: UUID,
        change_guid: UUID,
        tell: bool,
    ) -> Transition[bool | None]:
        """Let a task that holds a place wait again; whether it held one. Of a request that was sent before: None if it
        was carried out then, False if not."""
        ...

    def held_tasks(self, key: str, *, limit: int) -> Transition[list[Task]]: ...

    def waiting_tasks(self, key: str, *, limit: int) -> Transition[list[Task]]: ...

    def find_task(self, key: str, task_id: str) -> Transition[Task | None]: ...

    def find_tasks(self, key: str, task_ids: Sequence[str]) -> Transition[list[Task]]:
        """Those of them that are there, in no order."""
        ...

    def task_position(self, key: str, task_id: str, *, count_max: int) -> Transition[int | None]:
        """How many wait before it; None if it does not wait. Counting stops at `count_max`."""
        ...

    def count_tasks(self, key: str, *, count_max: int) -> Transition[TaskCounts]: ...

    def changed_semaphores(self, *, after: str = "", told_of: Sequence[str] = ()) -> Transition[ToBalance]:
        """The keys of semaphores that are to be balanced; of late places only those of `told_of` are looked for."""
        ...

    def balance(self, key: str, make_guid: Callable[[], UUID], *, shards: int) -> Transition[Balanced | None]:
        """Give places to the most important tasks and say so; None if somebody else does it now, or there is none."""
        ...


class SemaphoreReads:
    """What is asked of every database in the same words."""

    @abstractmethod
    def _ask(self, name: str, **parameters: object) -> Ask: ...

    @abstractmethod
    def _semaphore(self, row: Row) -> Semaphore: ...

    @abstractmethod
    def _task(self, row: Row) -> Task: ...

    @transition
    def find_semaphore(self, key: str) -> Conversation[Semaphore | None]:
        rows = yield self._ask("semaphores.find", semaphore=key)
        return self._semaphore(rows[0]) if rows else None

    @transition
    def semaphores(self, *, after: str, limit: int) -> Conversation[list[Semaphore]]:
        rows = yield self._ask("semaphores.page", after=after, limit=limit)
        return [self._semaphore(row) for row in rows]

    @transition
    def held_tasks(self, key: str, *, limit: int) -> Conversation[list[Task]]:
        rows = yield self._ask("semaphore_tasks.held", semaphore=key, limit=limit)
        return [self._task(row) for row in rows]

    @transition
    def waiting_tasks(self, key: str, *, limit: int) -> Conversation[list[Task]]:
        rows = yield self._ask("semaphore_tasks.waiting", semaphore=key, limit=limit)
        return [self._task(row) for row in rows]

    @transition
    def find_task(self, key: str, task_id: str) -> Conversation[Task | None]:
        rows = yield self._ask("semaphore_tasks.find", semaphore=key, task_id=task_id)
        return self._task(rows[0]) if rows else None

    @transition
    def task_position(self, key: str, task_id: str, *, count_max: int) -> Conversation[int | None]:
        rows = yield self._ask("semaphore_tasks.position", semaphore=key, task_id=task_id, count_max=count_max)
        return int(rows[0]["before"]) if rows else None


class SemaphoreWrites(SemaphoreReads):
    """The transactions, in terms of what a database can be asked."""

    @abstractmethod
    def _write_semaphore(self, semaphore: Semaphore, change_guid: UUID) -> Conversation[Semaphore]: ...

    @abstractmethod
    def _hold_semaphore(self, key: str) -> Conversation[tuple[Semaphore, datetime] | None]:
        """The semaphore, which nobody else balances until the transaction ends, and what time it is; None if somebody
        does."""

    @abstractmethod
    def _forget_changes(self, key: str) -> Conversation[None]:
        """What has changed until now is seen by this balance."""

    @abstractmethod
    def _lapse(self, key: str, late: Sequence[Task], guids: Sequence[UUID]) -> Conversation[set[str]]:
        """Let those wait again, with these guids, that have still not renewed their places; their ids."""

    @abstractmethod
    def _keep_for_good(self, key: str) -> Conversation[set[str]]:
        """Nobody has to renew a place any more; who had to, by id."""

    @abstractmethod
    def _write_states(self, semaphore: Semaphore, tasks: Sequence[Task]) -> Conversation[set[UUID]]:
        """Let tasks have the states that follow theirs, if they are as they were read; the guids of those that have:
        who waits has a place then, who holds one is asked, and who was asked is so no longer."""

    @abstractmethod
    def _end_balance(self, key: str, again: UUID | None) -> Conversation[None]: ...

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

    @abstractmethod
    def carried_out(self, guids: Sequence[UUID]) -> Transition[set[UUID]]: ...

    def _carried_out(self, change_guid: UUID) -> Conversation[bool]:
        return change_guid in (yield from self.carried_out([change_guid]).begin())

    @transaction
    def update_semaphore(
        self, key: str, change: Callable[[Semaphore], Semaphore], change_guid: UUID
    ) -> Conversation[Semaphore | None]:
        rows = yield self._ask("semaphores.hold", semaphore=key)
        if not rows:
            return None
        return (yield from self._write_semaphore(change(self._semaphore(rows[0])), change_guid))

    @transaction
    def balance(self, key: str, make_guid: Callable[[], UUID], *, shards: int) -> Conversation[Balanced | None]:
        found = yield from self._hold_semaphore(key)
        if found is None:
            return None
        semaphore, now = found
        yield from self._forget_changes(key)
        held = yield from self.held_tasks(key, limit=HELD_MAX).begin()
        bound = _bound(semaphore, held, now)
        unbound = (yield from self._unbind(semaphore, bound, make_guid)) if bound else set()
        lapsed = unbound if semaphore.hold_for else set()
        moves = yield from self._move(semaphore, [task for task in held if task.id not in lapsed])
        if events := _events(key, moves.done, make_guid, shards):
            yield from self.schedule(events, make_guid(), replace=True, lock_timeout=EVENTS_PATIENCE, tell=True).begin()
        is_complete = not moves.left and len(unbound) == len(bound)
        yield from self._end_balance(key, None if is_complete else make_guid())
        return Balanced(
            acquired=_ids_of(moves.done, TaskState.WAITING),
            asked=_ids_of(moves.done, TaskState.ACQUIRED),
            kept=_ids_of(moves.done, TaskState.ASKED),
            lapsed=tuple(sorted(lapsed)),
            is_complete=is_complete,
        )

    def _unbind(
        self, semaphore: Semaphore, bound: Sequence[Task], make_guid: Callable[[], UUID]
    ) -> Conversation[set[str]]:
        if semaphore.hold_for is None:
            return (yield from self._keep_for_good(semaphore.key))
        return (yield from self._lapse(semaphore.key, bound, [make_guid() for _ in bound]))

    def _move(self, semaphore: Semaphore, held: Sequence[Task]) -> Conversation[_Moves]:
        """Change states. For places whose next task is in somebody's hands the others are asked, once."""
        moves = _Moves(list(held), [], set())
        for _ in range(2):
            passed_over = len(moves.left)
            needed = waiting_needed(semaphore, len(moves.held))
            waiting = (
                (yield from self.waiting_tasks(semaphore.key, limit=needed + passed_over).begin()) if needed else []
            )
            plan = balance(semaphore, moves.held, [task for task in waiting if task.guid not in moves.left])
            changing = [*plan.acquire, *plan.ask, *plan.keep]
            moves.note(changing, (yield from self._write_states(semaphore, changing)) if changing else set())
            if moves.left.isdisjoint(task.guid for task in plan.acquire):
                break
        return moves


@dataclass(slots=True)
class _Moves:
    """What a balance has changed up to now."""

    held: list[Task]
    done: list[Task]
    """As they were before."""
    left: set[UUID]
    """Tasks that were in somebody's hands, or not any more as they were read."""

    def note(self, changing: Sequence[Task], written: set[UUID]) -> None:
        changed = {task.guid: replace(task, state=_AFTER[task.state]) for task in changing if task.guid in written}
        self.held = [changed.get(task.guid, task) for task in self.held]
        self.held += [
            changed[task.guid] for task in changing if task.state is TaskState.WAITING and task.guid in changed
        ]
        self.done += [task for task in changing if task.guid in changed]
        self.left |= {task.guid for task in changing} - written


_AFTER = {
    TaskState.WAITING: TaskState.ACQUIRED,
    TaskState.ACQUIRED: TaskState.ASKED,
    TaskState.ASKED: TaskState.ACQUIRED,
}


def _bound(semaphore: Semaphore, held: Sequence[Task], now: datetime) -> list[Task]:
    """Whose place is bound to a time that is over, or that counts no longer."""
    if semaphore.hold_for is not None:
        return late_holders(held, now)
    return [task for task in held if task.hold_until is not None]


HELD_MAX = 1_000_000
"""Above what any semaphore holds: places may have become fewer since they were given."""


def pages(keys: Sequence[str]) -> Iterator[Sequence[str]]:
    return (keys[begin : begin + CHANGED_PAGE] for begin in range(0, len(keys), CHANGED_PAGE))


def _ids_of(done: Iterable[Task], before: TaskState) -> tuple[str, ...]:
    return tuple(task.id for task in done if task.state is before)


def _events(key: str, done: Iterable[Task], make_guid: Callable[[], UUID], shards: int) -> list[NewAction]:
    """The actions that tell of what was done, in the order in which actions are written."""
    handlers = {TaskState.WAITING: acquired_handler(key), TaskState.ACQUIRED: try_release_handler(key)}
    events = []
    for task in done:
        handler = handlers.get(task.state)
        if handler is None:
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
