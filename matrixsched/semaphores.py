"""`app.semaphores`: which of many tasks may be active, the most important first; kept in the database.

    pool = await app.semaphores.get_or_create("labelling", active=1000, try_release=900)
    await pool.enqueue("task-17", priority=5)        # a larger number is more important; again: another priority
    await pool.enqueue_many({"task-18": 2.5, "task-19": 7})

    @app.on_acquired("labelling")
    async def hand_out(event: Acquired) -> None: ...  # it has a place now

    @app.on_try_release("labelling")
    async def step_back(event: TryRelease) -> None:   # more important ones wait: let it go, if that is possible
        await pool.step_back(event.task_id, hold=event.hold)

Events are actions: told at least once, retried without end unless `retry=` says otherwise, and not any more once the
task was released. Those of one task come in any order, or at once.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import TypeVar
from uuid import UUID

from pydantic import BaseModel, ConfigDict

from matrixsched.clock import Chance
from matrixsched.errors import (
    BadInput,
    DatabaseError,
    OutcomeUnknown,
    PartlyEnqueued,
    SemaphoreNotFound,
    TaskNotFound,
    TaskNotReleased,
)
from matrixsched.rules.arguments import check_flag
from matrixsched.rules.names import check_name
from matrixsched.rules.outcome import Cancel
from matrixsched.rules.semaphore import (
    ACTIVE_DEFAULT,
    ACTIVE_MAX,
    Semaphore,
    Task,
    TaskState,
    changed_semaphore,
    check_hold_for,
    check_priority,
    check_semaphore_key,
    usual_try_release,
)
from matrixsched.rules.tasks import check_hold, read_ids, read_priorities
from matrixsched.rules.times import check_integer
from matrixsched.store.callers import AsyncCaller, run_in
from matrixsched.store.semaphores import NewTask, TaskName
from matrixsched.store.store import Store
from matrixsched.store.transition import Transition
from matrixsched.store.transitions import Transitions

T = TypeVar("T")

BATCH = 1000
COUNT_MAX = 10_000_000
PAGE_MAX = 10_000
Tasks = builtins.list[Task]
Priorities = Mapping[str, float] | Iterable[tuple[str, float]]


class Acquired(BaseModel):
    """A task has a place of a semaphore."""

    model_config = ConfigDict(frozen=True)

    semaphore_key: str
    task_id: str
    hold: UUID
    """This time in which it holds; what is said of another one is void."""


class TryRelease(BaseModel):
    """More important tasks wait: the place should be released, if that is possible."""

    model_config = ConfigDict(frozen=True)

    semaphore_key: str
    task_id: str
    hold: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class SemaphoreStatistics:
    key: str
    active: int
    try_release: int
    held: int
    asked: int
    """Of those that hold, how many were asked to release their places."""
    waiting: int
    oldest_waiting_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SemaphoreBalance:
    """What a balance changed."""

    acquired: int
    """How many have a place now."""
    asked: int
    """How many are asked now to release theirs."""


class Semaphores:
    def __init__(self, store: Callable[[], Store], *, chance: Callable[[], Chance], wrote: Callable[[], None]) -> None:
        """`wrote` is called after a change, so that a worker here looks at once."""
        self._store = store
        self._chance = chance
        self._wrote = wrote

    async def get_or_create(
        self,
        key: str,
        *,
        active: int = ACTIVE_DEFAULT,
        try_release: int | None = None,
        hold_for: timedelta | None = None,
        connection: AsyncCaller | None = None,
    ) -> TaskSemaphore:
        """The semaphore of that key; if there is none, it is made with `active` places.

        At most `try_release` of those that hold, the least important, are ever asked to make room (900, or all where
        there are fewer places). With `hold_for`, a second or more, a place that is not renewed for so long is lost, and
        its task waits again. One that exists stays as it is: `update` changes it.
        """
        wanted = Semaphore(
            key=check_semaphore_key(key),
            active=active,
            try_release=usual_try_release(active) if try_release is None else try_release,
            hold_for=None if hold_for is None else check_hold_for(hold_for),
        )
        semaphore = await self._run(self._do.make_semaphore(wanted), connection)
        return TaskSemaphore(self, semaphore.key)

    async def get(self, key: str, *, connection: AsyncCaller | None = None) -> TaskSemaphore:
        """The semaphore of that key; SemaphoreNotFound if there is none."""
        await self.settings(key, connection=connection)
        return TaskSemaphore(self, key)

    async def settings(self, key: str, *, connection: AsyncCaller | None = None) -> Semaphore:
        """How many tasks may be active, and so on; SemaphoreNotFound if there is none of that key."""
        found = await self._run(self._do.find_semaphore(check_semaphore_key(key)), connection)
        if found is None:
            raise SemaphoreNotFound(key)
        return found

    async def list(self, *, after: str = "", limit: int = 1000) -> builtins.list[Semaphore]:
        """A page of the semaphores, by key; pass the key of the last one as `after` for the next page."""
        check_integer("limit", limit, least=1, most=PAGE_MAX)
        begin = "" if after == "" else check_name("after", after)
        return await self._run(self._do.semaphores(after=begin, limit=limit), None)

    async def update(
        self,
        key: str,
        active: int | None = None,
        try_release: int | None = None,
        *,
        hold_for: timedelta | None = None,
        holds_for_good: bool = False,
        connection: AsyncCaller | None = None,
    ) -> Semaphore:
        """Change how many may be active, and how many of them may be asked; what is not given stays.

        With fewer places than are held the least important holders are asked, and nobody loses a place. A `try_release`
        that is not given is lowered with `active`, and where it equals that raised again, up to 900. `hold_for` counts
        for places given from now on, or renewed; `holds_for_good` ends it, also for those given before.
        """
        check_flag("holds_for_good", holds_for_good)
        if hold_for is not None and holds_for_good:
            raise BadInput("hold_for and holds_for_good contradict each other: pass one of them")
        check_semaphore_key(key)
        if hold_for is not None:
            check_hold_for(hold_for)

        def change(present: Semaphore) -> Semaphore:
            return changed_semaphore(present, active, try_release, hold_for, holds_for_good=holds_for_good)

        written = await self._run(self._do.update_semaphore(key, change, self._guid()), connection)
        if written is None:
            raise SemaphoreNotFound(key)
        self._tell(connection)
        return written

    # What a semaphore asks.

    @property
    def _do(self) -> Transitions:
        return self._store().transitions

    def _guid(self) -> UUID:
        return self._chance().guid()

    async def _run(self, transition: Transition[T], connection: AsyncCaller | None) -> T:
        store = self._store()
        if connection is not None:
            return await run_in(connection, store.dialect, transition)
        return await store.run(transition)

    async def _once(self, transition: Transition[T], connection: AsyncCaller | None) -> T:
        """Carry out what its request guid makes safe to send again: also if the first answer was lost."""
        try:
            return await self._run(transition, connection)
        except OutcomeUnknown as error:
            if connection is not None:
                raise
            unknown = error
        try:
            return await self._run(transition, None)
        except DatabaseError:
            raise unknown from None  # only the second try is known to have failed

    def _is_inside(self, connection: AsyncCaller | None) -> bool:
        """Whether several batches are of one transaction, the caller's, which holds its locks to the end."""
        return connection is not None

    def _tell(self, connection: AsyncCaller | None) -> None:
        if connection is None:
            self._wrote()

    async def _void(self, event: Acquired | TryRelease) -> Cancel | None:
        """Why an event is not to be told any more; None: it is."""
        task = await self._run(self._do.find_task(event.semaphore_key, event.task_id), None)
        if task is None or task.guid != event.hold:
            return Cancel("the task was released meanwhile")
        if isinstance(event, TryRelease) and task.state is not TaskState.ASKED:
            return Cancel("the task is no longer asked to release its place")
        return None


