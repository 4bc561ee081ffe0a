"""What the plays with real processes share: reading what was chosen, a database to play on, verdicts."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, Protocol, TypeVar

import psycopg
from benchmarks.places import Place, PostgresPlace, SqlitePlace
from rich.console import Console
from rich.table import Table
from rich.text import Text
from support.postgres import PostgresUnavailable, start_postgres
from support.processes import Scene, scene

from matrixsched.errors import BadDatabaseUrl, DatabaseError
from matrixsched.store.opening import open_store

T = TypeVar("T")

VERDICTS = {
    True: Text("ok    ", style="green"),
    False: Text("BROKEN", style="bold red"),
    None: Text("figure", style="cyan"),
}


class Check(NamedTuple):
    promise: str
    kept: bool | None
    """None: only a figure, for the reason that is given with it."""
    found: str

    @property
    def verdict(self) -> Text:
        return VERDICTS[self.kept] + Text(f" {self.promise}: {self.found}", style="")


class Parser(argparse.ArgumentParser):
    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        chosen = super().parse_args(args, namespace)
        if getattr(chosen, "distributed", None) and chosen.sqlite:
            self.error("argument --distributed: not allowed with argument --sqlite")
        return chosen

    def error(self, message: str) -> NoReturn:
        """One line: the usage, which is longer than the screen of some, would hide it."""
        self.exit(2, f"{self.prog}: {message}; see --help\n")

    def add_place(self) -> None:
        either = self.add_mutually_exclusive_group()
        either.add_argument("--sqlite", action="store_true", help="in a file instead of on PostgreSQL")
        either.add_argument(
            "--url",
            type=postgres_url,
            metavar="postgresql://…",
            help="an empty database; without it a durable server is started and thrown away afterwards",
        )
        # Without it nobody says which form: where there is an installation it is taken as it is.
        form = "make the installation in distributed form"
        self.add_argument("--distributed", action="store_const", const=True, help=form)

    def add_json(self) -> None:
        self.add_argument("--json", type=file_to_write, metavar="FILE", help="write all figures to this file")

    def add_patience(self) -> None:
        self.add_argument(
            "--patience", type=whole(0), default=0, metavar="S", help="allow so many seconds more than promised"
        )


def postgres_url(text: str) -> str:
    """What is wrong with it is said without it: it may hold a password."""
    try:
        dialect = open_store(text).dialect
    except BadDatabaseUrl as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if dialect != "postgresql":
        raise argparse.ArgumentTypeError("a file of SQLite is made where --sqlite is given")
    return text


def whole(least: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        with contextlib.suppress(ValueError):
            if (number := int(text)) >= least:
                return number
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least} on")

    return read


def file_to_write(text: str) -> Path:
    """Said now: to hear after minutes that the figures cannot be written would be a pity."""
    path = Path(text)
    if not path.parent.is_dir() or path.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} cannot be written: its folder is not there, or it is one itself")
    return path


class Play(Protocol):
    """Processes at work on a database, and what is found of it."""

    def run(self) -> None: ...

    def judge(self) -> list[Check]: ...

    def table(self) -> Table | None:
        """Figures to be read beside the verdicts."""

    def figures(self) -> dict[str, object]:
        """All of them, by name."""


def perform(prog: str, chosen: argparse.Namespace, make: Callable[[Place, Scene, Console], Play]) -> int:
    """Let it run on the database that was chosen, and show what comes of it; the exit code."""

    def run(place: Place, stage: Scene, talk: Console) -> tuple[Play, list[Check]]:
        play = make(place, stage, talk)
        play.run()
        return play, play.judge()  # while the database is there

    done = played(prog, chosen, run)
    if done is None:
        return 1
    (play, checks), shown_on = done, console()
    if (table := play.table()) is not None:
        shown_on.print(table)
    show_verdicts(checks, shown_on)
    if chosen.json is not None:
        found = play.figures() | {"checks": [check._asdict() for check in checks]}
        chosen.json.write_text(json.dumps(found, indent=2) + "\n")
    return exit_code(checks)


def played(prog: str, chosen: argparse.Namespace, play: Callable[[Place, Scene, Console], T]) -> T | None:
    """What comes of it on the database that was chosen; None if that does not answer, which is then told in a line."""
    talk = Console(stderr=True, highlight=False)
    try:
        with (
            _open_place(chosen) as place,
            tempfile.TemporaryDirectory(prefix=f"matrixsched-{prog}-") as folder,
            scene(place.url, Path(folder)) as stage,
        ):
            return play(place, stage, talk)
    except (PostgresUnavailable, psycopg.OperationalError, DatabaseError) as error:
        without = "" if chosen.sqlite else " To do without PostgreSQL: --sqlite."
        talk.print(f"{prog}: {' '.join(str(error).split())}{without}", markup=False, soft_wrap=True)
        return None


def console() -> Console:
    return Console(width=None if sys.stdout.isatty() else 120, highlight=False)


def show_verdicts(checks: Sequence[Check], shown_on: Console) -> None:
    for check in checks:
        shown_on.print(check.verdict, soft_wrap=True)


def exit_code(checks: Sequence[Check]) -> int:
    return 1 if any(check.kept is False for check in checks) else 0


@contextlib.contextmanager
def _open_place(chosen: argparse.Namespace) -> Iterator[Place]:
    with contextlib.ExitStack() as stack:
        if chosen.sqlite:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="matrixsched-play-"))
            yield SqlitePlace(f"sqlite:///{folder}/play.db")
        elif chosen.url is not None:
            yield PostgresPlace(chosen.url, "default", ours=False)
        else:
            server = stack.enter_context(start_postgres(durable=True))
            yield PostgresPlace(server.create_database("play"), "default", ours=server.restartable)
