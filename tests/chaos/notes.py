"""Notes outside the database: one line of JSON for each thing that happened, of all processes in one file."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any


class Notes:
    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, **facts: object) -> None:
        # One write to the end of the file: lines of several processes do not mix. A kill may leave one half where it
        # goes over a page of memory: so each begins on a line of its own.
        os.write(self._file, b"\n" + json.dumps(facts, separators=(",", ":"), default=str).encode() + b"\n")


def read_notes(path: Path) -> Iterator[dict[str, Any]]:
    if path.exists():
        with path.open("rb") as file:
            yield from _whole(file)


def _whole(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Half a note is as good as none: its process was killed before it had said it."""
    for line in lines:
        with contextlib.suppress(ValueError):
            yield json.loads(line)


class Tail:
    """Counts what is added to a file of notes, by kind, without reading any of it twice."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._up_to = 0
        self.counts: dict[str, int] = {}

    def look(self) -> dict[str, int]:
        if self._path.exists():
            with self._path.open("rb") as file:
                file.seek(self._up_to)
                text = file.read()
            whole = text[: text.rfind(b"\n") + 1]
            self._up_to += len(whole)
            for note in _whole(whole.splitlines()):
                kind = note["kind"]
                self.counts[kind] = self.counts.get(kind, 0) + note.get("count", 1)
        return self.counts
