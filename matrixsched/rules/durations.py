"""Durations as people write them: 250ms, 10s, 1h30m, 7d, PT10S, or plain seconds."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import timedelta

from matrixsched.errors import InvalidDurationText

_UNITS = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "min": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}
_NUMBER = r"\d+(?:\.\d+)?"
_PART = re.compile(rf"({_NUMBER})\s*({'|'.join(sorted(_UNITS, key=len, reverse=True))})\s*")
_PARTS = re.compile(rf"(?:{_PART.pattern})+")
_SECONDS = re.compile(_NUMBER)
_ISO = re.compile(
    rf"P(?=.)(?:({_NUMBER})W)?(?:({_NUMBER})D)?(?:T(?=.)(?:({_NUMBER})H)?(?:({_NUMBER})M)?(?:({_NUMBER})S)?)?",
    re.IGNORECASE,
)
_ISO_UNITS = ("w", "d", "h", "m", "s")


def parse_duration(text: str, argument: str = "duration") -> timedelta:
    """The duration that was written; InvalidDurationText, with the name of the argument, if it is none."""
    bare = text.strip()
    try:
        if _SECONDS.fullmatch(bare):
            return timedelta(seconds=float(bare))
        if _PARTS.fullmatch(bare.lower()):
            return _sum((number, unit) for number, unit in _PART.findall(bare.lower()))
        if iso := _ISO.fullmatch(bare):
            return _sum((number, unit) for number, unit in zip(iso.groups(), _ISO_UNITS, strict=True) if number)
    except OverflowError:
        pass
    raise InvalidDurationText(argument, text)


def _sum(parts: Iterable[tuple[str, str]]) -> timedelta:
    return sum((float(number) * _UNITS[unit] for number, unit in parts), timedelta(0))


def duration_text(duration: timedelta) -> str:
    """The shortest way to write a duration that is read as the same one again."""
    for unit in ("d", "h", "m", "s", "ms"):
        number, rest = divmod(duration, _UNITS[unit])
        if duration >= _UNITS[unit] and not rest:
            return f"{number}{unit}"
    return f"{duration.total_seconds():.6f}".rstrip("0").rstrip(".") + "s"
