"""A look as a frame that fits a terminal: a few lines on the whole, then as much of each table as there is room for."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from matrixsched.ops.render import Facts, age, shown, title, visible
from matrixsched.ops.top.looking import Look

HEAD_LINES = 4


def frame(look: Look | None, *, failure: str | None, every_s: float, height: int) -> RenderableType:
    """What is seen now; in an outage what was seen last, and what is wrong."""
    lines: list[RenderableType] = [*_head(look, every_s)]
    if failure is not None:
        lines.append(Text(visible(failure), style="bold red", no_wrap=True, overflow="ellipsis"))
    if look is not None:
        room = height - HEAD_LINES - (failure is not None)
        # Each table takes a row at least, a line of titles, and a blank one before it.
        tables = [rows for rows in look.tables().values() if rows][: max(0, room) // 3]
        wanted = [len(rows) for rows in tables]
        for rows, most in zip(tables, shares(wanted, room - 2 * len(tables)), strict=True):
            lines += [Text(""), _table(rows, most)]
    return Group(*lines)


def shares(wanted: Sequence[int], room: int) -> list[int]:
    """How many rows each table may have: those that want little get it, the others share the rest evenly."""
    given = [0] * len(wanted)
    waiting = sorted(range(len(wanted)), key=lambda number: wanted[number])
    for place, number in enumerate(waiting):
        given[number] = min(wanted[number], max(0, room) // (len(waiting) - place))
        room -= given[number]
    return given


def _head(look: Look | None, every_s: float) -> list[Text]:
    ends = f"every {every_s:g} s, q ends"
    if look is None:
        return [_line(f"matrixsched top  {ends}", "bold")]
    late = "nothing is due" if look.late is None else f"oldest due for {age(look.late)}"
    more = "more than " if look.is_counted_out else ""
    facts = look.facts()
    return [
        _line(f"matrixsched top  {look.now:%H:%M:%S} UTC  installation {look.installation}  ({ends})", "bold"),
        _line(look.database),
        _line(f"due {facts['due']}  {late}  ended {more}{facts['ended_per_s']}/s (failed {facts['failed_per_s']}/s)"),
        _line(
            f"shards {facts['shards']}, {facts['held']} held, {facts['with_incoming']} with new rows  "
            f"workers seen {facts['workers']}"
        ),
    ]


def _line(text: str, style: str = "") -> Text:
    return Text(visible(text), style=style, no_wrap=True, overflow="ellipsis")


def _table(rows: Sequence[Facts], most: int) -> Table:
    """The first rows, the last of them for how many more there are."""
    is_cut = len(rows) > most
    seen = rows[: most - 1] if is_cut else rows
    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, name in enumerate(rows[0]):
        is_text = any(isinstance(row[name], str) for row in rows)
        # The name may be cut where the terminal is narrow; a number never.
        table.add_column(
            title(name).upper(),
            justify="left" if is_text else "right",
            no_wrap=True,
            overflow="ellipsis",
            min_width=None if number == 0 else len(title(name)),
        )
    for row in seen:
        table.add_row(*[Text(shown(value)) for value in row.values()])
    if is_cut:
        table.add_row(Text(f"… {len(rows) - len(seen):,} more"))
    return table
