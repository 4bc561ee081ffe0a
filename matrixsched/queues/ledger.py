"""What became of the tasks of one batch, whoever settled them.

Three write into it: the handler, through the storage it was given; whoever carries out what it returned; and the thread
that prolongs the batch, which learns that tasks were lost. Hence the lock.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import TypeVar

from anyio import from_thread

from matrixsched.queues.storage import QueueStorage
from matrixsched.queues.wrapper import StorageWrapper
from matrixsched.rules.queues import (
    LOOK_WITHIN,
    VISIBILITY_DEFAULT,
    DeadTask,
    NewItem,
    Outlook,
    QueueStat,
    Receipt,
    Settled,
    StoredTask,
    Taken,
    check_ids,
    check_items,
    check_queues,
    each_letter,
    each_retry,
    each_taken,
    receipt_of,
)

T = TypeVar("T")


class Fate(Enum):
    DONE = auto()
    RETRIED = auto()
    DEAD = auto()
    STALE = auto()
    """The receipt was no longer good: somebody else has the task, or may have it at any moment."""


class Ledger:
    def __init__(self, tasks: Sequence[StoredTask]) -> None:
        self._lock = threading.Lock()
        self._tasks = {task.receipt: task for task in tasks}
        self._under_way: Counter[Receipt] = Counter()
        self._fates: dict[int, Fate] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    @property
    def open(self) -> list[StoredTask]:
        """Those that nobody has settled, or is about to, and that are ours as far as we know."""
        return self.unsettled[0]

    @property
    def unsettled(self) -> tuple[list[StoredTask], bool]:
        """Those that are open, and whether they are all that have met no fate: nobody is about to settle another."""
        with self._lock:
            open = [task for receipt, task in self._tasks.items() if self._is_open(receipt)]
            return open, len(open) + len(self._fates) == len(self._tasks)

    def _is_open(self, receipt: Receipt) -> bool:
        return receipt.task_id not in self._fates and not self._under_way[receipt]

    def count(self, fate: Fate) -> int:
        with self._lock:
            return sum(one is fate for one in self._fates.values())

    def met(self, fate: Fate, ids: Collection[int]) -> list[int]:
        """Which of these met that fate."""
        with self._lock:
            return [id for id in ids if self._fates.get(id) is fate]

    def lose(self, ids: Collection[int]) -> None:
        """An extension found that these are not ours any more; what is being settled hears so by itself."""
        with self._lock:
            for receipt in self._tasks:
                if receipt.task_id in ids and self._is_open(receipt):
                    self._fates[receipt.task_id] = Fate.STALE

    async def settle(self, tasks: Iterable[Taken], fate: Fate, call: Callable[[], Awaitable[Settled]]) -> Settled:
        """Let `call` settle these; if it raises, they are as open as before."""
        ours = [receipt for task in tasks if (receipt := receipt_of(task)) in self._tasks]
        with self._lock:
            self._under_way.update(ours)
        settled = None
        try:
            settled = await call()
        finally:
            with self._lock:
                self._under_way.subtract(ours)
                if settled is not None:
                    self._note(ours, fate, settled)
        return settled

    def _note(self, ours: Sequence[Receipt], fate: Fate, settled: Settled) -> None:
        for receipt in ours:
            if receipt.task_id in settled.settled:
                self._fates[receipt.task_id] = fate
            else:
                self._fates.setdefault(receipt.task_id, Fate.STALE)


class BatchStorage(StorageWrapper):
    """The storage as the handler of a batch gets it: what it settles of its batch is noted."""

    def __init__(self, inner: QueueStorage, ledger: Ledger) -> None:
        super().__init__(inner)
        self._ledger = ledger

    async def done(self, tasks: Iterable[Taken]) -> Settled:
        given = list(each_taken(tasks))
        return await self._ledger.settle(given, Fate.DONE, lambda: self._inner.done(given))

    async def retry(self, retries: Iterable[tuple[Taken, datetime | timedelta]]) -> Settled:
        given = list(each_retry(retries))
        return await self._ledger.settle([task for task, _ in given], Fate.RETRIED, lambda: self._inner.retry(given))

    async def set_aside(self, letters: Iterable[tuple[Taken, str]]) -> Settled:
        given = list(each_letter(letters))
        return await self._ledger.settle([task for task, _ in given], Fate.DEAD, lambda: self._inner.set_aside(given))


class SyncBatchStorage:
    """The same for a handler that is a plain function: it runs in a thread, and waits there for each answer.

    What it is given is drawn in that thread: nobody else has to wait for what the handler computes meanwhile.
    """

    def __init__(self, inner: QueueStorage) -> None:
        self._inner = inner

    def get(self, queue: int, count: int, *, visibility: timedelta = VISIBILITY_DEFAULT) -> list[StoredTask]:
        return from_thread.run(lambda: self._inner.get(queue, count, visibility=visibility))

    def done(self, tasks: Iterable[Taken]) -> Settled:
        return from_thread.run(self._inner.done, list(each_taken(tasks)))

    def retry(self, retries: Iterable[tuple[Taken, datetime | timedelta]]) -> Settled:
        return from_thread.run(self._inner.retry, list(each_retry(retries)))

    def set_aside(self, letters: Iterable[tuple[Taken, str]]) -> Settled:
        return from_thread.run(self._inner.set_aside, list(each_letter(letters)))

    def extend(
        self, tasks: Iterable[Taken], *, visibility: timedelta = VISIBILITY_DEFAULT, only_longer: bool = False
    ) -> Settled:
        given = list(each_taken(tasks))
        return from_thread.run(lambda: self._inner.extend(given, visibility=visibility, only_longer=only_longer))

    def put(self, queue: int, data: bytes, *, at: datetime | None = None, delay: timedelta = timedelta(0)) -> int:
        return from_thread.run(lambda: self._inner.put(queue, data, at=at, delay=delay))

    def put_many(self, items: Iterable[NewItem]) -> list[int]:
        return from_thread.run(self._inner.put_many, check_items(items))

    def look(self, queues: Collection[int], *, within: timedelta = LOOK_WITHIN) -> Mapping[int, Outlook]:
        given = check_queues(queues)
        return from_thread.run(lambda: self._inner.look(given, within=within))

    def stat(self) -> Mapping[int, QueueStat]:
        return from_thread.run(self._inner.stat)

    def dead_letters(self, queue: int, *, after: int = 0, limit: int = 100) -> list[DeadTask]:
        return from_thread.run(lambda: self._inner.dead_letters(queue, after=after, limit=limit))

    def redrive(self, queue: int, *, ids: Iterable[int] | None = None, limit: int = 1000) -> int:
        chosen = check_ids(ids)
        return from_thread.run(lambda: self._inner.redrive(queue, ids=chosen, limit=limit))

    def purge_dead(self, queue: int, *, ids: Iterable[int] | None = None, limit: int = 1000) -> int:
        chosen = check_ids(ids)
        return from_thread.run(lambda: self._inner.purge_dead(queue, ids=chosen, limit=limit))

    def pause(self, queue: int) -> bool:
        return from_thread.run(self._inner.pause, queue)

    def resume(self, queue: int) -> bool:
        return from_thread.run(self._inner.resume, queue)
