"""Slots begin as handlers need them; one that has nothing to run waits for the next attempt."""

from __future__ import annotations

from collections import deque
from contextvars import ContextVar
from datetime import timedelta

import anyio
import pytest
from anyio.lowlevel import checkpoint

from matrixsched.clock import ManualClock
from matrixsched.worker.slots import TURN_S, Slots

pytestmark = pytest.mark.anyio

MOST = 3
LEFT_BEHIND: ContextVar[str | None] = ContextVar("left behind", default=None)


class Attempts:
    """A line of attempts, each by its name: some wait until they are released, some take as long as a turn."""

    def __init__(self) -> None:
        self.line: deque[str] = deque()
        self.running: list[str] = []
        self.ended: list[str] = []
        self.tasks: list[int] = []
        self.found: list[str | None] = []
        self.release = anyio.Event()
        self._clock = ManualClock()
        self.slots = Slots(self.line, self.running, self._run_next, most=MOST, clock=self._clock)

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
        self.found.append(LEFT_BEHIND.get())
        LEFT_BEHIND.set(name)
        if name.startswith("takes long"):
            self._clock.advance(timedelta(seconds=TURN_S))
        if name.startswith("waits"):
            await self.release.wait()
        self.running.remove(name)
        self.ended.append(name)


async def test_a_slot_waits_before_it_is_needed() -> None:
    attempts = Attempts()
    async with anyio.create_task_group() as group:
        attempts.slots.open(group)
        for name in ("a", "b"):
            await attempts.put()
            (spare,) = slots_begun()
            await attempts.put(name)
            assert attempts.tasks[-1] == spare
        attempts.slots.open(None)
    assert attempts.ended == ["a", "b"]


async def test_no_attempt_meets_what_an_earlier_one_left_behind_in_its_task() -> None:
    attempts = Attempts()
    async with anyio.create_task_group() as group:
        attempts.slots.open(group)
        await attempts.put("leaves something")
        await attempts.put("finds nothing")
        attempts.slots.open(None)
    assert attempts.found == [None, None]


async def test_whoever_comes_while_handlers_wait_gets_another_one_up_to_the_most() -> None:
    attempts = Attempts()
    async with anyio.create_task_group() as group:
        attempts.slots.open(group)
        await attempts.put("waits 1")
        await attempts.put("waits 2", "waits 3", "waits 4")
        assert attempts.running == ["waits 1", "waits 2", "waits 3"]
        assert len({*attempts.tasks}) == MOST
        attempts.release.set()
        attempts.slots.open(None)
    assert attempts.ended == ["waits 1", "waits 2", "waits 3", "waits 4"]


async def test_when_several_have_ended_one_waits() -> None:
    attempts = Attempts()
    async with anyio.create_task_group() as group:
        attempts.slots.open(group)
        await attempts.put("waits 1", "waits 2", "waits 3")
        attempts.release.set()
        await attempts.put()
        assert len(slots_begun()) == 1
        attempts.slots.open(None)


async def test_none_begins_in_vain() -> None:
    attempts = Attempts()
    async with anyio.create_task_group() as group:
        attempts.slots.open(group)
        await attempts.put("waits 1")
        await attempts.put("waits 2")
        assert attempts.running == ["waits 1", "waits 2"]
        assert {*slots_begun()} == {*attempts.tasks}
        attempts.release.set()
        attempts.slots.open(None)


async def test_one_that_was_called_runs_its_attempt_also_if_they_are_closed_meanwhile() -> None:
    attempts = Attempts()
    async with anyio.create_task_group() as group:
        attempts.slots.open(group)
        await attempts.put()
        attempts.line.append("late")
        attempts.slots.fill()
        attempts.slots.open(None)
    assert attempts.ended == ["late"]


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


async def test_what_is_in_line_is_run_turn_after_turn() -> None:
    attempts = Attempts()
    async with anyio.create_task_group() as group:
        attempts.slots.open(group)
        await attempts.put(*(f"takes long {number}" for number in range(5)))
        assert len(attempts.ended) == 5
        assert len(slots_begun()) == 1
        attempts.slots.open(None)


def slots_begun() -> list[int]:
    return [
        task.id for task in anyio.get_running_tasks() if str(task.name).endswith(("Slots._slot", "Slots._spare_slot"))
    ]
