"""Fuzz: every public call and command with good and odd arguments on SQLite and PostgreSQL, side by side.

./tools/dev fuzz --seconds 600              as many inputs as fit; what is found is printed as a test to paste
./tools/dev fuzz --examples 10000 --seed 7  so many examples, the same ones each time
./tools/dev fuzz --part model               only the state machine of clients and workers (or: calls, commands)
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import ExitStack
from itertools import count, cycle
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from fuzz.commands import Typist, lines  # noqa: E402  # found only from here on
from fuzz.crew import register_with_crew  # noqa: E402
from fuzz.judge import Judge  # noqa: E402
from fuzz.machine import Model  # noqa: E402
from fuzz.rounds import Report, play_round, run_machine  # noqa: E402
from fuzz.sides import opened  # noqa: E402
from fuzz.surfaces import sequences  # noqa: E402
from fuzz.verdicts import Signature, Tally  # noqa: E402
from support.postgres import PostgresServer, start_postgres  # noqa: E402

EXAMPLES = {"calls": 30, "commands": 15, "model": 3}
"""In one round of a part: each takes some seconds."""
ORDER = ("calls", "calls", "calls", "commands", "calls", "calls", "calls", "model")
PROGRESS_EVERY_S = 1.0


def main() -> int:
    options = parse_options()
    order = ORDER if options.part is None else (options.part,)
    with start_postgres() as server, tempfile.TemporaryDirectory() as folder:
        return run(options, order, server, folder)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./tools/dev fuzz", description="Fuzz all public inputs on both databases.")
    parser.add_argument("--examples", type=int, help="stop after so many examples, each of some inputs")
    parser.add_argument("--seconds", type=float, help="stop after so long (default: 60, if no --examples are given)")
    parser.add_argument("--seed", type=int, default=0, help="the first of the seeds (default: %(default)s)")
    parser.add_argument("--part", choices=sorted(EXAMPLES), help="only this part (default: all)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one for each core)")
    options = parser.parse_args()
    if options.seconds is None and options.examples is None:
        options.seconds = 60.0
    return options


def run(options: argparse.Namespace, order: tuple[str, ...], server: PostgresServer, folder: str) -> int:
    total, progress = Report(), Progress(options)
    with ProcessPoolExecutor(options.jobs, initializer=open_player, initargs=(server, folder)) as pool:
        rounds = planned(order, options.seed, options.examples)
        running: set[Future[Report]] = set()
        known: set[Signature] = set()
        while True:
            while len(running) < options.jobs and not progress.is_over and (following := next(rounds, None)):
                running.add(pool.submit(play, *following, known))
            if not running:
                break
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for one in done:
                report = one.result()
                for signature, test in report.finds.items():
                    if signature not in known:
                        print(f"{test}\n", flush=True)
                known |= report.finds.keys()
                total.add(report)
            progress.show(total)
    progress.finish(total)
    print(table(total))
    return 1 if total.finds else 0


def planned(order: tuple[str, ...], seed: int, examples: int | None) -> Iterator[tuple[str, int, int]]:
    """Part, seed and number of examples of one round after another."""
    left = examples
    for part, number in zip(cycle(order), count(seed), strict=False):
        now = EXAMPLES[part] if left is None else min(left, EXAMPLES[part])
        if now == 0:
            return
        left = None if left is None else left - now
        yield part, number, now


# In the processes.


class Player:
    """The parts of the fuzz in one process, each on databases of its own, opened when they are first needed."""

    def __init__(self, server: PostgresServer, folder: str) -> None:
        self._server, self._folder = server, folder
        self._life = ExitStack()  # ends with the process
        self._parts: dict[str, Any] = {}

    def play(self, part: str, seed: int, examples: int, known: set[Signature]) -> Report:
        if part not in self._parts:
            self._parts[part] = self._open(part)
        player = self._parts[part]
        player.tallies, player.known = {}, set(known)
        if part == "model":
            finds = run_machine(player, seed, examples)
        else:
            strategy = sequences if part == "calls" else lines
            finds = play_round(player.play, strategy, seed, examples, player.known)
        return Report(player.tallies, finds)

    def _open(self, part: str) -> Judge | Typist | Model:
        dsn = self._server.create_database(f"fuzz_{part}_{os.getpid()}")
        if part == "calls":
            return Judge(self._life.enter_context(opened(dsn)))
        if part == "model":
            return Model(self._life.enter_context(opened(dsn, register_with_crew)))
        file = f"{self._folder}/{os.getpid()}.db"
        return Typist(self._life.enter_context(opened(dsn, file=file)), [f"sqlite:///{file}", dsn])


def open_player(server: PostgresServer, folder: str) -> None:
    global _player
    _player = Player(server, folder)


def play(part: str, seed: int, examples: int, known: set[Signature]) -> Report:
    return _player.play(part, seed, examples, known)


_player: Player


# What is shown.


class Progress:
    """A line that is written over where there is a terminal, and now and then a new one where there is none."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._began = self._shown = time.monotonic()
        self._seconds = options.seconds
        self._end = "\r" if sys.stderr.isatty() else "\n"
        self._every_s = PROGRESS_EVERY_S if sys.stderr.isatty() else 30.0

    @property
    def is_over(self) -> bool:
        return self._seconds is not None and time.monotonic() - self._began > self._seconds

    def show(self, total: Report) -> None:
        if time.monotonic() - self._shown >= self._every_s:
            self._print(total, self._end)

    def finish(self, total: Report) -> None:
        self._print(total, "\n")

    def _print(self, total: Report, end: str) -> None:
        self._shown = time.monotonic()
        passed = self._shown - self._began
        left = "" if self._seconds is None else f" of {self._seconds:.0f}"
        print(
            f"{passed:.0f}{left} s, {total.inputs:,} inputs ({total.inputs / passed:.0f}/s), {len(total.finds)} found",
            end=end,
            file=sys.stderr,
            flush=True,
        )


def table(total: Report) -> str:
    """Surfaces with what became of their inputs; `differ` and `unhandled` are violations, and so are `others`."""
    rows = [("surface", "inputs", "refused", "accepted", "differ", "unhandled", "others")]
    summed = Tally()
    for name, tally in sorted(total.tallies.items()):
        rows.append(row_of(name, tally))
        summed.add(tally)
    rows.append(row_of("all", summed))
    width = max(len(row[0]) for row in rows)
    return "\n".join(f"{row[0]:{width}}" + "".join(f"{cell:>11}" for cell in row[1:]) for row in rows)


def row_of(name: str, tally: Tally) -> tuple[str, ...]:
    found = tally.violations
    differ = found["differs"] + found["wrote other rows"]
    others = sum(found.values()) - differ - found["unhandled"]
    numbers = (tally.inputs, tally.refused, tally.accepted, differ, found["unhandled"], others)
    return name, *(f"{number:,}" for number in numbers)


if __name__ == "__main__":
    sys.exit(main())
