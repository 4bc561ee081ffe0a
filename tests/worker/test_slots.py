"""Slots begin as handlers need them; one that has nothing to run is kept for the next attempt."""

from __future__ import annotations

from collections import deque

import anyio
import pytest
from anyio.lowlevel import checkpoint

from matrixsched.clock import ManualClock
from matrixsched.worker.slots import Slots

pytestmark = pytest.mark.anyio

MOST = 3


class Attempts:
    """A line of attempts that note in which task they were made; those named so wait until they are released."""

    def __init__(self) -> None:
        self.line: deque[str] = deque()
        self.running: list[str] = []
        self.ended: list[str] = []
        self.tasks: list[int] = []
        self.release = anyio.Event()
        self.slots = Slots(self.line, self.running, self._run_next, most=MOST, clock=ManualClock())

    async def put(self, *names: str) -> None:
        """Put them in line and let slots begin; all that can be run without waiting was run then."""
        self.line.extend(names)
        self.slots.fill()
        for _ in range(20):
            await checkpoint()

    async def _run_next(self, scope: anyio.CancelScope) -> None:
        name = self.line.popleft()
        self.running.append(name)
        self.tasks.append(anyio.get_current_task().id)
        if name.startswith("waits"):
            await self.release.wait()
        self.running.remove(name)
        self.ended.append(name)


async def test_one_after_another_they_are_made_in_the_same_slot() -> None:
    attempts = Attempts()
    async with anyio.create_task_group() as group:
        attempts.slots.open(group)
        for name in ("a", "b", "c"):
            await attempts.put(name)
        attempts.slots.open(None)
    assert attempts.ended == ["a", "b", "c"]
    assert len(set(attempts.tasks)) == 1


async def test_whoever_comes_while_handlers_wait_gets_another_one_up_to_the_most() -> None:
    attempts = Attempts()
    async with anyio.create_task_group() as group:
        attempts.slots.open(group)
        await attempts.put("waits 1")
        await attempts.put("waits 2", "waits 3", "waits 4")
        assert attempts.running == ["waits 1", "waits 2", "waits 3"]
        assert len(set(attempts.tasks)) == MOST
        attempts.release.set()
        attempts.slots.open(None)
    assert attempts.ended == ["waits 1", "waits 2", "waits 3", "waits 4"]


async def test_of_several_that_end_one_is_kept() -> None:
    attempts = Attempts()
    async with anyio.create_task_group() as group:
        attempts.slots.open(group)
        await attempts.put("waits 1", "waits 2", "waits 3")
        attempts.release.set()
        await attempts.put()
        assert slots_begun() == 1
        await attempts.put("next")
        await attempts.put("last")
        attempts.slots.open(None)
    assert attempts.ended[-2:] == ["next", "last"]
    assert len(set(attempts.tasks[-2:])) == 1


async def test_one_that_was_called_runs_its_attempt_also_if_they_are_closed_meanwhile() -> None:
    attempts = Attempts()
    async with anyio.create_task_group() as group:
        attempts.slots.open(group)
        await attempts.put("first")
        attempts.line.append("second")
        attempts.slots.fill()
        attempts.slots.open(None)
    assert attempts.ended == ["first", "second"]


async def test_a_slot_that_was_cancelled_with_its_group_is_called_by_nobody() -> None:
    attempts = Attempts()
    async with anyio.create_task_group() as group:
        attempts.slots.open(group)
        await attempts.put("before")
        group.cancel_scope.cancel()
    async with anyio.create_task_group() as group:
        attempts.slots.open(group)
        await attempts.put("after")
        attempts.slots.open(None)
    assert attempts.ended == ["before", "after"]


async def test_for_a_lone_attempt_no_second_slot_begins() -> None:
    attempts = Attempts()
    async with anyio.create_task_group() as group:
        attempts.slots.open(group)
        await attempts.put("waits")
        assert slots_begun() == 1
        attempts.release.set()
        attempts.slots.open(None)


def slots_begun() -> int:
    return sum(str(task.name).endswith("Slots._slot") for task in anyio.get_running_tasks())
