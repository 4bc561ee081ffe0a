"""Slots in which handlers run: each attempt is judged, called under its limits, and handed to the recorder."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial

import anyio
import anyio.abc
import anyio.to_thread

from matrixsched.clock import Chance, Clock
from matrixsched.context import Context
from matrixsched.errors import InvalidPayload
from matrixsched.events import (
    AttemptDropped,
    AttemptEnded,
    AttemptStarted,
    Events,
    HandlerLeaked,
    SlotsVoided,
)
from matrixsched.handlers import Handlers, Middleware
from matrixsched.rules.action import Attempt
from matrixsched.rules.intake import gated_room, room
from matrixsched.rules.minutes import MinuteTally
from matrixsched.rules.outcome import (
    Cancel,
    Delivered,
    Done,
    Ending,
    Failed,
    RetryAt,
    SlowDown,
    TimedOut,
    Unrunnable,
    Verdict,
    judge,
    judge_plainly,
    refusal,
)
from matrixsched.rules.retry import Retry, is_suspect
from matrixsched.store.store import Store
from matrixsched.store.values import Ended
from matrixsched.worker.database_time import DatabaseTime
from matrixsched.worker.giving_back import GivingBack
from matrixsched.worker.leases import Held, Leases
from matrixsched.worker.line import Line
from matrixsched.worker.pace import Wakeup
from matrixsched.worker.policy import WorkerPolicy
from matrixsched.worker.recorder import Recorder
from matrixsched.worker.run import (
    Cause,
    Run,
    called,
    context_of,
    describe,
    ended,
    ending_of,
    is_cancelled,
    leave,
    left_open,
)
from matrixsched.worker.slots import Pace, Slots
from matrixsched.worker.slowing import tell_fleet

TIMED_REST_MIN_S = 0.001
HELD_UP_BATCHES_MAX = 20
BATCHES_MAX = 4
"""So many are in hand at most: two are being claimed, one is run and one recorded."""
_DONE = Done()


class Runner:
    def __init__(
        self,
        store: Store,
        handlers: Handlers,
        middlewares: list[Middleware],
        leases: Leases,
        recorder: Recorder,
        policy: WorkerPolicy,
        *,
        clock: Clock,
        chance: Chance,
        events: Events,
    ) -> None:
        self._store = store
        self._handlers = handlers
        self._middlewares = middlewares
        self._leases = leases
        self._recorder = recorder
        self._policy = policy
        self._clock = clock
        self._chance = chance
        self._events = events
        self.line = Line(clock)
        self.giving_back = GivingBack(store, leases, policy, forget=self._forget, clock=clock, events=events)
        self._void: list[Held] = []
        """Attempts that could not start in their slots."""
        # Not by guid: a handler that ignores its limit is still there when the next attempt at the same version begins.
        # Not a set: its order would differ from run to run, and one seed must give one run.
        self._running: dict[Run, None] = {}
        self._suspects = 0
        self._expected = 0
        self._slots = Slots(self.line, self._running, self._run_next, most=policy.concurrency, clock=clock)
        self._threads = anyio.CapacityLimiter(policy.concurrency)
        self._leaked = 0
        self._leaking = threading.Lock()
        self._pace = Pace(clock)
        self.tally = MinuteTally()
        """What ended in this minute; whoever reports it puts a new one in its place."""
        self.watch_wakeup = Wakeup()
        self.timed_wakeup = Wakeup()
        self._next_watch = float("inf")
        self._judged_after_timeout = policy.timeout_grace + policy.lease_margin
        self.finished = anyio.Event()

    # What the intake asks.

    @property
    def room(self) -> int:
        """How many attempts may be claimed now."""
        return room(
            slots=self._policy.concurrency - self._leaked,
            # What a user's open transaction holds up must not keep others from running; there is a bound to that, too.
            held=self._expected
            + len(self._leases)
            - min(self._recorder.held_up, self._policy.batch_max * HELD_UP_BATCHES_MAX),
            ended_per_s=self._pace.measured(),
            most=self._policy.batch_max * BATCHES_MAX,
        )

    def gated_room(self, within_s: float) -> int:
        """How many attempts may be claimed whose slots begin within that time and do not wait for a handler."""
        # Of those in line some are as good as running: it is for the event loop to begin with them.
        starting = self.line.unhurried_among_next(self._policy.concurrency - len(self._running))
        return gated_room(
            slots=self._policy.concurrency - self._leaked,
            busy=len(self._running) + starting + self.line.pressing + self._expected,
            ended_per_s=self._pace.per_s,
            within_s=within_s,
        )

    @contextmanager
    def expecting(self, most: int) -> Iterator[None]:
        """A claim of so many at most is under way: their room is not given to others meanwhile."""
        self._expected += most
        try:
            yield
        finally:
            self._expected -= most

    @property
    def database_time(self) -> DatabaseTime:
        return self._leases.database_time

    @property
    def suspect_room(self) -> int:
        return self._policy.suspects_max - self._suspects

    @property
    def held(self) -> int:
        """Attempts in our hands: waiting, running or not recorded yet."""
        return len(self._leases)

    @property
    def leaked(self) -> int:
        return self._leaked

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def has_waiting(self) -> bool:
        return len(self.line) > 0

    def accept(self, attempts: Iterable[Attempt], asked_at: float) -> int:
        """Take over claimed attempts; those that are in our hands already are left alone."""
        taken = 0
        for attempt in attempts:
            if attempt.claim not in self._leases:
                self._put(self._take(attempt, asked_at))
                taken += 1
        self._slots.fill()
        return taken

    def decline(self, attempts: Iterable[Attempt], asked_at: float) -> None:
        """Give claimed attempts back that would start too late."""
        self.giving_back.put([self._take(one, asked_at) for one in attempts if one.claim not in self._leases])

    def _take(self, attempt: Attempt, asked_at: float) -> Held:
        self._suspects += is_suspect(attempt.interruptions)
        return self._leases.take(attempt, asked_at)

    def _put(self, held: Held) -> None:
        if self.line.put(held):
            self.timed_wakeup.set()

    async def start_timed(self) -> float:
        """Let attempts go whose slots have begun; the rest until the next one."""
        next_s = self.line.begin_slots()
        self._slots.fill()
        # A slot may be used a little late; waking for each of thousands in a second would cost more than it is worth.
        return self._policy.rest_max.total_seconds() if next_s is None else max(next_s, TIMED_REST_MIN_S)

    # Slots.

    def open_slots(self, group: anyio.abc.TaskGroup | None) -> None:
        """Run what is accepted in this task group; without one, attempts wait for `run_next`."""
        self._slots.open(group)

    async def run_next(self) -> None:
        """Make the attempt whose turn it is."""
        with anyio.CancelScope() as scope:
            await self._run_next(scope)

    async def _run_next(self, scope: anyio.CancelScope) -> None:
        """The same inside of a scope that may be cancelled for its sake."""
        held, started_at = self.line.take(), self._clock.monotonic()
        if held.lost or started_at >= held.trusted_until:
            # Not ours any more, as far as we can tell. The row comes due by itself.
            self._forget(held)
            return
        if started_at > held.void_at:
            self._void.append(held)
            self.watch_wakeup.set()
            return
        ending: Ending | None
        try:
            ending = await self._ending(held, started_at, scope)
        except Exception as error:
            # Whatever we did not think of concerns this attempt alone: its neighbours run, and the worker lives.
            ending = Failed(describe(error))
        if isinstance(ending, SlowDown):
            now, patience_s = self._database_now(held), self._policy.farewell.total_seconds()
            await tell_fleet(self._store, held.attempt, ending, self._events, now=now, patience_s=patience_s)
        if ending is not None:
            self._end(held, ending, started_at)

    async def _ending(self, held: Held, started_at: float, scope: anyio.CancelScope) -> Ending | None:
        """How the attempt ended; None when it is not for us to say."""
        attempt, now = held.attempt, self._database_now(held)
        handler = self._handlers.named(attempt.handler)
        refused = refusal(attempt, attempt.terms.retry or handler.retry, now, handler.version)
        if refused is not None:
            return refused
        try:
            payload = handler.decode(attempt.payload, attempt.terms.payload_version)
        except InvalidPayload as error:
            return Unrunnable(str(error))
        run = Run(held, handler, attempt.terms.timeout or handler.timeout, started_at, scope)
        return await self._run(run, payload, now)

    def _database_now(self, held: Held) -> datetime:
        """The database's time, as far as can be told without asking it."""
        return held.attempt.claimed_at + timedelta(seconds=self._clock.monotonic() - held.asked_at)

    def _latest_now(self, held: Held) -> datetime:
        """The same, less the time that the claim was on its way, where other answers tell: no tick that is still to
        come is to be left out."""
        now, latest = self._database_now(held), self.database_time.latest(self._clock.monotonic())
        return now if latest is None else max(held.attempt.claimed_at, min(now, latest))

    # One attempt.

    async def _run(self, run: Run, payload: object, now: datetime) -> Ending | None:
        held, attempt = run.held, run.held.attempt
        # A handler that ignores its limit is judged when its grace ends; the margin is for recording that in time.
        held.longest = now - attempt.claimed_at + (run.timeout + self._judged_after_timeout)
        self._running[run] = None
        if run.deadline < self._next_watch:
            self.watch_wakeup.set()
        if self._events.wants(AttemptStarted):
            claim = attempt.claim
            self._events.emit(
                AttemptStarted(claim.action_id, claim.guid, attempt.handler, claim.attempt, now - attempt.due_at)
            )
        ending: Ending | None = None
        try:
            ending = await self._called(run, payload, now)
        except anyio.get_cancelled_exc_class():
            if not (run.scope.cancel_called or left_open(run.scope)):
                raise
        finally:
            del self._running[run]
            if not self._running:
                self.finished.set()
        if scopes := left_open(run.scope):
            for scope in scopes:
                leave(scope)
            ending = Failed("the handler left a cancel scope or a task group open") if run.cause is None else None
        if run.leaked:
            self._leak(-1)
            return None  # judged when it leaked
        if ending is None and not run.abandoned:
            ending = ending_of(run)
        if ending is None:
            # Lost, or its thread still runs: nothing is recorded, and nobody gets the row before its lease ends.
            self._drop(held)
        return ending

    async def _called(self, run: Run, payload: object, now: datetime) -> Ending:
        try:
            returned = await self._invoke(run, payload, now)
            if returned is None:
                return _DONE
            if isinstance(returned, Retry):
                return Failed("the handler returned a Retry, which is a policy: to be run again, return RetryAt(when)")
            return returned if isinstance(returned, Done | RetryAt | SlowDown | Cancel) else _DONE
        except BaseException as error:
            # A handler may raise anything, SystemExit and cancellations of its own included. Only when it was us, or
            # whoever runs us, that cancelled may the cancellation go on.
            if isinstance(error, anyio.get_cancelled_exc_class()) and is_cancelled(run):
                raise
            return Failed(describe(error))

    async def _invoke(self, run: Run, payload: object, now: datetime) -> object:
        """Call the handler, inside of what is around it, and with its context if anybody wants that."""
        if not (run.handler.takes_context or self._middlewares):
            return await self._call(run, payload, None)
        context = context_of(run.held.attempt, now + run.timeout)
        call: Callable[[], Awaitable[object]] = partial(self._call, run, payload, context)
        for around in reversed(self._middlewares):
            call = partial(around, context, call)
        return await call()

    async def _call(self, run: Run, payload: object, context: Context | None) -> object:
        if run.handler.guard is not None and (answer := await run.handler.guard(payload)) is not None:
            return answer
        # The guard, middlewares or the whole process may have stood still until the lease or the limit was over.
        self._check(run, self._clock.monotonic())
        if run.cause is not None:
            await anyio.sleep_forever()  # until the cancellation arrives, which need not be at the next await
        arguments = run.handler.arguments(payload, context)
        returned: object
        if run.handler.is_async:
            returned = await run.handler.function(*arguments)
        else:
            returned = await self._in_thread(run, arguments)
        while returned is not None and inspect.isawaitable(returned):
            returned = await returned  # a plain function round an async one: called, but not run yet
        return returned

    async def _in_thread(self, run: Run, arguments: list[object]) -> object:
        """A thread cannot be cancelled: if it outlives its limit and grace, its slot is leaked until it ends."""

        def work() -> object:
            with self._leaking:
                if run.given_up:
                    return None  # cancelled before it began
                run.in_thread = True
            try:
                return called(run.handler.function, *arguments)
            finally:
                with self._leaking:
                    run.in_thread = False
                    self._leaked -= run.abandoned

        try:
            returned = await anyio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=self._threads)
        except BaseException:
            with self._leaking:
                run.given_up = True
                run.abandoned = run.in_thread
                self._leaked += run.abandoned
            if run.abandoned and not run.leaked:
                self._tell_leak(run)
            raise
        if run.cause is not None:
            run.scope.cancel()  # it ended in its grace: what it returned counts, but nothing more is waited for
        return returned

    def _end(self, held: Held, ending: Ending, started_at: float) -> None:
        attempt = held.attempt
        verdict = judge_plainly(attempt, ending) or self._verdict(attempt, ending, self._latest_now(held))
        if verdict is None:
            self._drop(held)  # the row comes due by itself, as interrupted
            return
        self._pace.ended += 1
        self._suspects -= is_suspect(attempt.interruptions)
        held.ended = True
        delivery = ending.item if isinstance(ending, Delivered) else None
        self._recorder.put(Ended(attempt.claim, verdict, delivery))
        until_claimed = attempt.claimed_at - attempt.due_at
        self.tally.add(verdict.outcome, until_claimed.total_seconds() + started_at - held.asked_at)
        if self._events.wants(AttemptEnded):
            run_s = self._clock.monotonic() - started_at
            self._events.emit(ended(attempt, verdict, self._latest_now(held), run_s=run_s))

    def _verdict(self, attempt: Attempt, ending: Ending, now: datetime) -> Verdict | None:
        """What to record; what cannot be judged has failed; None when not even that can be said."""
        spread = self._chance.random()
        handler = self._handlers.find(attempt.handler)
        retry = attempt.terms.retry or (handler.retry if handler else Retry())
        try:
            return judge(attempt, ending, retry, now, spread)
        except Exception as error:
            try:
                return judge(attempt, Failed(describe(error)), retry, now, spread)
            except Exception:
                return None

    def _drop(self, held: Held) -> None:
        self._forget(held)
        if self._events.wants(AttemptDropped):
            claim = held.attempt.claim
            self._events.emit(AttemptDropped(claim.action_id, claim.guid, held.attempt.handler, claim.attempt))

    def _forget(self, held: Held) -> None:
        self._suspects -= is_suspect(held.attempt.interruptions)
        self._leases.drop(held.attempt.claim)

    # The watch over limits.

    async def watch(self) -> float:
        """Cancel what is over its limit or no longer ours; give back what could not be started. The rest till then."""
        now = self._clock.monotonic()
        self._next_watch = now + self._policy.attempt_lease.total_seconds() / 9
        for run in list(self._running):
            self._check(run, now)
        self._give_back_stale(now)
        return max(self._next_watch - self._clock.monotonic(), 0.001)

    def _check(self, run: Run, now: float) -> None:
        if run.held.lost or now >= run.held.trusted_until:
            self._cancel(run, Cause.LOST)
        else:
            self._next_watch = min(self._next_watch, run.held.trusted_until)
        if now < run.deadline:
            self._next_watch = min(self._next_watch, run.deadline)
            return
        self._cancel(run, Cause.TIMEOUT)
        leaks_at = run.deadline + self._policy.timeout_grace.total_seconds()
        if now < leaks_at:
            self._next_watch = min(self._next_watch, leaks_at)
        elif not run.leaked:
            run.leaked = True
            self._leak(+1)
            self._tell_leak(run)
            self._end(run.held, TimedOut(run.timeout), run.started_at)
            run.scope.cancel()  # a thread is waited for until now, and no longer

    def _cancel(self, run: Run, cause: Cause) -> None:
        """Cancel the handler. A thread goes on regardless: but for a stop, its end is waited for until it leaks.

        To judge it earlier would let the next attempt begin beside it, although its lease still has the grace.
        """
        if run.cause is not None:
            return
        run.cause = cause
        with self._leaking:
            run.given_up = not run.in_thread or cause is Cause.STOP
        if run.given_up:
            run.scope.cancel()

    def _leak(self, count: int) -> None:
        with self._leaking:
            self._leaked += count

    def _tell_leak(self, run: Run) -> None:
        claim = run.held.attempt.claim
        self._events.emit(HandlerLeaked(claim.action_id, run.handler.name, self._leaked))

    def _give_back_stale(self, now: float) -> None:
        patience_s = self._policy.attempt_lease.total_seconds() / 3
        # Without waiting for a handler to be free that would find out: by then their leases may be over.
        stale, self._void = [*self._void, *self.line.take_void()], []
        if stale:
            self._events.emit(SlotsVoided(len(stale)))
        self.giving_back.put([*stale, *self.line.take_older_than(now - patience_s)])

    # Stopping.

    def give_back_waiting(self) -> None:
        """Give back everything that was not started."""
        self.giving_back.put([*self.line.clear(), *self._void])
        self._void.clear()

    def cancel_running(self) -> int:
        """Cancel all handlers; their rows become due at once, those of threads that go on when their leases end."""
        runs = list(self._running)
        for run in runs:
            self._cancel(run, Cause.STOP)
        return len(runs)

    async def wait_until_finished(self) -> None:
        """Until no handler is running."""
        while self._running:
            self.finished = anyio.Event()
            await self.finished.wait()
