"""Processor time: of processes on this machine, and of the sessions that they have on a PostgreSQL server here.

Whose a session is tells the port from which it was opened. One that has ended tells nothing any more, so all are looked
at again and again.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator, Mapping, Set
from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg

EVERY_S = 0.2
SESSIONS = """
select pid, client_port from pg_stat_activity
 where backend_type = 'client backend' and pid <> pg_backend_pid()
   and (client_addr = inet_server_addr() or inet_server_addr() <<= '127.0.0.0/8') -- else their processes are elsewhere
"""


class Meter:
    """What processes, and their sessions of a server, are using until the block ends."""

    def __init__(self, url: str, processes: Mapping[str, int]) -> None:
        self._processes = processes
        self._connection = psycopg.connect(url, autocommit=True)
        self._owners = {pid: name for name, pid in processes.items()}
        self._before: dict[int, float] = {}
        self._after: dict[int, float] = {}
        self._strange: Set[int] = frozenset()
        """Sessions of others."""
        self._elapsed_s = 0.0
        self._ending = threading.Event()
        self._failed: list[Exception] = []

    def __enter__(self) -> Self:
        self._look()
        self._before, self._begun = dict(self._after), time.monotonic()
        self._thread = threading.Thread(target=self._look_again_and_again)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        self._thread.join()
        self._look()
        self._elapsed_s = time.monotonic() - self._begun
        self._connection.close()
        if self._failed:
            raise self._failed[0]

    def has_seen_sessions(self, name: str) -> bool:
        """If not, they are not on this machine, and what is told of it is not all."""
        return any(owner == name for pid, owner in self._owners.items() if pid not in self._processes.values())

    def busy(self, name: str) -> float:
        """How many processors were at work for it, on average."""
        pids = [pid for pid, owner in self._owners.items() if owner == name]
        return sum(self._after[pid] - self._before.get(pid, 0.0) for pid in pids) / self._elapsed_s

    def _look_again_and_again(self) -> None:
        try:
            while not self._ending.wait(EVERY_S):
                self._look()
        except Exception as error:  # for whoever waits for the end of the block
            self._failed.append(error)

    def _look(self) -> None:
        sessions = dict(self._connection.execute(SESSIONS).fetchall())
        if sessions.keys() - self._owners.keys() - self._strange:
            self._meet(sessions)
        for pid in self._owners:
            self._after[pid] = max(used_s(pid), self._after.get(pid, 0.0))

    def _meet(self, sessions: Mapping[int, int]) -> None:
        """Find out whose they are, which takes a while where there are many connections."""
        owners = {port: name for name, pid in self._processes.items() for port in ports_of(pid)}
        self._owners |= {pid: owners[port] for pid, port in sessions.items() if port in owners}
        self._strange = sessions.keys() - self._owners.keys()


def used_s(pid: int) -> float:
    """By a process and all its threads since it began; nothing if it is gone."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
    return 0.0


def ports_of(pid: int) -> Iterator[int]:
    """From which a process has connections."""
    sockets = set(_sockets_of(pid))
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(FileNotFoundError):
            for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
                words = line.split()
                if words[9] in sockets:
                    yield int(words[1].rpartition(":")[2], 16)


def _sockets_of(pid: int) -> Iterator[str]:
    with contextlib.suppress(FileNotFoundError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                target = os.readlink(descriptor)
                if target.startswith("socket:["):
                    yield target[len("socket:[") : -1]
