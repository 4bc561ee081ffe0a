"""Where a file of SQLite lies and who has it locked, as far as the operating system tells."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from matrixsched.store.facts import FileFacts

_MOUNTS = Path("/proc/mounts")
_LOCKS = Path("/proc/locks")


def file_facts(path: str) -> FileFacts | None:
    """None: there is none."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return FileFacts(
        path=path,
        size=found.st_size,
        mode=found.st_mode & 0o777,
        uid=found.st_uid,
        is_ours_to_read=os.access(path, os.R_OK),
        is_ours_to_write=os.access(path, os.W_OK),
    )


def free_bytes(path: str) -> int:
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


def filesystem_of(path: str, mounts: str | None = None) -> str | None:
    """The kind of filesystem that a file lies on, by the table of mounts; None where there is no such table."""
    if mounts is None:
        try:
            mounts = _MOUNTS.read_text()
        except OSError:
            return None
    real = Path(os.path.realpath(path))
    above = [(len(place), kind) for place, kind in _mounted(mounts) if real.is_relative_to(place)]
    if not above:
        return None
    longest = max(length for length, _ in above)
    # A later mount at the same place hides the one before.
    return [kind for length, kind in above if length == longest][-1]


def _mounted(mounts: str) -> Iterator[tuple[str, str]]:
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) > 2:
            # Blanks and the like are written as octal numbers there.
            yield fields[1].encode().decode("unicode_escape"), fields[2]


def holders_of(path: str, *, byte: int | None = None) -> list[int]:
    """The processes that have the file, or one byte of it, locked for writing; none where the system does not tell."""
    try:
        inode, locks = os.stat(path).st_ino, _LOCKS.read_text()
    except OSError:
        return []
    pids = []
    for line in locks.splitlines():
        fields = line.split()
        if "->" in fields or len(fields) < 8 or fields[3] != "WRITE":
            continue
        with suppress(ValueError):
            is_this_byte = byte is None or _covers(fields[6], fields[7], byte)
            if int(fields[5].rpartition(":")[2]) == inode and is_this_byte:
                pids.append(int(fields[4]))
    return sorted({pid for pid in pids if pid > 0})


def _covers(begin: str, end: str, byte: int) -> bool:
    return int(begin) <= byte and (end == "EOF" or byte <= int(end))
