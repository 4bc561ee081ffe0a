"""Processors over queues in memory, for tests: what they call can be made to fail, and all they tell is kept."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import anyio
import anyio.abc
import anyio.lowlevel

from matrixsched import App
from matrixsched.clock import ManualClock, SeededChance
from matrixsched.errors import OutcomeUnknown
from matrixsched.events import (
    BatchEnded,
    BatchTaken,
    Events,
    ProcessorsRunning,
    QueueHandlerFailed,
    StepFailed,
    TaskSetAside,
)
from matrixsched.queues.memory import MemoryStorage
from matrixsched.rules.queues import Outlook, QueueStat, Settled, StoredTask, Taken
from matrixsched.worker.pace import Step, Wakeup, paced
from matrixsched.worker.policy import WorkerPolicy
from matrixsched.worker.processors import Processors
from support.queue_tasks import CONTRACT, EMAILS, Email

SECOND = timedelta(seconds=1)
DEADLINE_S = 20


class TestedStorage(MemoryStorage):
    """In memory, with a list of what was called, and failures that a test asks for."""

    __test__ = False

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock=clock, chance=SeededChance(1))
        self.manual_clock = clock
        self.calls: list[str] = []
        self.asked: list[int] = []
        self.looks = 0
        self.fails: dict[str, list[Exception]] = {}
        self.answers_lost = 0
        self.answers_take = timedelta(0)
        """How long it takes until tasks that were taken are here."""

    def _called(self, name: str) -> None:
        self.calls.append(name)
        if failures := self.fails.get(name):
            raise failures.pop(0)

    async def look(self, queues: Collection[int], *, within: timedelta = timedelta(minutes=1)) -> Mapping[int, Outlook]:
        self.looks += 1
        self._called("look")
        return await super().look(queues, within=within)

    async def get(self, queue: int, count: int, *, visibility: timedelta = 60 * SECOND) -> list[StoredTask]:
        self.asked.append(queue)
        self._called("get")
        taken = await super().get(queue, count, visibility=visibility)
        self.manual_clock.advance(self.answers_take)
        return taken

    async def done(self, tasks: Iterable[Taken]) -> Settled:
        self._called("done")
        answer = await super().done(tasks)
        if self.answers_lost:
            self.answers_lost -= 1
            raise OutcomeUnknown("no answer")
        return answer

    async def retry(self, retries: Iterable[tuple[Taken, datetime | timedelta]]) -> Settled:
        self._called("retry")
        return await super().retry(retries)

    async def set_aside(self, letters: Iterable[tuple[Taken, str]]) -> Settled:
        self._called("set_aside")
        return await super().set_aside(letters)

    async def extend(
        self, tasks: Iterable[Taken], *, visibility: timedelta = 60 * SECOND, only_longer: bool = False
    ) -> Settled:
        self._called("extend")
        return await super().extend(tasks, visibility=visibility, only_longer=only_longer)


class Crew:
    """Processors over queues in memory, or in another storage, and all that was told of them."""

    def __init__(self, clock: ManualClock, storage: Any = None) -> None:
        self.clock = clock
        self.storage = storage or TestedStorage(clock)
        self.app = App("sqlite:///never-opened.db", clock=clock, queue_storage=self.storage)
        self.app.queues.use(CONTRACT)
        self.events = Events()
        self.told: list[Any] = []
        for kind in (BatchTaken, BatchEnded, QueueHandlerFailed, TaskSetAside, ProcessorsRunning, StepFailed):
            self.events.subscribe(kind, self.told.append)

    def handle(self, name: str, function: Callable[..., Any], **terms: Any) -> None:
        self.app.queues.handler(name, **terms)(function)

    def processors(self, **policy: Any) -> Processors:
        self.made = Processors(
            self.app.queues.handlers,
            self.storage,
            self.storage,
            WorkerPolicy(**policy),
            clock=self.clock,
            chance=SeededChance(1),
            events=self.events,
        )
        return self.made

    async def emails(self, *to: str) -> list[int]:
        return await self.app.queues.put_many([Email(to=one) for one in to])

    async def stat(self, queue: int = EMAILS) -> QueueStat:
        return (await self.storage.stat())[queue]

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.told if type(event) is kind]

    @property
    def ended(self) -> BatchEnded:
        """The last batch that ended."""
        return self.of(BatchEnded)[-1]

    @asynccontextmanager
    async def at_work(self, **policy: Any) -> AsyncIterator[Processors]:
        """Processors that run by themselves while the block does; at its end they finish what they have begun."""
        processors = self.processors(**policy)

        def start(group: anyio.abc.TaskGroup, name: str, step: Step, wakeup: Wakeup) -> None:
            ports = {"clock": self.clock, "chance": SeededChance(1), "events": self.events}
            group.start_soon(partial(paced, name, step, wakeup=wakeup, rest_max_s=5.0, **ports))

        with anyio.fail_after(DEADLINE_S):
            async with anyio.create_task_group() as group:
                group.start_soon(processors.run, start)
                yield processors
                processors.stop()


async def until(holds: Callable[[], bool]) -> None:
    """Let all others go on until it holds."""
    with anyio.fail_after(DEADLINE_S):
        while not holds():
            await anyio.wait_all_tasks_blocked()
            await anyio.lowlevel.checkpoint()  # for those who wait for another thread
