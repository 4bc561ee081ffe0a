"""`matrixsched doctor` and `matrixsched top`: the database and the fleet as they are."""

from __future__ import annotations

import sys
from contextlib import suppress
from functools import partial
from typing import Annotated

import typer

from matrixsched.ops.commands.toolkit import AsJson, Given, run, taking, text_option
from matrixsched.ops.exits import DONE, FAILED
from matrixsched.ops.findings import Verdict, count
from matrixsched.ops.reading import read_duration
from matrixsched.ops.render import say
from matrixsched.ops.settings import OF_THE_DATABASE


def register(cli: typer.Typer) -> None:
    for command in (doctor, top):
        cli.command()(command)


@taking(*OF_THE_DATABASE)
def doctor(
    given: Given,
    target: Annotated[
        str | None,
        typer.Argument(metavar="[MODULE:APP]", help="An App whose handlers to compare with what waits."),
    ] = None,
    patience: Annotated[
        str, text_option("DURATION", "How long something may wait or stay open before it is told of [1m].")
    ] = "1m",
    thorough: Annotated[
        bool, typer.Option("--thorough", help="Read a file of SQLite from end to end for damage; it takes its time.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """What is wrong with the database and the fleet as they are, each with its remedy. Changes nothing."""
    from matrixsched.ops.doctor import diagnosed, showing

    app = given.app() if target is None else given.load_app(target)
    findings = run(
        partial(
            diagnosed,
            app,
            knows_handlers=target is not None,
            patience=read_duration("--patience", patience),
            thorough=thorough,
            options=given.options(),
        )
    )
    showing.show(findings, as_json=as_json)
    say(showing.said(findings, given.options()))
    raise typer.Exit(FAILED if count(findings, Verdict.FAULT) else DONE)


@taking(*OF_THE_DATABASE)
def top(
    given: Given,
    every: Annotated[str, text_option("DURATION", "How often to look [2s].")] = "2s",
    once: Annotated[
        bool, typer.Option("--once", help="Show it once and end, as where nobody looks at a terminal.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """How the work goes: what is due and late, who works, what ends, what gates, limits and queues hold. q ends it."""
    from matrixsched.ops.top.watching import shown_live, shown_once

    app, rest = given.app(), read_duration("--every", every, zero=False)
    if once or as_json or not sys.stdout.isatty():
        run(partial(shown_once, app, rest, as_json=as_json))
        say(f"what is wrong with it, if anything: `matrixsched doctor{given.options()}`.")
        return
    with suppress(KeyboardInterrupt):  # it ends by that as by q
        run(partial(shown_live, app, rest))
