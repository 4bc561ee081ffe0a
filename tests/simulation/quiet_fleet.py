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
from matrixsched.store.news import Hearing
from matrixsched.store.transition import Transition
from matrixsched.store.values import Acquired
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


@dataclass(slots=True)
class Counted:
    """What the workers of a fleet sent in so many seconds."""

    seconds: float
    sent: Counter[str] = field(default_factory=Counter)
    fruitless: int = 0
    """Looks for work that found none."""
    came_due: int = 0
    late_s: list[float] = field(default_factory=list)
    """Of each that was run, from its instant to its start."""
    done_by: Counter[str] = field(default_factory=Counter)

    @property
    def looks(self) -> int:
        return self.sent["acquire_shard"]


class _CountingStore(StoreWrapper):
    def __init__(self, fleet: QuietFleet) -> None:
        super().__init__(fleet.database.store)
        self._fleet = fleet

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    def sibling(self) -> _CountingStore:
        return _CountingStore(self._fleet)

    async def watch(self, changed: Hearing) -> None:
        await anyio.sleep_forever()

    async def run(self, transition: Transition[T]) -> T:
        """There and back again, half of the time each."""
        fleet = self._fleet
        await anyio.sleep(fleet.trip_s())
        answer = await self._inner.run(transition)
        await anyio.sleep(fleet.trip_s())
        fleet.note(transition.name, answer)
        return answer


class QuietFleet:
    """`statement_s`: what a statement takes on average, with the way to the database and back."""

    def __init__(self, seed: int, *, workers: int, shards: int, statement_s: float) -> None:
        self._chance = Random(seed)
        self._loop = SeededLoop(Random(self._chance.getrandbits(32)))
        self._clock = DatabaseClock(self._loop)
        self._workers = workers
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

    def live(self, seconds: float, *, rate: float = 0.0) -> Counted:
        """Let it live so long; with `rate`, actions that were scheduled before come due by chance, so many a second."""
        try:
            return self._loop.run_until_complete(self._live(seconds, rate))
        finally:
            self.database.close()
            self._loop.close()

    async def _live(self, seconds: float, rate: float) -> Counted:
        await self.database.create(self._shards)
        due_s = self._due_after(seconds, rate)
        await self._schedule(due_s)
        workers = [self._worker(number) for number in range(self._workers)]
        async with anyio.create_task_group() as working:
            for worker in workers:
                working.start_soon(worker.run)
            await anyio.sleep(AHEAD_S + SETTLE_S)
            self._counted.seconds, self._is_counting = seconds, True
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
        app = self._app()
        await app.schedule_many(
            call("work", id=f"action-{number}", delay=timedelta(seconds=at)) for number, at in enumerate(due_s)
        )

    def _app(self, name: str = "client") -> App:
        app = App(
            "sqlite://",
            clock=self._clock,
            chance=SeededChance(self._chance.getrandbits(32)),
            store=_CountingStore(self),
        )

        @app.action("work")
        async def work(ctx: Context) -> None:
            if self._is_counting:
                self._counted.late_s.append((self._clock.now() - ctx.scheduled_at).total_seconds())
                self._counted.done_by[name] += 1
            await anyio.sleep(HANDLER_S)

        return app

    def _worker(self, number: int) -> SimulatedWorker:
        return SimulatedWorker(self._app(f"worker-{number}"), WorkerPolicy(), name=f"worker-{number}")
