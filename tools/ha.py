"""Let workers and clients work on a cluster of three PostgreSQL servers while its leader is killed and switched over.

    ./tools/dev ha                              10 times killed with -9, 10 times switched over; ten minutes or so
    ./tools/dev ha --kills 2 --switchovers 2    a quick look
    ./tools/dev ha --json                       the table as JSON

Patroni and etcd come from PyPI, into an environment of their own; everything listens on 127.0.0.1 only and ends with
this program. Workers and clients know the servers by one URL of all three with target_session_attrs=read-write. The
judges are those of `./tools/dev chaos`: nothing acknowledged is lost, nothing runs early, what runs twice is explained
by a fault, and ten seconds after a server takes writes again the next action is claimed.
Exit code 1: a promise was broken; what is known is then kept in a folder.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "tests"))  # for chaos, and for support, which starts servers and workers

from benchmarks.peers.environments import PeerUnavailable  # noqa: E402
from chaos.campaign import Campaign, Plan, Result, Stage, keep  # noqa: E402
from chaos.fail_over import Account, FailOvers, accounts  # noqa: E402
from chaos.nemeses import Amounts  # noqa: E402
from chaos.place import Place  # noqa: E402
from chaos.recovery_checkers import PROGRESS_S  # noqa: E402
from fail_overs.cluster import Cluster, start_cluster  # noqa: E402
from playing import Check, Parser, console, exit_code, show_verdicts, whole  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402
from support.postgres import PostgresUnavailable  # noqa: E402

AGAIN_S = 10.0
"""How soon after a fail-over the next action is claimed."""
ACTIONS_PER_FAIL_OVER = 150
SECONDS_PER_FAIL_OVER = 10
REST_S = 3.0
"""How long the cluster is left alone when it is whole again."""
SHOWN_MAX = 10


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = parse(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: everything is ended in order
    talk = Console(stderr=True, highlight=False)
    try:
        with start_cluster() as cluster, tempfile.TemporaryDirectory(prefix="matrixsched-ha-") as folder:
            return play(cluster, chosen, Path(folder), talk)
    except (PostgresUnavailable, PeerUnavailable) as error:
        talk.print(f"ha: {error}", markup=False)
        return 1
    except KeyboardInterrupt:
        talk.print("ha: interrupted; everything was ended", markup=False)
        return 130


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(prog="ha", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=whole(0), default=10, help="how often the leader is killed (default: 10)")
    parser.add_argument("--switchovers", type=whole(0), default=10, help="how often it is switched over (default: 10)")
    parser.add_argument("--workers", type=whole(2), default=3, help="worker processes (default: 3)")
    parser.add_argument("--seed", default="1", help="what clients ask for (default: 1)")
    parser.add_argument("--json", action="store_true", help="the table and the verdicts as JSON")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where to put what is known if a promise is broken")
    parser.add_patience()
    return parser.parse_args(arguments)


def play(cluster: Cluster, chosen: argparse.Namespace, folder: Path, talk: Console) -> int:
    def tell(text: str) -> None:
        talk.print(f"ha: {text}", markup=False)

    place = Place(cluster.url, cluster.url)
    stage = Stage(place)
    order = ordered(chosen.kills, chosen.switchovers)
    plan = Plan(
        chosen.seed,
        seconds=max(1, SECONDS_PER_FAIL_OVER * len(order)),
        actions=ACTIONS_PER_FAIL_OVER * len(order),
        amounts=Amounts(),
        workers=chosen.workers,
        patience_s=AGAIN_S - PROGRESS_S + chosen.patience,
    )
    strikes = {"kill": cluster.kill_leader, "switchover": cluster.switch_over}
    fail_overs = FailOvers(place, strikes, order, cluster.is_whole, REST_S, tell)
    result = None
    try:
        result = Campaign(stage, plan, folder, tell, haunt=lambda _: fail_overs).run()
    finally:
        if result is None or result.broken:
            kept = chosen.keep or Path(tempfile.gettempdir()) / f"matrixsched-ha-{time.time():.0f}"
            keep(folder, stage, result, kept)
            tell(f"what is known is in {kept}")
    return show(result, as_json=chosen.json)


def ordered(kills: int, switchovers: int) -> list[str]:
    """By turns, as long as there are both."""
    pairs = min(kills, switchovers)
    return ["kill", "switchover"] * pairs + ["kill"] * (kills - pairs) + ["switchover"] * (switchovers - pairs)


def show(result: Result, *, as_json: bool) -> int:
    found = accounts(result.facts)
    checks = [
        Check(f"{one.promise.rstrip('.')} [{one.name}]", not one.objections, said(one.objections))
        for one in result.verdicts
    ]
    if as_json:
        verdicts = [
            {"judge": one.name, "promise": one.promise, "objections": one.objections} for one in result.verdicts
        ]
        sys.stdout.write(
            json.dumps({"fail_overs": [asdict(one) for one in found], "verdicts": verdicts}, indent=2) + "\n"
        )
        return exit_code(checks)
    shown_on = console()
    shown_on.print(table(found))
    show_verdicts(checks, shown_on)
    return exit_code(checks)


def said(objections: list[str]) -> str:
    if not objections:
        return "kept"
    shown = "".join(f"\n         {' '.join(objection.split()):.300}" for objection in objections[:SHOWN_MAX])
    return f"{len(objections):,} objections{shown}"


def table(found: Sequence[Account]) -> Table:
    shown = Table("", "fail-over", "writes again, s", "first claim, s", "acknowledged", "lost", "doubles", box=None)
    for number, one in enumerate(found, 1):
        idle = "none" if one.idle_s is None else f"{one.idle_s:.1f}"
        shown.add_row(
            str(number),
            one.kind,
            f"{one.away_s:.1f}",
            idle,
            f"{one.acknowledged:,}",
            f"{one.lost:,}",
            f"{one.doubles:,}",
        )
    totals = (
        sum(numbers) for numbers in zip(*((one.acknowledged, one.lost, one.doubles) for one in found), strict=True)
    )
    shown.add_row("", "all", "", "", *(f"{number:,}" for number in totals))
    return shown


if __name__ == "__main__":
    sys.exit(main())
