"""Job processors: each takes a batch of a queue, lets it be handled, settles it, and looks where to go next.

look       at all queues at once, when there are news, when something comes due, and now and then
take       up to batch_size tasks of the queue whose turn it is, for the visibility timeout
read       what cannot be read is set aside, what is too new is left to others; the handler gets the rest
handle     as calling.py says, within its time limit; meanwhile another thread prolongs the batch (batches.py)
settle     what the handler returned, but not what it settled itself; the rest comes back by itself
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Protocol

import anyio
import anyio.abc

from matrixsched.clock import Chance, Clock
from matrixsched.errors import BadInput
from matrixsched.events import BatchEnded, BatchTaken, Events, ProcessorsRunning, QueueHandlerFailed, TaskSetAside
from matrixsched.queues.handlers import BatchHandler, QueueHandlers
from matrixsched.queues.ledger import Fate
from matrixsched.queues.results import HandlerStats, results_of
from matrixsched.queues.storage import QueueStorage
from matrixsched.queues.tasks import QueueTask
from matrixsched.rules.queues import BATCH_SIZE_MAX, Outlook
from matrixsched.worker.batches import Batch, Batches
from matrixsched.worker.calling import Call, Calls, Raised
from matrixsched.worker.pace import Step, Wakeup, described
from matrixsched.worker.policy import WorkerPolicy
from matrixsched.worker.rota import Rota, Seat
from matrixsched.worker.settling import Plan, Settling

Start = Callable[[anyio.abc.TaskGroup, str, Step, Wakeup], None]


class Terms(Protocol):
    """What the store says of a queue; where it says nothing, the handler does, and then the worker's settings."""

    @property
    def batch_size(self) -> int | None: ...

    @property
    def visibility(self) -> timedelta | None: ...

    @property
    def processors_max(self) -> int | None: ...


