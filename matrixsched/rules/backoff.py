"""How long to wait before the next try after a number of failures in a row."""

from __future__ import annotations


def backoff_s(failures: int, *, first: float, most: float, spread: float) -> float:
    """Doubles from `first` to `most` seconds; up to half of it is taken off by `spread` in [0, 1), so that many who
    failed together do not come back together."""
    wait: float = min(first * 2.0 ** min(failures - 1, 30), most)
    return wait * (1 - spread / 2)
