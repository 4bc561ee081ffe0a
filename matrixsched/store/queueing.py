"""The part of the protocol that typed queues are made of. One implementation for each database, the same promises."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol
from uuid import UUID

from matrixsched.rules.processors import ProcessorPlan
from matrixsched.rules.queues import DeadTask, NewItem, Outlook, QueueSettings, Receipt, StoredTask
from matrixsched.store.queues import (
    Assigned,
    Letter,
    PeekedTask,
    QueueCounts,
    QueueLoads,
    Ready,
    Retry,
    SweptTasks,
    WorkerReport,
)
from matrixsched.store.transition import Transition
from matrixsched.store.values import Answer, Ended


class Queueing(Protocol):
    def put_tasks(self, items: Sequence[NewItem], request_guid: UUID, *, tell: bool) -> Transition[list[int]]:
        """Add tasks, all or none, once for a request; their ids, in that order, also if it was sent before."""
        ...

    def record_deliveries(self, ended: Sequence[Ended], *, history_max: int) -> Transition[Mapping[UUID, Answer]]:
        """As `record`; and what is delivered by an attempt that is recorded now becomes a task, in one transaction."""
        ...

    def take_tasks(self, queue: int, count: int, guid: UUID, *, visibility: timedelta) -> Transition[list[StoredTask]]:
        """Take tasks that are ready, the longest ready first, under receipts of this guid; none of a paused queue.

        Where no answer comes, what was taken comes back when the visibility timeout is over.
        """
        ...

    def done_tasks(self, receipts: Collection[Receipt], *, again: bool = False) -> Transition[set[int]]:
        """Delete tasks; the ids of those whose receipts were good. Each id once.

        `again`, because no answer came to the first try: then also the ids of those that are not there any more.
        """
        ...

    def retry_tasks(self, retries: Collection[Retry], request_guid: UUID) -> Transition[set[int]]:
        """Let tasks come back later, once for a request; the ids of those whose receipts were good. Each id once."""
        ...

    def set_aside_tasks(self, letters: Collection[Letter], request_guid: UUID) -> Transition[set[int]]:
        """Make dead letters, once for a request; the ids of those whose receipts were good. Each id once."""
        ...

    def extend_tasks(
        self, receipts: Collection[Receipt], *, visibility: timedelta, only_longer: bool = False
    ) -> Transition[set[int]]:
        """Hold tasks for `visibility` from now on, or as long as they are if that is longer and `only_longer` is said;
        the ids of those whose receipts are good. Each id once.

        What somebody settles or extends at this moment is left to that, and is among them if its receipt is good.
        """
        ...

    def count_queues(self, *, count_max: int) -> Transition[QueueCounts]:
        """How many tasks there are, by queue. Counting stops at `count_max` of those that are ready, of those that are
        not (the next due first), and of the dead."""
        ...

    def count_ready(self, queues: Sequence[int], *, count_max: int) -> Transition[Mapping[int, Ready]]:
        """How much of each of these queues is ready; counting stops at `count_max`, and nothing else is read."""
        ...

    def queue_loads(self, queues: Sequence[int], *, count_max: int) -> Transition[QueueLoads]:
        """What a plan is made of: as `count_ready` and `queue_settings` tell, in one transaction."""
        ...

    def look_queues(self, queues: Sequence[int], *, within: timedelta) -> Transition[Mapping[int, Outlook]]:
        """Which of these queues have something to take, and when more will be, if that is within that time; of which
        nothing is said has none. One look for all of them, at two entries of an index for each."""
        ...

    def peek_tasks(self, queue: int, *, limit: int) -> Transition[list[PeekedTask]]:
        """The first tasks of a queue in the order in which they are due, taken ones among them."""
        ...

    def retry_now(self, queue: int, *, ids: Sequence[int] | None, limit: int, tell: bool) -> Transition[int]:
        """Make delayed tasks ready, these or the next due; how many were."""
        ...

    def purge_tasks(self, queue: int, *, ids: Sequence[int] | None, limit: int) -> Transition[int]:
        """Delete tasks that nobody has, these or the next due; how many were. None are left when it says 0."""
        ...

    def dead_letters(self, queue: int, *, after: int, limit: int) -> Transition[list[DeadTask]]: ...

    def redrive(
        self, queue: int, *, ids: Sequence[int] | None, limit: int, tell: bool, died_by: datetime | None = None
    ) -> Transition[int]:
        """Let dead letters come back as if they were new, these or the first ones; how many did.

        Of the first ones, with `died_by`, only those that had died then.
        """
        ...

    def purge_dead(
        self, queue: int, *, ids: Sequence[int] | None, limit: int, died_by: datetime | None = None
    ) -> Transition[int]: ...

    def sweep_tasks(self, after: int, *, limit: int, reach: timedelta) -> Transition[SweptTasks]:
        """Of the next tasks by id, cut the timeouts that end later than `reach` from now."""
        ...

    # Settings.

    def queue_settings(self) -> Transition[list[QueueSettings]]:
        """Of all queues that have any."""
        ...

    def change_queue_settings(
        self, queue: int, change: Callable[[QueueSettings], QueueSettings]
    ) -> Transition[QueueSettings]:
        """Change them to what follows from what they are."""
        ...

    def pause_queue(self, queue: int) -> Transition[bool]:
        """Hand out nothing of it; whether it was not so before."""
        ...

    def resume_queue(self, queue: int) -> Transition[bool]: ...

    # Workers, and whoever tells them what to work on: the holder of the chore `queues`.

    def report_processors(
        self, worker: UUID, *, name: str, processors_max: int, report: Mapping[str, Any]
    ) -> Transition[Assigned]:
        """Say that a worker is there and what it did; what it is told to do."""
        ...

    def processor_reports(self, *, within: timedelta) -> Transition[list[WorkerReport]]:
        """Of the workers that were seen so lately."""
        ...

    def assign_processors(self, plan: ProcessorPlan, holder: UUID) -> Transition[set[UUID]]:
        """Tell workers what to work on, if the chore is still the holder's; those that were told."""
        ...

    def leave_processors(self, worker: UUID) -> Transition[bool]:
        """A worker that stops takes its leave; whether it was known."""
        ...

    def forget_processors(self, *, unseen_for: timedelta) -> Transition[int]:
        """Forget workers that were not seen for so long; how many."""
        ...
