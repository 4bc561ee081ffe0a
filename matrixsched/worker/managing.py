"""Managing: one worker at a time decides how many processors each queue gets, and every worker follows.

    report      each worker says what its processors did and have in hand, and hears what they are to do
    manage      whoever has the chore reads what all said and what waits, plans, and writes what has changed
    sample      how queues stand, for metrics

Nobody waits for a manager. Without one, or if it is silent, processors go on as they did: round all queues, or where
they were told to be. A worker that was not seen for a while is planned for no more; when it is back, it is again.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol, cast
from uuid import UUID

from matrixsched.clock import Chance, Clock
from matrixsched.events import BatchEnded, BatchTaken, Events, ProcessorsAssigned, QueuesSampled
from matrixsched.rules.processors import QueueLoad, WorkerRoom
from matrixsched.rules.queues import QUEUE_MAX, QueueSample, QueueSettings, QueueStat
from matrixsched.rules.standby import plan_with_standby
from matrixsched.store.chores import QUEUES
from matrixsched.store.queues import Ready, WorkerReport
from matrixsched.store.store import Store
from matrixsched.worker.chore import Chore
from matrixsched.worker.pace import Wakeup

EVERY = timedelta(seconds=5)
"""How often it is planned, and how often workers report: a queue that fills up has its processors after twice that at
most, and a fleet of a hundred workers costs the database twenty small statements a second."""
FRESH = 3 * EVERY
"""Who was not seen for so long is not counted on: two reports may get lost."""
COUNT_MAX = 10_000
"""Counting stops there: two queues that have more than that are alike, whatever they have."""
GONE = timedelta(days=1)
"""Who was not seen for so long is forgotten."""
FORGET_EVERY_S = 600.0
SAMPLE_EVERY_S = 15.0
SAMPLE_COUNT_MAX = 10_000
NEWEST_PART = 0.5
"""What the newest measure of a task's time counts against all before it: a few reports after a change it is known."""


class Processors(Protocol):
    """The processors of this worker."""

    @property
    def processors_max(self) -> int:
        """How many there are, at work or not."""
        ...

    def assign(self, processors: Mapping[int, int]) -> None:
        """So many work on each of these queues from the next batch on; the others go round over all queues."""
        ...

    def configure(self, terms: Mapping[int, QueueSettings]) -> None:
        """What the store says of batches and visibility timeouts, from the next batch on."""
        ...


