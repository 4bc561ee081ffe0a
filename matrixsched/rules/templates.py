"""Templates: the messages of one campaign, and at which time of the recipient's day they are best sent."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, time
from enum import StrEnum

from matrixsched.rules.rates import Rate


class Distribution(StrEnum):
    """At which time of the recipient's day messages have priority; UNIFORM: at none more than at others."""

    UNIFORM = "uniform"
    MORNING = "morning"
    DAY = "day"
    EVENING = "evening"
    OWN = "own"


@dataclass(frozen=True, slots=True)
class SendWindow:
    """A part of the day in local time, from its beginning up to its end; it may lie over midnight."""

    begins: time
    ends: time


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    name: str
    distribution: Distribution = Distribution.UNIFORM
    windows: tuple[SendWindow, ...] = ()
    """Of the distribution OWN; none otherwise."""
    zone: str = "UTC"
    """Of recipients that have none."""
    max_speed: Rate | None = None
    """The limit template:<name>; None: as fast as the others leave room for."""
    weight: float = 1.0
    paused_at: datetime | None = None
    paused_until: datetime | None = None
    """While paused: when it goes on by itself; None: when somebody resumes it."""
    last_served_at: datetime | None = None

    def is_paused(self, now: datetime) -> bool:
        return self.paused_at is not None and (self.paused_until is None or now < self.paused_until)
