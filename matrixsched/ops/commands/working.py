"""`matrixsched worker`, `matrixsched queue-worker` and `matrixsched demo`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from matrixsched.ops.commands.toolkit import AsJson, Given, refuse_in_memory, taking
from matrixsched.ops.exits import DONE, FAILED
from matrixsched.ops.render import say, show_facts
from matrixsched.ops.settings import OF_THE_WORKER, policy_of

if TYPE_CHECKING:
    from matrixsched.ops.process import WorkerCommand

Target = Annotated[
    str, typer.Argument(metavar="MODULE:APP", help="Where the App is, as in tasks:app; the App says which database.")
]


def register(cli: typer.Typer) -> None:
    for command in (worker, queue_worker, demo):
        cli.command()(command)


@taking(*OF_THE_WORKER)
def worker(given: Given, target: Target) -> None:
    """Run actions, and handle queues, until SIGTERM or SIGINT; a second signal leaves handlers no grace."""
    raise typer.Exit(_work(given, target, "worker"))


@taking(*OF_THE_WORKER)
def queue_worker(given: Given, target: Target) -> None:
    """Handle queues only, until SIGTERM or SIGINT; a second signal leaves handlers no grace."""
    raise typer.Exit(_work(given, target, "queue-worker"))


def _work(given: Given, target: str, command: WorkerCommand) -> int:
    # Imported here: Prometheus and the loop are of no use to the commands that only ask.
    from matrixsched.ops.process import WorkerOptions, run_worker
    from matrixsched.ops.supervisor import run_supervisor

    reading = given.reading
    given.share_file()
    options = WorkerOptions(target=target, settings=reading.settings, policy=policy_of(reading), command=command)
    return run_worker(options) if options.settings.processes == 1 else run_supervisor(options)


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
        refuse_in_memory(database)
    facts, is_nothing_lost = run_demo(database, metrics=metrics)
    show_facts(facts, as_json=as_json)
    if is_nothing_lost:
        say(
            "nothing was lost. Next: `matrixsched init --database sqlite:///my.db`; README.md shows an App of your own."
        )
    else:
        say("actions were lost: that must not happen; please report it with the table above.")
    raise typer.Exit(DONE if is_nothing_lost else FAILED)
