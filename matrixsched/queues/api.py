"""`app.queues`: batches of typed tasks, beside the actions of the scheduler.

    app.queues.use(load_contract("queues.yaml"))

    @app.queues.handler("emails", batch_size=100)
    async def send(tasks: list[EmailsTask]) -> list[ItemResult]:
        return [await send_one(task) for task in tasks]     # Done(), RetryAt(...), DeadLetter(...) for each

    await app.queues.put(EmailsTask(to="ada@example.org", subject="Hello"))

A task is taken by one handler at a time, and comes back if that neither finishes nor returns it within its visibility
timeout, which is prolonged while the handler runs. What a handler may say of its batch stands in `results.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import TypeVar, overload

from matrixsched.errors import BadInput, TaskTooLarge
from matrixsched.handlers import Handlers
from matrixsched.queues.codec import encode
from matrixsched.queues.delivery import refuse_delivery, register_delivery
from matrixsched.queues.handlers import BatchFunction, HandlerOf, QueueHandlers
from matrixsched.queues.inside import StoreInside
from matrixsched.queues.storage import QueueStorage
from matrixsched.queues.tasks import QueueTask
from matrixsched.queues.wrapper import TellingStorage
from matrixsched.rules.arguments import each
from matrixsched.rules.contract import Contract
from matrixsched.rules.queues import DATA_BYTES_MAX, DeadTask, NewItem, QueueStat
from matrixsched.rules.times import check_duration, check_time
from matrixsched.store.callers import AsyncCaller
from matrixsched.store.store import Store

F = TypeVar("F", bound=BatchFunction)
T = TypeVar("T", bound=QueueTask)

PUT_BATCH = 1000

StorageOver = Callable[[Store], QueueStorage]
"""Makes the storage whose tasks lie in that store."""


class Queues:
    def __init__(
        self,
        store: Callable[[], Store],
        storage_over: StorageOver,
        *,
        wrote: Callable[[], None],
        elsewhere: QueueStorage | None = None,
        handlers: QueueHandlers | None = None,
        actions: Handlers,
    ) -> None:
        """`wrote` is called after a change that makes work, so that a worker here looks at once. `elsewhere` is a
        storage that is not in the application's database. `actions` get to know those that become tasks."""
        self._store = store
        self._make_storage = storage_over
        self._wrote = wrote
        self._elsewhere = elsewhere
        self._actions = actions
        self.handlers = QueueHandlers() if handlers is None else handlers

    # Where tasks are.

    @property
    def storage(self) -> QueueStorage:
        return TellingStorage(self.storage_over(self._store()), self._wrote)

    def storage_over(self, store: Store) -> QueueStorage:
        """The same tasks through another store of it. It wakes nobody: it may be in another thread."""
        return self._elsewhere or self._make_storage(store)

    def over(self, store: Store) -> Queues:
        """The same queues through another store. It wakes nobody: that would be in another thread."""
        return Queues(
            lambda: store,
            self._make_storage,
            wrote=lambda: None,
            elsewhere=self._elsewhere,
            handlers=self.handlers,
            actions=self._actions,
        )

    def _inside(self, connection: AsyncCaller | None) -> QueueStorage:
        if connection is None:
            return self.storage
        self.refuse_elsewhere()
        return self.storage_over(StoreInside(self._store(), connection))

    @property
    def is_in_database(self) -> bool:
        return self._elsewhere is None

    def refuse_elsewhere(self) -> None:
        """A transaction of the caller's is in the database, and so must be the tasks that are to be part of it."""
        if self._elsewhere is not None:
            kind = type(self._elsewhere).__name__
            raise BadInput(f"the queues are in a {kind}, which knows no transactions: leave connection out")

    @contextmanager
    def bound_to(self, storage_over: StorageOver | None = None) -> Iterator[None]:
        """Tasks are in the application's store until the block ends, wherever they were; then all is as before.

        For tests: `matrixsched.testing` opens this door, and may bring storages of its own.
        """
        before = self._make_storage, self._elsewhere
        self._make_storage, self._elsewhere = storage_over or self._make_storage, None
        try:
            yield
        finally:
            self._make_storage, self._elsewhere = before

    # Queues and handlers.

    def use(self, contract: Contract) -> None:
        """Know the queues of a contract; the same one again is fine, one that contradicts it is refused.

        It is `load_contract("queues.yaml")`, or the CONTRACT of a generated module.
        """
        if not isinstance(contract, Contract):
            raise BadInput(f"use() takes a Contract, as load_contract(path) returns it, not {type(contract).__name__}")
        self.handlers.declare(contract.queues)
        for queue in contract.queues:
            if self._elsewhere is None:
                register_delivery(self._actions, queue)
            else:
                refuse_delivery(self._actions, queue, type(self._elsewhere).__name__)

    @overload
    def handler(
        self,
        queue: str,
        *,
        batch_size: int | None = None,
        visibility: timedelta | None = None,
        timeout: timedelta | None = None,
    ) -> Callable[[F], F]: ...

    @overload
    def handler(
        self,
        queue: type[T],
        *,
        batch_size: int | None = None,
        visibility: timedelta | None = None,
        timeout: timedelta | None = None,
    ) -> HandlerOf[T]: ...

    def handler(
        self,
        queue: str | type[QueueTask],
        *,
        batch_size: int | None = None,
        visibility: timedelta | None = None,
        timeout: timedelta | None = None,
    ) -> Callable[[F], F]:
        """Register a function, async or not, as the handler of a queue, by its name or by the class of its tasks.

        By the name it gets tasks of a class that is made at run time; by the class, as of a generated module, of that.
        It takes (tasks) or (tasks, storage), up to `batch_size` of them, and returns what became of them; a plain
        function is called in a thread, and its storage waits for each answer. `visibility` is how soon others have its
        tasks if this process dies. Where they are not given, the worker's settings say so. After `timeout` it is
        cancelled, and has failed: what it left unsettled comes back. Without one it may take as long as it likes.
        """
        if not isinstance(queue, str | type):
            raise BadInput('a handler is registered for a queue: @app.queues.handler("name"), with parentheses')

        def register(function: F) -> F:
            self.handlers.register(queue, function, batch_size=batch_size, visibility=visibility, timeout=timeout)
            return function

        return register

    # Tasks.

    async def put(
        self,
        task: QueueTask,
        *,
        at: datetime | None = None,
        delay: timedelta | None = None,
        connection: AsyncCaller | None = None,
    ) -> int:
        """Put a task into its queue: now, `at` an instant or after a `delay`; its id.

        With `connection` it is part of the caller's transaction, as `App.schedule` takes it.
        """
        (id,) = await self.put_many([task], at=at, delay=delay, connection=connection)
        return id

    async def put_many(
        self,
        tasks: Iterable[QueueTask],
        *,
        at: datetime | None = None,
        delay: timedelta | None = None,
        connection: AsyncCaller | None = None,
    ) -> list[int]:
        """Put any number of tasks, of any queues, a thousand in a transaction; their ids, in that order.

        If one of them is wrong, none is put. With `connection` all are part of the caller's transaction.
        """
        items = self._items(tasks, at, delay)
        storage = self._inside(connection)
        ids: list[int] = []
        for begin in range(0, len(items), PUT_BATCH):
            ids += await storage.put_many(items[begin : begin + PUT_BATCH])
        return ids

    def _items(self, tasks: Iterable[QueueTask], at: datetime | None, delay: timedelta | None) -> list[NewItem]:
        if at is not None and delay is not None:
            raise BadInput("at and delay contradict each other: pass one of them")
        start_at = None if at is None else check_time("at", at)
        after = timedelta(0) if delay is None else check_duration("delay", delay)
        return [self._item(task, start_at, after) for task in each("tasks", tasks, "a list of tasks")]

    def _item(self, task: QueueTask, at: datetime | None, delay: timedelta) -> NewItem:
        queue = self.handlers.queue_of(type(task))
        data = encode(task)
        if len(data) > DATA_BYTES_MAX:
            raise TaskTooLarge(queue.name, len(data), DATA_BYTES_MAX)
        return NewItem(queue=queue.id, data=data, at=at, delay=delay)

    async def stat(self) -> Mapping[str, QueueStat]:
        """How many tasks there are in each queue that is declared here; `storage.stat()` knows of all, by number.

        In a database counting stops at 1,000,000 of those that are ready, of the others, and of the dead letters: such
        a number means that there are so many or more.
        """
        found = await self.storage.stat()
        return {queue.name: found.get(queue.id) or _empty(queue.id) for queue in self.handlers.declared}

    async def dead_letters(self, name: str, *, after: int = 0, limit: int = 100) -> list[DeadTask]:
        """A page of what was set aside, by id; pass the id of the last one as `after` for the next page."""
        return await self.storage.dead_letters(self.handlers.queue(name).id, after=after, limit=limit)

    async def redrive(self, name: str, *, ids: Iterable[int] | None = None, limit: int = 1000) -> int:
        """Put dead letters back, the first `limit` or these, as if they were new; how many were."""
        return await self.storage.redrive(self.handlers.queue(name).id, ids=ids, limit=limit)

    async def purge_dead(self, name: str, *, ids: Iterable[int] | None = None, limit: int = 1000) -> int:
        """Delete dead letters for good, the first `limit` or these; how many were."""
        return await self.storage.purge_dead(self.handlers.queue(name).id, ids=ids, limit=limit)

    async def pause(self, name: str) -> bool:
        """Hand out nothing of a queue, to nobody; whether it was not so before. What is taken may be settled."""
        return await self.storage.pause(self.handlers.queue(name).id)

    async def resume(self, name: str) -> bool:
        """Hand out its tasks again; whether it was paused."""
        return await self.storage.resume(self.handlers.queue(name).id)


def _empty(queue: int) -> QueueStat:
    return QueueStat(queue=queue, total=0, ready=0, taken=0, delayed=0)
