"""How answers look: data on stdout, as a table or as JSON with the same fields; talk on stderr."""

from __future__ import annotations

import errno
import json
import os
import shlex
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from io import TextIOWrapper
from typing import TextIO

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

PIPE_WIDTH = 10_000
"""Where nobody looks at a terminal, lines are not folded."""
GAP = "  "
"""Between two columns."""
FOLDED_FROM = 30
"""On a terminal, texts that are longer than this may take several lines."""

OUTPUT_LOST = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""What a stream says that takes no more."""

Facts = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Count:
    """A number that may have stopped at a limit."""

    value: int
    most: int

    def __str__(self) -> str:
        return f"{self.most:,}+" if self.value >= self.most else f"{self.value:,}"


@dataclass(frozen=True, slots=True)
class Id:
    """A number by which something is called: shown as it is typed, whereas a count is easier to read in groups."""

    number: int

    def __str__(self) -> str:
        return str(self.number)


def prepare_streams() -> None:
    """Let no answer fail for a stream that was closed before we began, or for a letter that its encoding lacks."""
    sys.stdout = sys.stdout or _nowhere()
    sys.stderr = sys.stderr or _nowhere()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def forget_output() -> None:
    """What is left in the buffer would only fail again when the process ends."""
    sys.stdout = _nowhere()


def _nowhere() -> TextIO:
    return open(os.devnull, "w")


def console(*, stderr: bool = False) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    return Console(file=stream, highlight=False, soft_wrap=True, width=None if stream.isatty() else PIPE_WIDTH)


def say(message: str) -> None:
    """A word to the person at the keyboard."""
    console(stderr=True).print(Text(message))


def show_rows(rows: Sequence[Facts], *, as_json: bool) -> None:
    if as_json:
        _print_json([plain(row) for row in rows])
    else:
        _print_table(rows)


def _print_table(rows: Sequence[Facts]) -> None:
    if not rows:
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in rows[0]:
        is_text = any(isinstance(row[name], str) for row in rows)
        is_short = all(len(shown(row[name])) < FOLDED_FROM for row in rows)
        table.add_column(title(name).upper(), justify="left" if is_text else "right", no_wrap=is_short, overflow="fold")
    for row in rows:
        table.add_row(*[Text(shown(value)) for value in row.values()])
    print_table(table, width=_width_needed(rows))


def print_table(table: RenderableType, *, width: int = 0) -> None:
    """On a terminal no narrower than that; elsewhere without blanks at the ends of lines."""
    screen = console()
    if screen.is_terminal:
        screen.width = max(screen.width, width)
        screen.print(table)
        return
    with screen.capture() as captured:
        screen.print(table)
    for line in captured.get().splitlines():
        sys.stdout.write(f"{line.rstrip()}\n")


def _width_needed(rows: Sequence[Facts]) -> int:
    """What the table needs to lose nothing; a narrower terminal folds its lines, which is better than half an id."""
    longest = [max(cell_len(title(name)), *(cell_len(shown(row[name])) for row in rows)) for name in rows[0]]
    return sum(min(cells, FOLDED_FROM) + len(GAP) for cells in longest)


def show_facts(facts: Facts, *, as_json: bool) -> None:
    if as_json:
        _print_json(plain(facts))
    else:
        _print_list(facts)


def show_sections(sections: Mapping[str, Facts | Sequence[Facts]], *, as_json: bool) -> None:
    """Facts and tables under titles of their own."""
    if as_json:
        _print_json(
            {
                name: plain(part) if isinstance(part, Mapping) else [plain(row) for row in part]
                for name, part in sections.items()
            }
        )
        return
    for name, part in sections.items():
        console().print(Text(title(name).upper(), style="bold"))
        if isinstance(part, Mapping):
            _print_list(part)
        elif part:
            _print_table(part)
        else:
            console().print(Text("-"))
        console().print()


def differences(before: Facts, after: Facts) -> str:
    """What is different afterwards, in words; nothing, if nothing is."""
    changed = [name for name, value in after.items() if value != before[name]]
    return ", ".join(f"{title(name)} from {_or_none(before[name])} to {_or_none(after[name])}" for name in changed)


def _or_none(value: object) -> str:
    return "none" if value in (None, []) else shown(value)


def _print_list(facts: Facts) -> None:
    width = max(len(title(name)) for name in facts)
    for name, value in facts.items():
        console().print(Text(f"{title(name):{width}}  {shown(value)}"))


def title(name: str) -> str:
    """A field's name for people; the unit in it is for JSON, where a number stands alone."""
    return name.removesuffix("_s").replace("_", " ")


def _print_json(value: object) -> None:
    is_unicode = (sys.stdout.encoding or "").lower().startswith("utf")
    sys.stdout.write(json.dumps(value, ensure_ascii=not is_unicode, indent=2) + "\n")


def plain(facts: Facts) -> dict[str, object]:
    """The facts as JSON has them: numbers without words, times in ISO 8601."""
    return {name: _plain_value(value) for name, value in facts.items()}


def _plain_value(value: object) -> object:
    match value:
        case Count():
            return value.value
        case Id():
            return value.number
        case timedelta():
            return value.total_seconds()
        case datetime():
            return value.isoformat()
        case None | bool() | int() | float() | str() | list() | dict():
            return value
    return str(value)


def shown(value: object) -> str:
    """A fact for people."""
    match value:
        case None:
            return "-"
        case timedelta():
            return age(value)
        case datetime():
            return value.isoformat(sep=" ", timespec="seconds")
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case list():
            return ", ".join(map(visible, map(str, value))) or "-"
    return visible(str(value))


def visible(text: str) -> str:
    """The text without what would command the terminal or begin a new line: errors are written by others."""
    return "".join(
        char.encode("unicode_escape").decode() if unicodedata.category(char) in _UNSEEN else char for char in text
    )


_UNSEEN = ("Cc", "Cs", "Zl", "Zp")


def as_argument(action_id: str) -> str:
    """An id as it is typed at the end of a command; one that begins with a dash is no option behind `--`."""
    return f"{'-- ' if action_id.startswith('-') else ''}{shlex.quote(action_id)}"


def age(duration: timedelta) -> str:
    """A duration for people: its two largest units."""
    seconds = max(duration.total_seconds(), 0.0)
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    for unit, size, smaller, part in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // part} {smaller}"
    return f"{whole} s"
