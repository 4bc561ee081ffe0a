"""`matrixsched explain`."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from matrixsched.ops import explaining
from matrixsched.ops.commands.toolkit import AsJson, Given, run, taking
from matrixsched.ops.render import say, show_sections
from matrixsched.ops.settings import OF_THE_DATABASE


def register(cli: typer.Typer) -> None:
    cli.command()(explain)


@taking(*OF_THE_DATABASE)
def explain(
    given: Given,
    id: Annotated[str, typer.Argument(metavar="ID", help="The action's id.")],
    as_json: AsJson = False,
) -> None:
    """Why an action has not run yet, or what became of it: the reasons, the deciding one first. It changes nothing."""
    explanation = run(partial(explaining.explained, given.app(), id))
    show_sections(explaining.sections(explanation, given.options()), as_json=as_json)
    say(explaining.said(explanation, given.options()))
