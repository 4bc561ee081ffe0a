"""The steps of a real worker, made one after the other while time stands still."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

import anyio

from matrixsched.app import App
from matrixsched.clock import ManualClock
from matrixsched.context import Context
from matrixsched.errors import DatabaseError, InvalidPayload, NeverIdle, StageError
from matrixsched.events import AttemptEnded
from matrixsched.handlers import Handlers
from matrixsched.rules.action import Attempt, Outcome, Spec, State
from matrixsched.testing.batches import Handled, handled_of
from matrixsched.testing.clock import HastyClock
from matrixsched.testing.faults import AFTER, BEFORE, Faults, Tape
from matrixsched.worker import Worker, WorkerPolicy
from matrixsched.worker.batches import Batch
from matrixsched.worker.processors import Processors
from matrixsched.worker.settling import Plan

TRIES_MAX = 100
"""So often a step is repeated that the database refuses while it is not said to be away."""
Made = tuple[int, int]
"""Attempts at actions, and at tasks of queues."""
REAL_TICK_S = 1.0
"""A handler that runs for longer than this in real time makes the stage's clock run along, so that its limit comes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """An attempt that was made."""

    id: str
    handler: str
    payload: object
    """As the handler got it; the stored bytes if they could not be read."""
    attempt: int
    at: datetime
    outcome: Outcome
    state: State
    """Of the action afterwards: live if it is to run again."""
    error: str | None
    """As it is recorded."""
    exception: BaseException | None
    """What the handler, or a middleware around it, raised."""


def decoded(handlers: Handlers, what: Spec | Attempt) -> object:
    """The payload as its handler takes it, plain JSON for a handler of another process, bytes if it cannot be read."""
    handler = handlers.find(what.handler)
    try:
        return json.loads(what.payload) if handler is None else handler.decode(what.payload, what.terms.payload_version)
    except InvalidPayload:
        return what.payload


def _error_of(ran: Ran) -> BaseException:
    return ran.exception or StageError(f"the attempt at {ran.id!r} ended as {ran.outcome.value}: {ran.error}")


def _errors_of(handled: Sequence[Handled]) -> list[BaseException]:
    """Of each batch that failed."""
    failed = {one.batch: one for one in handled if one.error}
    return [
        one.exception or StageError(f"the handler of queue {one.queue!r} failed: {one.error}")
        for one in failed.values()
    ]


_FAILURES = (Outcome.FAILED, Outcome.TIMED_OUT, Outcome.QUARANTINED)
_LIFE: ContextVar[anyio.CancelScope] = ContextVar("the life of the worker that runs this handler")


