"""Looks at the database and at the processes while the run goes on."""

from __future__ import annotations

import sqlite3
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from chaos.fleet import Fleet, Incarnation
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


@dataclass
class Watch:
    place: Place
    fleet: Fleet
    snapshots: list[Snapshot] = field(default_factory=list)
    samples: dict[str, list[Sample]] = field(default_factory=dict)
    stalls: list[tuple[float, float]] = field(default_factory=list)
    left_alone: list[Incarnation] = field(default_factory=list)
    """Those that ended although nobody had killed them."""

    def __post_init__(self) -> None:
        self._ending = threading.Event()
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
                self.stalls.append((asleep_at, time.time()))
            self._look()

    def _look(self) -> None:
        with suppress(psycopg.Error, sqlite3.OperationalError):  # the database is away, as it is now and then
            self.snapshots.append(take_snapshot(self.place))
        for one in list(self.fleet.incarnations):
            if one.is_worker and one.is_survivor and one.is_alive and not one.stopped:
                self._sample(one)
            if not one.killed and one.ended_at is None and one.process.poll() is not None:
                one.ended_at = time.time()
                if not self.fleet.is_stopping:
                    self.left_alone.append(one)

    def _sample(self, one: Incarnation) -> None:
        try:
            sample = Sample(
                time.time(), *(len(list(Path(f"/proc/{one.pid}/{what}").iterdir())) for what in ("fd", "task"))
            )
        except OSError:
            return
        self.samples.setdefault(one.writer, []).append(sample)
