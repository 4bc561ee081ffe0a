"""`matrixsched init`, `upgrade`, `check` and `settings`: what comes before the work."""

from __future__ import annotations

import sys
from functools import partial
from typing import Annotated

import typer

from matrixsched.config import settings_table
from matrixsched.ops import checking, installing, settings
from matrixsched.ops.commands.toolkit import AsJson, Given, run, taking
from matrixsched.ops.exits import DONE, WRONG_USE
from matrixsched.ops.findings import row
from matrixsched.ops.render import say, show_facts, show_rows
from matrixsched.ops.settings import OF_THE_DATABASE, TYPED
from matrixsched.rules.names import SHARDS_DEFAULT, SHARDS_MAX


def register(cli: typer.Typer) -> None:
    for command in (init, upgrade, check):
        cli.command()(command)
    cli.command("settings")(show_settings)


@taking(*OF_THE_DATABASE)
def init(
    given: Given,
    shards: Annotated[
        int, typer.Option(min=1, max=SHARDS_MAX, help="Fixed for ever; more allow more workers at once.")
    ] = SHARDS_DEFAULT,
    distributed: Annotated[
        bool | None,
        typer.Option("--distributed", help="Fixed for ever; for PostgreSQL that spreads tables by shard (Citus)."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Create the tables, or bring them to the newest schema. Safe to repeat, also by many at once."""
    facts = run(partial(installing.init, given.app(), shards, distributed=distributed))
    show_facts(facts, as_json=as_json)
    if facts["shards"] != shards:
        say(f"the installation exists and keeps its {facts['shards']} shards.")
    say("ready: start a worker with `matrixsched worker MODULE:APP`.")


@taking(*OF_THE_DATABASE)
def upgrade(given: Given, as_json: AsJson = False) -> None:
    """Bring an installation that exists to the newest schema; workers of the version before may go on meanwhile."""
    facts = run(partial(installing.upgrade, given.app()))
    show_facts(facts, as_json=as_json)
    say("upgraded: restart workers one by one." if facts["applied"] else "up to date: nothing to do.")


@taking(*TYPED)
def check(
    given: Given,
    target: Annotated[
        str | None, typer.Argument(metavar="[MODULE:APP]", help="The App whose module, handlers and database to check.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Find all faults at once: settings, file, App, handlers, database, schema. Changes nothing."""
    load = None if target is None else partial(given.load_app, target)
    findings = run(partial(checking.check, given.reading, load))
    show_rows([row(finding) for finding in findings], as_json=as_json)
    faults = sum(not finding.is_ok for finding in findings)
    if faults:
        say(f"{faults} {'fault' if faults == 1 else 'faults'}: each line says what to change; then check again.")
        raise typer.Exit(WRONG_USE)
    say(
        "no faults: " + ("name an App too, as in `matrixsched check tasks:app`." if load is None else "start a worker.")
    )
    raise typer.Exit(DONE)


@taking(*TYPED)
def show_settings(
    given: Given,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="All settings as a Markdown table, for documents.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Every setting, its present value, and where that comes from: flag, environment, file or default."""
    if markdown:
        sys.stdout.write(settings_table())
        return
    reading = given.reading
    reading.checked()
    show_rows(settings.rows(reading), as_json=as_json)
    say("flags come before the environment, that before the file. See if all fits together: `matrixsched check`.")
