"""What workloads are given, what they answer, and how they run."""

from __future__ import annotations

import gc
import importlib.util
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar

import anyio

from benchmarks.places import Place

T = TypeVar("T")

Unit = Literal["/s", "ms", "share", "MB", "%"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How much of everything."""

    calls_one_by_one: int = 2_000
    calls_at_once: int = 16_000
    calls_in_batches: int = 40_000
    due: int = 20_000
    future: int = 1_000_000
    backlog: int = 1_000_000
    backlog_s: float = 5.0
    starts: int = 300
    timers: int = 2_000
    timers_over_s: float = 20.0
    idle_s: float = 10.0
    idle_settle_s: float = 11.0
    """Sessions of PostgreSQL that came to rest tell of their last transactions ten seconds later."""
    held: int = 1_000_000
    templates: int = 200
    keys: int = 10_000
    limit_per_s: int = 500
    limit_s: float = 20.0
    waiting: int = 1_000_000
    semaphores: int = 10_000
    tasks: int = 20_000
    web_calls: int = 200
    web_warm_up: int = 20
    churn: int = 300_000
    churn_round: int = 20_000


@dataclass(frozen=True, slots=True)
class Run:
    """One turn of a workload, in an installation of its own."""

    place: Place
    scale: Scale
    shards: int


@dataclass(frozen=True, slots=True)
class Figure:
    name: str
    value: float
    unit: Unit

    def text(self) -> str:
        return f"{self.name} {shown(self.value, self.unit)}"


@dataclass(frozen=True, slots=True)
class Measured:
    figures: Sequence[Figure]
    violations: list[str] = field(default_factory=list)
    """Broken promises, in words; one of them makes the whole run a failure."""


def shown(value: float, unit: Unit) -> str:
    match unit:
        case "share":
            return f"{value:.3f}"
        case "/s":
            return f"{value:,.{0 if value >= 100 else 2}f}/s"
        case "MB":
            return f"{value:,.1f} MB"
        case "ms" | "%":
            return f"{value:,.2f} {unit}"


def rate(name: str, count: int, elapsed_s: float) -> Figure:
    return Figure(name, count / elapsed_s, "/s")


def spread_of(times_s: Sequence[float]) -> list[Figure]:
    """Median and 99th percentile of durations."""
    ordered = sorted(times_s)
    return [
        Figure(name, ordered[max(0, math.ceil(share * len(ordered)) - 1)] * 1000, "ms")
        for name, share in (("p50", 0.5), ("p99", 0.99))
        if ordered
    ]


def rested(figures: Sequence[Figure]) -> list[Figure]:
    """The same after a longer rest."""
    return [Figure(f"rested {one.name}", one.value, one.unit) for one in figures]


def run_loop(work: Callable[[], Awaitable[T]]) -> T:
    """Run `work` in an event loop of the kind that workers use, with no garbage left from others."""
    gc.collect()
    options = {"use_uvloop": has_uvloop()}
    return anyio.run(work, backend_options=options)


def has_uvloop() -> bool:
    return importlib.util.find_spec("uvloop") is not None
