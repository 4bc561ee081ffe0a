"""A process for each piece of work, which may hang or spoil what it has; it says how far it is and what it found."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, Generic, TypeVar

T = TypeVar("T")

STEP_S_MAX = 120
"""Whoever takes longer for a step does not come to its end."""


class Failed(Exception):
    """The work itself is broken; the message is its trace."""


@dataclass(frozen=True, slots=True)
class Hanging:
    """What came of work that did not end."""

    at: str


class Teller:
    """What the process says to whoever started it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def at(self, step: str) -> None:
        """The next step begins."""
        self._connection.send(("at", step))
        signal.alarm(STEP_S_MAX)  # nobody handles it: the process ends

    def found(self, what: object) -> None:
        self._connection.send(("found", what))

    def failed(self) -> None:
        self._connection.send(("failed", traceback.format_exc()))


@dataclass(slots=True)
class _Child(Generic[T]):
    case: T
    pid: int
    at: str = ""
    found: Any = None


def each_in_a_process(
    work: Callable[[T, Teller], object], cases: Iterable[T], jobs: int
) -> Iterator[tuple[T, Any | Hanging]]:
    """What was found for each case, as it comes; Failed, when one could not be worked on."""
    waiting, children = iter(cases), dict[Connection, _Child[T]]()
    while True:
        while len(children) < jobs and (case := next(waiting, None)) is not None:
            connection, pid = _begin(work, case)
            children[connection] = _Child(case, pid)
        if not children:
            return
        for ready in wait(list(children)):
            assert isinstance(ready, Connection)
            child = children[ready]
            try:
                kind, told = ready.recv()
            except EOFError:
                del children[ready]
                yield child.case, _end(child)
                continue
            match kind:
                case "at":
                    child.at = told
                case "found":
                    child.found = told
                case _:
                    raise Failed(told)


def _begin(work: Callable[[T, Teller], object], case: T) -> tuple[Connection, int]:
    ours, theirs = Pipe(duplex=False)
    pid = os.fork()
    if pid:
        theirs.close()
        return ours, pid
    ours.close()
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    teller = Teller(theirs)
    try:
        teller.found(work(case, teller))
    except BaseException:
        teller.failed()
    finally:
        os._exit(0)  # nothing of the parent's is to be put in order here


def _end(child: _Child[Any]) -> Any | Hanging:
    _, status = os.waitpid(child.pid, 0)
    if os.WIFSIGNALED(status):
        if os.WTERMSIG(status) == signal.SIGALRM:
            return Hanging(child.at)
        raise Failed(f"{child.case} ended by signal {os.WTERMSIG(status)} at {child.at}")
    return child.found
