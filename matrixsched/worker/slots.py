"""Slots: the tasks in which attempts are made, begun as handlers need them; and how fast attempts end in them."""

from __future__ import annotations

import contextvars
from collections import deque
from collections.abc import Awaitable, Callable, Sized

import anyio
import anyio.abc
import anyio.lowlevel

from matrixsched.clock import Clock
from matrixsched.rules.intake import START_WITHIN_S

TURN_S = 0.005
"""Handlers that never wait are run in turns of this length, so that the other steps get theirs."""
PACE_SAMPLE_S = 0.05


class Slots:
    def __init__(
        self,
        line: Sized,
        running: Sized,
        run_next: Callable[[anyio.CancelScope], Awaitable[None]],
        *,
        most: int,
        clock: Clock,
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
        self._spare: anyio.Event | None = None
        """What the slot waits for that has nothing to run yet. To begin one takes longer than many a handler, so that
        is done before it is needed. It is never one that ran something: a handler may leave behind what would meet the
        next in the same task, as context variables or a cancellation that comes late."""
        self._context = contextvars.copy_context()
        self._turn_ends = float("-inf")
        self._turn_changes = False

    def open(self, group: anyio.abc.TaskGroup | None) -> None:
        """Let slots begin in this task group; without one, attempts wait for `run_next`."""
        self._group, self._context = group, contextvars.copy_context()
        if self._spare is not None:
            self._spare.set()  # it ends, for it is still the spare one: nobody called it to run something
        else:
            self._keep_spare()

    def fill(self, *, about_to_run: int = 0) -> None:
        """Let a few more slots begin, if there is something to run in them beside what the caller is about to run; each
        that begins lets others follow.

        Handlers that never wait are all run in the first one: others would be begun in vain.
        """
        if self._group is None:
            return
        unclaimed = len(self._line) - self._starting - about_to_run
        most = len(self._running) + 1 - self._starting
        for _ in range(min(self._most - self._in_use, unclaimed, most)):
            self._in_use += 1
            self._starting += 1
            if self._spare is None:
                self._context.run(self._group.start_soon, self._slot)
            else:
                spare, self._spare = self._spare, None
                spare.set()

    def _keep_spare(self) -> None:
        if self._group is not None and self._spare is None:
            self._spare = anyio.Event()
            self._context.run(self._group.start_soon, self._spare_slot, self._spare)

    async def _spare_slot(self, called: anyio.Event) -> None:
        try:
            await called.wait()
        finally:
            is_called = self._spare is not called
            if not is_called:
                self._spare = None
        if is_called:
            await self._slot()

    async def _slot(self) -> None:
        self._starting -= 1
        if not self._turn_changes and self._clock.monotonic() >= self._turn_ends:
            self._begin_turn()  # the other steps have had theirs while this one waited to begin
        try:
            goes_on = True
            while goes_on:
                # One after another in the same scope, until it is cancelled: it costs more than many a handler.
                with anyio.CancelScope() as scope:
                    goes_on = await self._run_in(scope)
        finally:
            self._in_use -= 1
        self._keep_spare()

    async def _run_in(self, scope: anyio.CancelScope) -> bool:
        """Run what is in line; whether there may be more, in another scope."""
        while len(self._line):
            if self._clock.monotonic() < self._turn_ends:
                if self._starting <= len(self._running):
                    self.fill(about_to_run=1)
                await self._run_next(scope)
                if scope.cancel_called:
                    return True
            elif self._turn_changes:
                return False  # whoever waits for the next turn goes on with the line
            else:
                await self._next_turn()
        return False

    async def _next_turn(self) -> None:
        """Let the other steps have theirs. It is one turn for all slots, or they would take it one after another."""
        self._turn_changes = True
        try:
            await anyio.lowlevel.checkpoint()
        finally:
            self._turn_changes = False
            self._begin_turn()

    def _begin_turn(self) -> None:
        self._turn_ends = self._clock.monotonic() + TURN_S


class Pace:
    """How many attempts end in a second, by the last quarter of one.

    Not by less: handlers that begin together end together, and of twenty that take 0.2 s the moment in which they end
    would tell of four times as many as can ever be run.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._samples = deque([(clock.monotonic(), 0)])
        self.ended = 0
        """Counted by whoever knows."""
        self.per_s = 0.0
        """As last measured."""

    def measured(self) -> float:
        now = self._clock.monotonic()
        while len(self._samples) > 1 and self._samples[1][0] <= now - START_WITHIN_S:
            self._samples.popleft()
        # The largest of all stretches: of the longest, a part may have been a lull.
        present = max((self.ended - count) / max(now - since, START_WITHIN_S) for since, count in self._samples)
        if now - self._samples[-1][0] >= PACE_SAMPLE_S:
            self._samples.append((now, self.ended))
            # Going down slowly, up at once: a lull says little about how fast handlers are.
            self.per_s *= 0.8
        self.per_s = max(present, self.per_s)
        return self.per_s