class TaskSemaphore:
    """One semaphore. It holds nothing but its key: all that it says is asked of the database."""

    def __init__(self, semaphores: Semaphores, key: str) -> None:
        self._semaphores = semaphores
        self.key = key

    def __repr__(self) -> str:
        return f"<TaskSemaphore {self.key!r}>"

    async def enqueue(self, task_id: str, priority: float = 0, *, connection: AsyncCaller | None = None) -> bool:
        """Let a task wait for a place; one that waits or holds already has another priority from then on.

        A larger priority is more important; among equals who was enqueued first. Whether the task is new.
        """
        return await self.enqueue_many([(task_id, priority)], connection=connection) == 1

    async def enqueue_many(self, tasks: Priorities, *, connection: AsyncCaller | None = None) -> int:
        """The same for thousands, a thousand in a statement; how many are new. Among equals their order counts.

        Without `connection` each thousand is a transaction. A list or a mapping is checked whole before the first of
        them; of what can only be drawn once, a mistake further on leaves the earlier ones enqueued: PartlyEnqueued.
        """
        if isinstance(tasks, Collection):
            for _ in read_priorities(tasks):
                pass
        given = read_priorities(tasks)
        if self._semaphores._is_inside(connection):
            return await self._enqueue_inside(dict(given), connection)
        created, since, enqueued = 0, None, 0
        while drawn := _drawn(given, enqueued):
            if since is not None or len(drawn) == BATCH:  # there may be more, which are to stand behind these
                since = await self._moment(connection, after=since)
            created += await self._enqueue(self._new(dict(drawn)), since, connection)
            enqueued += len(drawn)
        return created

    async def _enqueue_inside(self, whole: Mapping[str, float], connection: AsyncCaller | None) -> int:
        """In one transaction all go in the order of their ids, or two that enqueue the same tasks deadlock."""
        since = await self._moment(connection, after=None) if len(whole) > BATCH else None
        new = iter(self._new(whole))
        created = 0
        while batch := list(islice(new, BATCH)):
            created += await self._enqueue(batch, since, connection)
        return created

    def _new(self, priorities: Mapping[str, float]) -> builtins.list[NewTask]:
        """In the order of their ids, each with its position."""
        tasks = [
            NewTask(id, priority, self._semaphores._guid(), position)
            for position, (id, priority) in enumerate(priorities.items())
        ]
        return sorted(tasks, key=lambda task: task.id)

    async def _moment(self, connection: AsyncCaller | None, *, after: datetime | None) -> datetime:
        """The database's time, but not within a thousand that were enqueued from `after` on."""
        now = await self._semaphores._run(self._semaphores._do.now(), connection)
        return now if after is None else max(now, after + BATCH * timedelta.resolution)

    async def _enqueue(self, new: Sequence[NewTask], since: datetime | None, connection: AsyncCaller | None) -> int:
        asking = self._semaphores
        enqueueing = asking._do.enqueue_tasks(
            self.key, new, asking._guid(), change_guid=asking._guid(), since=since, tell=True
        )
        enqueued = await asking._once(enqueueing, connection)
        if enqueued is None:
            raise SemaphoreNotFound(self.key)
        asking._tell(connection)
        return enqueued.created

    async def release(
        self,
        task_id: str,
        *,
        hold: UUID | None = None,
        missing_ok: bool = False,
        connection: AsyncCaller | None = None,
    ) -> bool:
        """Let a task go, whether it holds a place or waits; whether it was there.

        TaskNotReleased if it is not, unless that does not matter. With `hold`, as an event says it, only if it is still
        the same time in which it holds.
        """
        check_flag("missing_ok", missing_ok)
        return await self._release([_name(task_id, hold)], missing_ok, connection) == 1

    async def release_many(
        self, task_ids: Iterable[str], *, missing_ok: bool = False, connection: AsyncCaller | None = None
    ) -> int:
        """The same for many, all or none of each thousand; how many were there.

        With `missing_ok` all of a thousand count whose answer was lost: nobody knows any more which were there.
        """
        check_flag("missing_ok", missing_ok)
        released = 0
        for batch in self._batches(task_ids, "release", connection):
            released += await self._release(batch, missing_ok, connection)
        return released

    def _batches(
        self, task_ids: Iterable[str], of_one: str, connection: AsyncCaller | None
    ) -> Iterator[builtins.list[TaskName]]:
        """Each id once; in one transaction all go in the order of their ids, or two of the same tasks deadlock."""
        ids = read_ids(task_ids, of_one)
        names = iter(sorted(ids) if self._semaphores._is_inside(connection) else ids)
        while batch := [TaskName(id) for id in islice(names, BATCH)]:
            yield batch

    async def _release(self, tasks: builtins.list[TaskName], missing_ok: bool, connection: AsyncCaller | None) -> int:
        asking = self._semaphores
        request_guid, change_guid = asking._guid(), asking._guid()
        there = await asking._once(
            asking._do.release_tasks(
                self.key, tasks, request_guid, change_guid=change_guid, missing_ok=missing_ok, tell=True
            ),
            connection,
        )
        if there is None:  # carried out by the first of two tries, of which no answer came
            asking._tell(connection)
            return len(tasks)
        missing = sorted({task.id for task in tasks} - set(there))
        if missing and not missing_ok:
            await asking.settings(self.key, connection=connection)
            raise TaskNotReleased(self.key, missing, of_hold=any(task.guid is not None for task in tasks))
        asking._tell(connection)
        return len(there)

    async def step_back(
        self,
        task_id: str,
        *,
        priority: float | None = None,
        hold: UUID | None = None,
        connection: AsyncCaller | None = None,
    ) -> bool:
        """Give up the place and wait again, in one step: whatever crashes, the task is not gone. Whether it held one.

        It waits with its priority, or another one, and keeps its time of enqueueing: it is the first of its like. With
        `hold`, as an event says it, only if it is still the same time in which it holds.
        """
        asking = self._semaphores
        stepped = await asking._once(
            asking._do.step_back(
                self.key,
                _name(task_id, hold),
                asking._guid(),
                priority=None if priority is None else check_priority(priority),
                guid=asking._guid(),
                change_guid=asking._guid(),
                tell=True,
            ),
            connection,
        )
        if stepped is False and hold is None:
            await self.get(task_id, connection=connection)  # who does not hold a place must at least be there
        asking._tell(connection)
        return stepped is not False

    async def renew(self, task_id: str, *, hold: UUID | None = None, connection: AsyncCaller | None = None) -> bool:
        """Hold the place for another `hold_for`; False if the task holds none any more."""
        return await self._renew([_name(task_id, hold)], connection) == 1

    async def renew_many(self, task_ids: Iterable[str], *, connection: AsyncCaller | None = None) -> int:
        """The same for many, a thousand in a statement; how many hold."""
        renewed = 0
        for batch in self._batches(task_ids, "renew", connection):
            renewed += await self._renew(batch, connection)
        return renewed

    async def _renew(self, tasks: Sequence[TaskName], connection: AsyncCaller | None) -> int:
        renewed = await self._semaphores._run(self._semaphores._do.renew_tasks(self.key, tasks), connection)
        return len(renewed)

    async def balance(self) -> SemaphoreBalance | None:
        """Give places and ask for places at once, without waiting for a worker; None if somebody else is at it.

        Workers do so by themselves whenever something changed, and tell handlers of it also if it was done here. It is
        a transaction of its own, and sees what has been committed.
        """
        asking = self._semaphores
        shards = (await asking._run(asking._do.installation(), None)).shard_count
        balanced = await asking._run(asking._do.balance(self.key, asking._guid, shards=shards), None)
        if balanced is None:
            await asking.settings(self.key)
            return None
        asking._tell(None)
        return SemaphoreBalance(acquired=len(balanced.acquired), asked=len(balanced.asked))

    async def holders(self, limit: int = PAGE_MAX, *, connection: AsyncCaller | None = None) -> Tasks:
        """Who holds a place, the most important first."""
        check_integer("limit", limit, least=1, most=ACTIVE_MAX)
        return await self._read(self._semaphores._do.held_tasks(self.key, limit=limit), connection)

    async def waiting(self, limit: int = 100, *, connection: AsyncCaller | None = None) -> Tasks:
        """Who waits, the most important first."""
        check_integer("limit", limit, least=1, most=ACTIVE_MAX)
        return await self._read(self._semaphores._do.waiting_tasks(self.key, limit=limit), connection)

    async def get(self, task_id: str, *, connection: AsyncCaller | None = None) -> Task:
        """The task as it stands; TaskNotFound if it neither holds nor waits."""
        find = self._semaphores._do.find_task(self.key, check_name("task id", task_id))
        task = await self._read(find, connection)
        if task is None:
            raise TaskNotFound(self.key, [task_id])
        return task

    async def position(self, task_id: str, *, connection: AsyncCaller | None = None) -> int | None:
        """How many wait before it; None if it holds a place. It reads those whom it counts."""
        task = await self.get(task_id, connection=connection)
        if task.state is not TaskState.WAITING:
            return None
        before = self._semaphores._do.task_position(self.key, task_id, count_max=COUNT_MAX)
        return await self._semaphores._run(before, connection)

    async def statistics(
        self, *, count_max: int = COUNT_MAX, connection: AsyncCaller | None = None
    ) -> SemaphoreStatistics:
        """How many hold, were asked, and wait; counting of those that wait stops at `count_max`, the best first."""
        check_integer("count_max", count_max, least=1, most=COUNT_MAX)
        settings = await self._semaphores.settings(self.key, connection=connection)
        counting = self._semaphores._do.count_tasks(self.key, count_max=count_max)
        counts = await self._semaphores._run(counting, connection)
        return SemaphoreStatistics(
            key=self.key,
            active=settings.active,
            try_release=settings.try_release,
            held=counts.held,
            asked=counts.asked,
            waiting=counts.waiting,
            oldest_waiting_at=counts.oldest_at,
        )

    async def _read(self, reading: Transition[T], connection: AsyncCaller | None) -> T:
        """What it says; an empty answer may be because there is no such semaphore."""
        answer = await self._semaphores._run(reading, connection)
        if not answer:
            await self._semaphores.settings(self.key, connection=connection)
        return answer


def _drawn(given: Iterator[tuple[str, float]], enqueued: int) -> builtins.list[tuple[str, float]]:
    """The next thousand."""
    try:
        return list(islice(given, BATCH))
    except BadInput as error:
        if not enqueued:
            raise
        raise PartlyEnqueued(str(error.args[0]), enqueued) from error


def _name(task_id: object, hold: object) -> TaskName:
    return TaskName(check_name("task id", task_id), check_hold(hold))
