"""Ten million actions of the future in one database: what it costs to write them, and what everything else costs then.

    ./tools/dev large                          half an hour and more, 15 GB of disk while it runs
    ./tools/dev large --actions 100000         a look

They are scheduled by `schedule_many` and moved by a worker, as any others. Beside them others come due and are run,
pages are asked for, `fsck` looks, superseded rows are swept, finished actions are pruned, and all is dumped and
restored. Exit code 1: something was lost, run twice, or found broken.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "tests"))  # for support, which starts servers for tests, too

import anyio  # noqa: E402
import httpx  # noqa: E402
from benchmarks.checking import Tally  # noqa: E402
from benchmarks.draining import Drains  # noqa: E402
from benchmarks.measuring import Run, Scale, Unit, run_loop, shown, spread_of  # noqa: E402
from benchmarks.parts import drained, ignore, working  # noqa: E402
from benchmarks.places import PostgresPlace, PostgresPlaces  # noqa: E402
from benchmarks.web import PAGES, PREFIX, REQUESTS, Asked, p95  # noqa: E402
from playing import Check, Parser, console, exit_code, show_verdicts, whole  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402
from support.postgres import find_binaries, server_identity, start_postgres  # noqa: E402

from matrixsched import App, call  # noqa: E402
from matrixsched.store.store import Store  # noqa: E402
from matrixsched.store.transition import Transition  # noqa: E402
from matrixsched.store.wrapper import StoreWrapper  # noqa: E402
from matrixsched.web import dashboard  # noqa: E402

T = TypeVar("T")

SHARDS = 64
LATER = timedelta(days=1)
SPREAD_S = 86_400
TURNS = 3
SUPERSEDED = 100_000
LOOKS = 100
PAGES_ASKED = ("overview", "actions", "actions, nothing fits", "actions, a prefix", "shards", "templates", "limits")
CALLS_ASKED = ("list", "list, nothing fits", "list, a prefix", "overview", "shards", "workers", "plan")
PATIENCE_S = 7_200.0
WAITING_INCOMING = "select exists (select from matrixsched.incoming_queue)"
TABLES = ("scheduled_actions", "incoming_queue", "processing_queue", "requests")
TABLE_BYTES = "select pg_table_size('matrixsched.{table}'), pg_indexes_size('matrixsched.{table}')"
FINISHED_LONG_AGO = """
update matrixsched.scheduled_actions set finished_at = finished_at - interval '30 days' where state = 'done'
"""
LIVE = "select count(*) from matrixsched.scheduled_actions where state = 'live'"
ROWS = "select (select count(*) from matrixsched.incoming_queue) + (select count(*) from matrixsched.processing_queue)"


class TimedStore(StoreWrapper):
    """How long each transition took, by name."""

    def __init__(self, inner: Store, times_s: dict[str, list[float]]) -> None:
        super().__init__(inner)
        self._times_s = times_s

    def sibling(self) -> Store:
        return self._inner.sibling()

    async def watch(self, changed: Any) -> None:
        await self._inner.watch(changed)

    async def run(self, transition: Transition[T]) -> T:
        begun = time.perf_counter()
        try:
            return await self._inner.run(transition)
        finally:
            self._times_s[transition.name].append(time.perf_counter() - begun)


@dataclass(frozen=True)
class TimedPlace(PostgresPlace):
    times_s: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def app(self) -> App:
        app = super().app()
        app.store = TimedStore(app.store, self.times_s)
        return app


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = parse(arguments)
    talk, shown_on = Console(stderr=True, highlight=False), console()
    with start_postgres(durable=True) as server:
        place = TimedPlace(server.create_database("large"), "default", ours=server.restartable)
        large = Large(place, chosen.actions, replace(Scale(), due=chosen.due), talk)
        large.measure()
        restored = server.create_database("restored")
        large.dump_and_restore(restored)
    shown_on.print(large.table())
    show_verdicts(large.checks, shown_on)
    if chosen.json is not None:
        found = {"figures": large.figures, "checks": [check._asdict() for check in large.checks]}
        chosen.json.write_text(json.dumps(found, indent=2) + "\n")
    return exit_code(large.checks)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(prog="large", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--actions", type=whole(1_000), default=10_000_000, help="of the future (default: 10,000,000)")
    parser.add_argument("--due", type=whole(1), default=Scale().due, help="run beside them (default: 20,000)")
    parser.add_json()
    return parser.parse_args(arguments)


@dataclass
class Large:
    place: TimedPlace
    actions: int
    scale: Scale
    talk: Console
    figures: dict[str, tuple[float, Unit | str]] = field(default_factory=dict)
    checks: list[Check] = field(default_factory=list)

    def measure(self) -> None:
        self._load()
        self._sizes()
        self._drain()
        self._look_at_pages()
        self._fsck()
        self._sweep()
        self._prune()

    # Writing them.

    def _load(self) -> None:
        async def schedule() -> None:
            app = self.place.app()
            app.action("count")(ignore)
            await app.init(shards=SHARDS)
            every = timedelta(seconds=SPREAD_S / self.actions)
            async with app:
                await app.schedule_many(
                    call("count", n, id=f"aside-{n}", delay=LATER + n * every) for n in range(self.actions)
                )

        async def move() -> None:
            app = self.place.app()
            app.action("count")(ignore)
            async with app, working(app):
                await self._until_moved()

        with self._timed("scheduling", self.actions):
            run_loop(schedule)
        with self._timed("moving into the processing queue", self.actions):
            run_loop(move)
        with self._timed("vacuum and analyze"):
            self.place.settle()

    async def _until_moved(self) -> None:
        while True:
            if self.place.ask(WAITING_INCOMING) == [(False,)]:
                return
            await anyio.sleep(0.5)

    def _sizes(self) -> None:
        for table in TABLES:
            ((rows, indexes),) = self.place.ask(TABLE_BYTES.format(table=table))
            self.figures[f"{table}: table"] = (rows / 1e6, "MB")
            self.figures[f"{table}: indexes"] = (indexes / 1e6, "MB")

    # Working beside them.

    def _drain(self) -> None:
        """In turns with an installation that has nothing else."""
        run = Run(self.place, self.scale, SHARDS)
        with PostgresPlaces(self.place.url, self.place.ours).fresh() as empty:
            beside, alone = Drains(run, turns=TURNS), Drains(replace(run, place=empty), turns=TURNS)
            alone.prepare()
            self.place.times_s.clear()
            for _ in range(TURNS):
                alone.turn()
                beside.turn()
            ratios = sorted(ours / other for ours, other in zip(beside.rates, alone.rates, strict=True))
            violations = [*alone.violations(), *beside.violations()]
        self.figures["drain"] = (sorted(beside.rates)[TURNS // 2], "/s")
        self.figures["drain ÷ with none"] = (ratios[TURNS // 2], "share")
        for name in ("move", "claim", "record"):
            for one in spread_of(self.place.times_s[name]):
                self.figures[f"{name} {one.name}"] = (one.value, one.unit)
        self.checks.append(Check("nothing is lost or run twice", not violations, "; ".join(violations) or "no action"))

    def _look_at_pages(self) -> None:
        async def look() -> dict[str, list[float]]:
            app = self.place.app()
            app.action("count")(ignore)
            took_s: dict[str, list[float]] = defaultdict(list)
            site = httpx.ASGITransport(dashboard(app))
            async with app, httpx.AsyncClient(transport=site, base_url="http://127.0.0.1", timeout=60) as client:
                for _ in range(LOOKS):
                    for name, path in self._paths():
                        begun = time.perf_counter()
                        (await client.get(path)).raise_for_status()
                        took_s[name].append(time.perf_counter() - begun)
            await app.close()
            return took_s

        self._say("pages and calls")
        for name, times_s in run_loop(look).items():
            self.figures[f"{name}, p95"] = (p95(times_s) * 1000, "ms")

    def _paths(self) -> Iterator[tuple[str, str]]:
        last = f"aside-{self.actions - 1}"
        yield from ((f"page {one.name}", one.path) for one in _named(PAGES, PAGES_ASKED))
        yield "page action", f"/action?id={last}"
        yield from ((f"call {one.name}", PREFIX + one.path) for one in _named(REQUESTS, CALLS_ASKED))
        yield "call get", f"{PREFIX}/actions/{last}"
        yield "call explain", f"{PREFIX}/actions/{last}/explain"

    def _fsck(self) -> None:
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        with self._timed("fsck", self.actions):
            command = [sys.executable, "-m", "matrixsched", "fsck", "--json", "--database", self.place.url]
            done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
        after = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        if after > before:  # the largest of all children: if it is not this one, nothing is known of it
            self.figures["fsck: memory"] = (after / 1024, "MB")
        self.checks.append(Check("fsck finds nothing", done.returncode == 0, f"exit code {done.returncode}"))

    def _sweep(self) -> None:
        """Rows that were superseded and are due in a day go before they are due."""
        count = min(SUPERSEDED, self.actions)

        async def supersede() -> None:
            async with self.place.app() as app:
                await app.schedule_many(call("count", n, id=f"aside-{n}", delay=LATER * 2) for n in range(count))

        async def sweep() -> None:
            app = self.place.app()
            app.action("count")(ignore)
            async with app, working(app):
                await self._until_one_row_each()

        with self._timed("replacing", count):
            run_loop(supersede)
        with self._timed("moving and sweeping what was superseded", count):
            run_loop(sweep)

    async def _until_one_row_each(self) -> None:
        while True:
            ((live,),), ((rows,),) = self.place.ask(LIVE), self.place.ask(ROWS)
            if live == rows:
                return
            await anyio.sleep(1)

    def _prune(self) -> None:
        async def prune() -> int:
            async with self.place.app() as app:
                return sum((await app.prune()).values())

        expected = TURNS * self.scale.due
        self.place.ask(FINISHED_LONG_AGO)
        with self._timed("pruning", expected):
            pruned = run_loop(prune)
        self.checks.append(Check("what ended long ago is pruned", pruned == expected, f"{pruned:,} of {expected:,}"))

    # Copies.

    def dump_and_restore(self, target: str) -> None:
        with tempfile.TemporaryDirectory(prefix="matrixsched-large-") as folder:
            programs = find_binaries(server_identity(), Path(folder)).folder
            dump = Path(folder) / "dump"
            jobs = f"--jobs={os.cpu_count() or 1}"
            with self._timed("pg_dump", self.actions):
                _carry_out(programs / "pg_dump", "--format=directory", jobs, f"--file={dump}", self.place.url)
            self.figures["dump"] = (sum(file.stat().st_size for file in dump.iterdir()) / 1e6, "MB")
            with self._timed("pg_restore", self.actions):
                _carry_out(programs / "pg_restore", jobs, f"--dbname={target}", str(dump))
        restored = replace(self.place, url=target)
        same = all(restored.ask(text) == self.place.ask(text) for text in (LIVE, ROWS))
        self.checks.append(Check("what is restored is the same", same, "live actions and rows counted"))
        restored.settle()
        tally = Tally(self.scale.due)
        run = Run(restored, self.scale, SHARDS)
        drains = Drains(run)
        drains.schedule()
        elapsed_s = run_loop(lambda: drained(run, tally, tally.expected))
        self.figures["drain of what was restored"] = (tally.expected / elapsed_s, "/s")
        found = "; ".join(tally.violations)
        self.checks.append(Check("workers go on with what was restored", not found, found or "nothing lost or doubled"))

    @contextlib.contextmanager
    def _timed(self, what: str, count: int | None = None) -> Iterator[None]:
        self._say(what)
        begun = time.perf_counter()
        yield
        elapsed_s = time.perf_counter() - begun
        self.figures[what] = (elapsed_s, "s")
        if count is not None:
            self.figures[f"{what}, rate"] = (count / elapsed_s, "/s")

    def _say(self, what: str) -> None:
        self.talk.print(f"large: {what}", markup=False)

    def table(self) -> Table:
        table = Table(title=f"{self.actions:,} actions of the future", box=None, pad_edge=False, show_header=False)
        for name, (value, unit) in self.figures.items():
            table.add_row(name, f"{value:,.1f} s" if unit == "s" else shown(value, unit))  # type: ignore[arg-type]
        return table


def _named(asked: Sequence[Asked], names: Sequence[str]) -> list[Asked]:
    return [one for one in asked if one.name in names]


def _carry_out(program: Path, *arguments: str) -> None:
    subprocess.run([program, *arguments], check=True)


if __name__ == "__main__":
    sys.exit(main())
