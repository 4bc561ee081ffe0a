"""The stage: an application of the user's, taken off its database and put where a test owns time and faults."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from typing import Any

from anyio.from_thread import BlockingPortal, start_blocking_portal

from matrixsched.app import App
from matrixsched.clock import ManualClock, SeededChance
from matrixsched.errors import InvalidTime, StageError
from matrixsched.queues.database import DatabaseStorage
from matrixsched.queues.storage import QueueStorage
from matrixsched.rules.times import check_duration, check_integer, check_time
from matrixsched.scheduler import Scheduler
from matrixsched.store.store import Store
from matrixsched.testing.asserts import Assertions
from matrixsched.testing.clock import HastyClock
from matrixsched.testing.faults import Faults, StageStore, Tape
from matrixsched.testing.inline import InlineScheduler, InlineStorage
from matrixsched.testing.places import in_memory, thrown_away
from matrixsched.testing.queues import StageQueues
from matrixsched.testing.steps import Ran, Steps
from matrixsched.worker import WorkerPolicy

BEGINNING = datetime(2030, 1, 1, tzinfo=UTC)
ATTEMPTS_MAX = 10_000


class Stage(Assertions):
    """Your application, on a database of the test's own, at a time that the test decides. Made by `stage()`."""

    def __init__(
        self,
        app: App,
        observer: App,
        steps: Steps,
        clock: ManualClock,
        faults: Faults,
        tape: Tape,
        policy: WorkerPolicy,
        queues: StageQueues,
        life: ExitStack,
    ) -> None:
        super().__init__(app, observer, steps.ran, clock.now)
        self.app = app
        self.clock = clock
        self.faults = faults
        self.queues = queues
        self.sync = SyncStage(self, life)
        self._steps = steps
        self._tape = tape
        self._policy = policy
        self._travelling = False
        self._ended = False
        life.callback(self._end)

    @property
    def now(self) -> datetime:
        """The time on this stage, for the database, the scheduler and the workers alike."""
        return self.clock.now()

    @property
    def ran(self) -> list[Ran]:
        """All attempts made so far."""
        return list(self._steps.ran)

    async def advance(self, duration: timedelta) -> list[Ran]:
        """Let so much time pass, and run whatever comes due, each at the time it is due."""
        return await self.travel_to(self.now + check_duration("duration", duration))

    async def travel_to(self, instant: datetime) -> list[Ran]:
        """Go on to that instant, and run whatever comes due until then, each at the time it is due."""
        instant = check_time("instant", instant)
        if instant < self.now:
            raise InvalidTime("instant", f"lies before {self.now}, and a stage does not travel back")
        return await self._travel(instant, arrives=True)

    async def run_due(self) -> list[Ran]:
        """Run what is due now, and whatever becomes due by it; no time passes."""
        return await self._travel(self.now)

    async def run_until_idle(self, *, within: timedelta = timedelta(days=30)) -> list[Ran]:
        """Travel from due time to due time until nothing is left to run, but not further than `within`."""
        return await self._travel(self.now + check_duration("within", within))

    async def _travel(self, until: datetime, *, arrives: bool = False) -> list[Ran]:
        """Go from due time to due time, and then, if the journey `arrives`, on to its end."""
        self.check_alive()
        if self._travelling:
            raise StageError("the stage is travelling already")
        self._travelling = True
        since = self._steps.made
        try:
            await self._steps.run_due(since=since)
            while (due := self._next_due()) is not None and due <= until:
                self.clock.advance(due - self.now)
                await self._steps.run_due(since=since)
            if arrives and self.now < until:
                self.clock.advance(until - self.now)
                await self._steps.run_due(since=since)  # nothing comes due, but something may have expired
        finally:
            self._travelling = False
        return self._steps.ran[since[0] :]

    def check_alive(self) -> None:
        """Refuse what would otherwise happen to the application's own database."""
        if self._ended:
            raise StageError("the stage has ended, and its application is on its own database again")

    def _end(self) -> None:
        self._ended = True

    def _next_due(self) -> datetime | None:
        """When it is worth looking again: for what comes due, for leases that end, for a database that is back."""
        instants = [self._tape.next_due_at, self.queues.next_due(), self.faults.away_until]
        # What a fault left behind is free when its lease has ended: an attempt at that instant, a shard after it.
        for struck_at in self.faults.struck_at:
            instants.append(struck_at + self._policy.attempt_lease)
            instants.append(struck_at + self._policy.shard_lease + timedelta.resolution)
        return min((instant for instant in instants if instant is not None and instant > self.now), default=None)


