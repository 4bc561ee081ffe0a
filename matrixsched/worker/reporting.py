"""What this worker did minute by minute, written down for whoever looks at the whole fleet.

Each report tells the whole minute anew: one that is lost, or sent twice, changes nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Protocol

import anyio

from matrixsched.clock import Clock
from matrixsched.handlers import Handlers
from matrixsched.rules.minutes import SEEN_WITHIN, MinuteTally, WorkerMinute, minute_of
from matrixsched.store.store import Store
from matrixsched.store.values import Backlog
from matrixsched.worker.policy import WorkerPolicy
from matrixsched.worker.runner import Runner
from matrixsched.worker.sampling import BACKLOG_COUNT_MAX

REPORT_EVERY_S = 30.0
SECOND_REPORT_S = 3.0
"""After the first one: of workers that are started together, none has counted all the others by then."""
TIDY_EVERY = 20
"""What is old goes with every so manieth report: ten minutes apart."""
KEEP_MINUTES = timedelta(hours=3)
UNTOLD_MAX = 10
"""So many minutes are told later, if the database does not answer; those before are forgotten."""


class Learn(Protocol):
    def __call__(self, *, others: int, shards: int) -> None: ...


class MinuteReports:
    def __init__(
        self,
        store: Store,
        handlers: Handlers,
        runner: Runner,
        policy: WorkerPolicy,
        *,
        name: str,
        clock: Clock,
        running: Callable[[], int],
        learn: Learn,
    ) -> None:
        """`learn` is told of the fleet with each report."""
        self._store = store
        self._do = store.transitions
        self._handlers = handlers
        self._runner = runner
        self._policy = policy
        self._name = name
        self._clock = clock
        self._running = running
        self._learn = learn
        self._minute = minute_of(clock.now())
        self._ended: deque[tuple[datetime, MinuteTally]] = deque(maxlen=UNTOLD_MAX)
        """Minutes that are over and not told to their end."""
        self._reports = 0
        self._telling = anyio.Lock()
        """A worker that leaves may find its report under way."""
        self._has_left = False

    async def step(self) -> float:
        """Tell how this minute stands, and how those before it ended; the rest until the next report."""
        async with self._telling:
            if self._has_left:  # a report would put it back among those who are there
                return REPORT_EVERY_S
            await self._report()
        if self._reports % TIDY_EVERY == 0:
            await self._tidy()
        self._reports += 1
        return SECOND_REPORT_S if self._reports == 1 else REPORT_EVERY_S

    async def leave(self) -> None:
        """Tell the last of it, and be there no more."""
        async with self._telling:
            self._has_left = True
            await self._report()
            await self._store.run(self._do.leave_worker(self._name))

    async def _report(self) -> None:
        minute = minute_of(self._clock.now())
        if minute != self._minute:
            self._ended.append((self._minute, self._runner.tally))
            self._runner.tally, self._minute = MinuteTally(), minute
        backlog = await self._store.run(self._do.backlog(count_max=BACKLOG_COUNT_MAX))
        while self._ended:
            await self._tell(*self._ended[0], None)
            self._ended.popleft()
        await self._tell(self._minute, self._runner.tally, backlog)

    async def _tell(self, minute: datetime, tally: MinuteTally, backlog: Backlog | None) -> None:
        told = WorkerMinute(
            minute=minute,
            worker=self._name,
            # Copies: they may be written by another thread while this one counts on.
            outcomes=dict(tally.outcomes),
            late=tuple(tally.late),
            due=None if backlog is None else backlog.due,
            oldest_due_s=None if backlog is None else _late_s(backlog),
        )
        report = self._do.report_worker(
            told,
            slots=self._policy.concurrency,
            running=self._running(),
            handlers=self._handlers.names,
            others_within=SEEN_WITHIN,
        )
        fleet = await self._store.run(report)
        self._learn(others=fleet.others_of(self._handlers.names), shards=fleet.shards)

    async def _tidy(self) -> None:
        limit = self._policy.tidy_batch
        await self._store.run(self._do.prune_workers(keep=KEEP_MINUTES, limit=limit))
        await self._store.run(self._do.prune_audit(keep=self._policy.keep_audit, limit=limit))


def _late_s(backlog: Backlog) -> float:
    return (backlog.now - (backlog.oldest_due_at or backlog.now)).total_seconds()
