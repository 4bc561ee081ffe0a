"""`matrixsched fsck`."""

from __future__ import annotations

from functools import partial
from typing import Annotated, assert_never

import typer

from matrixsched.app import App
from matrixsched.errors import MatrixSchedError
from matrixsched.ops import changes
from matrixsched.ops import fsck as checking
from matrixsched.ops.commands.toolkit import (
    AsJson,
    Given,
    Yes,
    by_command,
    end_unconfirmed,
    is_confirmed,
    progress,
    run,
    taking,
)
from matrixsched.ops.exits import DONE, FAILED, MENDED
from matrixsched.ops.fsck import Outcome, Report, Verdict
from matrixsched.ops.render import as_argument, say, show_sections
from matrixsched.ops.settings import OF_THE_DATABASE
from matrixsched.rules.faults import MEANINGS

_EXITS = {Verdict.CLEAN: DONE, Verdict.MENDED: MENDED, Verdict.BROKEN: FAILED}


def register(cli: typer.Typer) -> None:
    cli.command()(fsck)


@taking(*OF_THE_DATABASE)
def fsck(
    given: Given,
    repair: Annotated[bool, typer.Option("--repair", help="Mend what is wrong; needs --yes.")] = False,
    limit: Annotated[int, typer.Option(min=0, help="How many findings to name; the others are counted.")] = (
        checking.KEPT
    ),
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Check that every live action has its one row, and all else that must be true, while workers run.

    Exits with 0 if all is well, 1 if something is wrong, 3 if all that was wrong is mended. Litter, such as rows of
    versions that were replaced, is told of, and wrong it is not: workers clear it away by themselves.
    """
    app = given.app()
    report, left = run(partial(_checked, app, limit)), None
    if repair and report.found:
        plan = f"{_counted(report)} will be mended where still there, a few at a time, while workers go on."
        if not is_confirmed(plan, yes=yes):
            show_sections(checking.sections(report, None), as_json=as_json)
            raise end_unconfirmed(given)
        report, left = _repaired(given, app, report, limit)
    show_sections(checking.sections(report, left), as_json=as_json)
    verdict = checking.verdict(report, left)
    say(_said(given, verdict, report, left))
    raise typer.Exit(_EXITS[verdict])


def _repaired(given: Given, app: App, report: Report, limit: int) -> tuple[Report, Report]:
    """What was mended, and what is found after that."""
    mended = [0]
    try:
        return run(partial(_mended, app, report, limit, mended)), run(partial(_checked, app, limit))
    except (KeyboardInterrupt, MatrixSchedError):
        say(f"stopped half-way: {mended[-1]:,} are mended, the others stand. To go on: `{given.again('--yes')}`.")
        raise


async def _checked(app: App, limit: int) -> Report:
    with progress("check", await _shards(app)) as told:
        return await checking.checked(app, keep=limit, progress=told)


async def _mended(app: App, found: Report, limit: int, mended: list[int]) -> Report:
    async with app:
        with progress("mend", await _shards(app)) as told:
            return await changes.repair(by_command(app), found, keep=limit, progress=told, note=mended.append)


async def _shards(app: App) -> int:
    async with app:
        return (await app.store.run(app.store.transitions.installation())).shard_count


def _counted(report: Report) -> str:
    return f"{_many(report.damage, 'fault')} and {_many(report.litter, 'piece')} of litter"


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _said(given: Given, verdict: Verdict, report: Report, left: Report | None) -> str:
    mended, after = report.ended(Outcome.MENDED), left or report
    more = "" if len(report.named) == report.found.total() else f" To name more: `{given.again('--limit', '10000')}`."
    match verdict:
        case Verdict.BROKEN if left is None:
            mend = f" To mend: `{given.again('--repair')}`." if after.damage > _to_decide(after) else ""
            return f"{_many(after.damage, 'fault')}.{mend}{_decisions(given, after)}{more}"
        case Verdict.BROKEN:
            return (
                f"mended {_many(mended, 'fault')}, left {_many(after.damage, 'fault')}: in somebody's hands at this "
                "moment, or for you to decide, by the command that the table of kinds names. To see them: "
                f"`matrixsched fsck{given.options()}`.{_decisions(given, after)}"
            )
        case Verdict.MENDED:
            return f"mended {_many(mended, 'fault')}, none is left.{more}"
        case Verdict.CLEAN if after.litter:
            return f"clean: {_many(after.litter, 'piece')} of litter, which workers clear away by themselves.{more}"
        case Verdict.CLEAN:
            return "clean: nothing to do."
    assert_never(verdict)


DECISIONS = 3
"""So many of what nobody but a person can end are told as they would be typed."""


def _to_decide(report: Report) -> int:
    return sum(number for fault, number in report.found.items() if MEANINGS[fault].command is not None)


def _decisions(given: Given, report: Report) -> str:
    named = [(MEANINGS[finding.fault].command, finding.subject) for finding, _ in report.named]
    moves = [
        f"`matrixsched {command}{given.options()} {as_argument(subject)}`" for command, subject in named if command
    ]
    if not moves:
        return ""
    more = f" (and {_to_decide(report) - DECISIONS:,} more like these)" if _to_decide(report) > DECISIONS else ""
    return f" For you to decide: {', '.join(moves[:DECISIONS])}{more}."
