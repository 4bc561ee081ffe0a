"""The `matrixsched` command: its parts put together, errors turned into one line and an exit code."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Sequence
from functools import cache
from typing import Annotated, NoReturn

import typer
from typer.main import get_command

import matrixsched
from matrixsched.config import without_password
from matrixsched.errors import (
    ActionNotFound,
    BadInput,
    ConfigurationError,
    DistributedUnsupported,
    FormMismatch,
    InvalidContractFile,
    LimitNotFound,
    MatrixSchedError,
    ModuleBroken,
    RowMissing,
    SchemaMismatch,
    SchemaMissing,
    SemaphoreNotFound,
    TaskNotFound,
)
from matrixsched.ops.commands import (
    acting,
    contracting,
    explaining,
    installing,
    limiting,
    mending,
    planning,
    pruning,
    queueing,
    scheduling,
    semaphoring,
    serving,
    sharding,
    templating,
    watching,
    working,
)
from matrixsched.ops.contracts import counted
from matrixsched.ops.exits import FAILED, WRONG_USE
from matrixsched.ops.remedies import spoken
from matrixsched.ops.render import OUTPUT_LOST, forget_output, prepare_streams, say, visible

# What Typer raises for a wrong command line. By its subclass, because newer versions bring a Click of their own.
_UsageError: type[Exception] = typer.BadParameter.__bases__[0]

_TO_BE_CHANGED = (
    BadInput,
    ConfigurationError,
    SchemaMissing,
    SchemaMismatch,
    RowMissing,
    FormMismatch,
    DistributedUnsupported,
    ActionNotFound,
    LimitNotFound,
    SemaphoreNotFound,
    TaskNotFound,
)
"""Whatever is wrong, to try the same command again would not help: also one that names what is not there."""

cli = typer.Typer(
    name="matrixsched",
    help="Scheduled actions from the SQL database you already have.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for part in (
    installing,
    working,
    scheduling,
    acting,
    explaining,
    planning,
    templating,
    limiting,
    semaphoring,
    contracting,
    queueing,
    sharding,
    watching,
    pruning,
    serving,
    mending,
):
    part.register(cli)


@cache
def _command() -> Callable[..., int | None]:
    """All of it as click sees it: made once in a process, for it takes as long as many a command."""
    return get_command(cli)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    typed = sys.argv[1:] if arguments is None else list(arguments)
    prepare_streams()
    try:
        code = _command()(args=typed, prog_name="matrixsched", standalone_mode=False, obj=typed)
        sys.stdout.flush()
    except ModuleBroken as error:
        # The user's own code, unlike ours: its trace is what they need.
        traceback.print_exception(error.__cause__)
        _fail(spoken(error), WRONG_USE)
    except InvalidContractFile as error:
        for mistake in error.mistakes:
            say(visible(str(mistake)))
        _fail(f"{counted(error.mistakes)} in {error.mistakes[0].file}, so nothing was done. {error.remedy}", WRONG_USE)
    except _TO_BE_CHANGED as error:
        _fail(spoken(error, typed), WRONG_USE)
    except MatrixSchedError as error:
        _fail(spoken(error, typed), FAILED)
    except typer.Abort:
        _fail("nothing was done. Answer y to do it.", WRONG_USE)
    except _UsageError as error:
        _fail_usage(error)
    except OSError as error:
        if error.errno not in OUTPUT_LOST:
            raise
        forget_output()
        _fail(f"the answer cannot be written ({error.strerror}): send it somewhere else.", FAILED)
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(code)


def _fail_usage(error: Exception) -> NoReturn:
    """A command line that Typer refuses; without any command it has shown the help."""
    context = getattr(error, "ctx", None)
    command = "matrixsched" if context is None else context.command_path
    message: str = error.format_message()  # type: ignore[attr-defined]
    _fail(f"{message.strip().rstrip('.') or 'no command is given'}. See `{command} --help`.", WRONG_USE)


def _fail(message: str, code: int) -> NoReturn:
    """One line with the remedy; a trace of our own code would help nobody who reads it."""
    say(f"matrixsched: {without_password(message)}")
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
