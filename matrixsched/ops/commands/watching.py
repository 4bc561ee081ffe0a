"""`matrixsched doctor` and `matrixsched top`: the database and the fleet as they are."""

from __future__ import annotations

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
    cli.command()(doctor)


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
    say(showing.said(findings))
    raise typer.Exit(FAILED if count(findings, Verdict.FAULT) else DONE)
