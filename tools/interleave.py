"""Play transitions of real PostgreSQL sessions against each other, statement by statement, in every order that matters.

./tools/dev interleave                          every pair of moves in every scene, then threes by chance
./tools/dev interleave --pair schedule,claim    all schedules of two moves; `put,put=` is a move and its own twin
./tools/dev interleave --pair schedule,claim --scene lapsed --schedule AABBBA    one schedule, shown step by step
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AsyncExitStack
from multiprocessing import SimpleQueue, get_context
from pathlib import Path
from random import Random
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from interleaver.moves import MOVES  # noqa: E402  # found only from here on
from interleaver.pairs import Unit, all_pairs, named, some_threes  # noqa: E402
from interleaver.playing import LIMIT, TWIN, Tally, play_all, play_one, play_some  # noqa: E402
from interleaver.scenes import SCENES  # noqa: E402
from interleaver.stage import Stage, a_stage  # noqa: E402
from support.interleaving import install  # noqa: E402
from support.postgres import PostgresServer, start_postgres  # noqa: E402

PROGRESS_EVERY_S = 1.0
SHOWN_MAX = 20


def main() -> int:
    options = parse_options()
    units = list(chosen_units(options))
    with start_postgres() as server:
        if options.schedule:
            return asyncio.run(replay(a_database(server, 0), units[0], options.schedule))
        return play_many(server, units, options.jobs, options.limit)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./tools/dev interleave",
        description="Play transitions of PostgreSQL sessions against each other.",
        epilog=f"moves: {', '.join(MOVES)}; scenes: {', '.join(SCENES)}",
    )
    parser.add_argument("--pair", type=moves_of, metavar="A,B", help="only these moves, two or three")
    parser.add_argument("--scene", choices=SCENES, metavar="SCENE", help="only in this scene")
    parser.add_argument("--schedule", metavar="ABBA…", help="with --pair and --scene: replay this one")
    parser.add_argument(
        "--limit", type=int, default=LIMIT, help="schedules of a pair in a scene (default: %(default)s)"
    )
    parser.add_argument("--threes", type=int, default=300, help="how many times three moves (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the threes (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one for each core)")
    options = parser.parse_args()
    if options.schedule and not (options.pair and options.scene):
        parser.error("--schedule needs --pair and --scene")
    return options


def moves_of(text: str) -> list[str]:
    names = text.split(",")
    unknown = [name for name in names if name.rstrip(TWIN) not in MOVES]
    if unknown or not 2 <= len(names) <= 3:
        raise argparse.ArgumentTypeError(f"two or three of: {', '.join(MOVES)}")
    return names


def chosen_units(options: argparse.Namespace) -> Iterator[Unit]:
    if options.pair:
        yield from named(options.pair, options.scene)
        return
    everywhere = [*all_pairs(), *some_threes(options.threes, 10, options.seed)]
    yield from (unit for unit in everywhere if options.scene in (None, unit.scene))


async def replay(dsn: str, unit: Unit, letters: str) -> int:
    await install(dsn)
    async with a_stage(dsn) as stage:
        run = await play_one(stage, unit.names, SCENES[unit.scene], letters)
    print("\n".join(run.trace))
    for violation in run.violations:
        print(f"  {violation}")
    return 1 if run.violations else 0


# Many, in several processes with a database each.


def a_database(server: PostgresServer, number: int) -> str:
    return server.create_database(f"interleave_{number}")


class _Worker:
    """Of this process."""

    runner: asyncio.Runner
    stage: Stage
    stack: AsyncExitStack


def begin_work(dsns: SimpleQueue[str]) -> None:
    async def open_stage(dsn: str) -> None:
        await install(dsn)
        _Worker.stack = AsyncExitStack()
        _Worker.stage = await _Worker.stack.enter_async_context(a_stage(dsn))

    _Worker.runner = asyncio.Runner()
    _Worker.runner.run(open_stage(dsns.get()))


def play(unit: Unit, limit: int) -> tuple[Unit, Tally]:
    return unit, _Worker.runner.run(play_unit(_Worker.stage, unit, limit))


async def play_unit(stage: Stage, unit: Unit, limit: int) -> Tally:
    scene = SCENES[unit.scene]
    if unit.schedules or len(unit.names) > 2:
        return await play_some(stage, unit.names, scene, Random(unit.seed), unit.schedules or limit)
    return await play_all(stage, unit.names, scene, limit=limit)


def play_many(server: PostgresServer, units: Sequence[Unit], jobs: int, limit: int) -> int:
    spawning = get_context("spawn")
    dsns: Any = spawning.SimpleQueue()
    for number in range(jobs):
        dsns.put(a_database(server, number))
    progress = Progress(len(units))
    # Those of one scene together: it is built once in each process, and what changes it is put back.
    ordered = sorted(units, key=lambda unit: unit.scene)
    with ProcessPoolExecutor(jobs, spawning, begin_work, (dsns,)) as pool:
        for unit, tally in pool.map(play, ordered, [limit] * len(ordered), chunksize=4):
            progress.count(unit, tally)
    progress.finish()
    return 1 if progress.found else 0


class Progress:
    """A line that is written over where there is a terminal, and now and then a new one where there is none."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._began = self._shown = time.monotonic()
        self._done = self.found = 0
        self._scenes: dict[str, Counter[str]] = {}
        self._capped: list[str] = []
        self._end = "\r" if sys.stderr.isatty() else "\n"
        self._every_s = PROGRESS_EVERY_S if sys.stderr.isatty() else 30.0

    def count(self, unit: Unit, tally: Tally) -> None:
        self._done += 1
        self.found += len(tally.findings)
        kind = unit.scene if len(unit.names) == 2 else "(three, by chance)"
        counted = self._scenes.setdefault(kind, Counter())
        counted.update(
            units=1,
            schedules=tally.schedules,
            waits=tally.waits,
            conflicts=tally.conflicts,
            allowed=tally.allowed,
            found=len(tally.findings),
        )
        if tally.capped:
            self._capped.append(f"{','.join(unit.names)} in {unit.scene}")
        for finding in tally.findings[:1]:
            print(f"{finding.line}  # {finding.violations[0][:200]}", flush=True)
        if time.monotonic() - self._shown >= self._every_s:
            self._show(self._end)

    def finish(self) -> None:
        self._show("\n")
        columns = ("units", "schedules", "waits", "conflicts", "allowed", "found")
        heads = ("pairs", "schedules", "waits", "deadlocks", "allowed", "violations")
        total: Counter[str] = Counter()
        print(f"{'scene':20}" + "".join(f"{head:>12}" for head in heads))
        for scene, counted in self._scenes.items():
            total.update(counted)
            print(f"{scene:20}" + "".join(f"{counted[column]:>12,}" for column in columns))
        print(f"{'all':20}" + "".join(f"{total[column]:>12,}" for column in columns))
        if self._capped:
            print(f"not all schedules of: {'; '.join(self._capped[:SHOWN_MAX])}", end="")
            print(f" and {len(self._capped) - SHOWN_MAX} more" if len(self._capped) > SHOWN_MAX else "")

    def _show(self, end: str) -> None:
        self._shown = time.monotonic()
        schedules = sum(counted["schedules"] for counted in self._scenes.values())
        print(
            f"{self._done:,} of {self._total:,} pairs, {schedules:,} schedules, {self.found} violations; "
            f"{self._shown - self._began:.0f} s",
            end=end,
            file=sys.stderr,
            flush=True,
        )


if __name__ == "__main__":
    sys.exit(main())
