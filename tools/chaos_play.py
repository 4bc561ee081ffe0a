"""Let workers and clients work while they, their database and their network are struck; judge what comes of it.

    ./tools/dev chaos                              a minute on PostgreSQL: 30 kills, 12 stops, 6 restarts, and so on
    ./tools/dev chaos --long                       500 kills, 200 stops, 100 restarts, 300 lost commits, 50,000 actions
    ./tools/dev chaos --sqlite                     kills and stops, in one file
    ./tools/dev chaos --distributed                on PostgreSQL, in an installation in distributed form
    ./tools/dev chaos --failpoints                 a worker is killed at each step of an attempt, before and after it
    ./tools/dev chaos --seed 7 --kills 100 --stops 0 --restarts 0 --lost-commits 0

Everything is noted outside the database as well: what clients asked for, what handlers did, what was struck when. The
same seed strikes at the same moments and lets clients ask for the same; what processes do between is up to the machine.
Exit code 1: a promise was broken; what is known is then kept in a folder.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "tests"))  # for chaos itself, and for support, which starts servers and workers

from chaos.campaign import Campaign, Plan, Result, keep, on_postgresql, on_sqlite  # noqa: E402
from chaos.facts import Facts  # noqa: E402
from chaos.kill_points import cases  # noqa: E402
from chaos.nemeses import Amounts, Fault  # noqa: E402
from chaos.place import Place  # noqa: E402
from chaos.recovery_checkers import progress_times, recovery_times  # noqa: E402
from playing import Check, Parser, console, exit_code, show_verdicts, whole  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402
from support.postgres import PostgresUnavailable, start_postgres  # noqa: E402

SHORT = Amounts(kills=30, stops=12, restarts=6, lost_commits=20, terminations=10, cuts=10)
LONG = Amounts(kills=500, stops=200, restarts=100, lost_commits=300, terminations=100, cuts=100)
SHORT_S, LONG_S = 60, 1200
SHORT_ACTIONS, LONG_ACTIONS = 2500, 50_000
SHOWN_MAX = 10


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = parse(arguments)
    talk = Console(stderr=True, highlight=False)
    try:
        if chosen.failpoints:
            return play_kill_points(chosen)
        with (
            on_sqlite() if chosen.sqlite else on_postgresql(chosen.url, distributed=chosen.distributed) as stage,
            tempfile.TemporaryDirectory(prefix="matrixsched-chaos-") as folder,
        ):
            plan = planned(chosen, restartable=stage.server is not None)
            result = None
            try:
                result = Campaign(
                    stage, plan, Path(folder), lambda text: talk.print(f"chaos: {text}", markup=False)
                ).run()
            finally:
                if result is None or result.broken:
                    kept = (
                        chosen.keep or Path(tempfile.gettempdir()) / f"matrixsched-chaos-{plan.seed}-{time.time():.0f}"
                    )
                    keep(Path(folder), stage, result, kept)
                    talk.print(f"chaos: what is known is in {kept}", markup=False)
    except PostgresUnavailable as error:
        talk.print(f"chaos: {error}\nchaos: to do without PostgreSQL: --sqlite", markup=False)
        return 1
    return show(result)


def play_kill_points(chosen: argparse.Namespace) -> int:
    """Each in a database of its own; told as it goes, for it takes minutes."""
    shown_on, checks = console(), []
    with contextlib.ExitStack() as stack:
        server = None if chosen.sqlite else stack.enter_context(start_postgres(durable=True))
        for number, (name, play) in enumerate(cases().items()):
            if not name.startswith(chosen.only):
                continue
            with tempfile.TemporaryDirectory(prefix="matrixsched-chaos-") as folder:
                url = f"sqlite:///{folder}/play.db" if server is None else server.create_database(f"play_{number}")
                try:
                    wrong = list(play(Place(url, url, chosen.distributed), Path(folder)))
                except AssertionError as error:
                    wrong = [str(error)]
            checks.append(Check(name, not wrong, found(wrong)))
            show_verdicts(checks[-1:], shown_on)
    shown_on.print(f"{sum(check.kept is True for check in checks)} of {len(checks)} kill points as they should be")
    return exit_code(checks)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(prog="chaos", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", default="1", help="which moments and which victims (default: 1)")
    parser.add_argument("--long", action="store_true", help="the amounts of the long form, in half an hour or less")
    parser.add_argument(
        "--seconds", type=whole(1), help=f"in about which time (default: {SHORT_S}; {LONG_S:,} if long)"
    )
    parser.add_argument("--actions", type=whole(0), help=f"at least so many actions (default: {SHORT_ACTIONS:,})")
    for name, what in (
        ("kills", "workers killed (-9)"),
        ("stops", "workers stopped, for half a lease to three"),
        ("restarts", "restarts of PostgreSQL, immediate and fast"),
        ("lost-commits", "answers to commits lost"),
        ("terminations", "backends terminated"),
        ("cuts", "connections cut, reset, delayed, or in a black hole"),
    ):
        default = getattr(SHORT, name.replace("-", "_"))
        parser.add_argument(f"--{name}", type=whole(0), metavar="N", help=f"{what} (default: {default})")
    parser.add_argument("--failpoints", action="store_true", help="kill a worker at single steps instead, one by one")
    parser.add_argument("--only", default="", metavar="K12", help="of the failpoints, those whose names begin so")
    parser.add_argument("--workers", type=whole(2), default=6, help="worker processes (default: 6)")
    parser.add_patience()
    parser.add_place()
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where to put what is known if a promise is broken")
    return parser.parse_args(arguments)


def planned(chosen: argparse.Namespace, *, restartable: bool) -> Plan:
    usual = LONG if chosen.long else SHORT
    wanted = {name: getattr(chosen, name) for name in vars(usual)}
    amounts = Amounts(**{name: getattr(usual, name) if value is None else value for name, value in wanted.items()})
    if chosen.sqlite:
        amounts = amounts.only_processes()
    elif not restartable:
        amounts = Amounts(**(vars(amounts) | {"restarts": 0}))
    actions = (LONG_ACTIONS if chosen.long else SHORT_ACTIONS) if chosen.actions is None else chosen.actions
    seconds = chosen.seconds or (LONG_S if chosen.long else SHORT_S)
    return Plan(chosen.seed, seconds, actions, amounts, workers=chosen.workers, patience_s=chosen.patience)


def show(result: Result) -> int:
    shown_on = console()
    shown_on.print(table(result))
    checks = [
        Check(f"{one.promise.rstrip('.')} [{one.name}]", not one.objections, found(one.objections))
        for one in result.verdicts
    ]
    show_verdicts(checks, shown_on)
    return exit_code(checks)


def found(objections: list[str]) -> str:
    if not objections:
        return "kept"
    shown = "".join(f"\n         {' '.join(objection.split()):.300}" for objection in objections[:SHOWN_MAX])
    return f"{len(objections):,} objections{shown}"


def table(result: Result) -> Table:
    facts = result.facts
    replies = Counter(one.reply for one in facts.operations)
    endings = Counter(run.ending for run in facts.runs)
    duplicates = sum(endings[one] for one in ("done",)) - len(
        {(r.guid, r.tick) for r in facts.runs if r.ending == "done"}
    )
    rows = {
        "struck": ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in sorted(result.struck.items())),
        "answers lost to": ", ".join(
            f"{kind} {count} of {result.commits[kind]:,}" for kind, count in lost_commits(result).most_common()
        ),
        "and to none of": ", ".join(f"{count:,} {kind}" for kind, count in spared_commits(result).most_common()),
        "calls": ", ".join(f"{count:,} {reply}" for reply, count in replies.most_common()),
        "actions": f"{len(facts.actions):,}",
        "handlers called": f"{len(facts.runs):,}: "
        + ", ".join(f"{n:,} {e or 'cut off'}" for e, n in endings.most_common()),
        "run to the end twice": f"{duplicates:,}",
        "attempts taken over": f"{sum(one.taken_over for one in facts.claims):,} of {len(facts.claims):,}",
        "spent of the quota": ", ".join(f"{count:,} of {name}" for name, count in spent(facts).most_common()),
        "tasks of the queue": f"{len({parcel.token for parcel in facts.parcels}):,}",
        "places of the semaphore": f"{len({told.task for told in facts.told}):,} tasks",
        "recovery after a kill": str(recovery_times(facts)),
        "progress after a restart": str(progress_times(facts)),
        "snapshots": f"{len(facts.snapshots):,}",
        "stalls of the machine": f"{sum(fault.kind == 'stall' for fault in facts.faults)}",
        "event loops blocked": f"{len(facts.blocked)}, {len(blocked_by_themselves(facts))} of them without a fault",
        "seconds": ", ".join(f"{name} {took:.0f}" for name, took in result.took_s.items()),
    }
    shown = Table(box=None, pad_edge=False, show_header=False)
    for name, value in rows.items():
        if value:
            shown.add_row(name, value)
    return shown


def spent(facts: Facts) -> Counter[str]:
    found: Counter[str] = Counter()
    for change in facts.changes:
        if change.place == "grant" and change.op == "U":
            found[change.id] += (change.attempt or 0) - (change.was_attempt or 0)
    return found


def lost_commits(result: Result) -> Counter[str]:
    return Counter(fault.what for fault in result.facts.faults if fault.kind == "lost commit")


def blocked_by_themselves(facts: Facts) -> list[Fault]:
    return [one for one in facts.blocked if facts.fault_between(one.writer, one.begins, one.ends) is None]


def spared_commits(result: Result) -> Counter[str]:
    lost = lost_commits(result)
    return Counter({kind: count for kind, count in result.commits.items() if kind not in lost})


if __name__ == "__main__":
    sys.exit(main())
