"""Hunt every planted bug: with the simulator, seed after seed, and with the crash points of short scenes.

./tools/dev bugs                                all of them, and a table of what caught each after how many runs
./tools/dev bugs --only "a dead row is claimed"
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tools")]

from rich.console import Console  # noqa: E402  # found only from here on
from rich.table import Table  # noqa: E402
from simulation.bank import BANK  # noqa: E402
from simulation.crash_points import play, single_faults  # noqa: E402
from simulation.planting import Planted  # noqa: E402
from simulation.scenes import SCENES  # noqa: E402
from simulation.world import Result, simulate  # noqa: E402

SEEDS_MAX = 400


@dataclass(frozen=True, slots=True)
class Catch:
    bug: str
    by: str
    """What caught it; empty if nothing did."""
    after: int
    """So many runs."""
    checker: str = ""


def main() -> int:
    options = parse_options()
    bugs = [bug for bug in BANK if options.only in (None, bug.name)]
    catches = []
    with ProcessPoolExecutor(options.jobs) as pool:
        for catch in pool.map(hunt, [bug.name for bug in bugs], [options.seeds] * len(bugs)):
            catches.append(catch)
            print(f"{len(catches)} of {len(bugs)}: {told(catch)}", file=sys.stderr, flush=True)
    return report(catches)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./tools/dev bugs", description="Hunt every planted bug.")
    parser.add_argument("--only", choices=[bug.name for bug in BANK], metavar="NAME", help="one bug (default: all)")
    parser.add_argument("--seeds", type=int, default=SEEDS_MAX, help="at most so many for each (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one for each core)")
    return parser.parse_args()


def hunt(name: str, seeds: int) -> Catch:
    (bug,) = (bug for bug in BANK if bug.name == name)
    return (
        _hunt(bug, "simulation", (_seed(bug, seed) for seed in range(seeds)))
        or _hunt(bug, "crash points", _crash_points(bug))
        or Catch(name, "", seeds)
    )


def _seed(bug: Planted, seed: int) -> Result:
    return simulate(seed, prepare=bug.plant)


def _crash_points(bug: Planted) -> Iterable[Result]:
    for scene in SCENES:
        for aims in single_faults(scene):
            yield play(scene, aims, prepare=bug.plant)


def _hunt(bug: Planted, by: str, results: Iterable[Result]) -> Catch | None:
    for number, result in enumerate(results, start=1):
        for violation in result.violations:
            if violation.checker in bug.seen_by:
                return Catch(bug.name, by, number, violation.checker)
    return None


def told(catch: Catch) -> str:
    return f"{catch.bug}: {catch.by} after {catch.after}" if catch.by else f"{catch.bug}: NOT CAUGHT"


def report(catches: Sequence[Catch]) -> int:
    table = Table("bug", "caught by", "runs", "checker")
    for catch in catches:
        table.add_row(catch.bug, catch.by or "[bold red]nothing[/]", f"{catch.after:,}", catch.checker)
    Console().print(table)
    caught = [catch for catch in catches if catch.by]
    middle = statistics.median(catch.after for catch in caught) if caught else 0
    most = max((catch.after for catch in caught), default=0)
    print(f"{len(caught)} of {len(catches)} caught, after {middle:g} runs in the middle, {most} at most")
    return 0 if len(caught) == len(catches) else 1


if __name__ == "__main__":
    sys.exit(main())
