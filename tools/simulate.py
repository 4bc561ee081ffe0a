"""Run the simulator: one seed exactly as before, or many, each a run of several workers and clients with faults.

./tools/dev simulate --seed 8131            replay one run; --trace shows everything that happened in it
./tools/dev simulate --runs 10000           many runs; a failing seed is printed as a line to paste
./tools/dev simulate --part semaphores      with that part of the product in every run, and no other beside actions
"""

from __future__ import annotations

import argparse
import os
import sys
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tools")]

from many_runs import Progress, results  # noqa: E402  # found only from here on
from simulation.parts import with_part  # noqa: E402
from simulation.world import PARTS, Result, simulate  # noqa: E402


def main() -> int:
    options = parse_options()
    if options.seed is not None:
        return replay(play_seed(options.seed, part=options.part, keeps_trace=options.trace))
    return run_many(range(options.start, options.start + options.runs), options.part, options.jobs)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./tools/dev simulate", description="Run the simulator.")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--seed", type=int, help="replay the run of this seed")
    what.add_argument("--runs", type=int, default=1000, help="how many seeds to run (default: %(default)s)")
    parser.add_argument("--start", type=int, default=0, help="the first of many seeds (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one for each core)")
    parser.add_argument("--part", choices=[one.name for one in PARTS], help="the part that is in every run")
    parser.add_argument("--trace", action="store_true", help="with --seed: show everything that happened")
    return parser.parse_args()


def play_seed(seed: int, *, part: str | None, keeps_trace: bool = False) -> Result:
    chosen = [one for one in PARTS if one.name == part]
    return simulate(seed, keeps_trace=keeps_trace, prepare=with_part(chosen[0]) if chosen else None)


def replay(result: Result) -> int:
    for line in result.trace:
        print(line)
    print(
        f"seed {result.seed}: {result.virtual_s:.1f} s, {result.steps:,} steps, {result.runs} handler runs, "
        f"{result.faults} faults, trace {result.trace_hash}"
    )
    for violation in result.violations:
        print(f"  {violation}")
    return 1 if result.violations else 0


def run_many(seeds: range, part: str | None, jobs: int) -> int:
    progress = Progress(len(seeds))
    told = f" --part {part}" if part else ""
    for result in results(partial(play_seed, part=part), seeds, jobs):
        progress.count(result, f"./tools/dev simulate --seed {result.seed}{told} --trace")
    progress.finish()
    return 1 if progress.failed else 0


if __name__ == "__main__":
    sys.exit(main())
