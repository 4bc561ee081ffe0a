"""What was put, taken, handled and settled in the queues of a run, and how their tables stand after every commit."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from matrixsched.events import ProcessorsAssigned
from matrixsched.queues import QueueTask
from matrixsched.rules.queues import NewItem, Receipt, StoredTask
from matrixsched.store.queues import Retry
from matrixsched.store.values import Answer
from simulation.commit_checkers import Commit
from simulation.database import microseconds
from simulation.faults import Noted
from simulation.history import Operation, Reply
from simulation.parts import notes_taken

if TYPE_CHECKING:
    from simulation.world import World

SETTLED_AS = {"done_tasks": "done", "retry_tasks": "retry", "set_aside_tasks": "set aside"}


class TaskRow(NamedTuple):
    id: int
    queue: int
    attempts: int
    created_at: int
    start_at: int
    previous_start_at: int | None
    due_at: int
    receipt: str | None
    data: bytes


class DeadRow(NamedTuple):
    id: int
    queue: int
    attempts: int
    created_at: int
    data: bytes


class SettingsRow(NamedTuple):
    queue: int
    paused: int
    processors_max: int | None


class WorkerRow(NamedTuple):
    worker: str
    name: str
    processors_max: int
    seen_at: int
    assignment: str | None


@dataclass(frozen=True, slots=True)
class QueueState:
    """What a commit left behind."""

    tasks: dict[int, TaskRow] = field(default_factory=dict)
    dead: dict[int, DeadRow] = field(default_factory=dict)
    settings: dict[int, SettingsRow] = field(default_factory=dict)

    def is_paused(self, queue: int) -> bool:
        return queue in self.settings and bool(self.settings[queue].paused)

    def processors_max(self, queue: int) -> int | None:
        return self.settings[queue].processors_max if queue in self.settings else None

    def is_served(self, queue: int) -> bool:
        return not self.is_paused(queue) and self.processors_max(queue) != 0


_TASKS = """
select id, queue, attempts, created_at, start_at, previous_start_at, due_at, receipt, data from matrixsched_queue_tasks
"""
_DEAD = "select id, queue, attempts, created_at, data from matrixsched_queue_dead_letters"
_SETTINGS = "select queue, paused, processors_max from matrixsched_queue_settings"
_WORKERS = "select worker, name, processors_max, seen_at, assignment from matrixsched_queue_workers"
_MANAGER = "select held_by, held_until from matrixsched_chores where name = 'queues'"


@dataclass(slots=True, eq=False)
class Put:
    """A call that puts tasks, which are known by their bytes: no two tasks have the same."""

    by: str
    items: list[bytes]
    called_at: datetime
    not_before: datetime
    ids: list[int] = field(default_factory=list)
    reply: Reply = Reply.OPEN


@dataclass(slots=True, eq=False)
class Handling:
    """One task in the hands of a handler, as that saw it."""

    host: str
    task: StoredTask
    at: datetime
    said: set[str] = field(default_factory=set)
    """What it said is to become of it."""
    is_left: bool = False
    """It ended and left the task to its timeout, or raised."""
    is_cancelled: bool = False


@dataclass(slots=True, eq=False)
class Taking:
    """A task that was taken, whether or not its worker heard of it."""

    host: str
    task: StoredTask
    asked_at: datetime
    at: datetime
    valid_until: int
    handlings: list[Handling] = field(default_factory=list)
    settled_as: str | None = None
    retried_for: datetime | timedelta | None = None
    next_at: datetime | None = None

    def is_valid(self, now: int) -> bool:
        return self.settled_as is None and now < self.valid_until


@dataclass(frozen=True, slots=True)
class Planned:
    """What a manager decided."""

    at: datetime
    host: str
    plan: ProcessorsAssigned


class QueueNotes:
    def __init__(self, world: World) -> None:
        self._world = world
        self.before = QueueState()
        self.after = QueueState()
        self.puts: list[Put] = []
        self.put_of: dict[bytes, Put] = {}
        self.delivery_of: dict[Operation, bytes] = {}
        """What the actions that become tasks are to put."""
        self.created: Counter[bytes] = Counter()
        """How many tasks there ever were, by their bytes."""
        self.ids_of: defaultdict[bytes, set[int]] = defaultdict(set)
        self.first_at: dict[bytes, datetime] = {}
        """When it could first be taken, because somebody hastened or redrove it."""
        self.ended: dict[int, str] = {}
        """How tasks went."""
        self.takings: dict[Receipt, Taking] = {}
        self.takings_of: defaultdict[int, list[Taking]] = defaultdict(list)
        self.strange: list[Handling] = []
        """Handled under receipts that nobody was given."""
        self.plans: list[Planned] = []
        self.settings_since: list[tuple[datetime, dict[int, SettingsRow]]] = []
        """All that ever were, each from when on."""

    # The tables.

    def read(self) -> QueueState:
        rows = self._world.database._rows
        return QueueState(
            {row[0]: TaskRow(*row) for row in rows(_TASKS)},
            {row[0]: DeadRow(*row) for row in rows(_DEAD)},
            {row[0]: SettingsRow(*row) for row in rows(_SETTINGS)},
        )

    def workers(self) -> list[WorkerRow]:
        return [WorkerRow(*row) for row in self._world.database._rows(_WORKERS)]

    def manager(self, now: int) -> str | None:
        """Who may tell workers what to work on."""
        ((held_by, held_until),) = self._world.database._rows(_MANAGER)
        return held_by if held_until is not None and held_until > now else None

    # What happens.

    def put(self, by: str, items: list[bytes], delay: timedelta) -> Put:
        now = self._world.clock.now()
        noted = Put(by, items, now, now + delay)
        self.puts.append(noted)
        self.put_of.update((data, noted) for data in items)
        return noted

    def handed(self, host: str, task: QueueTask) -> Handling:
        assert task.stored is not None
        self._world.history.note(host, "handles", task.task_id, task.attempts)
        handling = Handling(host, task.stored, self._world.clock.now())
        taking = self.takings.get(task.receipt)
        (self.strange if taking is None else taking.handlings).append(handling)
        return handling

    def planned(self, host: str, plan: ProcessorsAssigned) -> None:
        self.plans.append(Planned(self._world.clock.now(), host, plan))

    def committed(self, commit: Commit) -> None:
        self.before, self.after = self.after, self.read()
        for id in sorted(self.after.tasks.keys() - self.before.tasks.keys()):
            if id not in self.before.dead:
                data = self.after.tasks[id].data
                self.created[data] += 1
                self.ids_of[data].add(id)
        if self.after.settings != self.before.settings or not self.settings_since:
            self.settings_since.append((self._world.clock.now(), self.after.settings))
        if isinstance(commit.transition, Noted):
            note = _NOTE.get(commit.transition.name)
            if note is not None:
                note(self, commit, commit.transition)

    def _note_taken(self, commit: Commit, asked: Noted[Any]) -> None:
        until = commit.now + asked.options["visibility"] // timedelta(microseconds=1)
        for task in commit.answer:
            self._world.history.note(commit.host, "took", task.id, task.attempts)
            taking = Taking(commit.host, task, commit.asked_at, self._world.clock.now(), until)
            for earlier in self.takings_of[task.id][-1:]:
                earlier.next_at = taking.at
            self.takings[task.receipt] = taking
            self.takings_of[task.id].append(taking)

    def _note_extended(self, commit: Commit, asked: Noted[Any]) -> None:
        for receipt in receipts_of(asked):
            taking = self.takings.get(receipt)
            if taking is not None and receipt.task_id in commit.answer and taking.is_valid(commit.now):
                until = commit.now + asked.options["visibility"] // timedelta(microseconds=1)
                taking.valid_until = max(until, taking.valid_until if asked.options.get("only_longer") else 0)

    def _note_settled(self, commit: Commit, asked: Noted[Any]) -> None:
        when = {one.receipt: one.when for one in asked.arguments[0] if isinstance(one, Retry)}
        for receipt in receipts_of(asked):
            was, now = self.before.tasks.get(receipt.task_id), self.after.tasks.get(receipt.task_id)
            taking = self.takings.get(receipt)
            if taking is None or was == now or was is None or was.receipt != str(receipt.guid):
                continue
            taking.settled_as, taking.retried_for = SETTLED_AS[asked.name], when.get(receipt)
            self._world.history.note(commit.host, taking.settled_as, receipt.task_id)
            if taking.settled_as == "done":
                self.ended[receipt.task_id] = "done"

    def _note_purged(self, commit: Commit, asked: Noted[Any]) -> None:
        before, after = self.before.tasks | self.before.dead, self.after.tasks | self.after.dead
        self.ended.update((id, "purged") for id in before.keys() - after.keys())

    def _note_hastened(self, commit: Commit, asked: Noted[Any]) -> None:
        for id, row in self.after.tasks.items():
            if self.before.tasks.get(id) != row:
                self.first_at.setdefault(row.data, self._world.clock.now())


_NOTE = {
    "take_tasks": QueueNotes._note_taken,
    "extend_tasks": QueueNotes._note_extended,
    "done_tasks": QueueNotes._note_settled,
    "retry_tasks": QueueNotes._note_settled,
    "set_aside_tasks": QueueNotes._note_settled,
    "purge_tasks": QueueNotes._note_purged,
    "purge_dead": QueueNotes._note_purged,
    "retry_now": QueueNotes._note_hastened,
}


def notes_of(world: World) -> QueueNotes:
    return notes_taken(world, QueueNotes)


def receipts_of(asked: Noted[Any]) -> Iterator[Receipt]:
    """Those that a commit names to settle or extend."""
    for one in asked.arguments[0]:
        yield one if isinstance(one, Receipt) else one.receipt


def deliveries_of(commit: Commit) -> list[NewItem]:
    """What the attempts deliver that a commit records."""
    assert isinstance(commit.transition, Noted)
    return [
        ended.delivery
        for ended in commit.transition.arguments[0]
        if ended.delivery is not None and commit.answer[ended.claim.guid] is Answer.RECORDED
    ]


def starts_at(when: datetime | timedelta, now: int) -> int:
    return now + when // timedelta(microseconds=1) if isinstance(when, timedelta) else microseconds(when)