class Steps:
    """A worker whose steps are made by hand."""

    def __init__(
        self, app: App, policy: WorkerPolicy, clock: ManualClock, faults: Faults, tape: Tape, attempts_max: int
    ) -> None:
        self._app = app
        self._policy = policy
        self._clock = clock
        self._faults = faults
        self._tape = tape
        self._attempts_max = attempts_max
        self._left_over: Worker | None = None
        """The worker of an earlier journey, if it has outcomes that it could not record."""
        self._raised: dict[tuple[UUID, int], BaseException] = {}
        self.ran: list[Ran] = []
        self.handled: list[Handled] = []
        self._batches = 0

    @property
    def made(self) -> Made:
        """How many attempts were made so far."""
        return len(self.ran), len(self.handled)

    def _made_since(self, since: Made) -> int:
        return len(self.ran) - since[0] + len(self.handled) - since[1]

    def attach(self) -> None:
        """Hear of every attempt, and stand around every handler and all other middleware."""
        self._app.events.subscribe(AttemptEnded, self._note)
        self._app.middlewares.insert(0, self._around)

    async def run_due(self, *, since: Made) -> None:
        """Run everything that is due now, and whatever becomes due by it; then end what is held past its end.

        `since` is how many attempts had been `made` when the test asked for this.
        """
        # Taken away meanwhile: a handler that schedules inline comes here again, perhaps in another thread.
        worker, self._left_over = self._left_over, None
        tries = 0
        try:
            while self._faults.away_until is None:
                worker = worker or Worker(self._app, self._policy, name="stage", clock=HastyClock(self._clock))
                before, is_quiet = self.made, False
                try:
                    await self._record(worker)
                    await worker.runner.giving_back.step()
                    await worker.intake.relist()
                    await worker.balancing.step()
                    rest_s = await worker.intake.step()
                    await worker.runner.watch()
                    await worker.runner.giving_back.step()  # what came too late for its slot
                    is_quiet = rest_s > 0 and await self._expire(worker)
                    await self._handle_batches(since)
                except DatabaseError:
                    if (tries := tries + 1) > TRIES_MAX:
                        raise
                    is_quiet = False
                if not await self._run_waiting(worker, since):
                    worker = None
                elif is_quiet and self.made == before:
                    return
        finally:
            if worker is not None and not (worker.recorder.is_idle and worker.runner.giving_back.is_idle):
                self._left_over = worker

    async def run_inline(self) -> None:
        """Run what is due now; what fails is raised."""
        since = ran, handled = self.made
        await self.run_due(since=since)
        errors = [_error_of(one) for one in self.ran[ran:] if one.outcome in _FAILURES]
        errors += _errors_of(self.handled[handled:])
        if len(errors) > 1:
            raise BaseExceptionGroup("several handlers failed", errors)
        if errors:
            raise errors[0]

    async def _run_waiting(self, worker: Worker, since: Made) -> bool:
        """Run what was claimed; False if the worker died of it."""
        while worker.runner.has_waiting:
            if self._made_since(since) >= self._attempts_max:
                raise self._never_idle(since)
            if not await self._run_next(worker):
                return False
            with suppress(DatabaseError):
                await self._record(worker)
        return True

    async def _run_next(self, worker: Worker) -> bool:
        with anyio.CancelScope() as life:
            token = _LIFE.set(life)
            try:
                async with anyio.create_task_group() as beside:
                    beside.start_soon(
                        self._let_real_time_count,
                        lambda: worker.leases.extend(self._app.store),
                        worker.runner.watch,
                        worker.runner.giving_back.step,
                    )
                    await worker.runner.run_next()
                    beside.cancel_scope.cancel()
            finally:
                _LIFE.reset(token)
        return not life.cancel_called

    async def _let_real_time_count(self, *steps: Callable[[], Awaitable[object]]) -> None:
        """Make these steps at every tick."""
        while True:
            await anyio.sleep(REAL_TICK_S)
            self._clock.advance(timedelta(seconds=REAL_TICK_S))
            for step in steps:
                with suppress(DatabaseError):
                    await step()

    # Batches of queues.

    async def _handle_batches(self, since: Made) -> None:
        """Handle what can be taken now."""
        queues, failure = self._app.queues, None
        if not len(queues.handlers) or not self._policy.processors:
            return
        storage, clock = queues.storage_over(self._app.store), HastyClock(self._clock)
        processors = Processors(
            queues.handlers,
            storage,
            queues.storage,
            self._policy,
            clock=clock,
            chance=self._app.chance,
            events=self._app.events,
        )
        processors.on_batch_end = self._note_batch
        async with anyio.create_task_group() as beside:
            beside.start_soon(self._let_real_time_count, lambda: processors.batches.prolong(storage), processors.watch)
            try:
                await processors.run_ready()
            except DatabaseError as error:
                failure = error  # raised here, it would come out wrapped in a group
            beside.cancel_scope.cancel()
        if failure is not None:
            raise failure
        if self._made_since(since) > self._attempts_max:
            raise self._never_idle(since)

    def _note_batch(self, batch: Batch, plan: Plan) -> None:
        self._batches += 1
        self.handled += handled_of(batch, plan, number=self._batches, at=self._clock.now())

    async def _expire(self, worker: Worker) -> bool:
        """End what waits past its end, as workers do when they tidy up; False while there is something to run first."""
        while not worker.runner.has_waiting:
            if not await worker.tidying.expire():
                return True
        return False

    async def _record(self, worker: Worker) -> None:
        """Record outcomes; those that a transaction of the test holds up are left for later."""
        rounds = 0
        while not worker.recorder.is_idle and self._faults.away_until is None and rounds < TRIES_MAX:
            rounds += 1
            try:
                await worker.recorder.step()
            except DatabaseError:
                if rounds == TRIES_MAX:
                    raise

    # What handlers do, seen from the outermost middleware.

    async def _around(self, context: Context, call_next: Callable[[], Awaitable[object]]) -> object:
        if self._faults.dies_at(context.id, BEFORE):
            await self._die(context)
        try:
            returned = await call_next()
        except BaseException as error:
            if not isinstance(error, anyio.get_cancelled_exc_class()):
                self._raised[context.guid, context.attempt] = error
                if self._faults.dies_at(context.id, AFTER):
                    await self._die(context)
            raise
        if self._faults.dies_at(context.id, AFTER):
            await self._die(context)
        return returned

    async def _die(self, context: Context) -> None:
        """End the worker on the spot: nothing that it holds is recorded or given back."""
        error = "the test let the worker die"
        self._ran(context.id, context.handler, context.guid, context.attempt, Outcome.INTERRUPTED, State.LIVE, error)
        _LIFE.get().cancel()
        await anyio.sleep_forever()

    def _note(self, event: AttemptEnded) -> None:
        self._ran(event.id, event.handler, event.guid, event.attempt, event.outcome, event.state, event.error)

    def _ran(
        self, id: str, handler: str, guid: UUID, attempt: int, outcome: Outcome, state: State, error: str | None
    ) -> None:
        claimed = self._tape.attempts.pop((guid, attempt), None)
        self.ran.append(
            Ran(
                id=id,
                handler=handler,
                payload=None if claimed is None else decoded(self._app.handlers, claimed),
                attempt=attempt,
                at=self._clock.now(),
                outcome=outcome,
                state=state,
                error=error,
                exception=self._raised.pop((guid, attempt), None),
            )
        )

    def _never_idle(self, since: Made) -> NeverIdle:
        attempts = Counter(("action", ran.id) for ran in self.ran[since[0] :])
        attempts.update(("queue", one.queue) for one in self.handled[since[1] :])
        (((kind, busiest), times),) = attempts.most_common(1)
        return NeverIdle(attempts.total(), busiest, times, kind=kind)
