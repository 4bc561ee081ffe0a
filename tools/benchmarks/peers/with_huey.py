"""Huey on SQLite at work, with fsync: python with_huey.py WHAT FILE COUNT."""

from __future__ import annotations

import sys
import threading
import time

from helping import CALLERS, answer, judged, judged_calls
from huey import SqliteHuey
from huey.consumer import Consumer

WORKERS = 4
SQLITE_BUSY_S = 60


class Work:
    """A queue with one task, and the numbers that the task was called with."""

    def __init__(self, file: str, count: int) -> None:
        self.huey = SqliteHuey(filename=file, fsync=True, results=False, timeout=SQLITE_BUSY_S)
        self.ran: list[int] = []
        self.all_ran = threading.Event()

        @self.huey.task()
        def noop(number: int) -> None:
            self.ran.append(number)
            if len(self.ran) >= count:
                self.all_ran.set()

        self.noop = noop


def enqueue(file: str, count: int) -> None:
    work = Work(file, count)

    all_connected = threading.Barrier(CALLERS + 1)

    def caller(first: int) -> None:
        work.noop(count + first)  # each thread has a connection of its own
        all_connected.wait()
        for number in range(first, count, CALLERS):
            work.noop(number)

    callers = [threading.Thread(target=caller, args=[first]) for first in range(CALLERS)]
    for one in callers:
        one.start()
    all_connected.wait()
    begun = time.perf_counter()
    for one in callers:
        one.join()
    seconds = time.perf_counter() - begun
    found = work.huey.pending_count()
    answer(seconds=seconds, violations=judged_calls(count, found))


def drain(file: str, count: int) -> None:
    work = Work(file, count)
    for number in range(count):
        work.noop(number)
    consumer = Consumer(work.huey, workers=WORKERS, periodic=False)
    begun = time.perf_counter()
    consumer.start()
    work.all_ran.wait()
    seconds = time.perf_counter() - begun
    consumer.stop(graceful=True)
    answer(seconds=seconds, violations=judged(count, work.ran, work.huey.pending_count()))


if __name__ == "__main__":
    what, file, count = sys.argv[1:]
    {"enqueue": enqueue, "drain": drain}[what](file, int(count))
