"""Who acts in a run: handlers that behave in every way, clients that change actions, workers that run them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, Any
from uuid import UUID

import anyio

from matrixsched.app import App
from matrixsched.calls import Exists, call
from matrixsched.clock import SeededChance, SystemClock
from matrixsched.context import Context
from matrixsched.errors import (
    ActionExists,
    ActionFinished,
    ActionNotFound,
    DatabaseBusy,
    DatabaseUnavailable,
    GuidMismatch,
    MatrixSchedError,
    TaskNotFound,
)
from matrixsched.rules.outcome import Cancel, HandlerOutcome, RetryAt, SlowDown
from matrixsched.rules.retry import Retry
from matrixsched.rules.schedule import Every, Repeat, catch_up, cron, every
from matrixsched.scheduler_policy import SchedulerPolicy
from matrixsched.worker.daemon import Worker
from simulation.asked import NotingApp
from simulation.database import EPOCH
from simulation.faults import FaultyStore
from simulation.history import Ended, Operation, Reply
from simulation.loop import SeededLoop

if TYPE_CHECKING:
    from simulation.world import World

OPERATION: ContextVar[Operation | None] = ContextVar("operation", default=None)


class DatabaseClock(SystemClock):
    """The time of the loop as a date; sleeping and waiting are anyio's, which ask the loop."""

    def __init__(self, loop: SeededLoop) -> None:
        self._loop = loop

    def now(self) -> datetime:
        return EPOCH + timedelta(microseconds=round(self._loop.time() * 1_000_000))

    def monotonic(self) -> float:
        return self._loop.time()


class HostClock(DatabaseClock):
    """A host's own idea of the time: its wall clock is wrong, its monotonic clock began whenever it began."""

    def __init__(self, loop: SeededLoop, *, skew: timedelta, began_s: float) -> None:
        super().__init__(loop)
        self._skew = skew
        self._began_s = began_s

    def now(self) -> datetime:
        return super().now() + self._skew

    def monotonic(self) -> float:
        return self._loop.time() + self._began_s


class NotedChance(SeededChance):
    """Notes which operation each guid was drawn for."""

    def __init__(self, seed: int, drew: Callable[[Operation, UUID], None]) -> None:
        super().__init__(seed)
        self._drew = drew

    def guid(self) -> UUID:
        guid = super().guid()
        operation = OPERATION.get()
        if operation is not None:
            self._drew(operation, guid)
        return guid


def make_app(world: World, host: str) -> App:
    """The application as one process has it."""
    chance = world.chance
    skew_s = chance.uniform(-5, 5) * chance.choice((1, 1, 1, 720))  # by an hour at most
    clock = HostClock(world.loop, skew=timedelta(seconds=skew_s), began_s=chance.uniform(0, 1000))
    return NotingApp(
        world.asked,
        OPERATION.get,
        clock=clock,
        chance=NotedChance(chance.getrandbits(32), world.history.drew),
        store=FaultyStore(world, host),
        policy=SchedulerPolicy(batch_max=4),
    )


# Handlers.


@dataclass(frozen=True, slots=True)
class Behaviour:
    play: Callable[[Random], Awaitable[HandlerOutcome | None]]
    timeout_s: float = 20
    retry: Retry = Retry(max_attempts=3, max_interruptions=4)
    ignores_its_limit: bool = False


class Trouble(Exception):
    """What a handler raises."""


async def _quick(chance: Random) -> None:
    await anyio.sleep(chance.uniform(0, 0.2) if chance.random() < 0.7 else 0)


async def _slow(chance: Random) -> None:
    await anyio.sleep(chance.uniform(0.5, 15))


async def _flaky(chance: Random) -> None:
    await anyio.sleep(chance.uniform(0, 2))
    if chance.random() < 0.5:
        raise Trouble("as often")


async def _fickle(chance: Random) -> HandlerOutcome | None:
    await anyio.sleep(chance.uniform(0, 1))
    point = chance.random()
    if point < 0.3:
        return RetryAt(timedelta(seconds=chance.uniform(0, 4)))
    return Cancel("no longer needed") if point < 0.4 else None


