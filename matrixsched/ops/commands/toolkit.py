"""What all commands share: settings as options, confirmation, progress on a terminal."""

from __future__ import annotations

import getpass
import inspect
import os
import re
import shlex
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Annotated, Any, TypeVar

import anyio
import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from matrixsched.app import App
from matrixsched.config import (
    FILE_NAME,
    FILE_VARIABLE,
    Reading,
    Settings,
    flag_of,
    read_settings,
    shown,
    variable_of,
    without_password,
)
from matrixsched.errors import BadDatabaseUrl
from matrixsched.ops.exits import WRONG_USE
from matrixsched.ops.loading import load_app
from matrixsched.ops.operator import Operator
from matrixsched.ops.render import console, say
from matrixsched.rules.audit import Via
from matrixsched.store.opening import is_in_memory

T = TypeVar("T")

AsJson = Annotated[bool, typer.Option("--json", help="The same fields as JSON.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do it; without, it is only said what would be done.")]


def text_option(metavar: str, help: str, *names: str) -> Any:
    """An option that is left out unless somebody types it: its help says what that means."""
    return typer.Option(*names, metavar=metavar, help=help, show_default=False)


@dataclass(frozen=True, slots=True)
class Given:
    """What a command was given: its settings from all sources, and what was typed."""

    flags: Mapping[str, str]
    file: str | None
    typed: Sequence[str]

    @property
    def reading(self) -> Reading[Settings]:
        return read_settings(self.flags, file=self.file)

    def app(self) -> App:
        """The application that the settings name: it knows no handlers."""
        reading = self.reading
        url = reading.database()
        app = App(url, installation=reading.settings.installation)
        refuse_in_memory(url)
        return app

    def load_app(self, target: str) -> App:
        """The application of the user's own module."""
        self.share_file()
        return load_app(target)

    def share_file(self) -> None:
        """Let an App() in the user's module, and child processes, read the same file."""
        if self.file is not None:
            os.environ[FILE_VARIABLE] = self.file

    def options(self) -> str:
        """What a suggested command needs to reach the same installation; the environment it has already."""
        given = dict(self.flags) | ({} if self.file is None else {"config": self.file})
        wanted = {name: given[name] for name in ("database", "installation", "config") if name in given}
        return "".join(f" --{name} {shlex.quote(_speakable(value))}" for name, value in wanted.items())

    def again(self, option: str, *value: str) -> str:
        """The same command with an option added, in the place of one that was typed."""
        typed = [_speakable(one) for one in _without_payload(self.typed)]
        # What stands behind `--` are arguments, whatever they look like.
        end = typed.index("--") if "--" in typed else len(typed)
        options, arguments = typed[:end], typed[end:]
        if option in options:
            begin = options.index(option)
            del options[begin : begin + 1 + len(value)]
        return shlex.join(["matrixsched", *options, option, *value, *arguments])


def _speakable(argument: str) -> str:
    """The argument, unless it is a URL with a password in it."""
    if without_password(argument) == argument:
        return argument
    option, equals, _ = argument.partition("=")
    return f"{option}=URL" if equals and option.startswith("--") else "URL"


def _without_payload(typed: Sequence[str]) -> Sequence[str]:
    """Payloads are not repeated, also not to whoever typed them: what is said may be kept somewhere."""
    if typed[:1] != ["schedule"]:
        return typed
    hidden = [re.sub(r"^(--payload=)[^@-].*", r"\1JSON", one, flags=re.DOTALL) for one in typed]
    for place, option in enumerate(typed[:-1]):
        if option == "--payload" and not typed[place + 1].startswith(("-", "@")):
            hidden[place + 1] = "JSON"
    return hidden


def refuse_in_memory(database: str) -> None:
    if is_in_memory(database):
        raise BadDatabaseUrl("a database in memory is gone when this command ends")


def taking(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command an option for each of these settings, described where they are defined.

    The command is called with `given`. Options are texts here: the settings judge them, all at once.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True)
        own = [one for one in signature.parameters.values() if one.name != "given"]
        context = inspect.Parameter("_context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)

        @wraps(command)
        def run(_context: typer.Context, config: str | None, **arguments: Any) -> None:
            flags = {name: arguments.pop(name) for name in names}
            typed = {name: value for name, value in flags.items() if value is not None}
            command(given=Given(typed, config, _context.obj or ()), **arguments)

        parameters = [context, *map(_keyword_only, own), *map(_flag, names), _CONFIG]
        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        return run

    return decorate


def _keyword_only(parameter: inspect.Parameter) -> inspect.Parameter:
    return parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)


def _flag(name: str) -> inspect.Parameter:
    field = Settings.model_fields[name]
    default = "" if field.default is None and name == "database" else f"; default: {shown(name, field.default)}"
    option = typer.Option(
        flag_of(name),
        metavar=_metavar(name),
        help=f"{field.description} [{variable_of(name)}{default}]",
        show_default=False,
    )
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[str | None, option]
    )


def _metavar(name: str) -> str:
    if name in ("database", "installation"):
        return {"database": "URL", "installation": "NAME"}[name]
    kind = str(Settings.model_fields[name].annotation)
    return "DURATION" if "timedelta" in kind else "NUMBER" if "int" in kind or "float" in kind else "WORD"


_CONFIG = inspect.Parameter(
    "config",
    inspect.Parameter.KEYWORD_ONLY,
    default=None,
    annotation=Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help=f"A file of settings. [{FILE_VARIABLE}; default: {FILE_NAME}, if there is one]",
            show_default=False,
        ),
    ],
)


def run(work: Callable[[], Awaitable[T]]) -> T:
    return anyio.run(work)


# Changes are said before they are made, and written down.


def by_command(app: App) -> Operator:
    """Whoever typed the command, as the machine knows them."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may know no name for its user
        user = f"user {os.getuid()}"
    return Operator(app, f"{user}@{socket.gethostname()}", Via.COMMAND)


def carry_out(app: App, change: Callable[[Operator], Awaitable[T]]) -> T:
    """A change, with its entry in the audit log."""

    async def changed() -> T:
        async with app:
            return await change(by_command(app))

    return run(changed)


def is_confirmed(plan: str, *, yes: bool) -> bool:
    """Say what is about to be done, and whether to do it: with --yes, or with an answer at a terminal."""
    say(plan)
    if yes:
        return True
    return sys.stdin.isatty() and sys.stderr.isatty() and typer.confirm("Do it?", err=True)


def end_unconfirmed(given: Given) -> typer.Exit:
    say(f"nothing was done. To do it: `{given.again('--yes')}`.")
    return typer.Exit(WRONG_USE)


# Long work shows how far it is.


@contextmanager
def progress(what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """A bar on stderr, if somebody looks; told how many are done so far. `total` None: nobody knows how many."""
    screen = console(stderr=True)
    if not screen.is_terminal:
        yield lambda done: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=screen, transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done)
