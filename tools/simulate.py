"""Run the simulator: one seed exactly as before, or many, each a run of several workers and clients with faults.

./tools/dev simulate --seed 8131            replay one run; --trace shows everything that happened in it
./tools/dev simulate --runs 10000           many runs; a failing seed is printed as a line to paste
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from simulation.world import Result, simulate  # noqa: E402  # found only from here on

CHUNK = 8
PROGRESS_EVERY_S = 1.0


def main() -> int:
    options = parse_options()
    if options.seed is not None:
        return replay(options.seed, shows_trace=options.trace)
    return run_many(range(options.start, options.start + options.runs), options.jobs)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./tools/dev simulate", description="Run the simulator.")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--seed", type=int, help="replay the run of this seed")
    what.add_argument("--runs", type=int, default=1000, help="how many seeds to run (default: %(default)s)")
    parser.add_argument("--start", type=int, default=0, help="the first of many seeds (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one for each core)")
    parser.add_argument("--trace", action="store_true", help="with --seed: show everything that happened")
    return parser.parse_args()


def replay(seed: int, *, shows_trace: bool) -> int:
    result = simulate(seed, keeps_trace=shows_trace)
    for line in result.trace:
        print(line)
    print(
        f"seed {seed}: {result.virtual_s:.1f} s, {result.steps:,} steps, {result.runs} handler runs, "
        f"{result.faults} faults, trace {result.trace_hash}"
    )
    for violation in result.violations:
        print(f"  {violation}")
    return 1 if result.violations else 0


def run_many(seeds: range, jobs: int) -> int:
    progress = Progress(len(seeds))
    for result in results(seeds, jobs):
        progress.count(result)
    progress.finish()
    return 1 if progress.failed else 0


def results(seeds: range, jobs: int) -> Iterator[Result]:
    if jobs == 1:
        yield from map(simulate, seeds)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(simulate, seeds, chunksize=CHUNK)


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

    def count(self, result: Result) -> None:
        self._done += 1
        self._runs += result.runs
        self._faults += result.faults
        self._virtual_s += result.virtual_s
        if result.violations:
            self.failed += 1
            print(f"./tools/dev simulate --seed {result.seed} --trace  # {result.violations[0]}", flush=True)
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


if __name__ == "__main__":
    sys.exit(main())
