"""Slots: the tasks in which attempts are made, begun as handlers need them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sized

import anyio.abc
import anyio.lowlevel

from matrixsched.clock import Clock

TURN_S = 0.005
"""Handlers that never wait are run in turns of this length, so that the other steps get theirs."""


class Slots:
    def __init__(
        self, line: Sized, running: Sized, run_next: Callable[[], Awaitable[None]], *, most: int, clock: Clock
    ) -> None:
        """`line` are the attempts that wait for a slot, `running` those whose handlers are under way."""
        self._line = line
        self._running = running
        self._run_next = run_next
        self._most = most
        self._clock = clock
        self._group: anyio.abc.TaskGroup | None = None
        self._in_use = 0
        self._starting = 0
        self._turn_ends = float("-inf")
        self._turn_changes = False

    def open(self, group: anyio.abc.TaskGroup | None) -> None:
        """Let slots begin in this task group; without one, attempts wait for `run_next`."""
        self._group = group

    def fill(self) -> None:
        """Let a few more slots begin, if there is something to run in them; each that begins lets others follow.

        Handlers that never wait are all run in the first one: others would be begun in vain.
        """
        if self._group is None:
            return
        most = len(self._running) + 1 - self._starting
        for _ in range(min(self._most - self._in_use, len(self._line), most)):
            self._in_use += 1
            self._starting += 1
            self._group.start_soon(self._slot)

    async def _slot(self) -> None:
        self._starting -= 1
        try:
            while len(self._line):
                if self._clock.monotonic() < self._turn_ends:
                    if self._starting <= len(self._running):
                        self.fill()
                    await self._run_next()
                elif self._turn_changes:
                    return  # whoever waits for the next turn goes on with the line
                else:
                    await self._next_turn()
        finally:
            self._in_use -= 1

    async def _next_turn(self) -> None:
        """Let the other steps have theirs. It is one turn for all slots, or they would take it one after another."""
        self._turn_changes = True
        try:
            await anyio.lowlevel.checkpoint()
        finally:
            self._turn_changes = False
            self._turn_ends = self._clock.monotonic() + TURN_S