class Processors:
    def __init__(
        self,
        handlers: QueueHandlers,
        storage: QueueStorage,
        handlers_storage: QueueStorage,
        policy: WorkerPolicy,
        *,
        clock: Clock,
        chance: Chance,
        events: Events,
    ) -> None:
        """`handlers_storage` is what handlers get: they may wait for it longer than a processor does."""
        self._handlers = handlers
        self._storage = storage
        self._policy = policy
        self._clock = clock
        self._chance = chance
        self._events = events
        self._terms: Mapping[int, Terms] = {}
        self._rota = Rota(
            [handler.queue.id for handler in handlers],
            processors=policy.processors,
            idle=policy.queues_idle_until_told,
            rest_max_s=policy.rest_max.total_seconds(),
        )
        self.batches = Batches(clock)
        self._settling = Settling(storage, clock=clock, chance=chance)
        self.on_batch_end: Callable[[Batch, Plan], object] = lambda batch, plan: None
        """For tests that want to know of each task: events name none of them."""
        self.on_settings_change: Callable[[], Awaitable[None]] = _nothing
        """Called when what is set for the queues was changed, before the next batch is taken."""
        self._settings_at: Mapping[int, datetime] = {}
        self._wakeups: list[Wakeup] = []
        self._calls = Calls(handlers_storage, policy, clock=clock, leaked=self._on_leak)
        self._cycles = 0
        self._looked_at: float | None = None
        self._stopping = anyio.Event()
        self._finished = anyio.Event()

    # What is asked.

    @property
    def processors_max(self) -> int:
        """How many there are, at work or not."""
        return self._policy.processors

    @property
    def queues(self) -> Mapping[int, str]:
        """The names of those that are handled here, by number."""
        return {handler.queue.id: handler.queue.name for handler in self._handlers}

    @property
    def running(self) -> int:
        """Handlers at work."""
        return len(self._calls)

    @property
    def leaked(self) -> int:
        """Handlers that go on although their time, or the worker's, is over."""
        return self._calls.leaked

    @property
    def assigned(self) -> Mapping[int, int] | None:
        return self._rota.assigned

    @property
    def looked_at(self) -> float | None:
        """Monotonic: when it was last known that the storage answers, which is what readiness goes by."""
        return self._clock.monotonic() if self._calls else self._looked_at

    # What is told.

    def assign(self, processors: Mapping[int, int]) -> None:
        """So many are there for each of these queues alone, by its number; the others go round over all queues.

        It counts from the next batch on, until something else is said.
        """
        self._rota.assign(processors)
        self._wake()

    def configure(self, terms: Mapping[int, Terms]) -> None:
        """What the store says of the queues; from the next batch on."""
        self._terms = dict(terms)
        self._rota.cap(queue for queue, said in terms.items() if said.processors_max is not None)
        self._wake()

    def _visibility(self, handler: BatchHandler) -> timedelta:
        said = self._terms.get(handler.queue.id)
        return (said and said.visibility) or handler.visibility or self._policy.visibility_timeout

    def _batch_size(self, handler: BatchHandler) -> int:
        said = self._terms.get(handler.queue.id)
        return (said and said.batch_size) or handler.batch_size or self._policy.queue_batch_size

    def hear(self) -> None:
        """There may be something in queues that were empty."""
        self._rota.hear()
        self._wake()

    def _wake(self) -> None:
        for wakeup in self._wakeups:
            wakeup.set()

    # Life.

    async def run(self, start: Start) -> None:
        """Let processors work until `stop()`, and the last batch is settled."""
        try:
            async with anyio.create_task_group() as group:
                for number in range(self.processors_max):
                    self._wakeups.append(Wakeup())
                    start(group, "queues", partial(self.step, number), self._wakeups[-1])
                self._events.emit(ProcessorsRunning(self.processors_max))
                start(group, "watch", self.watch, self._calls.watch_wakeup)
                await self._stopping.wait()
                await self.wait_until_finished()
                group.cancel_scope.cancel()
        finally:
            self._events.emit(ProcessorsRunning(0))

    def stop(self) -> None:
        """Take no more batches."""
        self._stopping.set()

    def cancel_running(self) -> int:
        """Cancel all handlers; others have their tasks at once, those of threads that go on after their timeout."""
        return self._calls.cancel_all()

    async def watch(self) -> float:
        """Cancel handlers that are over their time limit; the rest until the next one may be."""
        return await self._calls.watch()

    async def wait_until_finished(self) -> None:
        """Until no batch is under way."""
        while self._cycles:
            await self._finished.wait()

    # One processor.

    async def step(self, number: int) -> float:
        """A cycle, if there is somewhere to go; how long to rest."""
        rest_s, now = self._policy.rest_max.total_seconds(), self._clock.monotonic()
        if self._stopping.is_set() or number >= self.processors_max - self._calls.abandoned:
            return rest_s  # a thread that goes on alone takes the place of one
        if self._rota.wants_look(now):
            now = await self._look()
        seat = self._rota.pick(now)
        if seat is None:
            if not self._rota.is_asking:
                self._looked_at = now
            return self._rota.rest_s(now)
        await self._cycle(seat)
        return 0.0

    async def _look(self) -> float:
        """Find out which queues have something; when that is known."""
        queues = self._rota.begin_look()
        try:
            found = await self._storage.look(queues, within=self._policy.rest_max)
            await self._follow_settings(found)
        except BaseException:
            self._rota.look_failed()
            raise
        self._looked_at = now = self._clock.monotonic()
        self._rota.looked(found, now)
        if self._rota.has_open(now):
            self._wake()  # there may be more than one can do; and somebody else has to look in time
        return now

    async def _follow_settings(self, found: Mapping[int, Outlook]) -> None:
        settings_at = {queue: one.settings_at for queue, one in found.items() if one.settings_at is not None}
        if settings_at != self._settings_at:
            await self.on_settings_change()
            self._settings_at = settings_at

    async def run_ready(self) -> int:
        """By hand: handle what can be taken now, queue by queue; how many tasks that were.

        No more than were ready when it began: handlers may put others, or let theirs come back at once, without end.
        """
        handled, stats = 0, await self._storage.stat()
        for handler in self._handlers:
            stat = stats.get(handler.queue.id)
            left = taken = stat.ready if stat else 0
            while left > 0 and taken > 0:
                taken = await self._cycle(self._rota.enter(handler.queue.id), most=left)
                left -= taken
                handled += taken
        return handled

    async def _cycle(self, seat: Seat, *, most: int = BATCH_SIZE_MAX) -> int:
        """Take a batch, of so many `most`, and all that follows; how many tasks were in it."""
        handler = self._handlers.find(seat.queue)
        assert handler is not None
        if not self._cycles:
            self._finished = anyio.Event()
        self._cycles += 1
        try:
            batch = await self._take(handler, min(most, self._batch_size(handler)))
            if batch is None:
                return 0
            await self._work(batch)
            return len(batch.tasks)
        finally:
            self._rota.leave(seat)
            self._cycles -= 1
            if not self._cycles:
                self._finished.set()

    async def _take(self, handler: BatchHandler, count: int) -> Batch | None:
        queue, visibility = handler.queue, self._visibility(handler)
        looks, asked_at = self._rota.looks, self._clock.monotonic()
        try:
            tasks = await self._storage.get(queue.id, count, visibility=visibility)
        except BaseException:
            self._rota.refused(queue.id)
            raise
        self._looked_at = self._clock.monotonic()
        self._rota.answered(queue.id, is_full=len(tasks) >= count, looks=looks)
        if not tasks:
            return None
        if len(tasks) >= count:
            self._wake()  # there may be more, for those who rest
        batch = Batch(handler, tasks, visibility, asked_at)
        self.batches.take(batch)
        self._events.emit(BatchTaken(queue.id, queue.name, len(tasks)))
        return batch

    async def _work(self, batch: Batch) -> None:
        plan = Plan()
        try:
            tasks = plan.read(batch)
            if self._clock.monotonic() >= batch.trusted_until:
                # We were stopped, or the answer was under way for long: others may have them by now.
                batch.ledger.lose([task.id for task in batch.tasks])
                return
            try:
                if tasks:
                    await self._handle(batch, tasks, plan)
            except anyio.get_cancelled_exc_class():
                # Whoever runs this worker wants no more of it; what it holds is given back all the same.
                with anyio.move_on_after(self._policy.farewell.total_seconds(), shield=True):
                    await self._settle(batch, plan)
                raise
            await self._settle(batch, plan)
        finally:
            self.batches.drop(batch)
            self._tell_end(batch, plan)
            self.on_batch_end(batch, plan)

    async def _settle(self, batch: Batch, plan: Plan) -> None:
        patient_until = self._clock.monotonic() + self._policy.farewell.total_seconds()

        def may_wait() -> bool:
            """A stop is not held up for long; but what was done is not to be done again for a moment's failure."""
            return not self._stopping.is_set() or self._clock.monotonic() < patient_until

        await self._settling.carry_out(batch, plan, may_wait)
        delays = [when.total_seconds() for _, when in plan.retries if isinstance(when, timedelta)]
        if delays:
            self._rota.expect(self._clock.monotonic() + min(delays))
            self._wake()

    # The handler.

    async def _handle(self, batch: Batch, tasks: list[QueueTask], plan: Plan) -> None:
        """Call it, and plan what follows. Raises only if this very task is cancelled."""
        call = Call(batch, tasks, self._clock.monotonic())
        try:
            returned = await self._calls.make(call)
        finally:
            plan.duration_s = self._clock.monotonic() - call.started_at
            if not (call.has_ended or call.is_abandoned or call.is_overdue):
                plan.give_back(tasks)
        if call.is_leaked:
            plan.error = call.overdue()  # told of when it leaked
        elif call.is_overdue:
            plan.error = call.overdue()
            self._tell_failure(call, plan.error)
        elif call.has_ended:
            self._judge(call, returned, plan)

    def _on_leak(self, call: Call) -> None:
        """Others shall have its tasks, however long it goes on."""
        self.batches.drop(call.batch)
        self._tell_failure(call, call.overdue())

    def _judge(self, call: Call, returned: object, plan: Plan) -> None:
        """Plan what the handler asked for; if that makes no sense it has failed, and nothing of it is done."""
        handler, tasks, error = call.batch.handler, call.tasks, ""
        if isinstance(returned, Raised):
            error = described(returned.error)
        else:
            try:
                plan.follow(tasks, results_of(returned, len(tasks), takes_storage=handler.takes_storage))
            except BadInput as refusal:
                error = str(refusal.args[0])
        if isinstance(returned, HandlerStats):
            plan.stats = returned
        if not error:
            self._rota.handled(handler.queue.id)
            return
        plan.error = error
        plan.exception = returned.error if isinstance(returned, Raised) else None
        self._tell_failure(call, error)

    def _tell_failure(self, call: Call, error: str) -> None:
        queue = call.batch.handler.queue
        self._rota.failed(queue.id, self._clock.monotonic(), self._chance.random())
        self._events.emit(QueueHandlerFailed(queue.id, queue.name, len(call.tasks), error))

    # What is told of it.

    def _tell_end(self, batch: Batch, plan: Plan) -> None:
        queue, ledger = batch.handler.queue, batch.ledger
        reasons = {task.id: reason for task, reason in plan.letters}
        for id in ledger.met(Fate.DEAD, reasons):
            self._events.emit(TaskSetAside(queue.id, queue.name, id, reasons[id], id in plan.unreadable))
        processed, retried = ledger.count(Fate.DONE), ledger.count(Fate.RETRIED)
        dead, stale = ledger.count(Fate.DEAD), ledger.count(Fate.STALE)
        left = len(ledger) - processed - retried - dead - stale
        errors = plan.stats.errors if plan.stats else left + dead if plan.error else dead
        self._events.emit(
            BatchEnded(
                queue.id,
                queue.name,
                tasks=len(ledger),
                processed=processed,
                retried=retried,
                dead=dead,
                stale=stale,
                left=left,
                errors=errors,
                duration_s=plan.duration_s,
                cycle_s=self._clock.monotonic() - batch.taken_at,
                stated_s=plan.stats.duration.total_seconds() if plan.stats and plan.stats.duration else None,
                last_error=plan.stats.last_error if plan.stats else None,
            )
        )


async def _nothing() -> None:
    """Queues that are not in the database have no settings."""
