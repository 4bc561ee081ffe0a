"""Windows of the day to and from the JSON that is stored with a template."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import time, timedelta

from matrixsched.rules.rates import Rate
from matrixsched.rules.templates import SendWindow


def encode_windows(windows: Sequence[SendWindow]) -> str:
    return json.dumps([[_text(window.begins), _text(window.ends)] for window in windows])


def decode_windows(text: str) -> tuple[SendWindow, ...]:
    return tuple(SendWindow(time.fromisoformat(begins), time.fromisoformat(ends)) for begins, ends in json.loads(text))


def rate_of(requests: int | None, per_us: int | None) -> Rate | None:
    """The rate of a row of limits; None if it has none of its own."""
    if requests is None or per_us is None:
        return None
    return Rate(requests, timedelta(microseconds=per_us))


def _text(moment: time) -> str:
    return moment.isoformat("minutes" if not moment.second else "seconds")
