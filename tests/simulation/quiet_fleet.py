"""A fleet without faults in virtual time: real workers beside one database, whose statements are counted by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import TypeVar

import anyio

from matrixsched import App, Context, call
from matrixsched.clock import SeededChance
from matrixsched.rules.names import shard_of
from matrixsched.store.news import Hearing, News
from matrixsched.store.transition import Transition
from matrixsched.store.values import Acquired, Claimed
from matrixsched.store.wrapper import StoreWrapper
from matrixsched.worker.policy import WorkerPolicy
from simulation.actors import DatabaseClock, SimulatedWorker
from simulation.database import SimulatedDatabase
from simulation.loop import SeededLoop

T = TypeVar("T")

AHEAD_S = 5.0
"""So long before the first one is due all actions are scheduled, and moved."""
SETTLE_S = 1.0
"""After the first ones were due, before anything is counted."""
HANDLER_S = 0.002
WORK = "work"
KNOWING_WORK = (WORK,)


@dataclass(slots=True)
class Counted:
    """What the workers of a fleet sent in so many seconds."""

    seconds: float
    sent: Counter[str] = field(default_factory=Counter)
    fruitless: int = 0
    """Looks for work that found none."""
    came_due: int = 0
    late: dict[str, list[float]] = field(default_factory=dict)
    """Of each that was run, by handler: seconds from its instant to its start."""
    done_by: Counter[str] = field(default_factory=Counter)

    @property
    def looks(self) -> int:
        return self.sent["acquire_shard"]

    def late_s(self, share: float, handler: str = WORK) -> float:
        """How late so large a share of them was at most."""
        late_s = sorted(self.late[handler])
        return late_s[int(share * (len(late_s) - 1))]


class _CountingStore(StoreWrapper):
    def __init__(self, fleet: QuietFleet) -> None:
        super().__init__(fleet.database.store)
        self._fleet = fleet
        self._parked = False

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    def sibling(self) -> _CountingStore:
        return _CountingStore(self._fleet)

    async def watch(self, changed: Hearing) -> None:
        self._fleet.listening.append(changed)
        await anyio.sleep_forever()

    async def run(self, transition: Transition[T]) -> T:
        """There and back again, half of the time each."""
        fleet = self._fleet
        await anyio.sleep(fleet.trip_s())
        answer = await self._inner.run(transition)
        await anyio.sleep(fleet.trip_s())
        fleet.note(transition.name, answer)
        if isinstance(answer, Claimed):
            self._parked |= answer.parked
        elif transition.name == "release_shard" and self._parked:
            self._parked = False
            fleet.tell(None)
        return answer


class QuietFleet:
    """`statement_s`: what a statement takes on average, with the way to the database and back."""

    def __init__(
        self,
        seed: int,
        *,
        workers: int,
        shards: int,
        statement_s: float,
        specialists: int = 0,
        policy: WorkerPolicy | None = None,
    ) -> None:
        """`specialists` of the workers know the handler "rare", and no other; the others do not."""
        self._chance = Random(seed)
        self._loop = SeededLoop(Random(self._chance.getrandbits(32)))
        self._clock = DatabaseClock(self._loop)
        self._knowing = [("rare",)] * specialists + [KNOWING_WORK] * (workers - specialists)
        self._policy = policy or WorkerPolicy()
        self.listening: list[Hearing] = []
        self._shards = shards
        self._statement_s = statement_s
        self._counted = Counted(0)
        self._is_counting = False
        self.database = SimulatedDatabase(self._clock)

    def trip_s(self) -> float:
        return self._chance.uniform(0.25, 0.75) * self._statement_s

    def note(self, name: str, answer: object) -> None:
        if self._is_counting:
            self._counted.sent[name] += 1
            if isinstance(answer, Acquired) and answer.shard is None:
                self._counted.fruitless += 1

    def tell(self, shard: int | None) -> None:
        """What NOTIFY does: everybody who listens hears of it, half a way later."""
        for changed in self.listening:
            self._loop.call_later(self.trip_s(), changed, News.ACTIONS, shard)

    def live(self, seconds: float, *, rate: float = 0.0, told: Sequence[tuple[float, str]] = ()) -> Counted:
        """Let it live so long. With `rate`, actions that were scheduled before come due by chance, so many a second.
        Those of `told` are scheduled by somebody else, for at once, each so long after counting began."""
        try:
            return self._loop.run_until_complete(self._live(seconds, rate, told))
        finally:
            self.database.close()
            self._loop.close()

    async def _live(self, seconds: float, rate: float, told: Sequence[tuple[float, str]]) -> Counted:
        await self.database.create(self._shards)
        due_s = self._due_after(seconds, rate)
        await self._schedule(due_s)
        workers = [self._worker(number, names) for number, names in enumerate(self._knowing)]
        async with anyio.create_task_group() as working:
            for worker in workers:
                working.start_soon(worker.run)
            await anyio.sleep(AHEAD_S + SETTLE_S)
            self._counted.seconds, self._is_counting = seconds, True
            async with anyio.create_task_group() as scheduling:
                scheduling.start_soon(self._schedule_told, told)
                await anyio.sleep(seconds)
            self._is_counting = False
            self._counted.came_due = sum(AHEAD_S + SETTLE_S <= at < AHEAD_S + SETTLE_S + seconds for at in due_s)
            for worker in workers:
                worker.stop()
        return self._counted

    def _due_after(self, seconds: float, rate: float) -> Sequence[float]:
        due_s, ends_s = [AHEAD_S], AHEAD_S + SETTLE_S + seconds
        while rate and due_s[-1] < ends_s:
            due_s.append(due_s[-1] + self._chance.expovariate(rate))
        return due_s[1:]

    async def _schedule(self, due_s: Sequence[float]) -> None:
        app = self._app(KNOWING_WORK)
        await app.schedule_many(
            call("work", id=f"action-{number}", delay=timedelta(seconds=at)) for number, at in enumerate(due_s)
        )

    async def _schedule_told(self, told: Sequence[tuple[float, str]]) -> None:
        app, begun = self._app(("rare", WORK)), self._loop.time()
        for number, (at, handler) in enumerate(told):
            await anyio.sleep(max(0.0, begun + at - self._loop.time()))
            await app.schedule(handler, id=f"told-{number}")
            self.tell(shard_of(f"told-{number}", self._shards))

    def _app(self, handlers: Sequence[str], name: str = "client") -> App:
        app = App(
            "sqlite://",
            clock=self._clock,
            chance=SeededChance(self._chance.getrandbits(32)),
            store=_CountingStore(self),
        )

        async def work(ctx: Context) -> None:
            if self._is_counting:
                late_s = (self._clock.now() - ctx.scheduled_at).total_seconds()
                self._counted.late.setdefault(ctx.handler, []).append(late_s)
                self._counted.done_by[name] += 1
            await anyio.sleep(HANDLER_S)

        for handler in handlers:
            app.action(handler)(work)

        return app

    def _worker(self, number: int, handlers: Sequence[str]) -> SimulatedWorker:
        name = f"worker-{number}"
        return SimulatedWorker(self._app(handlers, name), self._policy, name=name)
