"""Failpoints: a process dies, stops or is late at a chosen step, for tests with real processes.

    MATRIXSCHED_FAILPOINT=record:after:kill         killed when its first outcomes are committed, before it hears so
    MATRIXSCHED_FAILPOINT=claim:before:stop:3       stopped (SIGSTOP) when its third claim is about to be committed

A step is the name of a transition. `before` is just before its commit: where it is a transaction, everything else of it
has been done by then; a statement that commits by itself has not been sent. Nothing of this exists in a process without
the variable: its store is the plain one.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from difflib import get_close_matches
from enum import StrEnum
from typing import TypeVar

from matrixsched.clock import Clock, SystemClock
from matrixsched.errors import BadFailpoint
from matrixsched.store.store import Store
from matrixsched.store.transition import Conversation, Transaction, Transition
from matrixsched.store.transitions import TRANSITION_NAMES
from matrixsched.store.wrapper import StoreWrapper

T = TypeVar("T")

VARIABLE = "MATRIXSCHED_FAILPOINT"
DELAY_S = 5.0
EXIT_CODE = 70


class Moment(StrEnum):
    BEFORE = "before"
    AFTER = "after"


class Deed(StrEnum):
    KILL = "kill"
    STOP = "stop"
    EXIT = "exit"
    DELAY = "delay"


@dataclass(frozen=True, slots=True)
class Failpoint:
    step: str
    moment: Moment
    deed: Deed
    nth: int = 1
    """It strikes once, when this process carries out the step for the so-manieth time."""


def parse_failpoint(text: str) -> Failpoint:
    step, *rest = text.split(":")
    if step not in TRANSITION_NAMES:
        near = get_close_matches(step, TRANSITION_NAMES, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"they are {', '.join(TRANSITION_NAMES)}"
        raise BadFailpoint(f"there is no step {step!r:.80}; {hint}")
    if len(rest) not in (2, 3):
        raise BadFailpoint(f"{text!r:.80} has {len(rest) + 1} parts")
    moment, deed, nth = rest[0], rest[1], rest[2] if len(rest) == 3 else "1"
    if moment not in list(Moment):
        raise BadFailpoint(f"{moment!r:.80} is neither before nor after")
    if deed not in list(Deed):
        raise BadFailpoint(f"{deed!r:.80} is none of {', '.join(Deed)}")
    if not (nth.isascii() and nth.isdecimal() and 0 < int(nth[:10]) <= 1_000_000_000):
        raise BadFailpoint(f"{nth!r:.80} is no number from 1 on")
    return Failpoint(step, Moment(moment), Deed(deed), int(nth))


def armed(store: Store) -> Store:
    """The store itself, unless the environment of this process names a failpoint."""
    text = os.environ.get(VARIABLE)
    return store if not text else FailpointStore(store, Trap(parse_failpoint(text)))


class Trap:
    """One failpoint of one process: all of its stores share it, for the count is that of the process."""

    def __init__(self, failpoint: Failpoint, *, strike: Callable[[Deed], None] | None = None) -> None:
        self.failpoint = failpoint
        self._strike = strike or _strike
        self._lock = threading.Lock()
        self._count = 0

    def is_sprung_by(self, step: str) -> bool:
        """Whether it strikes at this step, which is carried out now."""
        if step != self.failpoint.step:
            return False
        with self._lock:
            self._count += 1
            return self._count == self.failpoint.nth

    def strike(self) -> None:
        self._strike(self.failpoint.deed)


def _strike(deed: Deed) -> None:
    match deed:
        case Deed.KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        case Deed.STOP:
            os.kill(os.getpid(), signal.SIGSTOP)
        case Deed.EXIT:
            os._exit(EXIT_CODE)
        case Deed.DELAY:
            raise AssertionError("a delay is awaited, not done")


class FailpointStore(StoreWrapper):
    def __init__(self, inner: Store, trap: Trap, *, clock: Clock | None = None) -> None:
        super().__init__(inner)
        self._trap = trap
        self._clock: Clock = SystemClock() if clock is None else clock

    async def run(self, transition: Transition[T]) -> T:
        if not self._trap.is_sprung_by(transition.name):
            return await self._inner.run(transition)
        if self._trap.failpoint.moment is Moment.AFTER:
            answer = await self._inner.run(transition)
            await self._spring()
            return answer
        if self._trap.failpoint.deed is not Deed.DELAY and self._is_one_transaction(transition):
            return await self._inner.run(replace(transition, begin=lambda: self._struck_at_its_end(transition)))
        await self._spring()
        return await self._inner.run(transition)

    def _is_one_transaction(self, transition: Transition[T]) -> bool:
        return self.dialect == "sqlite" or isinstance(transition, Transaction)

    def _struck_at_its_end(self, transition: Transition[T]) -> Conversation[T]:
        answer = yield from transition.begin()
        self._trap.strike()
        return answer

    async def _spring(self) -> None:
        if self._trap.failpoint.deed is Deed.DELAY:
            await self._clock.sleep(DELAY_S)
        else:
            self._trap.strike()

    def sibling(self) -> FailpointStore:
        return FailpointStore(self._inner.sibling(), self._trap, clock=self._clock)
