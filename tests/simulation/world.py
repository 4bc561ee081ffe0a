"""One seed, one run: chaos, then heal, then drain, then the verdict of the checkers."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import Context
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from typing import Any, TypeVar

import anyio
import anyio.lowlevel

from matrixsched.app import App
from matrixsched.errors import MatrixSchedError, WorkerError
from matrixsched.events import StepFailed
from matrixsched.store.news import Hearing, News
from matrixsched.store.transition import Transition
from simulation import (
    budget_checkers,
    commit_checkers,
    end_checkers,
    lock_checkers,
    period_checkers,
    tidy_checkers,
    time_checkers,
)
from simulation.actors import (
    BEHAVIOURS,
    KNOWN_TO_ONE,
    Behaviour,
    Client,
    DatabaseClock,
    SimulatedWorker,
    make_app,
    register_handlers,
)
from simulation.asked import AskedNotes
from simulation.commit_checkers import Commit, Objections
from simulation.database import ActionRow, Lock, SimulatedDatabase, Snapshot, moment
from simulation.faults import LATE_S, SLOW_S, Fault, FaultPlan, Noted, draw_plan
from simulation.gates import GatesPart
from simulation.history import FaultNote, History
from simulation.loop import SeededLoop, Spinning, Standstill
from simulation.nemesis import Nemesis, RandomNemesis
from simulation.parts import Part
from simulation.queues import Queues
from simulation.semaphores import Semaphores
from simulation.sizes import draw_size

T = TypeVar("T")

AT_EVERY_COMMIT = (
    *commit_checkers.AT_EVERY_COMMIT,
    *time_checkers.AT_EVERY_COMMIT,
    *budget_checkers.AT_EVERY_COMMIT,
    *tidy_checkers.AT_EVERY_COMMIT,
)
AT_EVERY_LOCK = (*lock_checkers.AT_EVERY_LOCK, *time_checkers.AT_EVERY_LOCK)
AT_THE_END = (*end_checkers.AT_THE_END, *period_checkers.AT_THE_END, *budget_checkers.AT_THE_END)
"""What is judged in every run, whatever parts it has."""

DRAIN_S_MAX = 600
HEAL_S_MAX = 120.0
PART_SHARE = 0.3
"""How many of the runs have a part switched on."""
PARTS: tuple[type[Part], ...] = (Semaphores, Queues, GatesPart)
_INJECTED = ("DatabaseUnavailable", "DatabaseBusy", "OutcomeUnknown")
_LOCK_ONLY = frozenset({"acquire_shard", "beat_shard", "release_shard", "close_fence"})


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


@dataclass(frozen=True, slots=True)
class Wreck:
    """What a crash left behind."""

    snapshot: Snapshot
    locks: list[Lock]
    shards_in_turn: list[int]
    at: datetime


class World:
    def __init__(self, seed: int, *, keeps_trace: bool = False, prepare: Callable[[World], None] | None = None) -> None:
        """`prepare` may change the world before its run begins: so mistakes are planted and faults aimed."""
        self.seed = seed
        self.chance = Random(seed)
        self.loop = SeededLoop(Random(self.chance.getrandbits(32)))
        self.clock = DatabaseClock(self.loop)
        self.database = SimulatedDatabase(self.clock)
        self.history = History(self.clock.now, keeps_trace=keeps_trace)
        self.plan: FaultPlan = draw_plan(self.chance)
        self.size = draw_size(self.chance)
        self.nemesis: Nemesis = RandomNemesis(self, self.plan)
        self.parts = [part(self) for part in PARTS if self.chance.random() < PART_SHARE]
        self.clients = self._usual_clients
        """What makes the clients: their hosts, and what each of them does."""
        self.behaviours: Mapping[str, Behaviour] = BEHAVIOURS
        """How the handlers of actions behave, beside those of parts."""
        self.violations: list[Violation] = []
        self.processes: dict[str, Process] = {}
        self.snapshot = Snapshot()
        self.last_seen: dict[str, ActionRow] = {}
        self.versions: defaultdict[str, list[str]] = defaultdict(list)
        """The guids that an action has had, in order."""
        self.turns = tidy_checkers.Turns()
        self.wrecks: list[Wreck] = []
        self.locks: dict[int, Lock] = {}
        """The shards that are locked, as the last commit left them."""
        self.served: dict[int, int] = {}
        """When each shard was last taken, before the present commit."""
        self.asked = AskedNotes()
        self.counted = budget_checkers.Counted()
        self.overlooked = time_checkers.Overlooked(self)
        self.undo: list[Callable[[], object]] = []
        """What takes planted mistakes out again, in the end."""
        self.is_chaotic = True
        self.is_over = False
        self._tasks: list[asyncio.Task[Any]] = []
        self._late = 0
        self.worker_type: type[SimulatedWorker] = SimulatedWorker
        self._watchers: dict[int, tuple[Hearing, Context]] = {}
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
        self.dispose()
        return result

    def _run(self) -> None:
        self.loop.run_until_complete(self._play())
        for check in (*AT_THE_END, *(one for part in self.parts for one in part.at_the_end)):
            for message in check(self):
                self.violate(check.__name__, message)

    async def _play(self) -> None:
        await self.database.create(self.size.shards)
        for part in self.parts:
            await part.install(App("sqlite://", clock=self.clock, store=self.database.store))
        self.loop.before_step = self._before_step
        for number in range(self.size.workers):
            self._start(f"keeper{number}", self._keep_worker(number))
        clients = {host: self._start(host, life) for host, life in self.clients().items()}
        async with self.nemesis.rages():
            await anyio.sleep(self.size.chaos_s)
        self._heal()
        await self._wait_for(clients)
        if not self.violations:
            await self._drain()

    def _usual_clients(self) -> dict[str, Coroutine[Any, Any, None]]:
        ids = [f"action-{number}" for number in range(self.size.ids)]
        hosts = [f"client{number}" for number in range(self.size.clients)]
        return {host: Client(self, host, ids).live(self.size.callers, self.size.operations) for host in hosts}

    def _start(self, host: str, coroutine: Any) -> asyncio.Task[Any]:
        task = self.loop.spawn(host, coroutine)
        self._tasks.append(task)
        return task

    def _heal(self) -> None:
        self.history.note("HEAL")
        self.is_chaotic = False
        self.loop.before_step = None

    async def _wait_for(self, clients: dict[str, asyncio.Task[Any]]) -> None:
        waiting = {task for host, task in clients.items() if not self.loop.is_held(host)}
        finished, unfinished = await asyncio.wait(waiting, timeout=HEAL_S_MAX) if waiting else (set(), set())
        for error in filter(None, (task.exception() for task in finished)):
            self.violate("survives", f"a client ended by {_innermost(error)!r}")
        if unfinished:
            self.violate("liveness", f"calls do not come back {HEAL_S_MAX:g} s after the last fault")

    async def _drain(self) -> None:
        """Until nothing is due, under way or on its way."""
        self.history.note("DRAIN")
        for _ in range(DRAIN_S_MAX * 2):
            if self.is_quiet() or self.violations:
                return
            await anyio.sleep(0.5)
        unrest = "; ".join(end_checkers.unrest(self))
        self.violate("liveness", f"not quiet {DRAIN_S_MAX} s after the last fault: {unrest}")

    def is_quiet(self) -> bool:
        return self._late == 0 and not any(end_checkers.unrest(self))

    def dispose(self) -> None:
        """Unwind what is left, so that nothing of this run is heard of later."""
        self.is_over = True
        self.loop.before_step = None
        self.loop.let_all_go()
        # What is unwound may start something on its way out.
        while unfinished := [task for task in asyncio.all_tasks(self.loop) if not task.done()]:
            self.loop.run_what_is_ready()
            for task in unfinished:
                task.cancel()
            self.loop.run_until_complete(asyncio.gather(*unfinished, return_exceptions=True))
        self.database.close()
        self.loop.close()
        for take_out in reversed(self.undo):
            take_out()

    def violate(self, checker: str, message: str) -> None:
        self.violations.append(Violation(checker, message))
        self.history.note("VIOLATION", checker, message)

    # Workers.

    async def _keep_worker(self, number: int) -> None:
        """Like a supervisor: when the process is gone, start another."""
        generation = 0
        while True:
            host = f"worker{number}.{generation}"
            process = self._make_process(host, knows_all=number == 0)
            self._start(host, self._work(process))
            await process.gone.wait()
            del self.processes[host]
            # Sooner than its leases end, or later.
            await self.sleep_up_to(self.chance.choice((2, 15)) if process.is_crashed else 1)
            generation += 1

    def _make_process(self, host: str, *, knows_all: bool) -> Process:
        app = make_app(self, host)
        known = {name: one for name, one in self.behaviours.items() if knows_all or name != KNOWN_TO_ONE}
        register_handlers(app, self, host, known)
        for part in self.parts:
            part.register(app, host)
        app.events.subscribe(StepFailed, self._step_failed)
        process = Process(host, self.worker_type(app, self.size.policy, name=host))
        self.processes[host] = process
        return process

    def _step_failed(self, failed: StepFailed) -> None:
        # A handler may name the limit of a template that was removed meanwhile, or never was; then it is told so.
        may_fail = failed.step == "slow_down" and failed.error.startswith(("TimeoutError", "UnknownTemplate"))
        if not failed.error.startswith(_INJECTED) and not may_fail:
            self.violate("survives", f"the step {failed.step} failed by {failed.error}")

    async def _work(self, process: Process) -> None:
        try:
            await process.worker.run()
        except WorkerError as error:
            self.history.note(process.host, type(error).__name__)
        except Exception as error:
            self.violate("survives", f"{process.host} ended by {_innermost(error)!r}")
        process.gone.set()

    def behaviour(self, handler: str) -> Behaviour:
        known = dict(self.behaviours)
        for part in self.parts:
            known |= part.behaviours
        return known[handler]

    # Faults.

    def _before_step(self, host: str) -> None:
        if host in self.processes or host.startswith("client"):
            self.nemesis.at_step(host)

    def crash(self, host: str, kind: Fault, what: str = "") -> None:
        """Nothing of this host runs any more, not even a `finally`."""
        self.history.fault(kind, host, what)
        self._kill(host)

    def _kill(self, host: str) -> None:
        if self.is_over:
            return  # what is unwound may come to where it would crash
        database = self.database
        wreck = Wreck(database.snapshot(), database.locked(), database.shards_in_turn(), self.clock.now())
        self.wrecks.append(wreck)
        self.loop.hold(host)
        process = self.processes.get(host)
        if process is not None:
            process.is_crashed = True
            process.gone.set()

    def stop(self, host: str, duration_s: float) -> None:
        """It stands still for so long, and goes on as if nothing had been."""
        self.history.fault(Fault.STOP, host, duration_s=duration_s)
        self.loop.hold(host)
        self._start("continue", self._continue(host, duration_s))

    async def _continue(self, host: str, duration_s: float) -> None:
        process = self.processes.get(host)
        await anyio.sleep(duration_s)
        if process is None or not process.is_crashed:
            self.history.note("CONTINUE", host)
            self.loop.let_go(host)

    async def crash_here(self, host: str) -> None:
        """Crash the host that calls this, by a fault that is noted."""
        self._kill(host)
        await self.loop.create_future()

    def draw_fault(self, host: str, what: str) -> FaultNote | None:
        """What strikes this call, noted once; how long it lasts is added when that is known."""
        fault = self.nemesis.at_call(host, what) if self.is_chaotic else None
        return None if fault is None else self.history.fault(fault, host, what)

    async def be_slow(self, struck: FaultNote) -> None:
        duration_s = self.chance.uniform(0, SLOW_S)
        struck.ends_at = self.clock.now() + timedelta(seconds=duration_s)
        self.history.note(struck.host, struck.what, f"takes {duration_s:.3f} s more")
        await anyio.sleep(duration_s)

    def carry_out_later(self, struck: FaultNote, transition: Transition[Any]) -> None:
        """As if the request were still on its way when its sender gave up."""
        self._late += 1
        self._start("network", self._carry_out_later(struck, transition))

    async def _carry_out_later(self, struck: FaultNote, transition: Transition[Any]) -> None:
        await self.sleep_up_to(LATE_S)
        if not self.is_over:
            struck.ends_at = self.clock.now()
            self.history.note(struck.host, transition.name, "is carried out late")
            try:
                await self.carry_out(struck.host, transition, struck.begins_at, is_late=True)
            except MatrixSchedError as error:  # what its sender would have been told, were it still listening
                self.history.note("late", transition.name, type(error).__name__)
        self._late -= 1

    async def sleep_up_to(self, seconds: float) -> None:
        await anyio.sleep(self.chance.random() * seconds)

    # Commits.

    async def carry_out(self, host: str, transition: Transition[T], asked_at: datetime, *, is_late: bool = False) -> T:
        self.overlooked.look()
        changes = self.database.changes
        answer = await self.database.store.run(transition)
        if self.database.changes != changes:
            self._committed(host, transition, answer, asked_at, is_late)
        return answer

    def _committed(
        self, host: str, transition: Transition[Any], answer: Any, asked_at: datetime, is_late: bool
    ) -> None:
        self.history.note(host, "committed", transition.name)
        is_lock_only = transition.name in _LOCK_ONLY
        before = self.snapshot
        after = before if is_lock_only else self.database.snapshot()
        commit = Commit(host, transition, answer, before, after, self.database.now(), asked_at, self, is_late)
        if is_lock_only or transition.name == "move":  # which may take its shard by the way
            self._judge(commit, AT_EVERY_LOCK)
            self.locks = {lock.shard: lock for lock in self.database.locked()}
            self.served = self.database.served()
        if is_lock_only:
            return
        self._take_notes(commit)
        self.counted.committed(commit)
        self.overlooked.committed(commit)
        for part in self.parts:
            part.committed(commit)
        self.snapshot = after
        self._follow_versions(after)
        self._judge(commit, AT_EVERY_COMMIT)
        self.turns.committed(commit)
        for part in self.parts:
            self._judge(commit, part.at_every_commit)
        self._tell(_only_shard(commit))

    def _judge(self, commit: Commit, checkers: Sequence[Callable[[Commit], Objections]]) -> None:
        for check in checkers:
            for message in check(commit):
                self.violate(check.__name__, f"after {commit.transition.name} by {commit.host}: {message}")

    def _follow_versions(self, after: Snapshot) -> None:
        self.last_seen.update(after.actions)
        for action in after.actions.values():
            versions = self.versions[action.id]
            if not versions or versions[-1] != action.guid:
                versions.append(action.guid)

    def _take_notes(self, commit: Commit) -> None:
        history, transition = self.history, commit.transition
        history.claimed(commit.host, commit.attempts, commit.asked_at)
        if commit.attempts or transition.name == "extend":
            history.leased((row.key, moment(row.due)) for row in commit.after.queue if row.claimed_by is not None)
        self.asked.committed(commit)
        if not isinstance(transition, Noted):
            return
        if transition.name in ("record", "record_deliveries"):
            for ended in transition.arguments[0]:
                history.recorded(commit.host, ended.claim, ended.verdict, commit.answer[ended.claim.guid])
        if transition.name == "give_back":
            before, after = ({(row.guid, row.claimed_by) for row in one.queue} for one in (commit.before, commit.after))
            for attempt in transition.arguments[0]:
                if (str(attempt.claim.guid), str(attempt.claim.claimed_by)) in before - after:
                    history.settled(attempt.claim, "given back")

    # News.

    @contextmanager
    def told_of_changes(self, changed: Hearing, context: Context) -> Iterator[None]:
        self._watchers[id(context)] = (changed, context)
        try:
            yield
        finally:
            del self._watchers[id(context)]

    def _tell(self, shard: int | None) -> None:
        """Tell all who watch; of which shard it is, as PostgreSQL would, some hear and others do not."""
        if self.size.is_told and not self.is_over:
            for changed, context in self._watchers.values():
                named = self.size.shards_named if shard is not None else 0.0
                is_named = named > 0 and self.chance.random() < named
                news = (News.ACTIONS, shard) if is_named else (News.ANYTHING, None)
                self.loop.call_later(self.chance.random() * 0.02, changed, *news, context=context)


def _only_shard(commit: Commit) -> int | None:
    """The only shard in which new actions were scheduled, if nothing else was done."""
    known = {row.guid for row in commit.before.queue}
    shards = {row.shard for row in commit.after.queue if row.is_incoming and row.guid not in known}
    return shards.pop() if commit.transition.name == "schedule" and len(shards) == 1 else None


def _innermost(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def simulate(seed: int, *, keeps_trace: bool = False, prepare: Callable[[World], None] | None = None) -> Result:
    return World(seed, keeps_trace=keeps_trace, prepare=prepare).run()
