"""Notes that handlers take in a file outside the database: what ran is then known whatever the database says."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from matrixsched.context import Context

END = "\t"
"""A note without it was being written when its process was killed: as one that was never begun."""


class Kind(StrEnum):
    BEGUN = "begun"
    DONE = "done"
    FAILED = "failed"


class Note(NamedTuple):
    kind: Kind
    pid: int
    at: float
    """Seconds since 1970, by the clock of the handler's machine."""
    id: str
    attempt: int


class Noted(NamedTuple):
    """What a note is about, if it is no action."""

    id: str
    attempt: int


class Evidence:
    """One end of the file: handlers take notes, whoever watches them reads on from where they were."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None
        self._read_up_to = 0

    def note(self, kind: Kind, context: Context | Noted) -> None:
        if self._file is None:
            self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        # One write to the end of the file: lines of several processes do not mix. A kill may leave one half where it
        # goes over a page of memory: so each begins on a line of its own, and says where it ends.
        facts = f"{kind} {os.getpid()} {time.time():.6f} {context.attempt} {context.id}"
        os.write(self._file, f"\n{facts}{END}\n".encode())

    def read(self) -> list[Note]:
        """What was noted since the last time."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._read_up_to)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read_up_to += len(whole)
        lines = whole.decode(errors="replace").split("\n")
        return [_parsed(line.removesuffix(END)) for line in lines if line.endswith(END)]


def _parsed(line: str) -> Note:
    kind, pid, at, attempt, action_id = line.split(" ", 4)
    return Note(Kind(kind), int(pid), float(at), action_id, int(attempt))


class Account:
    """What the notes add up to."""

    def __init__(self) -> None:
        self.first_begun: dict[str, float] = {}
        self.first_attempt: dict[str, int] = {}
        """Which attempt a handler was first called for: those before it were claimed in vain."""
        self.done: dict[str, int] = defaultdict(int)
        self.done_at: dict[str, float] = {}
        """When each was done last."""
        self.failed: dict[str, int] = defaultdict(int)
        self.begun_at: dict[str, list[tuple[float, int]]] = defaultdict(list)
        """For each id when, and in which process, a handler was called."""
        self._attempts: dict[str, list[int]] = defaultdict(list)
        self.done_by: dict[int, int] = defaultdict(int)
        self._under_way: dict[int, set[str]] = defaultdict(set)

    def add(self, notes: Iterable[Note]) -> None:
        for note in notes:
            match note.kind:
                case Kind.BEGUN:
                    self.first_begun.setdefault(note.id, note.at)
                    self.first_attempt.setdefault(note.id, note.attempt)
                    self.begun_at[note.id].append((note.at, note.pid))
                    self._attempts[note.id].append(note.attempt)
                    self._under_way[note.pid].add(note.id)
                case Kind.DONE:
                    self.done[note.id] += 1
                    self.done_at[note.id] = note.at
                    self.done_by[note.pid] += 1
                    self._under_way[note.pid].discard(note.id)
                case Kind.FAILED:
                    self.failed[note.id] += 1
                    self._under_way[note.pid].discard(note.id)

    def under_way(self, pid: int) -> frozenset[str]:
        """What a process has begun and not ended; of a dead one, what it will never end."""
        return frozenset(self._under_way[pid])

    def attempts_of(self, id: str) -> tuple[int, ...]:
        """Which attempts its handler was called for, in that order."""
        return tuple(self._attempts[id])

    def begun_elsewhere(self, action_id: str, pid: int, after: float) -> float | None:
        """When another process first began it after that moment."""
        return min((at for at, by in self.begun_at[action_id] if by != pid and at >= after), default=None)
