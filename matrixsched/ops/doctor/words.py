"""How things are named in what operators are told to type."""

from __future__ import annotations

import re
from collections.abc import Sequence

_PLAIN = re.compile(r"[a-z_][a-z0-9_]*")
LISTED_MAX = 5


def of_sql(name: str) -> str:
    """A name as PostgreSQL takes it."""
    if _PLAIN.fullmatch(name):
        return name
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def listed(names: Sequence[object]) -> str:
    """The first few of them."""
    more = len(names) - LISTED_MAX
    shown = ", ".join(map(str, names[:LISTED_MAX]))
    return f"{shown} and {more} more" if more > 0 else shown


def bytes_text(size: int) -> str:
    for unit, most in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= most:
            return f"{size / most:.1f} {unit}"
    return f"{size} bytes"
