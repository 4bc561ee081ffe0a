"""How values look on a page."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

from matrixsched.ops import render
from matrixsched.ops.render import age, title, visible

__all__ = ["age", "clock_text", "from_now", "joined", "late_text", "moment", "number", "shown", "title", "visible"]

LISTED_MAX = 20
"""So many of a long list are shown on a page; the API tells all."""


def shown(value: object) -> str:
    """A fact for people; the page says once that times are in UTC."""
    match value:
        case None:
            return "–"
        case datetime():
            return moment(value) if value.utcoffset() == timedelta(0) else render.shown(value)
    return render.shown(value)


def moment(at: datetime | None) -> str:
    return "–" if at is None else f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def clock_text(at: datetime) -> str:
    return f"{at.astimezone(UTC):%H:%M}"


def from_now(at: datetime | None, now: datetime) -> str:
    """How far away it is: `in 3 min 2 s`, `41 s ago`."""
    if at is None:
        return "–"
    away = at - now
    return f"in {age(away)}" if away > timedelta(0) else f"{age(-away)} ago"


def late_text(seconds: float | None) -> str:
    """A bound of lateness: `≤ 250 ms`."""
    if seconds is None:
        return "–"
    if seconds == float("inf"):
        return "> 2 h"
    if seconds < 1:
        return f"≤ {seconds * 1000:g} ms"
    return f"≤ {seconds:g} s" if seconds < 120 else f"≤ {age(timedelta(seconds=seconds))}"


def number(value: float) -> str:
    """With as many digits as say something."""
    if value >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 1 else f"{value:.2g}"


def joined(value: object) -> str:
    """A value of the audit log, as text."""
    match value:
        case None:
            return "–"
        case str():
            return visible(value)
        case bool():
            return "yes" if value else "no"
        case list() if len(value) > LISTED_MAX:
            return f"{visible(json.dumps(value[:LISTED_MAX], ensure_ascii=False))} and {len(value) - LISTED_MAX:,} more"
        case list() | dict():
            return visible(json.dumps(value, ensure_ascii=False))
    return visible(str(value))
