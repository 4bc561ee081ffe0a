"""Measure matrixsched on this machine: `./tools/dev bench --help`.

Rates mean little by themselves: a machine is faster today than tomorrow. What counts are the ratios within one run, so
the chosen workloads take turns, round after round, and each ratio is made of figures from the same round.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import psycopg

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "tests"))  # for support.postgres, the server that tests use too

from benchmarks import charting, judging  # noqa: E402
from benchmarks.measuring import Run, Scale  # noqa: E402
from benchmarks.peers.environments import Peer, PeerUnavailable  # noqa: E402
from benchmarks.places import Places, PostgresPlaces, SqlitePlaces  # noqa: E402
from benchmarks.progress import Progress  # noqa: E402
from benchmarks.report import Report  # noqa: E402
from benchmarks.targets import TARGETS  # noqa: E402
from benchmarks.workloads import WORKLOADS, Workload  # noqa: E402
from rich.console import Console  # noqa: E402
from support.postgres import PostgresUnavailable, start_postgres  # noqa: E402

from matrixsched.rules.names import SHARDS_DEFAULT  # noqa: E402
from matrixsched.store.statements import Dialect  # noqa: E402

DATABASES: dict[str, tuple[Dialect, ...]] = {
    "postgresql": ("postgresql",),
    "sqlite": ("sqlite",),
    "both": ("postgresql", "sqlite"),
}
INTERRUPTED = 130
FILE_WIDTH = 200
"""Of the table of figures where no terminal is: no name in it is cut off, however long the figures are."""
SCALES = {
    "full": Scale(),
    "small": Scale(
        calls_one_by_one=300,
        calls_at_once=3_200,
        calls_in_batches=10_000,
        due=5_000,
        future=100_000,
        backlog=100_000,
        backlog_s=3.0,
        starts=60,
        timers=400,
        web_calls=40,
        timers_over_s=4.0,
        idle_s=5.0,
        held=100_000,
        keys=1_000,
        limit_s=8.0,
        waiting=100_000,
        tasks=5_000,
        churn=60_000,
        churn_round=4_000,
    ),
    # Too little to say anything about speed: it shows that every workload still runs and checks itself.
    "tiny": Scale(
        calls_one_by_one=5,
        calls_at_once=64,
        calls_in_batches=300,
        due=300,
        future=1_000,
        backlog=500,
        backlog_s=1.0,
        starts=3,
        timers=10,
        web_calls=3,
        web_warm_up=1,
        timers_over_s=0.5,
        idle_s=0.2,
        idle_settle_s=0.2,
        held=1_000,
        templates=10,
        keys=20,
        limit_per_s=50,
        limit_s=2.0,
        waiting=2_000,
        semaphores=20,
        tasks=300,
        churn=600,
        churn_round=100,
    ),
}


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = parse(arguments)
    talk = Console(stderr=True, highlight=False)
    report = Report(scale=chosen.scale, shards=chosen.shards, rounds=chosen.rounds)
    try:
        with open_places(chosen) as places:
            report.machine |= {place.dialect: place.version for place in places}
            report.machine["durable"] = all(place.is_durable for place in places)
            if not report.machine["durable"]:
                talk.print(
                    "bench: fsync or synchronous_commit is off: these figures are not of durable writes", soft_wrap=True
                )
            is_whole = measure(chosen, places, report, talk)
    except (PostgresUnavailable, psycopg.OperationalError) as error:
        talk.print(f"bench: {error}\nbench: to leave PostgreSQL out: --database sqlite", markup=False)
        return 1
    if not is_whole:
        talk.print(f"bench: interrupted; whole rounds that count: {report.rounds}", markup=False)
        if not report.rounds:
            return INTERRUPTED
    is_seen = sys.stdout.isatty()
    report.show(Console(width=None if is_seen else FILE_WIDTH))
    console = Console(width=None if is_seen else 120)
    judging.show(TARGETS, report, console)
    if chosen.json is not None:
        told = report.as_json() | {"targets": judging.as_json(TARGETS, report)}
        chosen.json.write_text(json.dumps(told, indent=2, ensure_ascii=False) + "\n")
    if chosen.chart is not None:
        chosen.chart.write_text(charting.draw(report))
    for violation in report.violations:
        talk.print(f"bench: VIOLATION {violation}", style="red", markup=False)
    return 1 if report.violations else 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    described = "\n".join(f"  {workload.name:24} {workload.summary}" for workload in WORKLOADS.values())
    usual = [workload for workload in WORKLOADS.values() if not (workload.peer or workload.is_long)]
    parser = argparse.ArgumentParser(
        prog="bench",
        description=f"Measure matrixsched on this machine.\n\nworkloads:\n{described}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--database", choices=DATABASES, default="both")
    parser.add_argument("--workloads", type=named_workloads, default=usual, metavar="NAME[,NAME…]")
    parser.add_argument("--rounds", type=positive, default=3, help="all workloads take turns this often (default: 3)")
    parser.add_argument("--scale", choices=SCALES, default="full", help="small: a quick look; tiny: only for tests")
    parser.add_argument("--shards", type=positive, default=SHARDS_DEFAULT, help=f"default: {SHARDS_DEFAULT}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to this file as well")
    parser.add_argument("--chart", type=svg_file, metavar="FILE.svg", help="draw ours beside floors and peers")
    parser.add_argument(
        "--peers", action="store_true", help="add the workloads of other libraries, each installed beside ours"
    )
    parser.add_argument(
        "--long", action="store_true", help="add the workloads that take minutes: ten million rows, an hour's churn"
    )
    parser.add_argument(
        "--url",
        metavar="postgresql://…",
        help="a database that is there already; without it a durable server is started and thrown away afterwards",
    )
    chosen = parser.parse_args(arguments)
    chosen.workloads = [
        one
        for one in WORKLOADS.values()
        if one in chosen.workloads or one.peer and chosen.peers or one.is_long and chosen.long
    ]
    return chosen


def named_workloads(text: str) -> list[Workload]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in WORKLOADS]
    if unknown or not names:
        raise argparse.ArgumentTypeError(f"{', '.join(unknown) or 'none'}: choose from {', '.join(WORKLOADS)}")
    return [WORKLOADS[name] for name in names]


def svg_file(text: str) -> Path:
    if not text.endswith(".svg"):
        raise argparse.ArgumentTypeError("the picture is an SVG: let its name end with .svg")
    return Path(text)


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number


@contextlib.contextmanager
def open_places(chosen: argparse.Namespace) -> Iterator[list[Places]]:
    """The chosen databases, each giving out fresh installations; all of them are gone afterwards."""
    with contextlib.ExitStack() as stack:
        places: list[Places] = []
        for database in DATABASES[chosen.database]:
            if not any(database in workload.databases for workload in chosen.workloads):
                continue
            if database == "sqlite":
                places.append(stack.enter_context(SqlitePlaces.in_temporary_folder()))
            elif chosen.url is not None:
                places.append(PostgresPlaces(chosen.url, ours=False))
            else:
                server = stack.enter_context(start_postgres(durable=True))
                places.append(PostgresPlaces(server.create_database("bench"), ours=server.restartable))
        yield places


def measure(chosen: argparse.Namespace, places: Sequence[Places], report: Report, talk: Console) -> bool:
    """Whether it came to its end. A run may take hours: Ctrl-C leaves what its whole rounds measured."""
    leave_out_absent(chosen.workloads, report, talk)
    turns = [
        (workload, place)
        for workload in chosen.workloads
        for place in places
        if place.dialect in workload.databases and workload.name not in report.left_out
    ]
    progress = Progress(chosen.rounds, [(workload.name, place.dialect) for workload, place in turns])
    for whole_rounds in range(chosen.rounds):
        try:
            for workload, place in turns:
                talk.print(f"{progress.begin()}  {workload.name:24} {place.dialect:11}", end="", markup=False)
                with place.fresh() as fresh:
                    told = take_turn(workload, Run(fresh, SCALES[chosen.scale], chosen.shards), report)
                talk.print(f"{told}  ({progress.end()})", markup=False, soft_wrap=True)
        except KeyboardInterrupt:
            talk.print()
            report.cut_to(whole_rounds)
            return False
    return True


def leave_out_absent(workloads: Sequence[Workload], report: Report, talk: Console) -> None:
    """Install the peers that were asked for; one that cannot be installed is told of, and the others go on."""
    absent: dict[Peer, str] = {}
    for peer in dict.fromkeys(workload.peer for workload in workloads if workload.peer):
        if not peer.is_ready:
            talk.print(f"bench: installing {', '.join(peer.packages)}", markup=False)
        try:
            peer.make_ready()
        except PeerUnavailable as error:
            absent[peer] = str(error)
            talk.print(f"bench: {peer.name} is left out: {error}", style="yellow", markup=False, soft_wrap=True)
    for workload in workloads:
        if workload.peer in absent:
            report.leave_out(workload, absent[workload.peer])


def take_turn(workload: Workload, run: Run, report: Report) -> str:
    """Measure once, and say what came of it. A peer that fails in one round is left out of all."""
    if workload.name not in report.left_out:
        try:
            measured = workload.run(run)
        except PeerUnavailable as error:
            report.leave_out(workload, str(error))
        else:
            report.add(workload, run.place.dialect, measured)
            return "  ".join(figure.text() for figure in measured.figures)
    return f"left out: {report.left_out[workload.name]}"


if __name__ == "__main__":
    sys.exit(main())
