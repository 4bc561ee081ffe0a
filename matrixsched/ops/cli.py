"""The `matrixsched` command: arguments and exit codes."""

from __future__ import annotations

import shlex
import sys
import traceback
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Annotated, NoReturn, TypeVar
from urllib.parse import urlsplit
from uuid import UUID

import anyio
import typer

import matrixsched
from matrixsched.app import App
from matrixsched.errors import (
    BadDatabaseUrl,
    BadInput,
    ConfigurationError,
    MatrixSchedError,
    ModuleBroken,
    SchemaMismatch,
    SchemaMissing,
)
from matrixsched.ops import installing, shards
from matrixsched.ops.exits import DONE, FAILED, NO_INSTALLATION, WRONG_USE
from matrixsched.ops.render import say, show_facts, show_rows
from matrixsched.rules.names import SHARDS_DEFAULT, SHARDS_MAX
from matrixsched.store.opening import is_in_memory

T = TypeVar("T")

cli = typer.Typer(
    name="matrixsched",
    help="Scheduled actions from the SQL database you already have.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
shards_cli = typer.Typer(help="See who holds which shard, and free one.", no_args_is_help=True)
cli.add_typer(shards_cli, name="shards")

Database = Annotated[
    str,
    typer.Option(
        envvar="MATRIXSCHED_DATABASE",
        metavar="URL",
        help="sqlite:///path/to/file.db or postgresql://user@host/database",
        show_default=False,
    ),
]
Installation = Annotated[
    str, typer.Option(envvar="MATRIXSCHED_INSTALLATION", metavar="NAME", help="One of several in the same database.")
]
AsJson = Annotated[bool, typer.Option("--json", help="The same fields as JSON.")]


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    try:
        cli(args=arguments, prog_name="matrixsched")
    except ModuleBroken as error:
        # The user's own code, unlike ours: its trace is what they need.
        traceback.print_exception(error.__cause__)
        _fail(error, WRONG_USE)
    except (BadInput, ConfigurationError) as error:
        _fail(error, WRONG_USE)
    except (SchemaMissing, SchemaMismatch) as error:
        _fail(error, NO_INSTALLATION)
    except MatrixSchedError as error:
        _fail(error, FAILED)
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(DONE)


def _fail(error: MatrixSchedError, code: int) -> NoReturn:
    """One line with the remedy; a trace of our own code would help nobody who reads it."""
    say(f"matrixsched: {' '.join(str(error).split())}")
    sys.exit(code)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(matrixsched.__version__)
        raise typer.Exit


@cli.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Scheduled actions from the SQL database you already have."""


def _app(database: str, installation: str) -> App:
    app = App(database, installation=installation)
    _refuse_in_memory(database)
    return app


def _refuse_in_memory(database: str) -> None:
    if is_in_memory(database):
        raise BadDatabaseUrl("a database in memory is gone when this command ends")


def _same_options(context: typer.Context) -> str:
    """What a suggested command needs to reach the same installation; the environment it has already."""
    given = {name: str(context.params[name]) for name in ("database", "installation") if _is_typed(context, name)}
    if "database" in given and _may_hold_password(given["database"]):
        given["database"] = "URL"
    return "".join(f" --{name} {shlex.quote(value)}" for name, value in given.items())


def _is_typed(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    # By its name, because newer versions of Typer bring a Click of their own.
    return source is not None and source.name == "COMMANDLINE"


def _may_hold_password(url: str) -> bool:
    parts = urlsplit(url)
    return parts.password is not None or "pass" in parts.query.lower()


def _run(work: Callable[[], Awaitable[T]]) -> T:
    return anyio.run(work)


# The installation.


@cli.command()
def init(
    database: Database,
    installation: Installation = "default",
    shards: Annotated[
        int, typer.Option(min=1, max=SHARDS_MAX, help="Fixed for ever; more allow more workers at once.")
    ] = SHARDS_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Create the tables, or bring them to the newest schema. Safe to repeat, also by many at once."""
    facts = _run(partial(installing.init, _app(database, installation), shards))
    show_facts(facts, as_json=as_json)
    if facts["shards"] != shards:
        say(f"the installation exists and keeps its {facts['shards']} shards.")
    say("ready: start a worker with `matrixsched worker MODULE:APP`.")


@cli.command()
def upgrade(database: Database, installation: Installation = "default", as_json: AsJson = False) -> None:
    """Bring an installation that exists to the newest schema; workers of the version before may go on meanwhile."""
    facts = _run(partial(installing.upgrade, _app(database, installation)))
    show_facts(facts, as_json=as_json)
    say("upgraded: restart workers one by one." if facts["applied"] else "up to date: nothing to do.")


# Workers.


@cli.command()
def worker(
    target: Annotated[str, typer.Argument(metavar="MODULE:APP", help="Where the App is, as in tasks:app.")],
    concurrency: Annotated[int, typer.Option(min=1, max=100_000, help="Handlers at once, in each process.")] = 100,
    processes: Annotated[int, typer.Option(min=1, max=1000, help="Processes; one that dies is started again.")] = 1,
    metrics_port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Serve /metrics, /healthz and /readyz; 0 takes a free port."),
    ] = None,
    stop_grace: Annotated[
        float, typer.Option(min=0, max=86_400, metavar="SECONDS", help="How long handlers may go on after SIGTERM.")
    ] = 30.0,
    attempt_lease: Annotated[
        float,
        typer.Option(min=0.1, max=86_400, metavar="SECONDS", help="How soon others take over from a worker that died."),
    ] = 10.0,
    shard_lease: Annotated[
        float,
        typer.Option(
            min=0.6, max=86_400, metavar="SECONDS", help="How long a dead worker can keep others from a shard."
        ),
    ] = 10.0,
    log_json: Annotated[bool, typer.Option("--log-json", help="Log lines as JSON.")] = False,
) -> None:
    """Run actions until SIGTERM or SIGINT; a second signal leaves handlers no grace."""
    # Imported here: Prometheus and the loop are of no use to the commands that only ask.
    from matrixsched.ops.process import WorkerOptions, run_worker
    from matrixsched.ops.supervisor import run_supervisor

    options = WorkerOptions(
        target=target,
        concurrency=concurrency,
        stop_grace_s=stop_grace,
        attempt_lease_s=attempt_lease,
        shard_lease_s=shard_lease,
        log_json=log_json,
        metrics_port=metrics_port,
    )
    raise typer.Exit(run_worker(options) if processes == 1 else run_supervisor(options, processes))


