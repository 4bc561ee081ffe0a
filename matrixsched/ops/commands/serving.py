"""`matrixsched serve`."""

from __future__ import annotations

from typing import Annotated

import typer

from matrixsched.ops.commands.toolkit import Given, taking
from matrixsched.ops.settings import OF_THE_DATABASE, OF_THE_WEB


def register(cli: typer.Typer) -> None:
    cli.command()(serve)


@taking(*OF_THE_DATABASE, *OF_THE_WEB)
def serve(
    given: Given,
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="[MODULE:APP]",
            help="Where the App is, so that payloads are checked as its handlers have it; or name a --database.",
        ),
    ] = None,
) -> None:
    """Serve the dashboard, the JSON API and metrics until SIGTERM or SIGINT.

    It listens on this machine alone. Beyond it tokens are needed, as settings: web_viewer_token, web_operator_token.
    """
    # Imported here: a web server is of no use to the other commands, and may not be installed.
    from matrixsched.ops.web.serving import run_server

    settings = given.reading.checked()
    run_server(given.app() if target is None else given.load_app(target), settings)
