"""One seed, one run: chaos, then heal, then drain, then the verdict of the checkers."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import Context
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from typing import Any, TypeVar

import anyio

from matrixsched.errors import MatrixSchedError, WorkerError
from matrixsched.events import StepFailed
from matrixsched.store.transition import Transition
from matrixsched.worker.policy import WorkerPolicy
from simulation import checkers
from simulation.actors import NAMES, Client, DatabaseClock, SimulatedWorker, make_app, register_handlers
from simulation.database import ActionRow, SimulatedDatabase, Snapshot
from simulation.faults import LATE_S, SLOW_S, STOP_S, Fault, FaultPlan, Noted, draw_plan
from simulation.history import History
from simulation.loop import SeededLoop, Spinning, Standstill

T = TypeVar("T")

DRAIN_S_MAX = 600
HEAL_S_MAX = 120.0
CRASHES_MAX = 12
_INJECTED = ("DatabaseUnavailable", "DatabaseBusy", "OutcomeUnknown")
_LOCK_ONLY = frozenset({"acquire_shard", "beat_shard", "release_shard"})


@dataclass(frozen=True, slots=True)
class Size:
    """How large a run is; drawn from its seed."""

    shards: int
    workers: int
    clients: int
    callers: int
    ids: int
    operations: int
    think_s: float
    chaos_s: float
    is_told: bool
    """Workers are told of changes; otherwise they look by themselves only."""
    policy: WorkerPolicy


def draw_size(chance: Random) -> Size:
    return Size(
        shards=chance.randint(1, 8),
        workers=chance.randint(2, 4),
        clients=chance.randint(2, 3),
        callers=chance.randint(1, 3),
        ids=chance.randint(3, 25),
        operations=chance.randint(8, 22),
        think_s=chance.choice((0.5, 2.0, 5.0)),
        chaos_s=chance.uniform(12, 45),
        is_told=chance.random() < 0.4,
        policy=WorkerPolicy(
            concurrency=chance.randint(1, 4),
            batch_max=chance.randint(1, 5),
            timeout_grace=timedelta(seconds=2),
            stop_grace=timedelta(seconds=chance.choice((0, 3, 20))),
            keep_done=timedelta(seconds=chance.choice((5, 30, 3600))),
            keep_cancelled=timedelta(seconds=chance.choice((5, 30, 3600))),
            keep_failed=timedelta(seconds=chance.choice((5, 30, 3600))),
            keep_expired=timedelta(seconds=chance.choice((5, 30, 3600))),
            tidy_every=timedelta(seconds=chance.choice((2, 10, 30))),
            tidy_batch=chance.choice((2, 10, 500)),
            history_max=chance.choice((1, 5, 50)),
        ),
    )


@dataclass(frozen=True, slots=True)
class Violation:
    checker: str
    message: str

    def __str__(self) -> str:
        return f"{self.checker}: {self.message}"


@dataclass(frozen=True, slots=True)
class Result:
    seed: int
    violations: list[Violation]
    trace_hash: str
    trace: list[str]
    virtual_s: float
    steps: int
    runs: int
    faults: int


@dataclass(slots=True, eq=False)
class Process:
    """A worker process, from its start to its end, good or bad."""

    host: str
    worker: SimulatedWorker
    gone: anyio.Event = field(default_factory=anyio.Event)
    is_crashed: bool = False


class World:
    def __init__(self, seed: int, *, keeps_trace: bool = False, prepare: Callable[[World], None] | None = None) -> None:
        """`prepare` may change the world before its run begins: that is how mistakes are planted."""
        self.seed = seed
        self.chance = Random(seed)
        self.loop = SeededLoop(Random(self.chance.getrandbits(32)))
        self.clock = DatabaseClock(self.loop)
        self.database = SimulatedDatabase(self.clock)
        self.history = History(self.clock.now, keeps_trace=keeps_trace)
        self.plan: FaultPlan = draw_plan(self.chance)
        self.size = draw_size(self.chance)
        self.violations: list[Violation] = []
        self.processes: dict[str, Process] = {}
        self.snapshot = Snapshot()
        self.last_seen: dict[str, ActionRow] = {}
        self.versions: defaultdict[str, list[str]] = defaultdict(list)
        """The guids that an action has had, in order."""
        self.is_chaotic = True
        self.is_over = False
        self._tasks: list[asyncio.Task[Any]] = []
        self._late = 0
        self._crashes = 0
        self.worker_type: type[SimulatedWorker] = SimulatedWorker
        self._watchers: dict[int, tuple[Callable[[], None], Context]] = {}
        if prepare is not None:
            prepare(self)

    # The run.

    def run(self) -> Result:
        try:
            self._run()
        except (Standstill, Spinning) as error:
            self.violate("liveness", str(error))
        result = Result(
            self.seed,
            self.violations,
            self.history.trace_hash,
            self.history.trace,
            self.loop.time(),
            self.loop.steps,
            len(self.history.runs),
            len(self.history.faults),
        )
        self._dispose()
        return result

    def _run(self) -> None:
        self.loop.run_until_complete(self._play())
        for check in checkers.AT_THE_END:
            for message in check(self):
                self.violate(check.__name__, message)

    async def _play(self) -> None:
        await self.database.create(self.size.shards)
        for number in range(self.size.workers):
            self._start(f"keeper{number}", self._keep_worker(number))
        clients = self._start_clients()
        async with self._nemesis():
            await anyio.sleep(self.size.chaos_s)
        self._heal()
        await self._wait_for(clients)
        if not self.violations:
            await self._drain()

    def _start_clients(self) -> dict[str, asyncio.Task[Any]]:
        ids = [f"action-{number}" for number in range(self.size.ids)]
        clients = {}
        for number in range(self.size.clients):
            host = f"client{number}"
            client = Client(self, host, ids)
            clients[host] = self._start(host, client.live(self.size.callers, self.size.operations))
        return clients

    def _start(self, host: str, coroutine: Any) -> asyncio.Task[Any]:
        task = self.loop.spawn(host, coroutine)
        self._tasks.append(task)
        return task

    def _heal(self) -> None:
        self.history.note("HEAL")
        self.is_chaotic = False

    async def _wait_for(self, clients: dict[str, asyncio.Task[Any]]) -> None:
        waiting = {task for host, task in clients.items() if not self.loop.is_held(host)}
        _, unfinished = await asyncio.wait(waiting, timeout=HEAL_S_MAX) if waiting else (set(), set())
        if unfinished:
            self.violate("liveness", f"calls do not come back {HEAL_S_MAX:g} s after the last fault")

    async def _drain(self) -> None:
        """Until nothing is due, under way or on its way."""
        self.history.note("DRAIN")
        for _ in range(DRAIN_S_MAX * 2):
            if self.is_quiet() or self.violations:
                return
            await anyio.sleep(0.5)
        unrest = "; ".join(checkers.unrest(self))
        self.violate("liveness", f"not quiet {DRAIN_S_MAX} s after the last fault: {unrest}")

    def is_quiet(self) -> bool:
        return self._late == 0 and not any(checkers.unrest(self))

    def _dispose(self) -> None:
        """Unwind what is left, so that nothing of this run is heard of later."""
        self.is_over = True
        self.loop.let_all_go()
        unfinished = [task for task in asyncio.all_tasks(self.loop) if not task.done()]
        for task in unfinished:
            task.cancel()
        if unfinished:
            self.loop.run_until_complete(asyncio.gather(*unfinished, return_exceptions=True))
        self.database.close()
        self.loop.close()

    def violate(self, checker: str, message: str) -> None:
        self.violations.append(Violation(checker, message))
        self.history.note("VIOLATION", checker, message)

    # Workers.

    async def _keep_worker(self, number: int) -> None:
        """Like a supervisor: when the process is gone, start another."""
        generation = 0
        while True:
            host = f"worker{number}.{generation}"
            names = NAMES if number == 0 else NAMES[:-1]  # "rare" is known to one only
            process = self._make_process(host, names)
            self._start(host, self._work(process))
            await process.gone.wait()
            del self.processes[host]
            await self.sleep_up_to(15 if process.is_crashed else 1)
            generation += 1

    def _make_process(self, host: str, names: tuple[str, ...]) -> Process:
        app = make_app(self, host)
        register_handlers(app, self, host, names)
        app.events.subscribe(StepFailed, self._step_failed)
        process = Process(host, self.worker_type(app, self.size.policy, name=host))
        self.processes[host] = process
        return process

    def _step_failed(self, failed: StepFailed) -> None:
        if not failed.error.startswith(_INJECTED):
            self.violate("survives", f"the step {failed.step} failed by {failed.error}")

    async def _work(self, process: Process) -> None:
        try:
            await process.worker.run()
        except WorkerError as error:
            self.history.note(process.host, type(error).__name__)
        except Exception as error:
            self.violate("survives", f"{process.host} ended by {_innermost(error)!r}")
        process.gone.set()

    # Faults.

    @asynccontextmanager
    async def _nemesis(self) -> AsyncIterator[None]:
        plan = self.plan
        async with anyio.create_task_group() as evil:
            for every_s, strike in (
                (plan.crashes_every_s, self._crash_somebody),
                (plan.stops_every_s, self._stop_somebody),
                (plan.restarts_every_s, self._restart_somebody),
            ):
                if every_s is not None:
                    evil.start_soon(self._strike_often, every_s, strike)
            yield
            evil.cancel_scope.cancel()

    async def _strike_often(self, every_s: float, strike: Callable[[Process], None]) -> None:
        while True:
            await self.sleep_up_to(every_s * 2)
            running = [process for host, process in self.processes.items() if not self.loop.is_held(host)]
            if running:
                strike(self.chance.choice(running))

    def _crash_somebody(self, process: Process) -> None:
        if self._may_crash():
            self.crash(process.host, Fault.CRASH)

    def _stop_somebody(self, process: Process) -> None:
        self._start("continue", self._stop(process, self.chance.uniform(0, STOP_S)))

    async def _stop(self, process: Process, duration_s: float) -> None:
        self.history.fault(Fault.STOP, process.host, duration_s=duration_s)
        self.loop.hold(process.host)
        await anyio.sleep(duration_s)
        if not process.is_crashed:
            self.history.note("CONTINUE", process.host)
            self.loop.let_go(process.host)

    def _restart_somebody(self, process: Process) -> None:
        at_once = self.chance.random() < 0.3
        self.history.note("RESTART", process.host, at_once)
        process.worker.stop(at_once=at_once)

    def _may_crash(self) -> bool:
        self._crashes += 1
        return self._crashes <= CRASHES_MAX

    def crash(self, host: str, kind: Fault, what: str = "") -> None:
        """Nothing of this host runs any more, not even a `finally`."""
        self.history.fault(kind, host, what)
        self.loop.hold(host)
        process = self.processes.get(host)
        if process is not None:
            process.is_crashed = True
            process.gone.set()

    async def crash_here(self, host: str) -> None:
        """Crash the host that calls this."""
        self.crash(host, Fault.CRASH, "at the store")
        await self.loop.create_future()

    def draw_fault(self, host: str, what: str) -> Fault | None:
        fault = self.plan.draw(self.chance) if self.is_chaotic else None
        if fault in (Fault.CRASH_BEFORE, Fault.CRASH_AFTER) and not self._may_crash():
            fault = None
        if fault is not None:
            self.history.fault(fault, host, what)
        return fault

    async def be_slow(self, host: str, what: str) -> None:
        duration_s = self.chance.uniform(0, SLOW_S)
        self.history.fault("slow", host, what, duration_s)
        await anyio.sleep(duration_s)

    def carry_out_later(self, host: str, transition: Transition[Any]) -> None:
        """As if the request were still on its way when its sender gave up."""
        self._late += 1
        self._start("network", self._carry_out_later(host, transition))

    async def _carry_out_later(self, host: str, transition: Transition[Any]) -> None:
        await self.sleep_up_to(LATE_S)
        if not self.is_over:
            self.history.fault("carried out late", host, transition.name)
            try:
                await self.carry_out(host, transition, self.clock.now())
            except MatrixSchedError as error:  # what its sender would have been told, were it still listening
                self.history.note("late", transition.name, type(error).__name__)
        self._late -= 1

    async def sleep_up_to(self, seconds: float) -> None:
        await anyio.sleep(self.chance.random() * seconds)

    # Commits.

    async def carry_out(self, host: str, transition: Transition[T], asked_at: datetime) -> T:
        changes = self.database.changes
        answer = await self.database.store.run(transition)
        if self.database.changes != changes:
            self._committed(host, transition, answer, asked_at)
        return answer

    def _committed(self, host: str, transition: Transition[Any], answer: Any, asked_at: datetime) -> None:
        self.history.note(host, "committed", transition.name)
        if transition.name in _LOCK_ONLY:
            return
        before, after = self.snapshot, self.database.snapshot()
        commit = checkers.Commit(host, transition, answer, before, after, self.database.now(), asked_at, self)
        self._take_notes(commit)
        self.snapshot = after
        self._follow_versions(after)
        for check in checkers.AT_EVERY_COMMIT:
            for message in check(commit):
                self.violate(check.__name__, f"after {transition.name} by {host}: {message}")
        self._tell()

    def _follow_versions(self, after: Snapshot) -> None:
        self.last_seen.update(after.actions)
        for action in after.actions.values():
            versions = self.versions[action.id]
            if not versions or versions[-1] != action.guid:
                versions.append(action.guid)

    def _take_notes(self, commit: checkers.Commit) -> None:
        history, transition = self.history, commit.transition
        history.claimed(commit.host, commit.attempts, commit.asked_at)
        if not isinstance(transition, Noted):
            return
        if transition.name == "record":
            for ended in transition.arguments[0]:
                history.recorded(commit.host, ended.claim, ended.verdict, commit.answer[ended.claim.guid])
        if transition.name == "give_back":
            held = {(row.guid, row.claimed_by) for row in commit.after.queue}
            for attempt in transition.arguments[0]:
                if (str(attempt.claim.guid), str(attempt.claim.claimed_by)) not in held:
                    history.settled(attempt.claim, "given back")

    # News.

    @contextmanager
    def told_of_changes(self, changed: Callable[[], None], context: Context) -> Iterator[None]:
        self._watchers[id(context)] = (changed, context)
        try:
            yield
        finally:
            del self._watchers[id(context)]

    def _tell(self) -> None:
        if self.size.is_told and not self.is_over:
            for changed, context in self._watchers.values():
                self.loop.call_later(self.chance.random() * 0.02, changed, context=context)


def _innermost(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def simulate(seed: int, *, keeps_trace: bool = False, prepare: Callable[[World], None] | None = None) -> Result:
    return World(seed, keeps_trace=keeps_trace, prepare=prepare).run()
