"""The port to a tracing library. The core asks it twice and knows no library: `matrixsched.observe.tracing` is one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from matrixsched.calls import Call, Scheduled, ScheduledMany

Answered = Callable[[Scheduled | ScheduledMany], None]


class Tracer(Protocol):
    def producing(self, call: Call | None) -> AbstractContextManager[Answered]:
        """Around the scheduling of one call, or (None) of many; it is told what became of them."""
        ...

    def carried(self) -> str | None:
        """What is stored with the actions scheduled now, so that their attempts can be traced back to here."""
        ...


class Untraced:
    """Nothing is traced and nothing is stored."""

    _nothing: AbstractContextManager[Answered] = nullcontext(lambda _: None)

    def producing(self, call: Call | None) -> AbstractContextManager[Answered]:
        return self._nothing

    def carried(self) -> str | None:
        return None
