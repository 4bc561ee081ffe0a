"""What was granted and started of each template, minute by minute; of a long run, so many minutes together."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from math import ceil

from sending.judging import Run

COLUMNS_MAX = 8
"""As many as fit side by side."""

_MINUTE = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Minute:
    name: str
    granted: Counter[str] = field(default_factory=Counter)
    """By template, as what follows."""
    started: Counter[str] = field(default_factory=Counter)


def minutes(run: Run) -> list[Minute]:
    """Of whole windows: each counts where it begins."""
    if not run.windows:
        return []
    begins = run.windows[0].begins
    together = max(1, ceil((run.windows[-1].ends - begins) / _MINUTE / COLUMNS_MAX))
    found: dict[int, Minute] = {}
    for window in run.windows:
        number = (window.begins - begins) // (together * _MINUTE)
        minute = found.setdefault(number, Minute(_name(number * together + 1, together)))
        since, until = window.begins.timestamp(), window.ends.timestamp()
        for name, starts in run.starts_by_template.items():
            minute.granted[name] += window.granted_to(name)
            minute.started[name] += bisect_left(starts, until) - bisect_left(starts, since)
    return list(found.values())


def _name(first: int, together: int) -> str:
    return f"minute {first}" if together == 1 else f"minutes {first}–{first + together - 1}"
