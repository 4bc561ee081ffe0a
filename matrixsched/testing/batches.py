"""What became of the tasks that handlers had on a stage."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from matrixsched.errors import TaskTooNew, TaskUnreadable
from matrixsched.queues.codec import decode
from matrixsched.queues.ledger import Fate
from matrixsched.queues.tasks import QueueTask
from matrixsched.rules.queues import StoredTask
from matrixsched.worker.batches import Batch
from matrixsched.worker.settling import Plan


class TaskFate(StrEnum):
    """What became of a task of a batch."""

    DONE = "done"
    RETRIED = "retried"
    DEAD = "dead"
    """Set aside: a dead letter."""
    LEFT = "left"
    """Nobody settled it: it comes back when its visibility timeout is over."""
    STALE = "stale"
    """Its visibility timeout was over before it was settled."""


_FATES = {fate: TaskFate(fate.name.lower()) for fate in Fate}


@dataclass(frozen=True, slots=True, kw_only=True)
class Handled:
    """A task that was in a batch."""

    queue: str
    task: object
    """As the handler got it; the stored bytes if they could not be read."""
    task_id: int
    attempts: int
    at: datetime
    fate: TaskFate
    batch: int
    """Its number on this stage: tasks of the same one were handled together."""
    error: str | None
    """Why the whole batch failed, as it is told of."""
    exception: BaseException | None
    """What the handler raised."""

    def __str__(self) -> str:
        error = f", {self.error:.200}" if self.error else ""
        return (
            f"{self.at}  {named(self.queue, self.task_id, self.task)} in batch {self.batch}: {self.fate.value}{error}"
        )


def named(queue: str, id: int, task: object) -> str:
    return f"{queue!r} {id} {task!r:.200}"


def handled_of(batch: Batch, plan: Plan, *, number: int, at: datetime) -> list[Handled]:
    """What became of each task of a batch that has ended."""
    ids = [task.id for task in batch.tasks]
    fates = {id: fate for met, fate in _FATES.items() for id in batch.ledger.met(met, ids)}
    return [
        Handled(
            queue=batch.handler.queue.name,
            task=read(batch.handler.task_class, task),
            task_id=task.id,
            attempts=task.attempts,
            at=at,
            fate=fates.get(task.id, TaskFate.LEFT),
            batch=number,
            error=plan.error,
            exception=plan.exception,
        )
        for task in batch.tasks
    ]


def read(kind: type[QueueTask], stored: StoredTask) -> object:
    try:
        return decode(kind, stored)
    except (TaskUnreadable, TaskTooNew):
        return stored.data