@cli.command()
def demo(
    database: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Where to show it, in an installation of its own; default: a new SQLite file."
        ),
    ] = None,
    metrics: Annotated[
        typer.FileBinaryWrite | None,
        typer.Option(metavar="FILE", lazy=False, help="Write here what Prometheus would read from the workers."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Half a minute: thousands of actions, two workers, one of them killed half-way, nothing lost."""
    from matrixsched.ops.demo import run_demo

    if database is not None:
        _refuse_in_memory(database)
    facts, is_nothing_lost = run_demo(database, metrics=metrics)
    show_facts(facts, as_json=as_json)
    if is_nothing_lost:
        say(
            "nothing was lost. Next: `matrixsched init --database sqlite:///my.db`; README.md shows an App of your own."
        )
    else:
        say("actions were lost: that must not happen; please report it with the table above.")
    raise typer.Exit(DONE if is_nothing_lost else FAILED)


# Shards.


@shards_cli.command("list")
def list_shards(
    context: typer.Context, database: Database, installation: Installation = "default", as_json: AsJson = False
) -> None:
    """Each shard's lock and queues; counts stop at 10,000."""
    reports = _run(partial(shards.listed, _app(database, installation)))
    show_rows([shards.row(report) for report in reports], as_json=as_json)
    say(shards.next_move(reports, _same_options(context)))


@shards_cli.command("release")
def release_shard(
    context: typer.Context,
    shard: Annotated[int, typer.Argument(help="The shard's number.")],
    database: Database,
    installation: Installation = "default",
    guid: Annotated[UUID | None, typer.Option(help="Only if it is still held under this guid.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do it.")] = False,
    as_json: AsJson = False,
) -> None:
    """Free a shard's lock. Its holder, if it lives, notices and writes nothing more."""
    app = _app(database, installation)
    release = _run(partial(shards.release, app, shard, guid, confirmed=yes))
    show_facts(release.facts, as_json=as_json)
    say(release.said(_same_options(context)))
    raise typer.Exit({"free": DONE, "released": DONE, "lost": FAILED, "unconfirmed": WRONG_USE}[release.verdict])
