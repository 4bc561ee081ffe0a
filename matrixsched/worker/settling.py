"""What is to become of a batch, and carrying that out: one statement for each kind of end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta

from matrixsched.clock import Chance, Clock
from matrixsched.errors import DatabaseBusy, DatabaseUnavailable, OutcomeUnknown, TaskTooNew, TaskUnreadable
from matrixsched.queues.ledger import Fate
from matrixsched.queues.results import DeadLetter, Done, HandlerStats, ItemResult, RetryAt
from matrixsched.queues.storage import QueueStorage
from matrixsched.queues.tasks import QueueTask
from matrixsched.rules.backoff import backoff_s
from matrixsched.rules.queues import Settled, StoredTask, Taken
from matrixsched.rules.texts import storable
from matrixsched.worker.batches import Batch

TOO_NEW_DELAY, TOO_NEW_DELAY_MAX = timedelta(seconds=10), timedelta(minutes=5)
"""Until a task of a newer contract is offered again: most likely this worker is the older one, and others are not.
Every return to the queue counts as an attempt, this one as well: so the delay doubles each time, lest a fleet that
changes to a newer release slowly uses up in two minutes what its handlers would give the task (retry_or_bury: ten)."""
_PASSING = (DatabaseUnavailable, DatabaseBusy, OutcomeUnknown)


class Plan:
    """What is to become of the tasks of a batch; of which nothing is said is left to its visibility timeout."""

    def __init__(self) -> None:
        self.done: list[StoredTask] = []
        self.retries: list[tuple[StoredTask, datetime | timedelta]] = []
        self.letters: list[tuple[StoredTask, str]] = []
        self.unreadable: set[int] = set()
        """The ids of those that were not shown to the handler, for nobody could read them."""
        self.stats: HandlerStats | None = None
        self.error: str | None = None
        """Why the handler has failed, as it is told."""
        self.exception: BaseException | None = None
        """What it raised."""
        self.duration_s = 0.0

    def read(self, batch: Batch) -> list[QueueTask]:
        """The typed tasks; those that cannot be read are planned for, and harm nobody else."""
        tasks = []
        for stored in batch.tasks:
            try:
                tasks.append(batch.handler.decode(stored))
            except TaskTooNew:
                self.retries.append((stored, too_new_delay(stored.attempts)))
            except Exception as error:
                self.unreadable.add(stored.id)
                # What others say of bytes that they did not expect may hold them.
                reason = str(error) if isinstance(error, TaskUnreadable) else f"it cannot be read: {_kind(error)}"
                self.letters.append((stored, storable(reason)))
        return tasks

    def follow(self, tasks: Sequence[QueueTask], results: Iterable[ItemResult | None]) -> None:
        """Do as the handler says."""
        for task, result in zip(tasks, results, strict=True):
            assert task.stored is not None
            match result:
                case Done():
                    self.done.append(task.stored)
                case RetryAt(when):
                    self.retries.append((task.stored, when if isinstance(when, timedelta) else when.astimezone(UTC)))
                case DeadLetter(reason):
                    self.letters.append((task.stored, storable(reason)))

    def give_back(self, tasks: Iterable[QueueTask]) -> None:
        """Let others have them at once. It counts as a return to the queue, as any other."""
        self.retries += [(task.stored, timedelta(0)) for task in tasks if task.stored is not None]

    def keep_open(self, batch: Batch) -> None:
        """Forget what is settled already, or lost."""
        still = {task.id for task in batch.ledger.open}
        self.done = [task for task in self.done if task.id in still]
        self.retries = [(task, when) for task, when in self.retries if task.id in still]
        self.letters = [(task, reason) for task, reason in self.letters if task.id in still]


def too_new_delay(attempts: int) -> timedelta:
    times: int = 2 ** min(attempts, 10)  # by then it is at its most, and larger powers have no end
    return min(TOO_NEW_DELAY * times, TOO_NEW_DELAY_MAX)


def _kind(error: BaseException) -> str:
    return type(error).__name__


class Settling:
    def __init__(self, storage: QueueStorage, *, clock: Clock, chance: Chance) -> None:
        self._storage = storage
        self._clock = clock
        self._chance = chance

    async def carry_out(self, batch: Batch, plan: Plan, may_wait: Callable[[], bool]) -> None:
        """Settle what is open, as planned. While the database is away it is tried again as long as the tasks are ours
        and we `may_wait`: what was done must not be done twice."""
        plan.keep_open(batch)
        ends: tuple[tuple[Fate, list[StoredTask], Callable[[], Awaitable[Settled]]], ...] = (
            (Fate.DONE, plan.done, lambda: self._storage.done(plan.done)),
            (Fate.RETRIED, [task for task, _ in plan.retries], lambda: self._storage.retry(plan.retries)),
            (Fate.DEAD, [task for task, _ in plan.letters], lambda: self._storage.set_aside(plan.letters)),
        )
        failures = []
        for fate, tasks, call in ends:
            if tasks:
                try:
                    await self._insist(batch, tasks, fate, call, may_wait)
                except Exception as error:
                    failures.append(error)  # the others can be settled all the same
        if failures:
            raise failures[0]

    async def _insist(
        self,
        batch: Batch,
        tasks: Sequence[Taken],
        fate: Fate,
        call: Callable[[], Awaitable[Settled]],
        may_wait: Callable[[], bool],
    ) -> None:
        failures, is_unknown, ours_until = 0, False, batch.trusted_until

        async def once() -> Settled:
            answer = await call()
            if is_unknown and self._clock.monotonic() < ours_until:
                # Void, although nobody else could have the task yet: an earlier try did settle it, of which no answer
                # came. Later than that it may as well have been another who took it, and nothing tells them apart.
                return Settled(answer.settled | answer.stale, frozenset())
            return answer

        while True:
            try:
                await batch.ledger.settle(tasks, fate, once)
                return
            except _PASSING as error:
                is_unknown = is_unknown or isinstance(error, OutcomeUnknown)
                failures += 1
                if not may_wait() or self._clock.monotonic() >= batch.trusted_until:
                    raise
            await self._clock.sleep(backoff_s(failures, first=0.05, most=1.0, spread=self._chance.random()))