async def _endless(chance: Random) -> None:
    await anyio.sleep(chance.uniform(0, 6))


async def _stubborn(chance: Random) -> None:
    with anyio.CancelScope(shield=chance.random() < 0.3):
        await anyio.sleep(chance.uniform(0, 9))


BEHAVIOURS = {
    "quick": Behaviour(_quick),
    "slow": Behaviour(_slow),
    "flaky": Behaviour(_flaky),
    "fickle": Behaviour(_fickle),
    "endless": Behaviour(_endless, timeout_s=3, retry=Retry(max_attempts=2)),
    "stubborn": Behaviour(_stubborn, timeout_s=4, retry=Retry(max_attempts=2), ignores_its_limit=True),
    "tireless": Behaviour(_flaky, retry=Retry(max_attempts=None, max_delay=timedelta(seconds=4))),
    "careful": Behaviour(_slow, retry=Retry(max_attempts=2, max_interruptions=0)),
    "rare": Behaviour(_quick),
}
NAMES = tuple(BEHAVIOURS)
KNOWN_TO_ONE = "rare"
"""A handler that all workers but one do not have."""


def register_handlers(app: App, world: World, host: str, behaviours: Mapping[str, Behaviour]) -> None:
    for name, behaviour in behaviours.items():
        timeout = timedelta(seconds=behaviour.timeout_s)
        app.action(name, retry=behaviour.retry, timeout=timeout)(_handler(world, host, behaviour))


def _handler(world: World, host: str, behaviour: Behaviour) -> Callable[[Context], Awaitable[HandlerOutcome | None]]:
    async def handle(context: Context) -> HandlerOutcome | None:
        run = world.history.started(host, context)
        ending = Ended.CANCELLED
        try:
            outcome = await behaviour.play(world.chance)
            ending = _ending(outcome, world.clock.now() > context.deadline)
            return outcome
        except Trouble:
            ending = Ended.FAILED
            raise
        finally:
            world.history.ended(run, ending)

    return handle


def _ending(outcome: HandlerOutcome | None, is_over_limit: bool) -> Ended:
    match outcome:
        case RetryAt() | SlowDown():
            return Ended.RETRY
        case Cancel():
            return Ended.CANCEL
        case _:
            return Ended.OVERRUN if is_over_limit else Ended.DONE


# Workers.


class SimulatedWorker(Worker):
    """The worker itself; only the thread that prolongs leases is a task here."""

    @asynccontextmanager
    async def _kept_leases(self) -> AsyncIterator[None]:
        async with anyio.create_task_group() as keeping:
            self._start_prolonging(keeping, self._store.sibling())
            try:
                yield
            finally:
                keeping.cancel_scope.cancel()


# Clients.


