"""Queues in the database: the same as in memory, for a whole fleet, and in the caller's own transaction."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from typing import TypeVar
from uuid import UUID

from matrixsched.clock import Chance
from matrixsched.errors import BadInput, DatabaseError, OutcomeUnknown
from matrixsched.naming import Named, bound
from matrixsched.rules.arguments import check_flag, check_function
from matrixsched.rules.queues import (
    BATCH_SIZE_MAX,
    ID_MAX,
    LOOK_WITHIN,
    VISIBILITY_DEFAULT,
    DeadTask,
    NewItem,
    Outlook,
    QueueSettings,
    QueueStat,
    Receipt,
    Settled,
    StoredTask,
    Taken,
    check_count,
    check_ids,
    check_items,
    check_letters,
    check_page,
    check_queue,
    check_queues,
    check_retries,
    check_visibility,
    receipts_of,
)
from matrixsched.rules.times import check_duration, check_integer, check_time
from matrixsched.store.queues import Letter, PeekedTask, Retry
from matrixsched.store.store import Store
from matrixsched.store.transition import Transition
from matrixsched.store.transitions import Transitions

T = TypeVar("T")

BATCH = 1000
"""How many tasks are named by one statement, unless it says nothing of each but its receipt."""
COUNT_MAX = 1_000_000
"""Where counting stops: more would take seconds. QueueStat, Queues.stat and SyncQueues.stat tell users so in words."""


class DatabaseStorage:
    def __init__(self, store: Callable[[], Store], *, chance: Callable[[], Chance]) -> None:
        self._store = store
        self._chance = chance

    async def get(self, queue: int, count: int, *, visibility: timedelta = VISIBILITY_DEFAULT) -> list[StoredTask]:
        """As QueueStorage.get. OutcomeUnknown: what was taken, if any was, comes back when the timeout is over."""
        check_queue(queue)
        check_count("count", count)
        check_visibility(visibility)
        return await self._run(self._do.take_tasks(queue, count, self._guid(), visibility=visibility))

    async def done(self, tasks: Iterable[Taken]) -> Settled:
        """As QueueStorage.done. Where an answer is lost and it is sent again, those are settled that are gone then."""
        return await self._settle(receipts_of(tasks), self._done, most=BATCH_SIZE_MAX)

    async def _done(self, given: Mapping[Receipt, None]) -> set[int]:
        try:
            return await self._run(self._do.done_tasks(given))
        except OutcomeUnknown as unknown:
            return await self._again(self._do.done_tasks(given, again=True), unknown)

    async def retry(self, retries: Iterable[tuple[Taken, datetime | timedelta]]) -> Settled:
        return await self._settle(check_retries(retries), self._retry)

    async def _retry(self, given: Mapping[Receipt, datetime | timedelta]) -> set[int]:
        retries = [Retry(receipt, when) for receipt, when in given.items()]
        return await self._once(self._do.retry_tasks(retries, self._guid()))

    async def set_aside(self, letters: Iterable[tuple[Taken, str]]) -> Settled:
        return await self._settle(check_letters(letters), self._set_aside)

    async def _set_aside(self, given: Mapping[Receipt, str]) -> set[int]:
        letters = [Letter(receipt, reason) for receipt, reason in given.items()]
        return await self._once(self._do.set_aside_tasks(letters, self._guid()))

    async def extend(
        self, tasks: Iterable[Taken], *, visibility: timedelta = VISIBILITY_DEFAULT, only_longer: bool = False
    ) -> Settled:
        check_visibility(visibility)
        check_flag("only_longer", only_longer)

        async def hold(given: Mapping[Receipt, None]) -> set[int]:
            return await self._once(self._do.extend_tasks(given, visibility=visibility, only_longer=only_longer))

        return await self._settle(receipts_of(tasks), hold, most=BATCH_SIZE_MAX)

    async def _settle(
        self,
        given: Mapping[Receipt, T],
        settle: Callable[[Mapping[Receipt, T]], Awaitable[set[int]]],
        *,
        most: int = BATCH,
    ) -> Settled:
        settled: set[int] = set()
        for batch in _batches(given, most):
            settled |= await settle(batch)
        return Settled(frozenset(settled), frozenset(receipt.task_id for receipt in given) - settled)

    async def put(self, queue: int, data: bytes, *, at: datetime | None = None, delay: timedelta = timedelta(0)) -> int:
        (id,) = await self.put_many([NewItem(queue=queue, data=data, at=at, delay=delay)])
        return id

    async def put_many(self, items: Iterable[NewItem]) -> list[int]:
        return await self.put_once(items, self._guid())

    async def put_once(
        self, items: Iterable[NewItem], request_guid: UUID, *, request: Named | None = None
    ) -> list[int]:
        """As put_many; sent again under the same guid nothing is put, and the answer is that of the first time. With
        `request` it is refused if that name was used for something else."""
        if not isinstance(request_guid, UUID):
            raise BadInput(f"request_guid must be a UUID, not {type(request_guid).__name__}")
        checked = check_items(items)
        if not checked:
            return []
        putting = self._do.put_tasks(checked, request_guid, tell=True)
        return await self._once(putting if request is None else bound(self._do, putting, request))

    async def look(self, queues: Collection[int], *, within: timedelta = LOOK_WITHIN) -> Mapping[int, Outlook]:
        return await self._run(self._do.look_queues(check_queues(queues), within=check_duration("within", within)))

    async def stat(self, *, count_max: int = COUNT_MAX) -> Mapping[int, QueueStat]:
        """As QueueStorage.stat; counting stops at `count_max` of those that are ready, of the others, of the dead."""
        check_integer("count_max", count_max, least=1, most=COUNT_MAX)
        return (await self._run(self._do.count_queues(count_max=count_max))).stats

    async def peek(self, queue: int, *, limit: int = 100) -> list[PeekedTask]:
        """The first tasks in the order in which they are due, whether anybody has them or not; nothing is taken."""
        found = await self._run(self._do.peek_tasks(check_queue(queue), limit=check_page(limit)))
        return [_come_back(task) for task in found]

    async def retry_now(self, queue: int, *, ids: Iterable[int] | None = None, limit: int = 1000) -> int:
        """Make delayed tasks ready, these or the next due; how many were."""
        return await self._each(queue, ids, limit, lambda **of: self._do.retry_now(**of, tell=True))

    async def purge(self, queue: int, *, ids: Iterable[int] | None = None, limit: int = 1000) -> int:
        """Delete tasks that nobody has, these or the next due; how many were: 0 when none are left."""
        return await self._each(queue, ids, limit, self._do.purge_tasks)

    async def dead_letters(self, queue: int, *, after: int = 0, limit: int = 100) -> list[DeadTask]:
        check_integer("after", after, least=0, most=ID_MAX)
        return await self._run(self._do.dead_letters(check_queue(queue), after=after, limit=check_page(limit)))

    async def redrive(self, queue: int, *, ids: Iterable[int] | None = None, limit: int = 1000) -> int:
        return await self._each(queue, ids, limit, partial(self._do.redrive, tell=True))

    async def redrive_old(self, queue: int, died_by: datetime, *, limit: int = 1000) -> int:
        """As redrive, of those only that had died by then."""
        by = check_time("died_by", died_by)
        return await self._each(queue, None, limit, partial(self._do.redrive, tell=True, died_by=by))

    async def purge_dead(self, queue: int, *, ids: Iterable[int] | None = None, limit: int = 1000) -> int:
        return await self._each(queue, ids, limit, self._do.purge_dead)

    async def purge_old_dead(self, queue: int, died_by: datetime, *, limit: int = 1000) -> int:
        """As purge_dead, of those only that had died by then."""
        by = check_time("died_by", died_by)
        return await self._each(queue, None, limit, partial(self._do.purge_dead, died_by=by))

    async def _each(self, queue: int, ids: Iterable[int] | None, limit: int, do: Callable[..., Transition[int]]) -> int:
        """These, a batch at a time, or as many as `limit` says."""
        check_queue(queue)
        check_page(limit)
        chosen = check_ids(ids)
        if chosen is None:
            return await self._run(do(queue=queue, ids=None, limit=limit))
        batches = [chosen[first : first + BATCH] for first in range(0, len(chosen), BATCH)]
        return sum([await self._run(do(queue=queue, ids=batch, limit=BATCH)) for batch in batches])

    async def pause(self, queue: int) -> bool:
        return await self._run(self._do.pause_queue(check_queue(queue)))

    async def resume(self, queue: int) -> bool:
        return await self._run(self._do.resume_queue(check_queue(queue)))

    async def settings(self) -> list[QueueSettings]:
        """Of the queues that have any."""
        return await self._run(self._do.queue_settings())

    async def change_settings(self, queue: int, change: Callable[[QueueSettings], QueueSettings]) -> QueueSettings:
        """Change them to what follows from what they are; workers hear of it."""
        check_function("change", change)
        return await self._run(self._do.change_queue_settings(check_queue(queue), change))

    # How it asks.

    @property
    def _do(self) -> Transitions:
        return self._store().transitions

    def _guid(self) -> UUID:
        return self._chance().guid()

    async def _run(self, transition: Transition[T]) -> T:
        return await self._store().run(transition)

    async def _once(self, transition: Transition[T]) -> T:
        """Carry out what is safe to send again, also if the first answer was lost."""
        try:
            return await self._run(transition)
        except OutcomeUnknown as unknown:
            return await self._again(transition, unknown)

    async def _again(self, transition: Transition[T], unknown: OutcomeUnknown) -> T:
        """Send it once more; where only that is refused, what became of the first try is as unknown as before."""
        try:
            return await self._run(transition)
        except DatabaseError:
            raise unknown from None


def _come_back(task: PeekedTask) -> PeekedTask:
    """One that nobody settled in time, as `get` will tell of it: it is due since the timeout was over, not before."""
    if task.state != "ready" or task.due_at == task.start_at:
        return task
    return replace(task, attempts=task.attempts + 1, previous_start_at=task.start_at, start_at=task.due_at)


def _batches(given: Mapping[Receipt, T], most: int) -> Iterator[dict[Receipt, T]]:
    """In each of them an id once: of two receipts of a task one at most is good."""
    if len(given) <= most and len({receipt.task_id for receipt in given}) == len(given):
        yield dict(given)
        return
    rest = dict(given)
    while rest:
        one_of_each = {receipt.task_id: receipt for receipt in rest}.values()
        yield {receipt: rest.pop(receipt) for receipt in islice(one_of_each, most)}
