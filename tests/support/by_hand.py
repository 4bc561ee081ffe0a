"""A worker whose steps are made one after the other while time stands still: what it costs is the same in every run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import anyio
from anyio.lowlevel import checkpoint

from matrixsched.clock import ManualClock
from matrixsched.worker import Worker
from matrixsched.worker.pace import Step

BATCH_TAKES = timedelta(milliseconds=50)
"""By the clock of the test. A worker that has seen how fast its handlers are claims whole batches."""


async def drain(worker: Worker, clock: ManualClock) -> int:
    """Run all that is due, in slots as a running worker would, and record it; how many attempts were made."""
    made = 0
    async with anyio.create_task_group() as slots:
        worker.runner.open_slots(slots)
        while True:
            rest_s = await worker.intake.step()
            held = worker.runner.held
            while worker.runner.has_waiting or worker.runner.running:
                await checkpoint()
            if held:
                clock.advance(BATCH_TAKES)
            elif rest_s > 0:
                break
            while not worker.recorder.is_idle:
                await worker.recorder.step()
            made += held
        worker.runner.open_slots(None)
    return made


class SteppedWorker(Worker):
    """Every step that a running worker repeats, whatever it is called, without the loops and threads around it."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.steps: dict[str, Step] = {}
        nobody: Any = _Nobody()
        self._start_keeping(nobody)
        self._start_feeding(nobody)
        self._start_prolonging(nobody, self._store)

    def _start(self, group: object, name: str, step: Step, *wakeup: object, **again: object) -> None:
        self.steps[name] = step

    async def live(self, clock: ManualClock, duration: timedelta) -> None:
        """Make each step when its rest is over; nothing wakes it earlier."""
        ends_at = clock.monotonic() + duration.total_seconds()
        due_at = dict.fromkeys(self.steps, clock.monotonic())
        while (now := min(due_at.values())) < ends_at:
            clock.advance(timedelta(seconds=now - clock.monotonic()))
            for name, step in self.steps.items():
                if due_at[name] <= now:
                    due_at[name] = now + await step()
        clock.advance(timedelta(seconds=ends_at - clock.monotonic()))


class _Nobody:
    """A task group in which nothing begins."""

    def start_soon(self, work: Callable[..., Awaitable[object]], *arguments: object) -> None: ...
