"""Many simulated runs: side by side on all cores, with a line that tells how far they are."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from simulation.world import Result

T = TypeVar("T")

CHUNK = 8
PROGRESS_EVERY_S = 1.0


def results(run: Callable[[T], Result], cases: Iterable[T], jobs: int) -> Iterator[Result]:
    """In the order of the cases."""
    if jobs == 1:
        yield from map(run, cases)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(run, cases, chunksize=CHUNK)


class Progress:
    """A line that is written over where there is a terminal, and now and then a new one where there is none."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._began = self._shown = time.monotonic()
        self._done = self._runs = self._faults = 0
        self._virtual_s = 0.0
        self._end = "\r" if sys.stderr.isatty() else "\n"
        self._every_s = PROGRESS_EVERY_S if sys.stderr.isatty() else 30.0
        self.failed = 0

    def count(self, result: Result, again: str) -> None:
        """`again` is the command that repeats it."""
        self._done += 1
        self._runs += result.runs
        self._faults += result.faults
        self._virtual_s += result.virtual_s
        if result.violations:
            self.failed += 1
            print(f"{again}  # {result.violations[0]}", flush=True)
        if time.monotonic() - self._shown >= self._every_s:
            self._show(self._end)

    def finish(self) -> None:
        self._show("\n")

    def _show(self, end: str) -> None:
        self._shown = time.monotonic()
        each_s = (self._shown - self._began) / max(self._done, 1)
        print(
            f"{self._done:,} of {self._total:,} runs, {self.failed} failed; {self._runs:,} handler runs, "
            f"{self._faults:,} faults, {self._virtual_s / 3600:.1f} virtual hours; {each_s:.2f} s a run",
            end=end,
            file=sys.stderr,
            flush=True,
        )
