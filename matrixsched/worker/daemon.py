"""The worker: the steps, wired; started together and stopped in order."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, suppress
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self

import anyio
import anyio.abc
import anyio.to_thread
from anyio.from_thread import start_blocking_portal

import matrixsched
from matrixsched.clock import Clock
from matrixsched.errors import BadInput, ConfigurationError, DatabaseError, HandlersLeaked
from matrixsched.events import WorkerStarted, WorkerStopped
from matrixsched.handlers import Handlers
from matrixsched.rules.queues import VISIBILITY_MIN
from matrixsched.store.news import News
from matrixsched.store.store import Store
from matrixsched.worker.balancing import Balancing
from matrixsched.worker.beside import running_beside
from matrixsched.worker.bounded import BoundedStore
from matrixsched.worker.intake import Intake
from matrixsched.worker.leases import Leases
from matrixsched.worker.managing import Managing
from matrixsched.worker.pace import Step, Wakeup, paced
from matrixsched.worker.policy import WorkerPolicy
from matrixsched.worker.processors import Processors
from matrixsched.worker.recorder import Recorder
from matrixsched.worker.reporting import MinuteReports
from matrixsched.worker.runner import Runner
from matrixsched.worker.sampling import Sampling
from matrixsched.worker.tidying import Tidying

if TYPE_CHECKING:
    from matrixsched.app import App

RECORD_AGAIN_MIN = timedelta(seconds=0.1)
CHORES_BEGIN_WITHIN_S = 5.0
SOON_S = 1.0
"""So soon a worker begins with what is not urgent, and with what can wait for a moment, each step at one of its own:
work that is due goes first, and workers that are started together do not all ask for the same at once."""


class Worker:
    """Runs the actions of an application, and handles the batches of its queues, until it is told to stop.

    Inside another program: `async with Worker(app): ...` opens the application, works beside the block and lets what is
    under way finish at its end, within the grace for stopping.

    Each step can also be driven by hand, one at a time: `run_due` for tests, the single steps for the simulator.
    """

    def __init__(
        self,
        app: App,
        policy: WorkerPolicy | None = None,
        *,
        name: str | None = None,
        clock: Clock | None = None,
        only_queues: bool = False,
    ) -> None:
        """`only_queues` leaves the actions to other workers; `processors=0` in the policy does so with the queues.
        `clock` is for tests in which the worker waits otherwise than the application."""
        policy = policy or WorkerPolicy()
        self.runs_actions = len(app.handlers) > 0 and not only_queues
        self.runs_queues = len(app.queues.handlers) > 0 and policy.processors > 0
        if not self.runs_actions and not self.runs_queues:
            raise BadInput(_why_idle(app, only_queues=only_queues))
        if self.runs_queues and policy.queues_idle_until_told and not app.queues.is_in_database:
            raise BadInput(
                "queues_idle_until_told waits for a manager, and queues that are not in the database have none"
            )
        if faults := app.handlers.faults():
            raise ConfigurationError(faults)
        self._app = app
        self._beside: AbstractAsyncContextManager[Worker] | None = None
        self.policy = policy
        self.name = name or _instance(app)
        self._store = BoundedStore(app.store, self.policy.attempt_lease.total_seconds() / 3)
        self._clock = clock or app.clock
        self._chance = app.chance
        self._events = app.events
        self._handlers = app.handlers
        self.leases = Leases(self.policy, self._clock, self._events)
        self.recorder = Recorder(self._store, self.leases, self.policy, self._clock, self._events)
        self.runner = Runner(
            self._store,
            app.handlers,
            app.middlewares,
            self.leases,
            self.recorder,
            self.policy,
            clock=self._clock,
            chance=self._chance,
            events=self._events,
        )
        self._news = Wakeup()
        self.intake = Intake(
            self._store,
            app.handlers,
            self.runner,
            self.policy,
            name=self.name,
            clock=self._clock,
            chance=self._chance,
            events=self._events,
            found_lanes=self._look_at_once,
        )
        self.tidying = Tidying(self._store, self.policy, self._events, clock=self._clock, chance=self._chance)
        self._changes = Wakeup()
        self.balancing = Balancing(
            self._store,
            app.handlers,
            self.policy,
            self._events,
            clock=self._clock,
            chance=self._chance,
            wrote=self._look_at_once,
        )
        self.processors = Processors(
            app.queues.handlers,
            app.queues.storage_over(self._store),
            app.queues.storage,
            self.policy,
            clock=self._clock,
            chance=self._chance,
            events=self._events,
        )
        self.managing = Managing(
            self._store,
            self.processors,
            {handler.queue.id: handler.queue.name for handler in app.queues.handlers},
            self._events,
            worker=self._chance.guid(),
            name=self.name,
            lease=self.policy.shard_lease,
            clock=self._clock,
            chance=self._chance,
        )
        if app.queues.is_in_database:
            self.processors.on_settings_change = self.managing.hear_settings
        self.sampling = Sampling(self._store, app.handlers, self._clock, self._events)
        self.minutes = MinuteReports(
            self._store,
            app.handlers if self.runs_actions else Handlers(),
            self.runner,
            self.policy,
            name=self.name,
            clock=self._clock,
            running=lambda: self.busy,
            learn=self.intake.restraint.learn,
        )
        self.stopping = anyio.Event()
        """Set when no more work is taken, because somebody asked or too many handlers leaked."""
        self._stopping_at_once = anyio.Event()
        self._given_up: HandlersLeaked | None = None
        self.running = anyio.Event()
        """Set once the worker looks for work."""
        app.on_news(self._hear_own, of=News.ACTIONS)
        app.on_news(partial(self._hear, News.QUEUES), of=News.QUEUES)

    # Life.

    async def __aenter__(self) -> Self:
        if self._beside is not None:
            raise BadInput("a Worker runs once, and this one has: enter another Worker(app)")
        self._beside = running_beside(self, self._app)
        await self._beside.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        assert self._beside is not None
        return await self._beside.__aexit__(kind, error, trace)

    def stop(self, *, at_once: bool = False) -> None:
        """Take no more work; handlers under way get their grace, or none."""
        self.stopping.set()
        if at_once:
            self._stopping_at_once.set()

    async def run(self) -> None:
        """Run until `stop()`. The store must be open."""
        before = cancelled = 0
        giving_back = self.runner.giving_back
        async with self._kept_leases(), anyio.create_task_group() as keeping:
            self._start_keeping(keeping)
            async with anyio.create_task_group() as running:
                self.runner.open_slots(running)
                if self.runs_queues:
                    running.start_soon(self.processors.run, self._start)
                async with anyio.create_task_group() as feeding:
                    self._start_feeding(feeding)
                    self._events.emit(self._started())
                    self.running.set()
                    await self.stopping.wait()
                    feeding.cancel_scope.cancel()
                self.processors.stop()
                self.runner.open_slots(None)
                before = giving_back.count
                self.runner.give_back_waiting()
                cancelled = await self._let_finish()
            with anyio.move_on_after(self.policy.farewell.total_seconds(), shield=True):
                await self._flush()
                await self._leave_chores()
            keeping.cancel_scope.cancel()
        self._events.emit(WorkerStopped(self.name, giving_back.count - before, cancelled))
        if self._given_up is not None:
            raise self._given_up  # even if slots came back: nobody asked it to stop, so somebody must start another
        if (leaked := self._too_many(self.runner.leaked, self.policy.concurrency)) is not None:
            raise leaked

    def _start_keeping(self, keeping: anyio.abc.TaskGroup) -> None:
        """What goes on until the last outcome is recorded."""
        if self.runs_actions:
            # A handler that ignored its limit is judged a margin before its lease ends: several tries must fit in.
            soon = max(self.policy.lease_margin / 4, RECORD_AGAIN_MIN)
            self._start(keeping, "record", self.recorder.step, self.recorder.wakeup, again_within=soon)
            self._start(keeping, "give back", self.runner.giving_back.step, self.runner.giving_back.wakeup)
            self._start(keeping, "watch", self.runner.watch, self.runner.watch_wakeup)
            self._start(keeping, "slots", self.runner.start_timed, self.runner.timed_wakeup)
            self._start_later(keeping, "gates", self.sampling.gates)
            self._start_later(keeping, "semaphores", self.sampling.semaphores)
            keeping.start_soon(self._forward_room)
        # Also where no actions are run: somebody must tell that they wait, when nobody is left who runs them.
        self._start_later(keeping, "sample", self.sampling.backlog)
        if self._is_managed:
            self._start(keeping, "queues", self.managing.sample, Wakeup())
        self._start(keeping, "loop", self.sampling.loop, Wakeup())
        self._start_later(keeping, "minutes", self.minutes.step, within_s=SOON_S)
        keeping.start_soon(self._store.watch, self._hear)

    def _start_feeding(self, feeding: anyio.abc.TaskGroup) -> None:
        """What ends when no more work is taken."""
        if self.runs_actions:
            # Tried again as often as it looks at rest: after an outage the next claim is not to wait for longer.
            self._start(feeding, "intake", self.intake.step, self._news, again_within=self.policy.rest_max)
            self._start(feeding, "intake beside", self.intake.step_beside, self.intake.beside_wakeup)
            self._start_later(feeding, "lanes", self.intake.relist, within_s=SOON_S)
            self._start(feeding, "balance", self.balancing.step, self._changes)
        feeding.start_soon(self._guard_slots)
        if self._is_managed:
            self._start(feeding, "report", self.managing.report, self.managing.report_wakeup)
            self._start(feeding, "manage", self.managing.manage, Wakeup())
        tidy_within_s = min(CHORES_BEGIN_WITHIN_S, self.policy.tidy_every.total_seconds())
        self._start_later(feeding, "tidy", self.tidying.step, within_s=tidy_within_s)

    @property
    def _is_managed(self) -> bool:
        """Processors are given out through the database: those of queues elsewhere go round."""
        return self.runs_queues and self._app.queues.is_in_database

    def _started(self) -> WorkerStarted:
        actions = self._handlers.names if self.runs_actions else []
        queues = [handler.queue.name for handler in self._app.queues.handlers] if self.runs_queues else []
        return WorkerStarted(self.name, tuple(actions), self.policy.concurrency, tuple(queues))

    # What is asked of it as a whole.

    @property
    def looked_at(self) -> float | None:
        """Monotonic: since when at the latest it has known about work of every kind; None if it never did."""
        looks = [self.intake.looked_at] * self.runs_actions + [self.processors.looked_at] * self.runs_queues
        known = [look for look in looks if look is not None]
        return min(known) if len(known) == len(looks) else None

    @property
    def busy(self) -> int:
        """Handlers at work, of actions and of batches."""
        return self.runner.running + self.processors.running

    @property
    def leaked(self) -> int:
        """Handlers that go on although nobody waits for them any more."""
        return self.runner.leaked + self.processors.leaked

    def _look_at_once(self) -> None:
        """There may be work of which others are not told."""
        self.intake.restraint.lift()
        self._news.set()

    def _hear_own(self) -> None:
        """This process wrote something: where nobody listens, others are not told."""
        self.intake.restraint.lift()
        self._hear(News.ACTIONS)

    def _hear(self, news: News, shard: int | None = None) -> None:
        """Something was written: there may be work, in this shard if it is known, or a semaphore to balance."""
        if News.ACTIONS in news:
            self.intake.hear(shard)
            self._news.set()
            if shard is None:
                self._changes.set()
        if News.QUEUES in news and self.runs_queues:
            self.processors.hear()

    def _start(
        self,
        group: anyio.abc.TaskGroup,
        name: str,
        step: Step,
        wakeup: Wakeup,
        *,
        again_within: timedelta = timedelta.max,
        first_rest_s: float = 0.0,
    ) -> None:
        """`again_within`: a step that failed is tried again so soon, however often it has failed."""
        rest_max_s = min(self.policy.rest_max * 5, again_within).total_seconds()
        walk = partial(
            paced,
            name,
            step,
            wakeup=wakeup,
            clock=self._clock,
            chance=self._chance,
            events=self._events,
            rest_max_s=rest_max_s,
            first_rest_s=first_rest_s,
        )
        group.start_soon(walk, name=f"matrixsched {name}")

    def _start_later(
        self, group: anyio.abc.TaskGroup, name: str, step: Step, *, within_s: float = CHORES_BEGIN_WITHIN_S
    ) -> None:
        first_rest_s = within_s * self._chance.random()
        self._start(group, name, step, Wakeup(), first_rest_s=first_rest_s)

    async def _forward_room(self) -> None:
        """Outcomes that left our hands make room for new claims, or something due. If they do neither, a look for work
        after each would be in vain: before a gate it would cost more than what passes it."""
        while True:
            await self.recorder.settled.wait_at_most(self.policy.rest_max.total_seconds(), self._clock)
            if self.recorder.opened_work():
                self._look_at_once()
            elif self.intake.is_short_of_room:
                self._news.set()

    async def _guard_slots(self) -> None:
        """Give up when too many handlers ignore their limits: only a new process gets their slots back."""
        while (leaked := self._leaked_too_much()) is None:
            await self._clock.sleep(self.policy.rest_max.total_seconds())
        self._given_up = leaked
        self.stop()

    def _leaked_too_much(self) -> HandlersLeaked | None:
        """Of actions, or of batches."""
        return self._too_many(self.runner.leaked, self.policy.concurrency) or self._too_many(
            self.processors.leaked, self.policy.processors
        )

    def _too_many(self, leaked: int, slots: int) -> HandlersLeaked | None:
        return HandlersLeaked(leaked, slots) if leaked >= max(1, slots * self.policy.leaked_max) else None

    async def _let_finish(self) -> int:
        """Wait for the handlers, at most their grace; then cancel them."""
        async with anyio.create_task_group() as waiting:

            async def until(wait: Callable[[], Awaitable[object]]) -> None:
                await wait()
                waiting.cancel_scope.cancel()

            waiting.start_soon(until, self._wait_until_finished)
            waiting.start_soon(until, self._stopping_at_once.wait)
            waiting.start_soon(until, lambda: self._clock.sleep(self.policy.stop_grace.total_seconds()))
        return self.runner.cancel_running() + self.processors.cancel_running()

    async def _wait_until_finished(self) -> None:
        await self.runner.wait_until_finished()
        await self.processors.wait_until_finished()

    async def _flush(self) -> None:
        """Record the last outcomes and give back what never started, as far as the database takes them."""
        while not (self.recorder.is_idle and self.runner.giving_back.is_idle):
            await self.recorder.settled.wait_at_most(0.05, self._clock)

    async def _leave_chores(self) -> None:
        with suppress(DatabaseError):  # their leases end by themselves
            await self.tidying.chore.leave()
            await self.balancing.chore.leave()
            if self._is_managed:
                await self.managing.leave()
            await self.minutes.leave()

    @asynccontextmanager
    async def _kept_leases(self) -> AsyncIterator[None]:
        """Prolong leases from a thread with its own loop and connection, which no handler that blocks can stop."""
        store = self._store.sibling()

        async def keep() -> None:
            await _opened(store, self._clock.sleep)
            try:
                async with anyio.create_task_group() as keeping:
                    self._start_prolonging(keeping, store)
            finally:
                await store.close()

        life = ExitStack()
        portal = life.enter_context(start_blocking_portal(name="matrixsched leases"))
        keeping = portal.start_task_soon(keep)
        try:
            yield
        finally:
            keeping.cancel()
            # The thread takes its time to disconnect; this loop may have others to serve meanwhile.
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(life.close)

    def _start_prolonging(self, keeping: anyio.abc.TaskGroup, store: Store) -> None:
        """What fails is tried again soon: a few refusals in a row must not cost what is held, if the database is back
        in time."""
        if self.runs_actions:
            lease = self.policy.attempt_lease
            self._start(keeping, "extend", lambda: self.leases.extend(store), Wakeup(), again_within=lease / 9)
        if self.runs_queues:
            batches, storage = self.processors.batches, self._app.queues.storage_over(store)
            self._start(keeping, "prolong", lambda: batches.prolong(storage), Wakeup(), again_within=VISIBILITY_MIN / 9)

    # By hand.

    async def run_due(self) -> int:
        """Run everything that is due now, and whatever becomes due by it; how many attempts were made."""
        made = 0
        await self.intake.relist()
        while True:
            while not self.runner.giving_back.is_idle:
                await self.runner.giving_back.step()
            while await self.balancing.step() == 0:
                pass
            self.intake.restraint.lift()  # nobody else is asked to
            rest_s, made_before = await self.intake.step(), made
            await self.runner.start_timed()
            while self.runner.has_waiting:
                await self.runner.run_next()
                made += 1
            while not self.recorder.is_idle:
                await self.recorder.step()
            if rest_s > 0 and made == made_before:
                return made


async def _opened(store: Store, sleep: Callable[[float], Awaitable[None]]) -> None:
    while True:
        try:
            return await store.open()
        except Exception:
            # Whatever it is: without this thread every handler that outlasts a lease would be lost.
            await sleep(0.5)


def _why_idle(app: App, *, only_queues: bool) -> str:
    if len(app.queues.handlers) > 0:
        return "processors is 0, so that nothing is left to be done: choose 1 or more"
    if only_queues:
        return "the application has no handlers of queues: register some with @app.queues.handler(name)"
    return "the application has no handlers: register some with @app.action(name) or @app.queues.handler(name)"


def _instance(app: App) -> str:
    """This process in words that a person can find: host, process, version, and a part that no restart repeats."""
    return f"{socket.gethostname()}/{os.getpid()}/{matrixsched.__version__}/{app.chance.guid().hex[:8]}"
