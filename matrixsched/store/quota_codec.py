"""Windows of the day and the quota's settings, to and from the JSON that is stored."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from datetime import time, timedelta
from typing import Any

from matrixsched.errors import RowMissing
from matrixsched.rules.quota import QuotaSettings, Spare
from matrixsched.rules.templates import SendWindow
from matrixsched.store.transition import Row

_DEFAULTS = QuotaSettings()


def encode_windows(windows: Sequence[SendWindow]) -> str:
    return json.dumps([_edges(window) for window in windows])


def decode_windows(text: str) -> tuple[SendWindow, ...]:
    return tuple(_window(edges) for edges in json.loads(text))


def encode_settings(settings: QuotaSettings) -> str:
    """Only what differs from the defaults, so that it moves with them where nobody chose."""
    given = {field.name: getattr(settings, field.name) for field in fields(settings)}
    return json.dumps({name: _plain(value) for name, value in given.items() if value != getattr(_DEFAULTS, name)})


def the_row(rows: Sequence[Row]) -> Row:
    """The only row of the settings, which is as old as its table."""
    if not rows:
        raise RowMissing("quota_settings")
    return rows[0]


def decode_settings(text: str) -> QuotaSettings:
    stored: dict[str, Any] = json.loads(text)
    known = {field.name for field in fields(QuotaSettings)}
    return QuotaSettings(**{name: _value(name, value) for name, value in stored.items() if name in known})


def _plain(value: object) -> object:
    match value:
        case timedelta():
            return value.total_seconds()
        case SendWindow():
            return _edges(value)
    return value


def _value(name: str, stored: Any) -> Any:
    match name:
        case "interval":
            return timedelta(seconds=stored)
        case "spare":
            return Spare(stored)
        case "morning" | "day" | "evening":
            return _window(stored)
    return stored


def _edges(window: SendWindow) -> list[str]:
    return [f"{window.begins:%H:%M}", f"{window.ends:%H:%M}"]


def _window(edges: Sequence[str]) -> SendWindow:
    begins, ends = edges
    return SendWindow(time.fromisoformat(begins), time.fromisoformat(ends))
