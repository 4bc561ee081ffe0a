"""What is sent: templates of every kind, and their messages to recipients all over the world."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from typing import Any, NamedTuple

from matrixsched import App
from matrixsched.calls import Call, call
from matrixsched.rules.rates import Rate
from sending.formula import Campaign

HANDLER = "sleep"
ZONES = (
    "Pacific/Honolulu",
    "America/Anchorage",
    "America/Los_Angeles",
    "America/Denver",
    "America/Chicago",
    "America/New_York",
    "America/Halifax",
    "America/Sao_Paulo",
    "Atlantic/South_Georgia",
    "Atlantic/Azores",
    "Europe/London",
    "Europe/Berlin",
    "Europe/Helsinki",
    "Europe/Moscow",
    "Asia/Dubai",
    "Asia/Karachi",
    "Asia/Kolkata",
    "Asia/Dhaka",
    "Asia/Bangkok",
    "Asia/Shanghai",
    "Asia/Tokyo",
    "Australia/Sydney",
    "Pacific/Noumea",
    "Pacific/Auckland",
)
"""One in about every hour of the day."""
KINDS: tuple[dict[str, Any], ...] = (
    {"distribution": "uniform"},
    {"distribution": "morning"},
    {"distribution": "day"},
    {"distribution": "evening"},
    {"windows": ("09:00-11:30", "17:00-19:00")},
    {"windows": ("22:00-06:00",)},
)
WEIGHTS = {4: 2.0, 9: 0.5}
"""Of the templates whose number ends with that digit; 1 otherwise."""
WITH_MAXIMUM_EVERY = 7
HANDLER_TAKES_S = 0.02
EXPIRING_SHARE = 0.01
NO_ZONE_SHARE = 0.05
URGENT_SHARE = 0.1


class Cell(NamedTuple):
    """Messages that are alike for the quota at whatever time."""

    template: str
    priority: int
    zone: str
    """Empty for recipients without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """A message, as it is asked for."""

    id: str
    template: str
    takes_s: float = 0.0
    zone: str | None = None
    priority: int = 0
    expires_at: datetime | None = None

    @property
    def cell(self) -> Cell:
        return Cell(self.template, self.priority, self.zone or "")

    def call(self) -> Call:
        return call(
            HANDLER,
            self.takes_s,
            id=self.id,
            template=self.template,
            zone=self.zone,
            priority=self.priority,
            expires_at=self.expires_at,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaigns:
    messages: int
    templates: int
    zones: int
    speed: Rate
    """MaxSendSpeed: the limit called global."""
    pool: int
    interval: timedelta
    seed: int

    @property
    def names(self) -> list[str]:
        return [f"campaign-{number:02}" for number in range(self.templates)]

    @property
    def duration_s(self) -> float:
        """How long it takes at least."""
        return self.messages / self.per_second

    @property
    def per_second(self) -> float:
        return self.speed.requests / self.speed.per.total_seconds()

    @property
    def max_speeds(self) -> dict[str, Rate]:
        """Templates that have a speed of their own: in the time that all need they can send twice their average."""
        per_minute = max(1, round(2 * self.messages / self.templates / self.duration_s * 60))
        return {name: Rate(per_minute, timedelta(minutes=1)) for name in self.names[::WITH_MAXIMUM_EVERY]}

    def by_name(self) -> dict[str, Campaign]:
        return {
            name: Campaign(
                name,
                distribution=KINDS[number % len(KINDS)].get("distribution", "own"),
                windows=KINDS[number % len(KINDS)].get("windows", ()),
                zone=ZONES[number % self.zones],
                weight=WEIGHTS.get(number % 10, 1.0),
                max_speed=self.max_speeds.get(name),
            )
            for number, name in enumerate(self.names)
        }

    def install(self, app: App) -> None:
        """The quota, the templates, and last the limit on all."""
        app.sync.quota.set(interval=self.interval)
        for name, campaign in self.by_name().items():
            app.sync.templates.set(
                name,
                distribution=campaign.distribution,
                windows=campaign.windows or None,
                zone=campaign.zone,
                weight=campaign.weight,
                max_speed=campaign.max_speed,
            )
        app.sync.limits.set("global", self.speed, pool=self.pool)

    def letters(self, begins: datetime) -> Iterator[Letter]:
        """The messages; all are due at once. The same seed gives the same ones."""
        chance = Random(self.seed)
        sizes = {name: chance.uniform(0.4, 1.6) for name in self.names}
        # A template with a maximum of its own must be able to end in time.
        sizes |= {name: 1.0 for name in self.max_speeds}
        names = chance.choices(list(sizes), list(sizes.values()), k=self.messages)
        for number, name in enumerate(names):
            expires = begins + timedelta(seconds=chance.uniform(0.2, 1.0) * self.duration_s)
            yield Letter(
                id=f"message-{number}",
                template=name,
                takes_s=chance.uniform(0, HANDLER_TAKES_S),
                zone=None if chance.random() < NO_ZONE_SHARE else chance.choice(ZONES[: self.zones]),
                priority=0 if chance.random() < URGENT_SHARE else 1,
                expires_at=expires if chance.random() < EXPIRING_SHARE else None,
            )