class Managing:
    def __init__(
        self,
        store: Store,
        processors: Processors,
        queues: Mapping[int, str],
        events: Events,
        *,
        worker: UUID,
        name: str,
        lease: timedelta,
        clock: Clock,
        chance: Chance,
    ) -> None:
        """`queues`: the names of those that are handled here, by number."""
        self._store = store
        self._do = store.transitions
        self._processors = processors
        self._queues = queues
        self._events = events
        self._worker = worker
        self._name = name
        self._clock = clock
        self.chore = Chore(store, QUEUES, chance, lease=lease, every=EVERY)
        self._measures: dict[int, _Measure] = {}
        self._told: Mapping[int, int] | None = None
        self._settings: Mapping[int, QueueSettings] = {}
        self._forgot_at: float | None = None
        self.report_wakeup = Wakeup()
        """Set when whoever manages here has told workers something: one of them is this one."""
        self._has_reported = False
        """Or may have, if an answer was lost."""
        events.subscribe(BatchTaken, self._on_batch_taken)
        events.subscribe(BatchEnded, self._on_batch_ended)

    # Each worker.

    async def report(self) -> float:
        """Say what was done, and do what is said; the rest until the next report."""
        if not self._is_at_work:
            return EVERY.total_seconds()
        told = {queue: self._measure(queue).tasks for queue in self._queues}
        self._has_reported = True
        saying = self._do.report_processors(
            self._worker, name=self._name, processors_max=self._processors.processors_max, report=self._said()
        )
        answer = (await self._store.run(saying)).assignment
        for queue, tasks in told.items():
            self._measure(queue).forget(tasks)
        if answer is not None and answer != self._told:
            self._told = dict(answer)
            self._processors.assign(self._told)
        return EVERY.total_seconds()

    async def hear_settings(self) -> None:
        """Read what was set for the queues: whoever sees that it was changed does so, before the next batch."""
        settings = await self._store.run(self._do.queue_settings())
        found = {one.queue: one for one in settings if one.queue in self._queues}
        if found != self._settings:
            self._settings = found
            self._processors.configure(found)

    @property
    def _is_at_work(self) -> bool:
        """Without a queue, or without processors, the queues are left to other workers."""
        return bool(self._queues) and self._processors.processors_max > 0

    def _said(self) -> Mapping[str, object]:
        return {"queues": {str(queue): self._measure(queue).facts for queue in sorted(self._queues)}}

    def _measure(self, queue: int) -> _Measure:
        return self._measures.setdefault(queue, _Measure())

    def _on_batch_taken(self, event: BatchTaken) -> None:
        self._measure(event.queue).taken += event.tasks

    def _on_batch_ended(self, event: BatchEnded) -> None:
        self._measure(event.queue).add(event.tasks, event.busy_s)

    async def leave(self) -> None:
        """Stop being counted on, and let another manage at once."""
        if self._has_reported:
            await self._store.run(self._do.leave_processors(self._worker))
            self._has_reported = False
        await self.chore.leave()

    # One for all.

    async def manage(self) -> float:
        """Plan for all, if it is our turn; the rest until it may be."""
        if self._is_at_work and await self.chore.take() is not None:
            await self._plan()
            await self._forget()
            await self.chore.end()
        return EVERY.total_seconds()

    async def _forget(self) -> None:
        now = self._clock.monotonic()
        if self._forgot_at is None or now >= self._forgot_at + FORGET_EVERY_S:
            await self._store.run(self._do.forget_processors(unseen_for=GONE))
            self._forgot_at = now

    async def _plan(self) -> None:
        began = self._clock.monotonic()
        reports = await self._store.run(self._do.processor_reports(within=FRESH))
        said = _said_by_queue(reports)
        found = await self._store.run(self._do.queue_loads(list(said), count_max=COUNT_MAX))
        loads = tuple(
            _load(queue, found.ready[queue], found.settings.get(queue) or QueueSettings(queue=queue), said[queue])
            for queue in said
        )
        rooms = [_room(report) for report in reports]
        plan = plan_with_standby(loads, rooms)
        changed = {one.worker: plan[one.worker] for one in reports if plan[one.worker] != one.assigned.assignment}
        if changed:
            await self._store.run(self._do.assign_processors(changed, self.chore.holder))
            self.report_wakeup.set()
        self._events.emit(
            ProcessorsAssigned(
                loads,
                {one.name: plan[one.worker] for one in reports},
                moved=sum(_moved(room.assigned, plan[room.worker]) for room in rooms),
                took_s=self._clock.monotonic() - began,
            )
        )

    # For metrics.

    async def sample(self) -> float:
        """Look up how queues stand; the rest until the next look."""
        if self._is_at_work and self._events.wants(QueuesSampled):
            counts = await self._store.run(self._do.count_queues(count_max=SAMPLE_COUNT_MAX))
            settings = await self._store.run(self._do.queue_settings())
            names = {one.queue: one.name for one in settings if one.name} | dict(self._queues)
            samples = [
                _sample(stat, names.get(queue, str(queue)), counts.now) for queue, stat in sorted(counts.stats.items())
            ]
            self._events.emit(QueuesSampled(tuple(samples)))
        return SAMPLE_EVERY_S


