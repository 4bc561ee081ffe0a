"""Handlers of batches under way: called, watched over, cancelled.

    async           cancelled when its time limit is over
    in a thread     cannot be cancelled: it is waited for until its grace is over, too, and goes on alone after that

What a handler returns within its grace counts. One that goes on after it is leaked: what it returns counts no more, its
batch is prolonged no more, and others have its tasks when their visibility timeout is over.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import anyio
import anyio.to_thread

from matrixsched.clock import Clock
from matrixsched.errors import BadInput
from matrixsched.queues.ledger import BatchStorage, SyncBatchStorage
from matrixsched.queues.storage import QueueStorage
from matrixsched.queues.tasks import QueueTask
from matrixsched.worker.batches import REST_MIN_S, Batch
from matrixsched.worker.pace import Wakeup
from matrixsched.worker.policy import WorkerPolicy
from matrixsched.worker.run import Cause, called, leave


@dataclass(frozen=True, slots=True)
class Raised:
    error: BaseException


class Call:
    """A handler under way."""

    __slots__ = (
        "batch",
        "cause",
        "deadline",
        "given_up",
        "has_ended",
        "has_left_thread",
        "in_thread",
        "is_abandoned",
        "is_leaked",
        "scope",
        "started_at",
        "tasks",
    )

    def __init__(self, batch: Batch, tasks: list[QueueTask], started_at: float) -> None:
        self.batch = batch
        self.tasks = tasks
        self.started_at = started_at
        timeout = batch.handler.timeout
        self.deadline = float("inf") if timeout is None else started_at + timeout.total_seconds()
        self.scope = anyio.CancelScope()
        self.cause: Cause | None = None
        self.has_ended = False
        """By itself, well or not; otherwise it was cut short."""
        self.in_thread = False
        """It is a plain function, and its thread has begun and not ended."""
        self.has_left_thread = False
        """Its thread has ended: what it returned is on its way here."""
        self.given_up = False
        """Cancelled for good: a thread that has not begun must not begin any more."""
        self.is_abandoned = False
        """Nobody waits any longer for its thread, which goes on."""
        self.is_leaked = False
        """Its grace was over before it ended."""

    @property
    def is_overdue(self) -> bool:
        """It did not end in time, and nothing counts that it may have returned since."""
        return self.is_leaked or (self.cause is Cause.TIMEOUT and not self.has_ended)

    def overdue(self) -> str:
        timeout = self.batch.handler.timeout
        assert timeout is not None
        what = "goes on after its timeout" if self.is_leaked or self.is_abandoned else "was cancelled after its timeout"
        return f"it {what} of {timeout.total_seconds():g} s: raise the handler's timeout, or lower its batch_size"


class Calls:
    def __init__(
        self, storage: QueueStorage, policy: WorkerPolicy, *, clock: Clock, leaked: Callable[[Call], None]
    ) -> None:
        """`storage` is what handlers get. `leaked` is told of those that go on here although they were cancelled."""
        self._storage = storage
        self._policy = policy
        self._clock = clock
        self._tell_leak = leaked
        self._under_way: dict[Call, None] = {}
        self._threads = anyio.CapacityLimiter(max(1, policy.processors))
        self._leaking = threading.Lock()
        self._abandoned = 0
        self._stops_at_once = False
        self.watch_wakeup = Wakeup()

    def __len__(self) -> int:
        return len(self._under_way)

    @property
    def abandoned(self) -> int:
        """Threads that nobody waits for; each of them is missing to a processor."""
        return self._abandoned

    @property
    def leaked(self) -> int:
        """Handlers that go on although nobody counts on them."""
        return self._abandoned + sum(call.is_leaked for call in self._under_way)

    # One call.

    async def make(self, call: Call) -> object:
        """What the handler returned, or Raised; None if it was cut short. It raises only if this task is cancelled."""
        returned: object = None
        self._under_way[call] = None
        if call.deadline < float("inf"):
            self.watch_wakeup.set()
        if self._stops_at_once:
            self._cancel(call, Cause.STOP)
        try:
            with call.scope:
                returned = await self._called(call)
                call.has_ended = True
        except RuntimeError:
            # Only leaving the scope raises that: the handler entered one inside of it and never left.
            leave(call.scope)
            returned, call.has_ended = Raised(BadInput("it left a cancel scope or a task group open")), True
        finally:
            del self._under_way[call]
        return returned

    async def _called(self, call: Call) -> object:
        try:
            return await self._invoke(call)
        except BaseException as error:
            # A handler may raise anything, SystemExit and cancellations of its own included. Only when it was us, or
            # whoever runs us, that cancelled may the cancellation go on.
            is_cancelled = call.scope.cancel_called or anyio.current_effective_deadline() == float("-inf")
            if isinstance(error, anyio.get_cancelled_exc_class()) and is_cancelled:
                raise
            return Raised(error)

    async def _invoke(self, call: Call) -> object:
        handler = call.batch.handler
        arguments: list[object] = [list(call.tasks)]  # whatever it does to its list, ours stays in order
        if handler.takes_storage:
            storage = BatchStorage(self._storage, call.batch.ledger)
            arguments.append(storage if handler.is_async else SyncBatchStorage(storage))
        returned: object
        if handler.is_async:
            returned = handler.function(*arguments)
        else:
            returned = await self._in_thread(call, partial(handler.function, *arguments))
        while returned is not None and inspect.isawaitable(returned):
            returned = await returned
        return returned

    async def _in_thread(self, call: Call, function: Callable[[], object]) -> object:
        """A thread cannot be cancelled: if it outlives its grace, its tasks are left to their visibility timeout."""

        def work() -> object:
            with self._leaking:
                if call.given_up:
                    return None  # cancelled before it began
                call.in_thread = True
            try:
                return called(function)
            finally:
                with self._leaking:
                    call.in_thread, call.has_left_thread = False, True
                    self._abandoned -= call.is_abandoned

        try:
            returned = await anyio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=self._threads)
        except BaseException:
            with self._leaking:
                call.given_up = True
                call.is_abandoned = call.in_thread
                self._abandoned += call.is_abandoned
            raise
        if call.cause is not None:
            call.scope.cancel()  # it ended in its grace: what it returned counts, but nothing more is waited for
        return returned

    # Limits.

    async def watch(self) -> float:
        """Cancel what is over its limit; the rest until the next one may be."""
        now = self._clock.monotonic()
        next_at = min((self._check(call, now) for call in list(self._under_way)), default=float("inf"))
        rest_s = min(self._policy.rest_max.total_seconds(), next_at - self._clock.monotonic())
        return max(rest_s, REST_MIN_S)

    def _check(self, call: Call, now: float) -> float:
        """When to look at it again."""
        if now < call.deadline:
            return call.deadline
        self._cancel(call, Cause.TIMEOUT)
        leaks_at = call.deadline + self._policy.timeout_grace.total_seconds()
        if now < leaks_at:
            return leaks_at
        if not call.is_leaked:
            self._leak(call)
        return float("inf")

    def _leak(self, call: Call) -> None:
        with self._leaking:
            is_in_thread = call.in_thread
        call.scope.cancel()  # a thread is waited for until now, and no longer
        if not is_in_thread:
            call.is_leaked = True
            self._tell_leak(call)

    def cancel_all(self) -> int:
        """Also those that are yet to begin."""
        self._stops_at_once = True
        for call in self._under_way:
            self._cancel(call, Cause.STOP)
        return len(self._under_way)

    def _cancel(self, call: Call, cause: Cause) -> None:
        """Cancel the handler. A thread goes on regardless: but for a stop, its end is waited for in its grace."""
        call.cause = call.cause or cause
        with self._leaking:
            is_waited_for = call.in_thread or call.has_left_thread
            call.given_up = call.given_up or not is_waited_for or cause is Cause.STOP
        if call.given_up:
            call.scope.cancel()
