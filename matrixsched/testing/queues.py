"""`stage.queues`: what tests say about tasks of queues, and what they are told when it is not so.

Tasks are shown: they are the test's own, and without them a message would not tell what differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from uuid import UUID

from anyio.from_thread import BlockingPortal

from matrixsched.app import App
from matrixsched.errors import BadInput
from matrixsched.queues.codec import encode
from matrixsched.queues.database import DatabaseStorage
from matrixsched.queues.handlers import QueueHandlers
from matrixsched.queues.tasks import QueueTask, task_class
from matrixsched.rules.contract import QueueContract
from matrixsched.rules.queues import PAGE_MAX, DeadTask, Receipt, StoredTask
from matrixsched.store.queues import PeekedTask
from matrixsched.store.store import Store
from matrixsched.testing.asserts import ANY, SHOWN_MAX
from matrixsched.testing.batches import Handled, TaskFate, named, read

_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Queued:
    """A task that is in its queue."""

    queue: str
    task: object
    task_id: int
    attempts: int
    at: datetime
    """When it can be taken; of one that is taken, when its visibility timeout is over."""
    state: str
    """ready, taken or delayed."""

    def __str__(self) -> str:
        return f"{named(self.queue, self.task_id, self.task)}, {self.state}, at {self.at}, attempts {self.attempts}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dead:
    """A task that was set aside."""

    queue: str
    task: object
    task_id: int
    attempts: int
    at: datetime
    reason: str

    def __str__(self) -> str:
        return f"{named(self.queue, self.task_id, self.task)}, since {self.at}: {self.reason:.200}"


class StageQueues:
    """Looks and judges. It reads past the faults: what is in the database is what counts."""

    def __init__(self, app: App, store: Store, handled: Sequence[Handled], portal: BlockingPortal) -> None:
        self._app = app
        self._storage = DatabaseStorage(lambda: store, chance=lambda: app.chance)
        self._past = handled
        self._portal = portal

    @property
    def handled(self) -> list[Handled]:
        """All tasks that handlers had so far, as often as they had them."""
        return list(self._past)

    def tasks(self, queue: str | type[QueueTask] | None = None) -> list[Queued]:
        """What is in a queue, or in all of them, in the order in which it is due; no more than 10,000 of each."""
        found = [
            self._queued(one, peeked)
            for one in self._queues(queue)
            for peeked in self._portal.call(partial(self._storage.peek, one.id, limit=PAGE_MAX))
        ]
        return sorted(found, key=lambda queued: (queued.at, queued.task_id))

    def dead_letters(self, queue: str | type[QueueTask] | None = None) -> list[Dead]:
        """What was set aside, in the order in which it was put; no more than 10,000 of each queue."""
        return [
            self._dead(one, letter)
            for one in self._queues(queue)
            for letter in self._portal.call(partial(self._storage.dead_letters, one.id, limit=PAGE_MAX))
        ]

    # Asserts.

    def assert_put(
        self, queue: str | type[QueueTask] | None = None, *, task: object = ANY, at: datetime | None = None
    ) -> Queued:
        """There is a task of which all this is true; the first that fits."""
        there = self.tasks(queue)
        for one in there:
            if self._is_like(one, task) and at in (None, one.at):
                return one
        raise AssertionError("\n".join([f"no task is there {_said(queue, task=task, at=at)}", *_instead(there)]))

    def assert_not_put(
        self, queue: str | type[QueueTask] | None = None, *, task: object = ANY, at: datetime | None = None
    ) -> None:
        """There is no task of which all this is true; without arguments: none at all."""
        found = [one for one in self.tasks(queue) if self._is_like(one, task) and at in (None, one.at)]
        if found:
            raise AssertionError("\n".join([f"there are tasks {_said(queue, task=task, at=at)}:", *_listed(found)]))

    def assert_handled(
        self,
        queue: str | type[QueueTask] | None = None,
        *,
        task: object = ANY,
        fate: TaskFate | str | None = None,
        times: int | None = None,
    ) -> list[Handled]:
        """Tasks of which all this is true were handled on this stage: so many, or at least one."""
        wanted = None if fate is None else _fate(fate)
        names = {one.name for one in self._queues(queue)}
        fitting = [
            one for one in self._past if one.queue in names and self._is_like(one, task) and wanted in (None, one.fate)
        ]
        if len(fitting) == times or (times is None and fitting):
            return fitting
        said = f"{len(fitting)} tasks were handled {_said(queue, task=task, fate=wanted)}"
        asked = "" if times is None else f", {times} were expected"
        raise AssertionError("\n".join([f"{said}{asked}; these were:", *_listed(self._past[-SHOWN_MAX:])]))

    def assert_dead_letter(
        self, queue: str | type[QueueTask] | None = None, *, task: object = ANY, reason: str | None = None
    ) -> Dead:
        """There is a dead letter of which all this is true, `reason` being a part of why; the first that fits."""
        there = self.dead_letters(queue)
        for one in there:
            if self._is_like(one, task) and (reason is None or reason in one.reason):
                return one
        said = _said(queue, task=task, reason=reason)
        raise AssertionError("\n".join([f"no dead letter is there {said}", *_instead(there)]))

    # For the stage.

    def next_due(self) -> datetime | None:
        """When the next task can be taken of a queue that is handled here."""
        paused = {one.queue for one in self._portal.call(self._storage.settings) if one.paused}
        handled = {handler.queue.id for handler in self._app.queues.handlers} - paused
        first = [one for queue in handled for one in self._portal.call(partial(self._storage.peek, queue, limit=1))]
        now = self._app.clock.now()
        return min((one.due_at for one in first if one.due_at > now), default=None)

    # How they look.

    @property
    def _known(self) -> QueueHandlers:
        return self._app.queues.handlers

    def _queues(self, queue: str | type[QueueTask] | None) -> list[QueueContract]:
        # A misspelt name has no tasks either: without this a test would be content with it.
        if queue is None:
            return self._known.declared
        return [self._known.queue_of(queue) if isinstance(queue, type) else self._known.queue(queue)]

    def _is_like(self, one: Queued | Handled | Dead, task: object) -> bool:
        if task is ANY:
            return True
        if not isinstance(task, QueueTask):
            raise BadInput(f"task must be one of a class made from a contract, not {type(task).__name__}")
        queue = self._known.queue_of(type(task))
        # As it would come back: a class that was generated and one made at run time are the same.
        return one.queue == queue.name and one.task == self._decoded(queue, encode(task), one.task_id)

    def _queued(self, queue: QueueContract, task: PeekedTask) -> Queued:
        return Queued(
            queue=queue.name,
            task=self._decoded(queue, task.data, task.id),
            task_id=task.id,
            attempts=task.attempts,
            at=task.due_at,
            state=task.state,
        )

    def _dead(self, queue: QueueContract, letter: DeadTask) -> Dead:
        return Dead(
            queue=queue.name,
            task=self._decoded(queue, letter.data, letter.id),
            task_id=letter.id,
            attempts=letter.attempts,
            at=letter.died_at,
            reason=letter.reason,
        )

    def _decoded(self, queue: QueueContract, data: bytes, id: int) -> object:
        """Nobody took it, so that there is no receipt and the like to be asked of it."""
        handler = self._known.find(queue.id)
        kind = task_class(queue) if handler is None else handler.task_class
        stored = StoredTask(
            id=id,
            queue=queue.id,
            data=data,
            attempts=0,
            created_at=_LONG_AGO,
            start_at=_LONG_AGO,
            previous_start_at=None,
            receipt=Receipt(id, UUID(int=0)),
        )
        found = read(kind, stored)
        return replace(found, stored=None) if isinstance(found, QueueTask) else found


def _fate(fate: str) -> TaskFate:
    try:
        return TaskFate(fate)
    except ValueError:
        raise BadInput(f"fate is {fate!r:.80}, but must be one of {', '.join(TaskFate)}") from None


def _said(queue: str | type | None, **facts: object) -> str:
    name = queue.__name__ if isinstance(queue, type) else queue
    said = [] if name is None else [f"queue {name!r}"]
    said += [
        f"{fact} {value!r:.200}" if not isinstance(value, datetime) else f"{fact} {value}"
        for fact, value in facts.items()
        if value is not None and value is not ANY
    ]
    return f"with {', '.join(said) or 'anything at all'}"


def _instead(there: Sequence[object]) -> list[str]:
    return ["there are:", *_listed(there)] if there else ["there is none at all"]


def _listed(found: Sequence[object]) -> list[str]:
    more = [f"  and {len(found) - SHOWN_MAX} more"] if len(found) > SHOWN_MAX else []
    return [f"  {one}" for one in found[:SHOWN_MAX]] + more or ["  none"]
