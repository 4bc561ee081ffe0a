"""Parts for short scenes: as little of each as there can be, and nothing in it by chance that decides what happens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, ClassVar, TypeVar

import anyio

from matrixsched.app import App
from matrixsched.queues import BatchResult, QueueStorage, encode, put_into
from matrixsched.rules.lanes import GLOBAL, key_limit
from matrixsched.rules.outcome import SLOW_DOWN_MIN, HandlerOutcome, SlowDown
from matrixsched.rules.queues import VISIBILITY_MIN
from matrixsched.semaphores import TaskSemaphore
from simulation.actors import Behaviour, Client
from simulation.gates import KEYS, LIMITS, TEMPLATES, GatesPart
from simulation.parts import Part
from simulation.queue_notes import Handling
from simulation.queues import CONTRACT, LETTERS, PARCELS, Queues
from simulation.semaphores import Event, Semaphores

if TYPE_CHECKING:
    from simulation.world import World

P = TypeVar("P", bound=Part)

KEY, TEMPLATE, POOL = KEYS[0], TEMPLATES[0], "pool"
WORK_S = 0.05
"""So long a batch takes."""


def staged(world: World, part: type[P]) -> P:
    """The part of that kind that is on stage."""
    (found,) = (one for one in world.parts if isinstance(one, part))
    return found


# Gates.


class OneLimit(GatesPart):
    """One key, whose actions start a tenth of a second from each other."""

    async def install(self, app: App) -> None:
        await app.limits.set(key_limit(KEY), "10/s")
        self.notes.follow(LIMITS)


class OneTemplate(GatesPart):
    """One template, whose messages a window of the quota must let go: there is room for four in each."""

    async def install(self, app: App) -> None:
        await app.templates.set(TEMPLATE, distribution="uniform")
        await app.quota.set(interval=timedelta(seconds=1))
        await app.limits.set(GLOBAL, "10/s")
        self.notes.follow(LIMITS)


class ToldOnce(GatesPart):
    """A handler that is told to slow down the first time that it is called."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._was_told = False

    async def install(self, app: App) -> None:
        self.notes.follow(LIMITS)

    @property
    def behaviours(self) -> Mapping[str, Behaviour]:
        return {**super().behaviours, "told": Behaviour(self._told_once)}

    async def _told_once(self, chance: Random) -> HandlerOutcome | None:
        was_told, self._was_told = self._was_told, True
        return None if was_told else SlowDown(SLOW_DOWN_MIN, limit=key_limit(KEY), reason="HTTP 429")


# Semaphores.


class OnePlace(Semaphores):
    """One place. Who is told that it is his uses it and releases it."""

    try_release: ClassVar[int] = 0
    hold_for: ClassVar[timedelta | None] = None

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.keys = [POOL]

    async def install(self, app: App) -> None:
        await app.semaphores.get_or_create(POOL, active=1, try_release=self.try_release, hold_for=self.hold_for)
        self.notes.begin()

    async def come(self, client: Client, id: str, priority: float = 0.0) -> None:
        pool = TaskSemaphore(client._app.semaphores, POOL)
        with self._called(client._host, "enqueue", POOL, id) as call:
            call.answer = await pool.enqueue(id, priority)

    async def _work(self, chance: Random) -> None:
        await anyio.sleep(WORK_S)

    async def _use_place(self, pool: TaskSemaphore, host: str, event: Event) -> None:
        await self._release(pool, host, event)


class PlaceAskedFor(OnePlace):
    """One place. Who has it keeps it until somebody more important comes, and steps back then."""

    try_release = 1

    async def _use_place(self, pool: TaskSemaphore, host: str, event: Event) -> None:
        """For good."""

    async def _make_room(self, pool: TaskSemaphore, host: str, event: Event) -> None:
        await self._step_back(pool, host, event, priority=None)


class PlaceForgotten(OnePlace):
    """One place, and the first who has it forgets it: it lapses, and is given to the next one."""

    hold_for = timedelta(seconds=1)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._is_forgotten = False

    async def _use_place(self, pool: TaskSemaphore, host: str, event: Event) -> None:
        was_forgotten, self._is_forgotten = self._is_forgotten, True
        if was_forgotten:
            await self._release(pool, host, event)


# Queues.


class OneBatch(Queues):
    """Of three letters one is done, one comes back once, one is set aside. Parcels are done, which their handler says
    to the storage."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._batch_size, self._visibility_s = 3, VISIBILITY_MIN.total_seconds()
        policy = replace(world.size.policy, processors=1, queues_idle_until_told=False)
        world.size = replace(world.size, policy=policy)

    async def install(self, app: App) -> None:
        app.queues.use(CONTRACT)
        self.notes.after = self.notes.read()

    async def put_letters(self, client: Client) -> None:
        letters = [self._task(LETTERS) for _ in range(3)]
        await self._put(self._app(client), client._host, letters, timedelta(0))

    async def deliver_parcel(self, client: Client, id: str) -> None:
        """By an action that becomes a task."""
        parcel = self._task(PARCELS)
        with client._called("schedule", id) as operation:
            self.notes.delivery_of[operation] = encode(parcel)
            scheduled = await self._app(client).schedule(put_into(PARCELS.name), parcel, id=id)
            client._ok(operation, scheduled.changed)

    async def _work(self) -> None:
        await anyio.sleep(WORK_S)

    async def _returned(self, batch: list[Handling]) -> BatchResult:
        await self._work()
        return [self._result(handling) for handling in batch]

    def _fate_of(self, handling: Handling) -> str:
        fate = ("done", "retry", "set aside")[handling.task.id % 3]
        return "done" if fate == "retry" and handling.task.attempts > 0 else fate

    def _when(self) -> timedelta:
        return timedelta(0)

    async def _settled(self, host: str, batch: list[Handling], storage: QueueStorage) -> BatchResult:
        await self._work()
        self._say("done", batch)
        await storage.done([handling.task for handling in batch])
        return None


class LongBatch(OneBatch):
    """The first batch takes longer than its tasks are hidden from others, so they must be hidden on."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._took_long = False

    async def _work(self) -> None:
        took_long, self._took_long = self._took_long, True
        await anyio.sleep(WORK_S if took_long else VISIBILITY_MIN.total_seconds() * 1.2)
