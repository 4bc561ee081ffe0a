"""What the quota has to give, worked out from the words of its promise and from nothing of the product's.

With n different templates among what waits, MaxToSend = MaxSendSpeed × interval and TemplateMaxToSend alike, messages
of one template and priority may go

    inside    min(max(0.05, 1/n) × MaxToSend, TemplateMaxToSend)
    outside   min(max(0.01, 1/n) × MaxToSend, TemplateMaxToSend)
    uniform   min(max(0.03, 1/n) × MaxToSend, TemplateMaxToSend)

where a weight w makes max(0.05 × w, w / sum of weights) of the first, and so on. Inside first; only where they are
fewer than their count, and than the count for outside, messages outside fill up to that. Never more than MaxToSend in
all, nor than a template's maximum in all its priorities: lower priorities go first, and among equals whoever was served
longest ago.

Written a second time, and simply, because the judge must not ask the judged: no import of matrixsched.rules.quota, of
its windows or of its zones.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from fractions import Fraction
from functools import cached_property
from math import floor
from typing import NamedTuple
from zoneinfo import ZoneInfo

from matrixsched.rules.rates import Rate

INSIDE, OUTSIDE, UNIFORM = Fraction(5, 100), Fraction(1, 100), Fraction(3, 100)
DAYTIMES = {"morning": "08:00-12:00", "day": "12:00-18:00", "evening": "18:00-22:00"}

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = timedelta(days=1)


class Group(NamedTuple):
    """What is planned together: the messages of a template with one priority."""

    template: str
    priority: int


class Kind(NamedTuple):
    """What a window has one grant for."""

    template: str
    priority: int
    inside: bool
    """For whose recipients it is the right time of the day; never of a uniform template."""

    @property
    def group(self) -> Group:
        return Group(self.template, self.priority)


@dataclass(frozen=True)
class Campaign:
    """A template, as it was asked for."""

    name: str
    distribution: str = "uniform"
    windows: tuple[str, ...] = ()
    """Of the distribution own."""
    zone: str = "UTC"
    """Of recipients that have none."""
    weight: float = 1.0
    max_speed: Rate | None = None

    @cached_property
    def hours(self) -> list[tuple[timedelta, timedelta]]:
        """When its windows begin, since midnight, and how long they are."""
        texts = self.windows or ([DAYTIMES[self.distribution]] if self.distribution in DAYTIMES else [])
        edges = [[_since_midnight(time.fromisoformat(edge)) for edge in text.split("-")] for text in texts]
        return [(begins, (ends - begins) % _DAY) for begins, ends in edges]

    def is_inside(self, zone: str, at: datetime) -> bool:
        """Whether it is the right time for a recipient in that zone; without one, in the template's."""
        clock = _since_midnight(at.astimezone(ZoneInfo(zone or self.zone)).time())
        return any((clock - begins) % _DAY < length for begins, length in self.hours)


def _since_midnight(clock: time) -> timedelta:
    return timedelta(hours=clock.hour, minutes=clock.minute, seconds=clock.second, microseconds=clock.microsecond)


def most_between(rate: Rate, begins: datetime, ends: datetime) -> int:
    """How many whole messages a speed allows in that time; what is left of one counts for the next window."""

    def by(moment: datetime) -> int:
        return floor(Fraction((moment - _EPOCH) // timedelta(microseconds=1), rate.per_us) * rate.requests)

    return by(ends) - by(begins)


def grants(
    waiting: Mapping[Kind, int],
    campaigns: Mapping[str, Campaign],
    turns: Iterable[Group],
    *,
    max_to_send: int,
    template_max: Mapping[str, int],
) -> dict[Kind, int]:
    """What each kind may send of what waits, with the groups served in that order."""
    shares = _Shares([campaigns[name] for name in {kind.template for kind in waiting}], max_to_send)
    room, own_room = max_to_send, dict(template_max)
    granted: dict[Kind, int] = {}
    for group in turns:
        left = min(room, own_room.get(group.template, room))
        inside, outside = Kind(*group, True), Kind(*group, False)
        granted[inside], granted[outside] = shares.of(
            campaigns[group.template], waiting.get(inside, 0), waiting.get(outside, 0), left
        )
        taken = granted[inside] + granted[outside]
        room -= taken
        if group.template in own_room:
            own_room[group.template] -= taken
    return {kind: granted[kind] for kind in waiting}


class _Shares:
    def __init__(self, selection: Collection[Campaign], max_to_send: int) -> None:
        self._max_to_send = max_to_send
        self._weights = sum(_exact(campaign.weight) for campaign in selection)

    def of(self, campaign: Campaign, inside: int, outside: int, left: int) -> tuple[int, int]:
        """How many go of so many inside and outside, with so much room left."""
        if not campaign.hours:
            return 0, min(outside, self._count(UNIFORM, campaign), left)
        most_inside, most_outside = self._count(INSIDE, campaign), self._count(OUTSIDE, campaign)
        first = min(inside, most_inside, left)
        if first == most_inside or first >= most_outside:
            return first, 0
        return first, min(outside, most_outside - first, left - first)

    def _count(self, constant: Fraction, campaign: Campaign) -> int:
        weight = _exact(campaign.weight)
        share = min(max(constant * weight, weight / self._weights), Fraction(1))
        return min(max(floor(share * self._max_to_send), 1), self._max_to_send)


def _exact(number: float) -> Fraction:
    return Fraction(str(number))


class Turns:
    """Whose turn it is, window after window.

    A group of which nothing waited in the window before is taken to have been served when its template was.
    """

    def __init__(self) -> None:
        self._groups: dict[Group, tuple[int, int]] = {}
        self._templates: dict[str, tuple[int, int]] = {}
        self._window = 0

    def order(self, groups: Iterable[Group]) -> list[Group]:
        return sorted(groups, key=lambda group: (group.priority, self._served(group), group.template))

    def _served(self, group: Group) -> tuple[int, int]:
        """In which window, and as which one in it."""
        return self._groups.get(group, self._templates.get(group.template, (0, 0)))

    def note(self, order: Sequence[Group], granted: Collection[Group]) -> None:
        """These groups waited in a window, in that order; `granted` are those that were given something."""
        self._window += 1
        places = {group: (self._window, place) for place, group in enumerate(order) if group in granted}
        self._groups = {group: places.get(group) or self._served(group) for group in order}
        for group, place in places.items():
            self._templates[group.template] = max(place, self._templates.get(group.template, place))
