"""Play short scenes once for every place at which something can go wrong, with every fault that can happen there.

./tools/dev crashpoints                                   all scenes, all places, all faults; then pairs by sample
./tools/dev crashpoints --scene "one action" --aim "worker call 12 crash after"       one of them, with its trace
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from random import Random

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tools")]

from many_runs import Progress, results  # noqa: E402  # found only from here on
from simulation.crash_points import SEED, pairs_of_faults, play, single_faults, stage  # noqa: E402
from simulation.nemesis import Aim  # noqa: E402
from simulation.scenes import SCENES, Scene  # noqa: E402
from simulation.world import Result  # noqa: E402

BY_NAME = {scene.name: scene for scene in SCENES}

Case = tuple[str, tuple[Aim, ...]]


def main() -> int:
    options = parse_options()
    scenes = SCENES if options.scene is None else [BY_NAME[options.scene]]
    if options.aim:
        return replay(scenes[0], options.aim)
    return play_all(scenes, options.pairs, options.jobs)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./tools/dev crashpoints", description="Let every fault happen at every place of short scenes."
    )
    parser.add_argument("--scene", choices=list(BY_NAME), help="only this one (default: all)")
    parser.add_argument("--aim", type=an_aim, action="append", help="with --scene: only this fault, with its trace")
    parser.add_argument("--pairs", type=int, default=500, help="pairs of faults for each scene (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one for each core)")
    options = parser.parse_args()
    if options.aim and options.scene is None:
        parser.error("--aim needs the --scene in which it happens")
    return options


def an_aim(text: str) -> Aim:
    try:
        return Aim.read(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def replay(scene: Scene, aims: Sequence[Aim]) -> int:
    result = stage(scene, aims, keeps_trace=True).run()
    for line in result.trace:
        print(line)
    for violation in result.violations:
        print(f"  {violation}")
    return 1 if result.violations else 0


def play_all(scenes: Sequence[Scene], pairs: int, jobs: int) -> int:
    cases = list(chain.from_iterable(cases_of(scene, pairs) for scene in scenes))
    progress = Progress(len(cases))
    failed: Counter[str] = Counter()
    for case, result in zip(cases, results(play_case, cases, jobs), strict=True):
        progress.count(result, command(case))
        failed[case[0]] += bool(result.violations)
    progress.finish()
    report(cases, failed)
    return 1 if progress.failed else 0


def report(cases: Sequence[Case], failed: Counter[str]) -> None:
    """What was played of each scene."""
    print(f"{'scene':24}{'places':>8}{'faults':>8}{'pairs':>8}{'failed':>8}")
    for name in dict.fromkeys(name for name, _ in cases):
        played = [aims for one, aims in cases if one == name]
        single = [aims[0] for aims in played if len(aims) == 1]
        places = {(aim.where, aim.hosts, aim.number) for aim in single}
        figures = (len(places), len(single), len(played) - len(single), failed[name])
        print(f"{name:24}" + "".join(f"{figure:>8,}" for figure in figures))


def cases_of(scene: Scene, pairs: int) -> Iterator[Case]:
    for aims in chain(single_faults(scene), pairs_of_faults(scene, pairs, Random(SEED))):
        yield scene.name, aims


def play_case(case: Case) -> Result:
    name, aims = case
    return play(BY_NAME[name], aims)


def command(case: Case) -> str:
    name, aims = case
    told = " ".join(f'--aim "{aim}"' for aim in aims)
    return f'./tools/dev crashpoints --scene "{name}" {told}'


if __name__ == "__main__":
    sys.exit(main())
