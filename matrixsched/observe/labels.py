"""Labels that stay few, and gauges that show one sample at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from prometheus_client import Gauge

LABELS_MAX = 100
OTHER = "other"
LATEST: Literal["livemostrecent"] = "livemostrecent"


class Names:
    """Labels without end would fill the memory of whoever scrapes them."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def label(self, name: str) -> str:
        if name in self._known:
            return name
        if len(self._known) >= LABELS_MAX:
            return OTHER
        self._known.add(name)
        return name


class Sampled:
    """A gauge that shows one sample at a time: what was there before and is no more is `absent`.

    It is not removed: the files that several processes share know no removal.
    """

    def __init__(self, gauge: Gauge, *, absent: float = 0.0) -> None:
        self._gauge = gauge
        self._absent = absent
        self._shown: dict[tuple[str, ...], None] = {}

    def show(self, values: Mapping[tuple[str, ...], float]) -> None:
        self._shown |= dict.fromkeys(values)
        for labels in self._shown:
            self._gauge.labels(*labels).set(values.get(labels, self._absent))
