"""Hunt every small mistake in the hot statements: one predicate, lock, bound or conflict clause that is left out.

./tools/dev mutants                             all of them on both databases, and a table of what caught them
./tools/dev mutants --dialect sqlite --statement claim.judge --statement take_tasks
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import anyio  # noqa: E402  # found only from here on
from hunting.behaviour import Deeper, Verdict, hunt  # noqa: E402
from hunting.deeper import At, Catch, crash_points, interleaved, simulated  # noqa: E402
from hunting.explained import Judgement, explained_in_vain, judge  # noqa: E402
from hunting.forks import Failed  # noqa: E402
from hunting.hot import DIALECTS, HOT, Mutation, file_of, hot_statements, mutations, planted  # noqa: E402
from hunting.refusing import refused_by_postgres, refused_by_sqlite  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402
from support.interleaving import install  # noqa: E402
from support.postgres import DSN_VARIABLE, PostgresServer, start_postgres  # noqa: E402

from matrixsched.store.statements import Dialect  # noqa: E402

EXPLAINED, NOT_CAUGHT, REFUSED = "explained", "not caught", "refused"


def main() -> int:
    options = parse_options()
    try:
        verdicts = [verdict for dialect in options.dialects for verdict in hunt_on(dialect, options)]
    except Failed as error:
        print(error, file=sys.stderr)
        return 1
    judgement = judge(verdicts)
    if options.json:
        options.json.write_text(json.dumps([as_json(verdict) for verdict in verdicts], indent=1) + "\n")
    return report(verdicts, judgement, explained_in_vain())


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./tools/dev mutants",
        description="Hunt every small mistake in the hot statements.",
        epilog=f"statements: {', '.join(HOT)}; or a part of one, such as claim.judge",
    )
    parser.add_argument("--dialect", choices=DIALECTS, help="only on this database (default: both)")
    parser.add_argument("--statement", type=a_statement, action="append", help="only this one (default: all)")
    parser.add_argument("--again", type=survivors_in, metavar="FILE", help="only those that survived in this --json")
    parser.add_argument(
        "--tests", nargs="+", metavar="FILE", help="only these, below tests/ (default: all of the store)"
    )
    parser.add_argument(
        "--seeds",
        type=int,
        default=40,
        help="of the simulator, at most; 0: only tests on SQLite (default: %(default)s)",
    )
    parser.add_argument(
        "--schedules",
        type=int,
        default=24,
        help="of a pair in a scene, at most; 0: only tests on PostgreSQL (default: %(default)s)",
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one for each core)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write each mutant there, with what caught it")
    options = parser.parse_args()
    options.dialects = [options.dialect] if options.dialect else DIALECTS
    return options


def a_statement(name: str) -> str:
    if name not in {*HOT, *(part for dialect in DIALECTS for part in hot_statements(dialect))}:
        raise argparse.ArgumentTypeError(f"one of: {', '.join(HOT)}")
    return name


def survivors_in(file: str) -> set[tuple[str, str, str]]:
    entries = json.loads(Path(file).read_text())
    return {(one["dialect"], one["statement"], one["what"]) for one in entries if one["caught_by"] is None}


def is_chosen(name: str, only: Sequence[str] | None) -> bool:
    return only is None or name in only or file_of(name) in only


# The hunts.


def hunt_on(dialect: Dialect, options: argparse.Namespace) -> list[Verdict]:
    chosen = [name for name in hot_statements(dialect) if is_chosen(name, options.statement)]
    found = [one for one in mutations(dialect, chosen) if options.again is None or one.name in options.again]
    return hunt_on_sqlite(found, options) if dialect == "sqlite" else hunt_on_postgres(found, options)


def hunt_on_sqlite(found: Sequence[Mutation], options: argparse.Namespace) -> list[Verdict]:
    refused = [Verdict(mutation, Catch(REFUSED, why)) for mutation, why in refused_by_sqlite(found)]
    return refused + hunt_all(found, refused, lambda mutation, at: _on_sqlite(mutation, at, options.seeds), options)


def _on_sqlite(mutation: Mutation, at: At, seeds: int) -> Catch | None:
    if not seeds:
        return None
    with planted(mutation):
        return simulated(mutation.hot, seeds, at) or crash_points(mutation.hot, at)


def hunt_on_postgres(found: Sequence[Mutation], options: argparse.Namespace) -> list[Verdict]:
    with start_postgres() as server, given_to_tests(server):
        dsn = server.create_database("mutants")
        anyio.run(install, dsn)
        refused = [Verdict(mutation, Catch(REFUSED, why)) for mutation, why in refused_by_postgres(found, dsn)]
        return refused + hunt_all(found, refused, _on_postgres(server, options.schedules), options)


def _on_postgres(server: PostgresServer, schedules: int) -> Deeper:
    if not schedules:
        return lambda mutation, at: None
    return lambda mutation, at: interleaved(mutation, server, schedules, at)


@contextlib.contextmanager
def given_to_tests(server: PostgresServer) -> Iterator[None]:
    """Else each process would start one of its own."""
    before = os.environ.get(DSN_VARIABLE)
    os.environ[DSN_VARIABLE] = server.admin_dsn
    try:
        yield
    finally:
        os.environ.pop(DSN_VARIABLE)
        if before is not None:
            os.environ[DSN_VARIABLE] = before


def hunt_all(
    found: Sequence[Mutation], refused: Sequence[Verdict], deeper: Deeper, options: argparse.Namespace
) -> list[Verdict]:
    taken = {verdict.mutation.name for verdict in refused}
    accepted = [mutation for mutation in found if mutation.name not in taken]
    if not accepted:
        return []
    progress = Progress(len(accepted))
    return hunt(accepted[0].dialect, accepted, deeper, jobs=options.jobs, tests=options.tests, tell=progress.count)


class Progress:
    """A line for each mutant."""

    def __init__(self, total: int) -> None:
        self._total, self._done, self._began = total, 0, time.monotonic()

    def count(self, verdict: Verdict) -> None:
        self._done += 1
        spent_s = time.monotonic() - self._began
        print(f"{self._done} of {self._total}, {spent_s:.0f} s: {told(verdict)}", file=sys.__stderr__, flush=True)


def told(verdict: Verdict) -> str:
    one, catch = verdict.mutation, verdict.catch
    return f"{one.dialect} {one.statement} {one.what}: " + (f"{catch.by}, {catch.where}" if catch else "SURVIVES")


def as_json(verdict: Verdict) -> dict[str, str | None]:
    one, catch = verdict.mutation, verdict.catch
    return {
        "dialect": one.dialect,
        "statement": one.statement,
        "what": one.what,
        "caught_by": catch and catch.by,
        "where": catch and catch.where,
    }


# The report.


def report(verdicts: Sequence[Verdict], judgement: Judgement, in_vain: Sequence[tuple[str, str, str]]) -> int:
    console = Console()
    console.print(table_of(verdicts, judgement))
    for verdict in judgement.unexplained:
        console.print(f"not caught: {told(verdict)}", style="bold red", markup=False, soft_wrap=True)
    for verdict in judgement.caught_though_explained:
        console.print(f"explained, but caught: {told(verdict)}", style="red", markup=False, soft_wrap=True)
    for name in in_vain:
        console.print(f"explained, but there is none: {' '.join(name)}", style="red", markup=False, soft_wrap=True)
    return 0 if judgement.is_good and not in_vain else 1


def table_of(verdicts: Sequence[Verdict], judgement: Judgement) -> Table:
    table = Table("database", "statement", "mutants", "caught by", EXPLAINED, NOT_CAUGHT, REFUSED)
    table.columns[1].no_wrap = True
    rows: dict[tuple[str, str], Counter[str]] = {}
    for verdict in verdicts:
        one = verdict.mutation
        for row in ((one.dialect, one.statement), (one.dialect, "all")):
            rows.setdefault(row, Counter())[kind_of(verdict, judgement)] += 1
    for (dialect, statement), counted in sorted(rows.items(), key=lambda item: (item[0][0], item[0][1] == "all")):
        others = {kind: counted.pop(kind, 0) for kind in (EXPLAINED, NOT_CAUGHT, REFUSED)}
        mutants = counted.total() + others[EXPLAINED] + others[NOT_CAUGHT]
        caught = ", ".join(f"{kind} {count}" for kind, count in counted.most_common())
        table.add_row(dialect, statement, str(mutants), caught, *(str(count or "") for count in others.values()))
    return table


def kind_of(verdict: Verdict, judgement: Judgement) -> str:
    if verdict.catch is not None:
        return verdict.catch.by
    return EXPLAINED if verdict in judgement.explained else NOT_CAUGHT


if __name__ == "__main__":
    sys.exit(main())
