"""`matrixsched plan`."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer
from rich.text import Text

from matrixsched.ops import plans
from matrixsched.ops.chart import chart
from matrixsched.ops.commands.toolkit import AsJson, Given, run, taking
from matrixsched.ops.render import console, say, show_sections
from matrixsched.ops.settings import OF_THE_DATABASE
from matrixsched.rules.forecast import HOURS_MAX, Forecast

CHART_WIDTH_MAX = 120


def register(cli: typer.Typer) -> None:
    cli.command()(plan)


@taking(*OF_THE_DATABASE)
def plan(
    given: Given,
    hours: Annotated[int, typer.Option(min=1, max=HOURS_MAX, help="How far to look ahead.")] = 24,
    as_json: AsJson = False,
) -> None:
    """What of each template would go now and in the next hours, if nothing else comes. Changes nothing.

    When a template is through is told to about a hundredth of the time until then, however many hours are asked for.
    """
    forecast = run(partial(plans.foreseen, given.app(), hours))
    row = plans.plain if as_json else plans.row
    rows = [row(outlook) for outlook in forecast.outlooks]
    show_sections({"window": plans.window(forecast), "templates": rows}, as_json=as_json)
    if not as_json:
        _show_chart(forecast)
    say(plans.next_move(forecast, given.options()))


def _show_chart(forecast: Forecast) -> None:
    counts = plans.charted(forecast)
    if not counts:
        return
    screen = console()
    is_unicode = screen.encoding.lower().startswith("utf")
    width = min(screen.width, CHART_WIDTH_MAX)
    screen.print(Text("SENT PER HOUR", style="bold"))
    for line in chart(counts, forecast.since, width=width, is_unicode=is_unicode):
        screen.print(line)
