"""Reckon what a fleet asks of its database: where it breaks first, and what to change then.

    ./tools/dev capacity               1,000 workers, 4,096 shards, 100 million future actions, 50,000 actions/s
    ./tools/dev capacity --workers 64 --shards 256 --no-listen --keep-hours 1
    ./tools/dev capacity --check       hold the formulae of the looks against chance, played out
    ./tools/dev capacity --measure     measure what rows and statements cost, on a PostgreSQL of its own

Every number that it stands on is in tools/sizing/assumptions.py, with where it comes from. A share above 100 % is where
it breaks. Exit code 1: the formulae are not what is played out.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from math import isfinite
from pathlib import Path

import anyio
from rich.table import Table
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "tests"))  # for support, which starts servers for tests, too

from playing import Parser, console, whole  # noqa: E402
from sizing import assumptions  # noqa: E402
from sizing.assumptions import Known  # noqa: E402
from sizing.by_chance import Play  # noqa: E402
from sizing.fleet import Fleet  # noqa: E402
from sizing.formulae import Looking, Looks, looks_of  # noqa: E402
from sizing.measuring import measure  # noqa: E402
from sizing.reckoning import Quantity, breaks, hold_s, reckon  # noqa: E402
from support.postgres import PostgresUnavailable, start_postgres  # noqa: E402

BREAKS_SHOWN = 6
NEAR = 0.7
"""A share of a bound that is shown as near to it."""
MEASURED_ACTIONS = 20_000
CHECK_OFF = 0.25
"""By so much of what is played out a formula may be off, …"""
CHECK_CLAIM_OFF = 0.5
"""… for how long something waits by so much: it is a mean of what differs widely, and the run is short."""

HELP = {
    "workers": "processes",
    "future": "actions that are not due yet",
    "rate": "actions a second",
    "handler_ms": "what a handler takes",
    "schedule_batch": "actions scheduled in one transaction",
    "lease": "attempt_lease, seconds",
    "keep_hours": "keep_done",
    "per_machine": "workers that die together",
    "listen": "workers listen for notifications",
    "pooled": "through PgBouncer in transaction mode",
    "cores": "of the database's machine",
    "vacuum_cost_limit": "of the server",
    "vacuum_scale": "autovacuum_vacuum_scale_factor of scheduled_actions",
    "outage_s": "how long a change of the primary takes",
}


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = parse(arguments)
    if chosen.check:
        return check()
    if chosen.measure:
        return show_measured()
    fleet = Fleet(**{field.name: getattr(chosen, field.name) for field in fields(Fleet)})
    quantities = reckon(fleet)
    if chosen.json:
        print(json.dumps(as_json(fleet, quantities), indent=2))
    elif chosen.markdown:
        print(markdown_of(quantities))
    else:
        show(fleet, quantities)
    return 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(prog="capacity", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for field in fields(Fleet):
        name, default = f"--{field.name.replace('_', '-')}", field.default
        told = f"{HELP.get(field.name, '')} (default: {default})".strip()
        if isinstance(default, bool):
            parser.add_argument(name, action=argparse.BooleanOptionalAction, default=default, help=told)
        else:
            read = whole(1) if isinstance(default, int) and field.type == "int" else above_zero
            parser.add_argument(name, type=read, default=default, metavar="N", help=told)
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--json", action="store_true", help="the same as JSON, with all assumptions")
    either.add_argument("--markdown", action="store_true", help="the table as docs/capacity.md has it")
    either.add_argument("--check", action="store_true", help="play looks out by chance, and compare")
    either.add_argument("--measure", action="store_true", help="measure rows and statements, and compare")
    return parser.parse_args(arguments)


def above_zero(text: str) -> float:
    with contextlib.suppress(ValueError):
        if isfinite(number := float(text)) and number > 0:
            return number
    raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")


# --- the table ---


def show(fleet: Fleet, quantities: Sequence[Quantity]) -> None:
    shown_on = console()
    shown_on.print(table_of(fleet, quantities))
    shown_on.print(Text("\nwhere it breaks, first things first", style="bold"))
    for number, one in enumerate(breaks(list(quantities))[:BREAKS_SHOWN], start=1):
        shown_on.print(
            Text(f"{number}. {one.area}: {one.name}, {share_of(one)} of {one.bound_is}", style=style_of(one))
            + Text(f"; then: {one.change}" if one.change else "", style=""),
            soft_wrap=True,
        )


def table_of(fleet: Fleet, quantities: Sequence[Quantity]) -> Table:
    table = Table(title=title_of(fleet), box=None, header_style="bold", pad_edge=False)
    for heading in ("AREA", "QUANTITY", "VALUE", "BOUND", "SHARE", "BASIS"):
        table.add_column(heading, justify="right" if heading in ("VALUE", "SHARE") else "left")
    area = ""
    for one in quantities:
        style = style_of(one)
        table.add_row(
            one.area if one.area != area else "",
            one.name,
            amount(one.value, one.unit),
            bound_of(one),
            Text(share_of(one), style=style),
            one.basis,
        )
        area = one.area
    return table


def title_of(fleet: Fleet) -> str:
    people = f"{fleet.workers:,} workers, {fleet.shards:,} shards"
    return f"{people}, {fleet.future:,} future actions, {fleet.rate:,.0f} actions/s"


def markdown_of(quantities: Sequence[Quantity]) -> str:
    """The table as docs/capacity.md has it."""
    lines = ["| | quantity | value | bound | share | |", "|---|---|---|---|---|---|"]
    area = ""
    for one in quantities:
        first = one.area if one.area != area else ""
        share = f"**{share_of(one)}**" if one.share is not None and one.share > 1 else share_of(one)
        lines.append(
            f"| {first} | {one.name} | {amount(one.value, one.unit)} | {bound_of(one)} | {share} | {one.basis} |"
        )
        area = one.area
    return "\n".join(lines)


def bound_of(one: Quantity) -> str:
    return "" if one.bound is None else f"{amount(one.bound, one.unit)}: {one.bound_is}"


def style_of(one: Quantity) -> str:
    share = one.share
    return "" if share is None or share < NEAR else "yellow" if share <= 1 else "bold red"


def share_of(one: Quantity) -> str:
    return "" if one.share is None else f"{100 * one.share:,.0f} %" if isfinite(one.share) else "∞"


def amount(value: float, unit: str) -> str:
    if not isfinite(value):
        return "never"
    digits = 0 if value >= 100 or value == round(value) else 1 if value >= 10 else 2 if value >= 0.1 else 4
    return f"{value:,.{digits}f} {unit}".strip()


def as_json(fleet: Fleet, quantities: Sequence[Quantity]) -> dict[str, object]:
    told = [{**asdict(one), "share": one.share} for one in quantities]
    for one in told:  # JSON has no infinity
        one.update({name: None for name, value in one.items() if isinstance(value, float) and not isfinite(value)})
    return {
        "fleet": asdict(fleet),
        "quantities": told,
        "breaks": [one.name for one in breaks(list(quantities))],
        "assumptions": {name: asdict(one) for name, one in known_ones()},
    }


def known_ones() -> Iterator[tuple[str, Known]]:
    for name, value in vars(assumptions).items():
        if isinstance(value, Known):
            yield name, value


# --- the check ---


REST_MAX_S = 1.0


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    one: Looking
    seconds: float


def a_case(name: str, *, workers: int, shards: int, rate: float, look_s: float, seconds: float) -> Case:
    one = Looking(
        workers=workers,
        shards=shards,
        rate=rate,
        look_s=look_s,
        answer_s=look_s / 2,
        early_s=look_s / 4,
        visit_s=2 * look_s,
        rest_max=REST_MAX_S,
        jitter_s=assumptions.LANE_JITTER_S.value,
        overdue_rest_s=assumptions.OVERDUE_REST_S.value,
        hold_s=hold_s(workers, shards, REST_MAX_S),
    )
    return Case(name, one, seconds)


CASES = (
    a_case("at rest", workers=20, shards=64, rate=0, look_s=0.005, seconds=60),
    a_case("now and then", workers=20, shards=64, rate=20, look_s=0.005, seconds=60),
    a_case("often", workers=20, shards=64, rate=100, look_s=0.005, seconds=20),
    a_case("most are late", workers=20, shards=64, rate=400, look_s=0.005, seconds=10),
    a_case("few shards", workers=20, shards=16, rate=400, look_s=0.005, seconds=10),
    a_case("few workers", workers=4, shards=64, rate=400, look_s=0.005, seconds=20),
    a_case("all at work", workers=100, shards=256, rate=20_000, look_s=0.002, seconds=2),
    a_case("a large fleet", workers=1_000, shards=4_096, rate=5_000, look_s=0.012, seconds=4),
)


def check() -> int:
    table = Table(title="formula / played out by chance", box=None, header_style="bold", pad_edge=False)
    for heading in ("CASE", "VISITS/S", "FRUITLESS/S", "ACTIONS A VISIT", "DUE → CLAIMED, MS", ""):
        table.add_column(heading, justify="right" if heading not in ("CASE", "") else "left")
    is_kept = True
    for case in CASES:
        reckoned, played = looks_of(case.one), Play(case.one, seed=1, seconds=case.seconds).run()
        off = apart(reckoned, played)
        is_kept &= not off
        table.add_row(
            case.name,
            *(f"{of(reckoned):,.4g} / {of(played):,.4g}" for of in SHOWN),
            Text(f"off: {', '.join(off)}", style="bold red") if off else Text("ok", style="green"),
        )
    console().print(table)
    return 0 if is_kept else 1


SHOWN: tuple[Callable[[Looks], float], ...] = (
    lambda looks: looks.visits,
    lambda looks: looks.fruitless,
    lambda looks: looks.batch,
    lambda looks: looks.claim_s * 1e3,
)


def apart(reckoned: Looks, played: Looks) -> list[str]:
    """Which of the figures differ by more than they may. Fruitless looks are held against all looks: few are chance."""
    may_differ = {
        "visits": CHECK_OFF * played.visits,
        "fruitless": CHECK_OFF * played.all,
        "batch": CHECK_OFF * played.batch,
        "claim_s": CHECK_CLAIM_OFF * max(reckoned.claim_s, played.claim_s),
    }
    return [name for name, most in may_differ.items() if abs(getattr(reckoned, name) - getattr(played, name)) > most]


# --- the measures ---


def show_measured() -> int:
    try:
        with start_postgres() as server:
            databases = [server.create_database(name) for name in ("lives", "few", "many")]
            found = anyio.run(measure, databases, MEASURED_ACTIONS)
    except PostgresUnavailable as error:
        print(f"capacity: {error}", file=sys.stderr)
        return 1
    table = Table(title="measured here / assumed by the model", box=None, header_style="bold", pad_edge=False)
    for heading in ("NUMBER", "HERE", "MODEL", "WHAT"):
        table.add_column(heading, justify="right" if heading in ("HERE", "MODEL") else "left")
    known = dict(known_ones())
    for name, value in found.items():
        one = known[name]
        table.add_row(name, f"{value:,.4g} {one.unit}", f"{one.value:,g} {one.unit}", one.why)
    console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
