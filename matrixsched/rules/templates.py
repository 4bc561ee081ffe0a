"""Templates: the messages of one campaign, and at which time of the recipient's day they are best sent."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, time
from enum import StrEnum

from matrixsched.errors import BadInput
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


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateChange:
    """What shall be different about a template; None: nothing about this."""

    distribution: Distribution | None = None
    windows: tuple[SendWindow, ...] | None = None
    """They make the distribution OWN."""
    zone: str | None = None
    weight: float | None = None
    max_speed: Rate | None = None
    lifts_max_speed: bool = False
    """There shall be no maximum any more."""

    def apply(self, template: Template) -> Template:
        """The template as it shall be, but for its speed, which is a limit."""
        distribution = self.distribution or (template.distribution if self.windows is None else Distribution.OWN)
        windows = self.windows
        if distribution is Distribution.OWN:
            windows = windows or template.windows
            if not windows:
                raise BadInput('the distribution own needs windows, for example windows=["08:00-12:00"]')
        elif windows:
            raise BadInput(f"the distribution {distribution} has its windows from the settings of the quota: use own")
        return replace(
            template,
            distribution=distribution,
            windows=windows or (),
            zone=self.zone or template.zone,
            weight=self.weight or template.weight,
        )