class _Measure:
    """What this worker's processors do with one queue."""

    __slots__ = ("_batch_most", "_busy_s", "_task_s", "taken", "tasks")

    def __init__(self) -> None:
        self.tasks = 0
        """Since the last report that was heard."""
        self.taken = 0
        """In the hands of processors now."""
        self._busy_s = 0.0
        self._task_s: float | None = None
        self._batch_most: int | None = None

    def add(self, tasks: int, busy_s: float) -> None:
        """A batch ended."""
        self.taken -= tasks
        self.tasks += tasks
        self._busy_s += busy_s
        self._batch_most = max(tasks, self._batch_most or 1)

    @property
    def task_s(self) -> float | None:
        """How long a processor is at a task, lately."""
        if not self.tasks:
            return self._task_s
        newest = self._busy_s / self.tasks
        return newest if self._task_s is None else self._task_s + (newest - self._task_s) * NEWEST_PART

    @property
    def facts(self) -> Mapping[str, object]:
        return {"task_s": self.task_s, "tasks": self.tasks, "taken": self.taken, "batch": self._batch_most}

    def forget(self, tasks: int) -> None:
        """So many were told of. What ended while that was on its way is told the next time."""
        if tasks:
            told_s = self._busy_s * tasks / self.tasks
            self._task_s = self.task_s
            self._busy_s -= told_s
            self.tasks -= tasks


# From what is read to what is planned.


@dataclass(frozen=True, slots=True)
class _Said:
    """What a report says of a queue; nothing, where another version of the library said it otherwise."""

    task_s: float | None
    tasks: int
    taken: int
    batch: int | None


def _room(report: WorkerReport) -> WorkerRoom:
    return WorkerRoom(
        worker=report.worker,
        processors_max=report.processors_max,
        queues=frozenset(_said(report.report)),
        assigned=report.assigned.assignment or {},
    )


def _said(report: Mapping[str, object]) -> dict[int, _Said]:
    queues = report.get("queues")
    if not isinstance(queues, Mapping):
        return {}
    numbered = {int(queue): facts for queue, facts in queues.items() if str(queue).isdecimal()}
    return {queue: _said_of(facts) for queue, facts in numbered.items() if queue <= QUEUE_MAX}


def _said_by_queue(reports: Sequence[WorkerReport]) -> dict[int, list[_Said]]:
    """Of every queue that somebody handles."""
    by_queue: dict[int, list[_Said]] = {}
    for report in reports:
        for queue, said in _said(report.report).items():
            by_queue.setdefault(queue, []).append(said)
    return dict(sorted(by_queue.items()))


def _said_of(facts: object) -> _Said:
    found = facts if isinstance(facts, Mapping) else {}
    task_s, tasks, taken, batch = (_number(found.get(name)) for name in ("task_s", "tasks", "taken", "batch"))
    return _Said(task_s, int(tasks or 0), int(taken or 0), None if batch is None else int(batch))


def _number(value: object) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(cast(float, value)) if is_number and math.isfinite(cast(float, value)) else None


def _load(queue: int, ready: Ready, settings: QueueSettings, said: Sequence[_Said]) -> QueueLoad:
    return QueueLoad(
        queue=queue,
        ready=ready.tasks,
        taken=sum(one.taken for one in said),
        oldest_s=ready.oldest_s,
        task_s=_task_s(said),
        batch_size=settings.batch_size or max((one.batch for one in said if one.batch), default=1),
        most=settings.processors_max,
        is_paused=settings.paused,
    )


def _task_s(said: Sequence[_Said]) -> float | None:
    """By how many tasks each has measured; who did none lately knows a little, too."""
    known = [(one.task_s, one.tasks + 1) for one in said if one.task_s is not None]
    return sum(task_s * tasks for task_s, tasks in known) / sum(tasks for _, tasks in known) if known else None


def _age_s(stat: QueueStat, now: datetime) -> float:
    return 0.0 if stat.oldest_ready_at is None else max(0.0, (now - stat.oldest_ready_at).total_seconds())


def _moved(before: Mapping[int, int], after: Mapping[int, int]) -> int:
    """How many processors of a worker have another queue, or none, or one for the first time."""
    came, went = Counter(after) - Counter(before), Counter(before) - Counter(after)
    return max(came.total(), went.total())


def _sample(stat: QueueStat, name: str, now: datetime) -> QueueSample:
    return QueueSample(
        queue=stat.queue,
        name=name,
        ready=stat.ready,
        taken=stat.taken,
        delayed=stat.delayed,
        dead=stat.dead,
        oldest_ready_s=_age_s(stat, now),
    )