class SyncStage:
    """`stage.sync`: the same journeys for tests that are not asynchronous."""

    def __init__(self, stage: Stage, life: ExitStack) -> None:
        self._stage = stage
        self._life = life

    @cached_property
    def _portal(self) -> BlockingPortal:
        self._stage.check_alive()
        # Not the one of the store, or a handler that blocks its event loop with a synchronous call would wait for ever.
        return self._life.enter_context(start_blocking_portal(name="matrixsched journeys"))

    def advance(self, duration: timedelta) -> list[Ran]:
        """As Stage.advance."""
        return self._portal.call(self._stage.advance, duration)

    def travel_to(self, instant: datetime) -> list[Ran]:
        """As Stage.travel_to."""
        return self._portal.call(self._stage.travel_to, instant)

    def run_due(self) -> list[Ran]:
        """As Stage.run_due."""
        return self._portal.call(self._stage.run_due)

    def run_until_idle(self, *, within: timedelta = timedelta(days=30)) -> list[Ran]:
        """As Stage.run_until_idle."""
        return self._portal.call(partial(self._stage.run_until_idle, within=within))


@contextmanager
def stage(
    app: App,
    *,
    at: datetime = BEGINNING,
    url: str | None = None,
    inline: bool = False,
    seed: int = 1,
    policy: WorkerPolicy | None = None,
    attempts_max: int = ATTEMPTS_MAX,
) -> Iterator[Stage]:
    """Put the application on a stage; afterwards everything is as it was.

    `at` is the time at which it begins. `url` is a database for code that schedules in a transaction of its own: there
    an installation is made that nobody else uses, and dropped at the end; without it all happens in memory. With
    `inline`, what is scheduled for now runs before the call returns, and what fails is raised there. `seed` decides
    guids and jitter. `attempts_max` bounds what one journey may run.
    """
    clock, chance = ManualClock(check_time("at", at)), SeededChance(seed)
    check_integer("attempts_max", attempts_max, least=1, most=1_000_000_000)
    # While time stands still nothing can wait for a slot that was taken ahead of it. And nobody else is there to open a
    # gate unseen: a journey of a month need not stop every minute to look.
    policy = replace(policy or WorkerPolicy(), slots_ahead=timedelta(0), look_again=timedelta(days=1))
    faults, tape = Faults(clock), Tape()
    with ExitStack() as stack:
        portal = stack.enter_context(start_blocking_portal(name="matrixsched stage"))
        place = in_memory(app.installation, clock, portal) if url is None else thrown_away(url, clock, chance, portal)
        plain = stack.enter_context(place)
        observer = App(app.url, installation=plain.installation, clock=clock, chance=SeededChance(seed), store=plain)
        stack.callback(observer.sync.close)
        steps = Steps(app, policy, clock, faults, tape, attempts_max)

        def make_scheduler(*arguments: Any, **ports: Any) -> Scheduler:
            ports["clock"] = HastyClock(clock)
            if inline:
                return InlineScheduler(*arguments, run=steps.run_inline, **ports)
            return Scheduler(*arguments, **ports)

        def make_storage(store: Store) -> QueueStorage:
            if inline:
                return InlineStorage(store, run=steps.run_inline, chance=lambda: chance)
            return DatabaseStorage(lambda: store, chance=lambda: chance)

        store = StageStore(plain, faults, tape)
        stack.enter_context(app.bound_to(store, clock=clock, chance=chance, make_scheduler=make_scheduler))
        stack.enter_context(app.queues.bound_to(make_storage))
        steps.attach()
        portal.call(app.open)
        queues = StageQueues(app, plain, steps.handled, portal)
        yield Stage(app, observer, steps, clock, faults, tape, policy, queues, stack)