class Client:
    """A process in which several callers share one application."""

    def __init__(self, world: World, host: str, ids: list[str]) -> None:
        self.world = world
        self._chance = world.chance
        self._app = make_app(world, host)
        self._host = host
        self._ids = ids

    async def live(self, callers: int, operations: int) -> None:
        async with anyio.create_task_group() as calling:
            for _ in range(callers):
                calling.start_soon(self._call_often, operations // callers)

    async def _call_often(self, times: int) -> None:
        operations = _OPERATIONS | {
            call: weight for part in self.world.parts for call, weight in part.operations.items()
        }
        for _ in range(times):
            await self.world.sleep_up_to(self.world.size.think_s)
            (call,) = self._chance.choices(list(operations), weights=list(operations.values()))
            await call(self)

    @contextmanager
    def _called(self, kind: str, *ids: str, delay_s: float | None = 0) -> Iterator[Operation]:
        """Note what is asked and what comes of it."""
        history, now = self.world.history, self.world.clock.now()
        not_before = None if delay_s is None else now + timedelta(seconds=delay_s)
        operation = history.call(self._host, kind, ids, not_before)
        token = OPERATION.set(operation)
        try:
            yield operation
        except MatrixSchedError as error:
            reply = reply_to(error, is_whole=len(operation.ids) == 1)
            history.reply(operation, reply, what=type(error).__name__)
        finally:
            OPERATION.reset(token)

    def _ok(self, operation: Operation, changed: bool) -> None:
        self.world.history.reply(operation, Reply.OK, changed=changed)

    def _id(self) -> str:
        return self._chance.choice(self._ids)

    def _delay_s(self) -> float:
        return self._chance.choice((0.0, self._chance.uniform(0, 2), self._chance.uniform(0, 25)))

    def _terms(self) -> dict[str, Any]:
        terms: dict[str, Any] = {}
        if self._chance.random() < 0.15:
            terms["start_within"] = timedelta(seconds=self._chance.uniform(0.5, 10))
        if self._chance.random() < 0.15:
            terms["expires_at"] = self.world.clock.now() + timedelta(seconds=self._chance.uniform(26, 90))
        for part in self.world.parts:
            terms |= part.options()
        return terms

    def _handler(self) -> str:
        return self._chance.choice(NAMES)

    async def _schedule(self, **options: Any) -> None:
        id, delay_s = options.pop("id", None) or self._id(), self._delay_s()
        with self._called("schedule", id, delay_s=delay_s) as operation:
            delay = timedelta(seconds=delay_s)
            done = await self._app.schedule(self._handler(), id=id, delay=delay, **self._terms(), **options)
            self._ok(operation, done.changed)

    async def ask(self, kind: str, id: str, *, delay_s: float = 0, **options: Any) -> None:
        """One call, as it is told; `options` are those of `App.schedule`, with its handler."""
        with self._called(kind, id, delay_s=delay_s) as operation:
            match kind:
                case "schedule":
                    handler = options.pop("handler", "quick")
                    operation.interval = _interval_of(options.get("repeat"))
                    done = await self._app.schedule(handler, id=id, delay=timedelta(seconds=delay_s), **options)
                case "run_now":
                    done = await self._app.run_now(id)
                case "cancel":
                    done = await self._app.cancel(id)
                case _:
                    raise ValueError(f"nobody asks for {kind}")
            self._ok(operation, done.changed)

    async def schedule(self) -> None:
        await self._schedule(exists=self._chance.choice(("replace", "replace", "replace", "keep", "error")))

    async def schedule_at(self) -> None:
        id, delay_s = self._id(), self._delay_s()
        with self._called("schedule", id, delay_s=delay_s) as operation:
            assert operation.not_before is not None
            done = await self._app.schedule(self._handler(), id=id, at=operation.not_before)
            self._ok(operation, done.changed)

    async def schedule_expected(self) -> None:
        id, delay_s = self._id(), self._delay_s()
        with self._called("schedule", id, delay_s=delay_s) as operation:
            found = await self._app.get(id)
            delay = timedelta(seconds=delay_s)
            done = await self._app.schedule(self._handler(), id=id, delay=delay, expected_guid=found.meta.guid)
            self._ok(operation, done.changed)

    async def schedule_twice(self) -> None:
        """The same request, from two callers at once or one after the other."""
        request_id, id = f"request {self._chance.getrandbits(40)}", self._id()
        if self._chance.random() < 0.5:
            await self._schedule(id=id, request_id=request_id)
            await self.world.sleep_up_to(5)
            await self._schedule(id=id, request_id=request_id)
            return
        async with anyio.create_task_group() as both:
            for _ in range(2):
                both.start_soon(lambda: self._schedule(id=id, request_id=request_id))

    async def schedule_repeated(self) -> None:
        id, delay_s = self._id(), self._delay_s()
        expires_at = self.world.clock.now() + timedelta(seconds=self._chance.uniform(30, 90))
        repeat, interval = self._rule()
        with self._called("schedule", id, delay_s=delay_s) as operation:
            operation.interval = interval
            handler, delay = self._chance.choice(("quick", "flaky", "rare")), timedelta(seconds=delay_s)
            ends = expires_at if self._chance.random() < 0.8 else None
            done = await self._app.schedule(handler, id=id, delay=delay, repeat=repeat, expires_at=ends)
            self._ok(operation, done.changed)

    def _rule(self) -> tuple[Repeat, timedelta | None]:
        """What repeats, and the interval of its grid if it has one; cron's is one of minutes."""
        interval = timedelta(seconds=self._chance.uniform(8, 16))
        misfire = self._chance.choice(("once", "skip", catch_up(2)))
        jitter = timedelta(seconds=self._chance.choice((0.0, 0.0, self._chance.uniform(0, 5))))
        match self._chance.choice(("after end", "grid", "grid", "cron")):
            case "after end":
                return every(interval, after_end=True), None
            case "cron":
                return cron("* * * * *", misfire=misfire, jitter=jitter), timedelta(minutes=1)
            case _:
                return every(interval, anchor=EPOCH, misfire=misfire, jitter=jitter), interval

    async def schedule_many(self) -> None:
        ids = self._chance.sample(self._ids, k=min(len(self._ids), self._chance.randint(2, 7)))
        exists: Exists = "replace" if self._chance.random() < 0.5 else "keep"
        delay_s = self._delay_s()
        with self._called("schedule", *ids, delay_s=delay_s) as operation:
            delay = timedelta(seconds=delay_s)
            done = await self._app.schedule_many(
                [call(self._handler(), id=id, delay=delay) for id in ids], exists=exists
            )
            self._ok(operation, done.kept == 0)

    async def reschedule(self) -> None:
        id, delay_s = self._id(), self._delay_s()
        with self._called("reschedule", id, delay_s=delay_s) as operation:
            terms = await self._terms_of_change(id)
            done = await self._app.reschedule(id, delay=timedelta(seconds=delay_s), **terms)
            self._ok(operation, done.changed)

    async def run_now(self) -> None:
        id = self._id()
        with self._called("run_now", id) as operation:
            done = await self._app.run_now(id, **await self._terms_of_change(id))
            self._ok(operation, done.changed)

    async def cancel(self) -> None:
        id = self._id()
        with self._called("cancel", id) as operation:
            done = await self._app.cancel(id, **await self._terms_of_change(id))
            self._ok(operation, done.changed)

    async def _terms_of_change(self, id: str) -> dict[str, Any]:
        """Some changes are meant for the version that their caller saw, some bear the name of a request."""
        terms: dict[str, Any] = {}
        if self._chance.random() < 0.2:
            terms["expected_guid"] = (await self._app.get(id)).meta.guid
        if self._chance.random() < 0.2:
            terms["request_id"] = f"change {self._chance.randint(1, 3)}"
        return terms

    async def get(self) -> None:
        id = self._id()
        with self._called("get", id) as operation:
            await self._app.get(id)
            self._ok(operation, False)


_OPERATIONS: dict[Callable[[Client], Awaitable[None]], float] = {
    Client.schedule: 6,
    Client.schedule_at: 2,
    Client.schedule_expected: 1,
    Client.schedule_twice: 2,
    Client.schedule_repeated: 2,
    Client.schedule_many: 2,
    Client.reschedule: 3,
    Client.run_now: 3,
    Client.cancel: 2,
    Client.get: 1,
}


def _interval_of(repeat: Repeat | None) -> timedelta | None:
    """Of a grid that begins with the run."""
    return repeat.interval if isinstance(repeat, Every) and repeat.anchor == EPOCH else None


def reply_to(error: MatrixSchedError, *, is_whole: bool = True) -> Reply:
    """What its caller knows by an error; what is written in several transactions is not whole."""
    match error:
        case DatabaseUnavailable() | DatabaseBusy():
            return Reply.FAILED if is_whole else Reply.UNKNOWN
        case ActionNotFound() | ActionExists() | ActionFinished() | GuidMismatch() | TaskNotFound():
            return Reply.REFUSED
        case _:
            return Reply.UNKNOWN
