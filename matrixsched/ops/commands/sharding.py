"""`matrixsched shards`."""

from __future__ import annotations

from functools import partial
from typing import Annotated
from uuid import UUID

import typer

from matrixsched.ops import changes, shards
from matrixsched.ops.commands.toolkit import AsJson, Given, Yes, carry_out, run, taking
from matrixsched.ops.exits import DONE, FAILED, WRONG_USE
from matrixsched.ops.render import say, show_facts, show_rows
from matrixsched.ops.settings import OF_THE_DATABASE

commands = typer.Typer(help="See who holds which shard, and free one.", no_args_is_help=True)


def register(cli: typer.Typer) -> None:
    cli.add_typer(commands, name="shards")


@commands.command("list")
@taking(*OF_THE_DATABASE)
def list_shards(given: Given, as_json: AsJson = False) -> None:
    """Each shard's lock and queues; counts stop at 10,000."""
    reports = run(partial(shards.listed, given.app()))
    show_rows([shards.row(report) for report in reports], as_json=as_json)
    say(shards.next_move(reports, given.options()))


@commands.command("release")
@taking(*OF_THE_DATABASE)
def release_shard(
    given: Given,
    shard: Annotated[int, typer.Argument(help="The shard's number.")],
    guid: Annotated[UUID | None, typer.Option(help="Only if it is still held under this guid.")] = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Free a shard's lock. Its holder, if it lives, notices and writes nothing more."""
    app = given.app()
    if yes:
        release = carry_out(app, lambda operator: changes.release_shard(operator, shard, guid))
    else:
        release = run(partial(shards.release, app, shard, guid, confirmed=False))
    show_facts(release.facts, as_json=as_json)
    say(release.said(given.options()))
    raise typer.Exit({"free": DONE, "released": DONE, "lost": FAILED, "unconfirmed": WRONG_USE}[release.verdict])
