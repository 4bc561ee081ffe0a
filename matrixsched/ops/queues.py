"""Queues, for operators: what waits in them, what was set aside, who works on it; by name where a contract tells it."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar
from uuid import UUID, uuid5

from matrixsched import naming
from matrixsched.app import App
from matrixsched.errors import DatabaseError, TaskTooNew, TaskUnreadable, UnknownQueue, WrongUse
from matrixsched.ops.render import Count, Facts, Id
from matrixsched.queues.codec import decode, encode
from matrixsched.queues.database import DatabaseStorage
from matrixsched.queues.tasks import task_class
from matrixsched.rules.contract import QueueContract, plain_value, value_from_plain
from matrixsched.rules.durations import duration_text
from matrixsched.rules.queues import PROCESSORS_MAX, QUEUE_MAX, DeadTask, NewItem, QueueSettings, QueueStat
from matrixsched.rules.times import check_integer
from matrixsched.store.queues import PeekedTask, QueueCounts, WorkerReport
from matrixsched.worker.managing import FRESH

T = TypeVar("T")

COUNT_MAX = 10_000
"""Counting stops there, and so does one command that changes many tasks."""
BATCH = 1000
"""So many of them in a transaction."""
DIGITS_MAX = 20
_REQUESTS = UUID("0d4f4c2e-8f0b-4b7e-9d55-3c1f7a86e90b")
_NUMBER = re.compile(r"-?[0-9]+")


# Which queue is meant.


@dataclass(frozen=True, slots=True)
class Named:
    """A queue by its number, with what is known of it."""

    number: int
    name: str | None = None
    contract: QueueContract | None = None

    def __str__(self) -> str:
        return f"queue {self.number}" if self.name is None else f"queue {self.name!r}"

    @property
    def argument(self) -> str:
        """As it is typed."""
        return str(self.number) if self.name is None else self.name


class Names:
    """What queues are called: by a contract, or else by their settings in the database."""

    def __init__(self, contracts: Iterable[QueueContract], settings: Iterable[QueueSettings] = ()) -> None:
        self.contracts = {one.id: one for one in contracts}
        self._names = {one.queue: one.name for one in settings if one.name is not None}
        self._names |= {one.id: one.name for one in self.contracts.values()}

    def of(self, number: int) -> Named:
        return Named(number, self._names.get(number), self.contracts.get(number))

    def find(self, text: str) -> Named:
        """The queue of that name or number."""
        for number, name in self._names.items():
            if name == text:
                return self.of(number)
        if _NUMBER.fullmatch(text):
            if len(text) > DIGITS_MAX or not 0 <= int(text) <= QUEUE_MAX:
                raise WrongUse(f"{text!r:.80} is no number of a queue: they go from 0 to {QUEUE_MAX}")
            return self.of(int(text))
        if self.contracts:
            raise UnknownQueue(text, sorted(one.name for one in self.contracts.values()))
        raise WrongUse(
            f"nothing here tells which queue is called {text!r:.80}: give its number, or its contract by --contract "
            "FILE or --app MODULE:APP"
        )


def declared(app: App) -> list[QueueContract]:
    """The contracts of the queues that an application knows."""
    return app.queues.handlers.declared


def storage_of(app: App) -> DatabaseStorage:
    return DatabaseStorage(lambda: app.store, chance=lambda: app.chance)


async def named(app: App, contracts: Sequence[QueueContract], text: str) -> Named:
    """Asks the database only if no contract tells. A number that nobody ever used is a slip, and refused."""
    with suppress(UnknownQueue, WrongUse):
        found = Names(contracts).find(text)
        if found.contract is not None:
            return found
    async with app:
        found = Names(contracts, await storage_of(app).settings()).find(text)
        if found.contract is None and not await _is_there(app, found.number):
            raise WrongUse(_not_there(found.number, contracts))
        return found


async def _is_there(app: App, number: int) -> bool:
    """Whether it has, or had, tasks or settings, or some worker handles it."""
    if number in await storage_of(app).stat(count_max=1):
        return True
    return bool(await _workers_of(app, number))


def _not_there(number: int, contracts: Sequence[QueueContract]) -> str:
    told = "it has neither tasks nor settings, and no worker handles it"
    if contracts:
        known = ", ".join(f"{one.id} ({one.name})" for one in contracts)
        return f"there is no queue {number}: {told}, and the contract has {known}. Check the number"
    return (
        f"there is no queue {number}: {told}. Check the number by `matrixsched queues list`; for a queue that is new, "
        "give its contract by --contract FILE or --app MODULE:APP"
    )


# How queues stand.


@dataclass(frozen=True, slots=True)
class Standing:
    queue: Named
    stat: QueueStat
    settings: QueueSettings
    now: datetime

    @property
    def facts(self) -> Facts:
        stat = self.stat
        return {
            "queue": Id(self.queue.number),
            "name": self.queue.name,
            "ready": Count(stat.ready, COUNT_MAX),
            "taken": Count(stat.taken, COUNT_MAX),
            "delayed": Count(stat.delayed, COUNT_MAX),
            "dead": Count(stat.dead, COUNT_MAX),
            "oldest_ready_s": None
            if stat.oldest_ready_at is None
            else max(timedelta(0), self.now - stat.oldest_ready_at),
            **settings_facts(self.settings),
        }


def settings_facts(settings: QueueSettings) -> Facts:
    """What is not set is as each worker was started."""
    return {
        "paused": settings.paused,
        "batch_size": settings.batch_size,
        "visibility": None if settings.visibility is None else duration_text(settings.visibility),
        "processors": settings.processors_max,
    }


async def listed(app: App, contracts: Sequence[QueueContract]) -> list[Standing]:
    """All queues that have or had tasks, have settings, or are in the contract; by number."""
    async with app:
        counts, settings = await _counts(app), await storage_of(app).settings()
    names, set_of = Names(contracts, settings), {one.queue: one for one in settings}
    numbers = counts.stats.keys() | set_of.keys() | names.contracts.keys()
    return [_standing(names.of(number), counts, set_of) for number in sorted(numbers)]


async def standing(app: App, queue: Named) -> Standing:
    async with app:
        return await _look(app, queue)


async def _look(app: App, queue: Named) -> Standing:
    counts, settings = await _counts(app), await storage_of(app).settings()
    return _standing(queue, counts, {one.queue: one for one in settings})


def _standing(queue: Named, counts: QueueCounts, settings: Mapping[int, QueueSettings]) -> Standing:
    empty = QueueStat(queue=queue.number, total=0, ready=0, taken=0, delayed=0)
    return Standing(
        queue,
        counts.stats.get(queue.number, empty),
        settings.get(queue.number, QueueSettings(queue=queue.number)),
        counts.now,
    )


async def _counts(app: App) -> QueueCounts:
    return await app.store.run(app.store.transitions.count_queues(count_max=COUNT_MAX))


# One queue with what is in it.


@dataclass(frozen=True, slots=True)
class Inside:
    standing: Standing
    tasks: list[PeekedTask]
    dead: list[DeadTask]
    workers: list[WorkerReport]
    with_data: bool

    @property
    def sections(self) -> dict[str, Facts | Sequence[Facts]]:
        return {
            "queue": self.standing.facts,
            "tasks": [self._task(task) for task in self.tasks],
            "dead_letters": [self._letter(dead) for dead in self.dead],
            "workers": [_at_work(report, self.standing.queue.number) for report in self.workers],
        }

    def _task(self, task: PeekedTask) -> Facts:
        facts: Facts = {
            "task": Id(task.id),
            "state": task.state,
            "attempts": task.attempts,
            "created_at": task.created_at,
            "start_at": task.start_at,
            "due_at": task.due_at,
            "bytes": len(task.data),
        }
        return {**facts, **self._data(task.data)}

    def _letter(self, dead: DeadTask) -> Facts:
        facts: Facts = {
            "task": Id(dead.id),
            "attempts": dead.attempts,
            "created_at": dead.created_at,
            "died_at": dead.died_at,
            "reason": dead.reason,
            "bytes": len(dead.data),
        }
        return {**facts, **self._data(dead.data)}

    def _data(self, data: bytes) -> Facts:
        return {"data": data_text(self.standing.queue.contract, data)} if self.with_data else {}


def _at_work(report: WorkerReport, queue: int) -> Facts:
    assignment = report.assigned.assignment
    return {
        "worker": report.name,
        "processors": report.processors_max,
        "assigned": None if assignment is None else assignment.get(queue, 0),
        "seen_s": max(timedelta(0), report.now - report.seen_at),
    }


def data_text(contract: QueueContract | None, data: bytes) -> str:
    """As JSON by the contract; what is not as it says, or has none, as base64."""
    fields = fields_of(contract, data)
    return f"base64:{b64encode(data).decode()}" if fields is None else json.dumps(fields, ensure_ascii=False)


def fields_of(contract: QueueContract | None, data: bytes) -> dict[str, Any] | None:
    """What is in a task by its contract; None if it is not as that says, or there is none."""
    if contract is not None:
        with suppress(TaskUnreadable, TaskTooNew):
            task = decode(contract, data)
            return {one.name: plain_value(getattr(task, one.name)) for one in contract.fields}
    return None


async def inside(app: App, queue: Named, *, tasks: int, dead: int, after: int, with_data: bool) -> Inside:
    async with app:
        storage = storage_of(app)
        return Inside(
            await _look(app, queue),
            await storage.peek(queue.number, limit=tasks),
            await storage.dead_letters(queue.number, after=after, limit=dead),
            await _workers_of(app, queue.number),
            with_data,
        )


async def _workers_of(app: App, number: int) -> list[WorkerReport]:
    """Those that handle a queue, and were seen lately."""
    reports = await app.store.run(app.store.transitions.processor_reports(within=FRESH))
    return [report for report in reports if str(number) in report.report.get("queues", {})]


# What is put.


def data_of(queue: Named, given: object, argument: str = "--data") -> bytes:
    """The bytes of a task whose fields were typed as JSON; bytes are in base64 there. No value is ever repeated."""
    contract = queue.contract
    if contract is None:
        raise WrongUse(
            f"the fields of {queue} are not known here: give its contract by --contract FILE or --app MODULE:APP"
        )
    if not isinstance(given, dict):
        raise WrongUse(
            f"{argument} must be an object with the fields of {queue}, as in {argument} '{_example(contract)}'"
        )
    types = {one.name: one.type for one in contract.fields}
    missing = [one.name for one in contract.fields if one.default is None and one.name not in given]
    strange = [name for name in given if name not in types]
    if strange:
        raise WrongUse(f"{queue} has no field {strange[0]!r:.80}: it has {', '.join(types) or 'none'}")
    if missing:
        raise WrongUse(f"{argument} has no {', '.join(missing)}: {queue} needs it, and it has no default")
    values: dict[str, Any] = {}
    for name, plain in given.items():
        try:
            values[name] = value_from_plain(types[name], plain)
        except ValueError as error:
            raise WrongUse(f"the field {name!r} in {argument} {error}") from None
    return encode(task_class(contract)(**values))


def _example(contract: QueueContract) -> str:
    return json.dumps(
        dict.fromkeys([one.name for one in contract.fields if one.default is None], "…"), ensure_ascii=False
    )


async def put(app: App, queue: Named, data: bytes, *, at: datetime | None, delay: timedelta) -> int:
    """The name is noted as well, so that it is known where there is no contract."""
    (id,) = await put_many(app, queue, [NewItem(queue=queue.number, data=data, at=at, delay=delay)])
    return id


async def put_many(
    app: App, queue: Named, items: Sequence[NewItem], *, request_id: str | None = None, asked: str = ""
) -> list[int]:
    """Tasks of one queue, all or none; their ids, in that order. The same request takes effect once, and one of its
    name that asks for something else is refused."""
    guid, request = app.chance.guid(), None
    if request_id is not None:
        guid = uuid5(_REQUESTS, f"{queue.number}\0{request_id}")
        request = naming.named(request_id, guid, asked)
    async with app:
        ids = await storage_of(app).put_once(items, guid, request=request)
        if queue.name is not None:
            with suppress(DatabaseError):  # they are put: an error would let them be put again
                await storage_of(app).change_settings(queue.number, lambda before: replace(before, name=queue.name))
        return ids


# What is changed.

TasksChange = Callable[[App, Named, Sequence[int] | None, Callable[[int], object]], Awaitable[int]]
"""Takes (app, queue, ids, progress) and says how many there were."""
ManyTasks = Callable[..., Awaitable[int]]
"""Takes (queue, *, ids, limit) and says how many there were."""


async def hastened(app: App, queue: Named, ids: Sequence[int] | None, progress: Callable[[int], object]) -> int:
    async with app:
        return await _each(storage_of(app).retry_now, queue, ids, progress)


async def redriven(
    app: App,
    queue: Named,
    ids: Sequence[int] | None,
    progress: Callable[[int], object],
    died_by: datetime | None = None,
) -> int:
    """These, or all; with `died_by` all that had died by then."""
    async with app:
        storage = storage_of(app)
        if died_by is not None:
            return await _all(partial(storage.redrive_old, queue.number, died_by, limit=BATCH), progress)
        return await _each(storage.redrive, queue, ids, progress)


async def purged_dead(
    app: App,
    queue: Named,
    ids: Sequence[int] | None,
    progress: Callable[[int], object],
    died_by: datetime | None = None,
) -> int:
    """These, or all; with `died_by` all that had died by then."""
    async with app:
        storage = storage_of(app)
        if died_by is not None:
            return await _all(partial(storage.purge_old_dead, queue.number, died_by, limit=BATCH), progress)
        return await _each(storage.purge_dead, queue, ids, progress)


async def purged_waiting(app: App, queue: Named, ids: Sequence[int] | None, progress: Callable[[int], object]) -> int:
    async with app:
        return await _each(storage_of(app).purge, queue, ids, progress)


async def _each(change: ManyTasks, queue: Named, ids: Sequence[int] | None, progress: Callable[[int], object]) -> int:
    if ids is None:
        return await _all(partial(change, queue.number, limit=BATCH), progress)
    done = 0
    for first in range(0, len(ids), BATCH):
        done += await change(queue.number, ids=ids[first : first + BATCH], limit=BATCH)
        progress(done)
    return done


async def _all(change: Callable[[], Awaitable[int]], progress: Callable[[int], object]) -> int:
    """A batch after another, up to COUNT_MAX: handlers may make as many again meanwhile."""
    done = 0
    while done < COUNT_MAX and (changed := await change()):
        done += changed
        progress(done)
    return done


async def paused(app: App, queue: Named) -> Standing:
    async with app:
        await storage_of(app).pause(queue.number)
        return await _look(app, queue)


async def resumed(app: App, queue: Named) -> Standing:
    async with app:
        await storage_of(app).resume(queue.number)
        return await _look(app, queue)


@dataclass(frozen=True, slots=True)
class SettingsChange:
    """What is given of the settings; `unset` where a worker's own shall count again."""

    batch_size: int | None = None
    visibility: timedelta | None = None
    processors: int | None = None
    unset: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if self.processors is not None:
            check_integer("processors", self.processors, least=0, most=PROCESSORS_MAX)

    @property
    def is_nothing(self) -> bool:
        return self == SettingsChange()

    def __call__(self, before: QueueSettings) -> QueueSettings:
        """Refused, if no queue can have such settings."""
        return replace(
            before,
            batch_size=self._value("batch_size", self.batch_size, before.batch_size),
            visibility=self._value("visibility", self.visibility, before.visibility),
            processors_max=self._value("processors", self.processors, before.processors_max),
        )

    def _value(self, name: str, given: T | None, before: T | None) -> T | None:
        return None if name in self.unset else before if given is None else given


async def changed(app: App, queue: Named, change: SettingsChange) -> Standing:
    """The name is noted as well, so that it is known where there is no contract."""

    def noted(before: QueueSettings) -> QueueSettings:
        return replace(change(before), name=queue.name or before.name)

    async with app:
        await storage_of(app).change_settings(queue.number, noted)
        return await _look(app, queue)
