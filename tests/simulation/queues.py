"""Queues in a run: two of them, clients that put, pause and change them, handlers that settle in every way, or not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import anyio

from matrixsched.app import App
from matrixsched.context import Context
from matrixsched.errors import (
    MatrixSchedError,
)
from matrixsched.events import ProcessorsAssigned
from matrixsched.queues import (
    BatchResult,
    Contract,
    DeadLetter,
    Field,
    FieldType,
    HandlerStats,
    ItemResult,
    QueueContract,
    QueueStorage,
    QueueTask,
    encode,
    put_into,
    task_class,
)
from matrixsched.rules.outcome import Done, RetryAt
from matrixsched.rules.queues import VISIBILITY_MIN, NewItem
from matrixsched.rules.retry import Retry
from matrixsched.rules.schedule import every
from simulation import queue_checkers, queue_end_checkers
from simulation.actors import Behaviour, Client, Trouble, reply_to
from simulation.commit_checkers import Commit, Objections
from simulation.database import EPOCH
from simulation.history import Ended, Reply
from simulation.parts import Call, Part
from simulation.queue_end_checkers import JUNK
from simulation.queue_notes import Handling, Put, QueueNotes

if TYPE_CHECKING:
    from simulation.world import World

_NUMBER = Field(name="number", type=FieldType.INT)
LETTERS = QueueContract(id=1, name="letters", fields=(_NUMBER,))
"""Its handlers return what is to become of each task."""
PARCELS = QueueContract(id=2, name="parcels", fields=(_NUMBER,))
"""Its handlers settle tasks through the storage, or leave them."""
CONTRACT = Contract(queues=(LETTERS, PARCELS))
LONG_S = 9.0
"""Much longer than the visibility timeouts of a run."""


class Queues(Part):
    name = "queues"
    at_every_commit = queue_checkers.AT_EVERY_COMMIT
    at_the_end = queue_end_checkers.AT_THE_END

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.notes = QueueNotes(world)
        self._number = 0
        self._delivery_ids = [f"delivery-{number}" for number in range(self._chance.randint(2, 6))]
        self._batch_size = self._chance.randint(1, 5)
        self._visibility_s = self._chance.choice((VISIBILITY_MIN.total_seconds(), 2.0, 5.0))
        policy = replace(
            world.size.policy,
            processors=self._chance.randint(1, 3),
            queues_idle_until_told=self._chance.random() < 0.15,
        )
        world.size = replace(world.size, policy=policy)

    async def install(self, app: App) -> None:
        app.queues.use(CONTRACT)
        for _ in range(self._chance.choice((0, 4, 20))):
            await self._put(app, "installer", [self._task()], timedelta(0))
        self.notes.after = self.notes.read()
        for row in self.notes.after.tasks.values():
            self.notes.created[row.data] += 1
            self.notes.ids_of[row.data].add(row.id)

    def committed(self, commit: Commit) -> None:
        self.notes.committed(commit)

    def unrest(self) -> Objections:
        yield from queue_end_checkers.unrest(self._world)

    # Handlers.

    @property
    def behaviours(self) -> Mapping[str, Behaviour]:
        return {put_into(queue.name): Behaviour(_nothing, timeout_s=60, retry=Retry()) for queue in CONTRACT.queues}

    def register(self, app: App, host: str) -> None:
        app.queues.use(CONTRACT)
        app.events.subscribe(ProcessorsAssigned, lambda plan: self.notes.planned(host, plan))
        app.middleware(self._delivery_noted(host))
        options: dict[str, Any] = {"batch_size": self._batch_size, "visibility": self._seconds(self._visibility_s)}

        @app.queues.handler(LETTERS.name, **options)
        async def letters(tasks: list[QueueTask]) -> BatchResult:
            return await self._handle(host, tasks, self._returned)

        if host.startswith("worker1"):
            return  # it knows one queue only

        @app.queues.handler(PARCELS.name, **options)
        async def parcels(tasks: list[QueueTask], storage: QueueStorage) -> BatchResult:
            return await self._handle(host, tasks, lambda batch: self._settled(host, batch, storage))

    def _delivery_noted(self, host: str) -> Callable[[Context, Callable[[], Awaitable[Any]]], Awaitable[Any]]:
        """An action that becomes a task has no handler of ours."""

        async def around(context: Context, call: Callable[[], Awaitable[Any]]) -> Any:
            if context.handler not in self.behaviours:
                return await call()
            run = self._world.history.started(host, context)
            outcome = await call()
            self._world.history.ended(run, Ended.DONE)
            return outcome

        return around

    async def _handle(
        self, host: str, tasks: list[QueueTask], play: Callable[[list[Handling]], Awaitable[BatchResult]]
    ) -> BatchResult:
        batch = [self.notes.handed(host, task) for task in tasks]
        try:
            return await play(batch)
        except Exception:
            self._leave(batch)
            raise
        except anyio.get_cancelled_exc_class():
            for handling in batch:
                handling.is_cancelled = True
            raise

    def _leave(self, batch: list[Handling]) -> None:
        for handling in batch:
            handling.is_left = True

    async def _work(self) -> None:
        chance = self._chance
        await anyio.sleep(chance.choice((0, chance.uniform(0, 0.3), chance.uniform(0, 0.3), chance.uniform(0, LONG_S))))

    async def _returned(self, batch: list[Handling]) -> BatchResult:
        await self._work()
        point = self._chance.random() if self._world.is_chaotic else 1.0
        if point < 0.1:
            raise Trouble("as often")
        if point < 0.15:
            self._leave(batch)
            return [Done()] * (len(batch) + 1)
        if point < 0.25:
            self._say("done", batch)
            return None
        return [self._result(handling) for handling in batch]

    def _say(self, what: str, batch: list[Handling]) -> None:
        for handling in batch:
            handling.said.add(what)

    def _result(self, handling: Handling) -> ItemResult:
        what = self._fate_of(handling)
        handling.said.add(what)
        match what:
            case "retry":
                return RetryAt(self._when())
            case "set aside":
                return DeadLetter("it is of no use")
        return Done()

    def _fate_of(self, handling: Handling) -> str:
        return self._fate()

    def _fate(self) -> str:
        return self._chance.choices(("done", "retry", "set aside"), (6, 2, 1))[0]

    def _when(self) -> datetime | timedelta:
        delay = self._seconds(self._chance.choice((0, self._chance.uniform(0, 4))))
        return delay if self._chance.random() < 0.7 else self._world.clock.now() + delay

    async def _settled(self, host: str, batch: list[Handling], storage: QueueStorage) -> BatchResult:
        await self._work()
        left = list(batch)
        for _ in range(self._chance.randint(0, 3)):
            if left:
                some = [left.pop() for _ in range(self._chance.randint(1, len(left)))]
                await self._settle(some, storage)
        if self._chance.random() < 0.2:
            await self._put_child(host, storage)
        point = self._chance.random() if self._world.is_chaotic else 1.0
        if point < 0.1:
            raise Trouble("as often")
        if point < 0.4:
            self._leave(left)
            return HandlerStats(processed=1) if point < 0.3 else None
        return [self._result(handling) for handling in batch]

    async def _settle(self, some: list[Handling], storage: QueueStorage) -> None:
        tasks = [handling.task for handling in some]
        if self._chance.random() < 0.1:
            await storage.extend(tasks, visibility=self._seconds(self._chance.choice((1, 12))))
        what = self._fate()
        self._say(what, some)
        match what:
            case "done":
                await storage.done(tasks)
            case "retry":
                await storage.retry([(task, self._when()) for task in tasks])
            case _:
                await storage.set_aside([(task, "it is of no use") for task in tasks])
        if self._chance.random() < 0.1:
            await storage.done(tasks)  # once more, by receipts that are void
        if self._chance.random() < 0.2:
            await self._work()

    async def _put_child(self, host: str, storage: QueueStorage) -> None:
        data = encode(self._task())
        with self._asked(host, "put", [data], timedelta(0)) as put:
            put.ids = [await storage.put(LETTERS.id, data)]
        if put.reply is not Reply.OK:
            raise Trouble("could not be put")

    # Clients.

    @property
    def operations(self) -> Mapping[Call, float]:
        return {
            self.put: 10,
            self.put_many: 6,
            self.put_junk: 1,
            self.deliver: 7,
            self.change_delivery: 3,
            self.pause: 1,
            self.resume: 2,
            self.change_settings: 4,
            self.redrive: 2,
            self.purge_dead: 1,
            self.hasten: 1,
            self.purge: 0.5,
        }

    def _task(self, queue: QueueContract | None = None) -> QueueTask:
        """One whose bytes no other has."""
        self._number += 1
        task: QueueTask = task_class(queue or self._queue())(number=self._number)  # type: ignore[call-arg]
        return task

    def _queue(self) -> QueueContract:
        return self._chance.choice(CONTRACT.queues)

    def _seconds(self, seconds: float) -> timedelta:
        return timedelta(seconds=seconds)

    async def put(self, client: Client) -> None:
        await self._put(self._app(client), client._host, [self._task()], self._seconds(client._delay_s()))

    async def put_many(self, client: Client) -> None:
        tasks = [self._task() for _ in range(self._chance.randint(2, 9))]
        await self._put(self._app(client), client._host, tasks, self._seconds(client._delay_s()))

    async def _put(self, app: App, by: str, tasks: list[QueueTask], delay: timedelta) -> None:
        with self._asked(by, "put", [encode(task) for task in tasks], delay) as put:
            when: dict[str, Any] = {"delay": delay} if self._chance.random() < 0.5 else {"at": put.not_before}
            if len(tasks) == 1:
                put.ids = [await app.queues.put(tasks[0], **when)]
            else:
                put.ids = await app.queues.put_many(tasks, **when)

    async def put_junk(self, client: Client) -> None:
        self._number += 1
        data, queue = JUNK + str(self._number).encode(), self._queue().id
        with self._asked(client._host, "put", [data], timedelta(0)) as put:
            put.ids = await self._app(client).queues.storage.put_many([NewItem(queue=queue, data=data)])

    @contextmanager
    def _asked(self, by: str, kind: str, items: list[bytes], delay: timedelta) -> Iterator[Put]:
        """Note what is asked of a queue, and what comes of it."""
        history, put = self._world.history, self.notes.put(by, items, delay)
        history.note(by, kind, *items)
        try:
            yield put
            put.reply = Reply.OK
        except MatrixSchedError as error:
            put.reply = reply_to(error)
        history.note(by, kind, *items, put.reply, *put.ids)

    async def deliver(self, client: Client) -> None:
        """Schedule an action that becomes a task, or one each time it repeats."""
        id, delay_s, queue = self._chance.choice(self._delivery_ids), client._delay_s(), self._queue()
        task, options = self._task(queue), self._repetition() if self._chance.random() < 0.2 else {}
        with client._called("schedule", id, delay_s=delay_s) as operation:
            self.notes.delivery_of[operation] = encode(task)
            if options:
                operation.interval = options["repeat"].interval
            else:
                options["exists"] = self._chance.choice(("replace", "replace", "keep", "error"))
            scheduled = await self._app(client).schedule(
                put_into(queue.name), task, id=id, delay=self._seconds(delay_s), **options
            )
            client._ok(operation, scheduled.changed)

    def _repetition(self) -> dict[str, Any]:
        repeat = every(self._seconds(self._chance.uniform(5, 12)), anchor=EPOCH)
        return {"repeat": repeat, "expires_at": self._world.clock.now() + self._seconds(self._chance.uniform(30, 60))}

    async def change_delivery(self, client: Client) -> None:
        id, app, delay_s = self._chance.choice(self._delivery_ids), self._app(client), client._delay_s()
        kind = self._chance.choice(("reschedule", "run_now", "cancel"))
        with client._called(kind, id, delay_s=delay_s if kind == "reschedule" else 0) as operation:
            if kind == "reschedule":
                changed = (await app.reschedule(id, delay=self._seconds(delay_s))).changed
            else:
                changed = (await (app.run_now(id) if kind == "run_now" else app.cancel(id))).changed
            client._ok(operation, changed)

    async def pause(self, client: Client) -> None:
        await self._tried(client, "pause", lambda app: app.queues.pause(self._queue().name))

    async def resume(self, client: Client) -> None:
        await self._tried(client, "resume", lambda app: app.queues.resume(self._queue().name))

    async def change_settings(self, client: Client) -> None:
        queue, wanted = self._queue().id, self._wanted()
        await self._tried(
            client,
            f"settings of {queue}: {wanted}",
            lambda app: app.queues.storage_over(app.store).change_settings(  # type: ignore[attr-defined]
                queue, lambda found: replace(found, **wanted)
            ),
        )

    def _wanted(self) -> dict[str, Any]:
        visibility_s = self._chance.choice((None, 1, 3, 7))
        choices: list[dict[str, Any]] = [
            {"batch_size": self._chance.choice((None, 1, 3))},
            {"visibility": None if visibility_s is None else self._seconds(visibility_s)},
            {"processors_max": self._chance.choice((None, None, 0, 1, 2))},
        ]
        return self._chance.choice(choices)

    async def redrive(self, client: Client) -> None:
        ids = self._some(self.notes.after.dead)
        await self._tried(client, f"redrive {ids}", lambda app: app.queues.redrive(self._queue().name, ids=ids))

    async def purge_dead(self, client: Client) -> None:
        ids = self._some(self.notes.after.dead)
        await self._tried(client, f"purge_dead {ids}", lambda app: app.queues.purge_dead(self._queue().name, ids=ids))

    async def hasten(self, client: Client) -> None:
        ids, queue = self._some(self.notes.after.tasks), self._queue().id
        await self._tried(
            client, f"retry_now {ids}", lambda app: app.queues.storage_over(app.store).retry_now(queue, ids=ids)
        )  # type: ignore[attr-defined]

    async def purge(self, client: Client) -> None:
        ids, queue = self._some(self.notes.after.tasks), self._queue().id
        await self._tried(client, f"purge {ids}", lambda app: app.queues.storage_over(app.store).purge(queue, ids=ids))  # type: ignore[attr-defined]

    def _some(self, rows: Mapping[int, object]) -> list[int] | None:
        """A few by name; sometimes as many as there are."""
        ids = sorted(rows)
        return self._chance.sample(ids, k=min(3, len(ids))) if ids and self._chance.random() < 0.7 else None

    async def _tried(self, client: Client, what: str, call: Callable[[App], Awaitable[object]]) -> None:
        history = self._world.history
        history.note(client._host, what)
        try:
            answer: object = await call(self._app(client))
        except MatrixSchedError as error:
            answer = type(error).__name__
        history.note(client._host, what, answer)

    def _app(self, client: Client) -> App:
        client._app.queues.use(CONTRACT)
        return client._app


async def _nothing(chance: object) -> None:
    """What an action does that becomes a task."""
