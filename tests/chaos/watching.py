"""Looks at the database and at the processes while the run goes on."""

from __future__ import annotations

import sqlite3
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import psycopg

from chaos.fleet import Fleet, Incarnation
from chaos.nemeses import Fault
from chaos.place import Place
from chaos.setting import SEMAPHORE

LOOK_EVERY_S = 0.5
STALL_S = 0.4
"""If we ourselves are so late, everybody else may have been."""

NOT_ONE_ROW = """
select a.action_id, count(q.action_guid) from matrixsched.scheduled_actions a
  left join (select action_id, action_guid from matrixsched.incoming_queue
             union all
             select action_id, action_guid from matrixsched.processing_queue) q
    on q.action_id = a.action_id and q.action_guid = a.action_guid
 where a.state = 'live'
 group by a.action_id
having count(q.action_guid) <> 1
"""
HELD = f"""
select count(*) from matrixsched.semaphore_tasks where semaphore = '{SEMAPHORE}' and state <> 'waiting'
"""
UNDONE = [
    "select count(*) from matrixsched.scheduled_actions where state = 'live'",
    "select count(*) from matrixsched.queue_tasks",
    "select count(*) from matrixsched.semaphore_tasks",
]


@dataclass
class Snapshot:
    """One state of the database: what was wrong with it."""

    at: float
    not_one_row: list[tuple[str, int]]
    held: int


def take_snapshot(place: Place) -> Snapshot:
    wrong, held = place.ask_together([NOT_ONE_ROW, HELD])
    return Snapshot(time.time(), [(id, count) for id, count in wrong], int(held[0][0]))


def undone(place: Place) -> int:
    """How much there is left to do."""
    return sum(int(rows[0][0]) for rows in place.ask_together(UNDONE))


@dataclass
class Sample:
    at: float
    fds: int
    threads: int


class Wait(NamedTuple):
    """How long one thread of a worker, at most, waited for a processor between two moments, by the kernel's count."""

    writer: str
    since: float
    until: float
    waited_s: float


@dataclass
class Watch:
    place: Place
    fleet: Fleet
    snapshots: list[Snapshot] = field(default_factory=list)
    samples: dict[str, list[Sample]] = field(default_factory=dict)
    stalls: list[Fault] = field(default_factory=list)
    """When the machine had too much to do: it stops processes as we do."""
    waits: list[Wait] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._ending = threading.Event()
        self._waited: dict[str, tuple[float, dict[str, float]]] = {}
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            asleep_at = time.time()
            if self._ending.wait(LOOK_EVERY_S):
                return
            late_s = time.time() - asleep_at - LOOK_EVERY_S
            if late_s > STALL_S:
                self.stalls.append(Fault("stall", None, asleep_at, time.time()))
            self._look()

    def _look(self) -> None:
        for one in list(self.fleet.incarnations):
            if one.is_worker and one.is_alive:
                self._see_how_long_it_waited(one)
            if one.is_worker and one.is_survivor and one.is_alive and not one.stopped:
                self._sample(one)
            if one.ended_at is None and one.process.poll() is not None:
                one.ended_at = time.time()
        with suppress(psycopg.Error, sqlite3.OperationalError):  # the database is away, as it is now and then
            self.snapshots.append(take_snapshot(self.place))

    def _see_how_long_it_waited(self, one: Incarnation) -> None:
        now, waited = time.time(), waited_for_processor(one.pid)
        since, before = self._waited.get(one.writer, (one.started_at, {}))
        self._waited[one.writer] = (now, waited)
        most = max((seconds - before.get(thread, 0.0) for thread, seconds in waited.items()), default=0.0)
        self.waits.append(Wait(one.writer, since, now, most))

    def _sample(self, one: Incarnation) -> None:
        try:
            sample = Sample(
                time.time(), *(len(list(Path(f"/proc/{one.pid}/{what}").iterdir())) for what in ("fd", "task"))
            )
        except OSError:
            return
        self.samples.setdefault(one.writer, []).append(sample)


def is_confirmed(blocked: Fault, waits: list[Wait]) -> bool:
    """Whether a worker that says its event loop was blocked was kept from running, for most of that time: what it does
    to itself is no fault that excuses it."""
    met = [
        one for one in waits if one.writer == blocked.writer and one.since < blocked.ends and one.until > blocked.begins
    ]
    return sum(one.waited_s for one in met) > (blocked.ends - blocked.begins) / 2


def waited_for_processor(pid: int) -> dict[str, float]:
    """How many seconds each thread of a process could have run and was not let."""
    found = {}
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            _, waited_ns, _ = (thread / "schedstat").read_text().split()
            found[thread.name] = int(waited_ns) / 1e9
    return found
