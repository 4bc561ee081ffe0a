"""Hunt every planted bug, and tell by what it was caught, and after how many runs.

Most are hunted with the simulator, seed after seed, and what it does not see with the crash points of short scenes.
What only real sessions of PostgreSQL can do to each other is hunted with the interleaver: schedule after schedule of
the two moves that such a bug is about.

./tools/dev bugs                                all of them
./tools/dev bugs --only "a dead row is claimed"
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tools")]

from interleaver import planted  # noqa: E402  # found only from here on
from interleaver.playing import find_violation  # noqa: E402
from interleaver.stage import Stage, a_stage  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402
from simulation.bank import BANK  # noqa: E402
from simulation.crash_points import is_playable, play, single_faults  # noqa: E402
from simulation.planting import Planted  # noqa: E402
from simulation.scenes import SCENES  # noqa: E402
from simulation.world import Result, simulate  # noqa: E402
from support.interleaving import install  # noqa: E402
from support.postgres import start_postgres  # noqa: E402

SEEDS_MAX = 400
SIMULATION, CRASH_POINTS, INTERLEAVER = "simulation", "crash points", "interleaver"
RUNS = {SIMULATION: "seeds", CRASH_POINTS: "places with a fault", INTERLEAVER: "schedules"}
"""What each of them counts."""


@dataclass(frozen=True, slots=True)
class Catch:
    bug: str
    by: str
    """What caught it; empty if nothing did."""
    after: int
    """So many runs."""
    checker: str = ""

    def __str__(self) -> str:
        return f"{self.bug}: {self.by} after {self.after}" if self.by else f"{self.bug}: NOT CAUGHT"


def main() -> int:
    options = parse_options()
    simulated = [bug.name for bug in BANK if options.only in (None, bug.name)]
    played = [bug for bug in planted.PLANTED if options.only in (None, bug.name)]
    catches = []
    for catch in chain(hunt_simulated(simulated, options.seeds, options.jobs), hunt_played(played)):
        catches.append(catch)
        print(f"{len(catches)} of {len(simulated) + len(played)}: {catch}", file=sys.stderr, flush=True)
    return report(catches)


def parse_options() -> argparse.Namespace:
    names = [*(bug.name for bug in BANK), *(bug.name for bug in planted.PLANTED)]
    parser = argparse.ArgumentParser(prog="./tools/dev bugs", description="Hunt every planted bug.")
    parser.add_argument("--only", choices=names, metavar="NAME", help="one bug (default: all)")
    parser.add_argument("--seeds", type=int, default=SEEDS_MAX, help="at most so many for each (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one for each core)")
    return parser.parse_args()


# With the simulator, then with crash points.


def hunt_simulated(names: Sequence[str], seeds: int, jobs: int) -> Iterator[Catch]:
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(hunt, names, [seeds] * len(names))


def hunt(name: str, seeds: int) -> Catch:
    (bug,) = (bug for bug in BANK if bug.name == name)
    return (
        _hunt(bug, SIMULATION, (_seed(bug, seed) for seed in range(seeds)))
        or _hunt(bug, CRASH_POINTS, _crash_points(bug))
        or Catch(name, "", seeds)
    )


def _seed(bug: Planted, seed: int) -> Result:
    return simulate(seed, prepare=bug.plant)


def _crash_points(bug: Planted) -> Iterable[Result]:
    for scene in SCENES:
        if is_playable(scene, bug.plant):
            for aims in single_faults(scene):
                yield play(scene, aims, prepare=bug.plant)


def _hunt(bug: Planted, by: str, results: Iterable[Result]) -> Catch | None:
    for number, result in enumerate(results, start=1):
        for violation in result.violations:
            if violation.checker in bug.seen_by:
                return Catch(bug.name, by, number, violation.checker)
    return None


# With the interleaver.


def hunt_played(bugs: Sequence[planted.Planted]) -> Iterator[Catch]:
    if not bugs:
        return
    with start_postgres() as server, asyncio.Runner() as runner:
        dsn = server.create_database("bugs")
        yield from runner.run(_hunt_on(dsn, bugs))


async def _hunt_on(dsn: str, bugs: Sequence[planted.Planted]) -> list[Catch]:
    await install(dsn)
    async with a_stage(dsn) as stage:
        return [await _hunt_played(stage, bug) for bug in bugs]


async def _hunt_played(stage: Stage, bug: planted.Planted) -> Catch:
    finding = await find_violation(stage, [bug.mutant], [bug.pair], scenes=[bug.scene])
    if finding is None or not any(violation.startswith(bug.seen_as) for violation in finding.violations):
        return Catch(bug.name, "", 0)
    return Catch(bug.name, INTERLEAVER, finding.number, bug.seen_as)


# What came of it.


def report(catches: Sequence[Catch]) -> int:
    table = Table("bug", "caught by", "runs", "checker")
    for catch in catches:
        table.add_row(catch.bug, catch.by or "[bold red]nothing[/]", f"{catch.after:,}", catch.checker)
    Console().print(table)
    caught = [catch for catch in catches if catch.by]
    print(f"{len(caught)} of {len(catches)} caught")
    for by, runs in RUNS.items():
        after = [catch.after for catch in caught if catch.by == by]
        if after:
            middle = statistics.median(after)
            print(f"  {len(after)} by {by}, after {middle:g} {runs} in the middle, {max(after)} at most")
    return 0 if len(caught) == len(catches) else 1


if __name__ == "__main__":
    sys.exit(main())
