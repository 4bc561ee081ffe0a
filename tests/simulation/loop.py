"""An asyncio event loop without a world: virtual time, the next handle picked by the seed, hosts that can be stopped.

Every handle belongs to the host whose context it was made in. A host that is held keeps its handles unrun: for a while
(a stopped process), or to the end of the run (a crash: no `finally` runs, nothing is said goodbye to). Time moves only
when nobody who runs has anything left to do. Whatever would reach outside (threads, sockets, signals) raises.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from random import Random
from typing import Any, TypeVar

T = TypeVar("T")

WORLD = "world"
"""The host that nothing happens to."""
HOST: ContextVar[str] = ContextVar("host", default=WORLD)
STEPS_PER_INSTANT_MAX = 100_000
STEPS_AT_END_MAX = 10_000


class Standstill(Exception):
    """Nothing is left that could ever happen."""


class Spinning(Exception):
    """So much happens at one instant that somebody must be going round in circles."""


class _Task(asyncio.Task[T]):
    number: int


class _Ready:
    """Handles that may run, by host. Stands where BaseEventLoop has its deque."""

    def __init__(self) -> None:
        self.fresh: list[asyncio.Handle] = []
        self.queues: dict[str, deque[asyncio.Handle]] = {}
        self.held: dict[str, deque[asyncio.Handle]] = {}

    def append(self, handle: asyncio.Handle) -> None:
        self.fresh.append(handle)

    def clear(self) -> None:
        self.fresh.clear()
        self.queues.clear()
        self.held.clear()

    def __len__(self) -> int:
        return len(self.fresh) + sum(len(queue) for queue in self.queues.values())

    def file(self) -> None:
        """Sort in what the last step made ready."""
        if not self.fresh:
            return
        if len(self.fresh) > 1:
            # anyio cancels in the order of a set, which is the order of addresses: put it in an order of our own.
            self.fresh.sort(key=_task_number)
        for handle in self.fresh:
            host = host_of(handle)
            queues = self.held if host in self.held else self.queues
            queues.setdefault(host, deque()).append(handle)
        self.fresh.clear()


class SeededLoop(asyncio.BaseEventLoop):
    def __init__(self, chance: Random) -> None:
        super().__init__()
        self._chance = chance
        self._elapsed = 0.0
        self._ready = _Ready()
        self._task_count = 0
        self._steps_at_instant = 0
        self.shuffles = chance.random() < 0.5
        """Whether handles of one host run in any order; asyncio's own loop runs them first come, first served."""
        self.steps = 0
        self.before_step: Callable[[str], None] | None = None
        """Called with the host that is about to run on; it may hold it."""
        self.set_task_factory(self._make_task)

    # Time and chance.

    def time(self) -> float:
        return self._elapsed

    def _run_once(self) -> None:
        self._ready.file()
        waiting = [queue for queue in self._ready.queues.values() if queue]
        if not waiting:
            self._jump()
            return
        self._count_step()
        handle = self._pick(waiting)
        if not handle.cancelled() and self._may_run(handle):
            handle._run()

    def _may_run(self, handle: asyncio.Handle) -> bool:
        host = host_of(handle)
        if self.before_step is None or host == WORLD:
            return True
        self.before_step(host)
        if not self.is_held(host):
            return True
        self._ready.held[host].appendleft(handle)
        return False

    def _pick(self, waiting: list[deque[asyncio.Handle]]) -> asyncio.Handle:
        queue = waiting[int(self._chance.random() * len(waiting))] if len(waiting) > 1 else waiting[0]
        if self.shuffles and len(queue) > 1:
            queue.rotate(-int(self._chance.random() * len(queue)))
        return queue.popleft()

    def _jump(self) -> None:
        """To the next instant at which something happens."""
        timers = self._scheduled  # type: ignore[attr-defined]
        while timers and timers[0].cancelled():
            heapq.heappop(timers)._scheduled = False
        if not timers:
            raise Standstill(f"at {self._elapsed:.6f} s nothing is left to happen")
        self._elapsed = max(self._elapsed, timers[0].when())
        self._steps_at_instant = 0
        while timers and timers[0].when() <= self._elapsed:
            timer = heapq.heappop(timers)
            timer._scheduled = False
            if not timer.cancelled():
                self._ready.append(timer)

    def _count_step(self) -> None:
        self.steps += 1
        self._steps_at_instant += 1
        if self._steps_at_instant > STEPS_PER_INSTANT_MAX:
            raise Spinning(f"more than {STEPS_PER_INSTANT_MAX} steps at {self._elapsed:.6f} s")

    def run_what_is_ready(self) -> None:
        """All that needs no time, as far as it goes: a task that has not begun cannot be unwound in peace."""
        self.run_until_complete(self._until_nothing_is_ready())

    async def _until_nothing_is_ready(self) -> None:
        for _ in range(STEPS_AT_END_MAX):
            await asyncio.sleep(0)
            self._ready.file()
            if not any(self._ready.queues.values()):
                return

    # Hosts.

    def spawn(self, host: str, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a coroutine, and everything it starts, on a host."""
        context = copy_context()
        context.run(HOST.set, host)
        return self.create_task(coroutine, context=context)

    def hold(self, host: str) -> None:
        """From here on nothing of this host runs."""
        self._ready.file()
        self._ready.held.setdefault(host, self._ready.queues.pop(host, deque()))

    def let_go(self, host: str) -> None:
        """A held host goes on where it was."""
        self._ready.file()
        if host in self._ready.held:
            self._ready.queues[host] = self._ready.held.pop(host)

    def is_held(self, host: str) -> bool:
        return host in self._ready.held

    def let_all_go(self) -> None:
        for host in list(self._ready.held):
            self.let_go(host)

    # What asyncio asks for.

    def _make_task(
        self, loop: asyncio.AbstractEventLoop, coroutine: Any, context: Context | None = None
    ) -> asyncio.Task[Any]:
        task: _Task[Any] = _Task(coroutine, loop=loop, context=context)
        self._task_count += 1
        task.number = self._task_count
        return task

    def _write_to_self(self) -> None:
        raise RuntimeError("a thread in a simulated run")

    def run_in_executor(self, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        raise RuntimeError("an executor in a simulated run")

    def _process_events(self, event_list: Any) -> None:
        """There is no selector."""


def host_of(handle: asyncio.Handle) -> str:
    return handle._context.get(HOST, WORLD)  # type: ignore[attr-defined, no-any-return]


def _task_number(handle: asyncio.Handle) -> int:
    owner = getattr(handle._callback, "__self__", None)  # type: ignore[attr-defined]
    return owner.number if isinstance(owner, _Task) else 0
