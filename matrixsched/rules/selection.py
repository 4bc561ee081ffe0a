"""The selection: which messages a window of the quota is planned from, and how far they need to be counted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from matrixsched.errors import UnknownZone
from matrixsched.rules.lanes import lane_of
from matrixsched.rules.quota import Group, Plan, QuotaSettings, caps, plan
from matrixsched.rules.templates import SendWindow, Template
from matrixsched.rules.windows import is_inside, windows_of


@dataclass(frozen=True, slots=True, order=True)
class Kind:
    """Messages that a window has one grant for."""

    template: str
    priority: int
    inside: bool
    """For whose recipients it is the right time of the day."""


@dataclass(slots=True)
class Messages:
    """The lanes in which messages of one kind wait, and what is known of how many."""

    lanes: list[str] = field(default_factory=list)
    count: int = 0
    counted_to: int | None = 0
    """Where counting stopped; None: at the last one."""

    @property
    def may_be_more(self) -> bool:
        return self.counted_to is not None and self.count >= self.counted_to


@dataclass(slots=True, kw_only=True)
class Selection:
    templates: Mapping[str, Template]
    settings: QuotaSettings
    max_to_send: int | None
    template_max: Mapping[str, int | None]
    now: datetime
    messages: dict[Kind, Messages] = field(init=False, default_factory=dict)
    zones_inside: dict[str, set[str]] = field(init=False, default_factory=dict)
    """By template, as lanes have them: empty for recipients without a zone."""

    def add(self, names: Iterable[str]) -> None:
        """Take up lanes; those of templates that are paused, or not there, have no part in it."""
        known: dict[tuple[str, str | None], bool] = {}
        for name in names:
            lane = lane_of(name)
            template = self.templates.get(lane.template or "")
            if template is None or template.is_paused(self.now):
                continue
            place = (template.name, lane.zone)
            if place not in known:
                windows = windows_of(template, self.settings)
                known[place] = is_time(windows, lane.zone or template.zone, self.now)
            if known[place]:
                self.zones_inside.setdefault(template.name, set()).add(lane.zone or "")
            kind = Kind(template.name, lane.priority, known[place])
            self.messages.setdefault(kind, Messages()).lanes.append(name)

    def uncounted(self) -> dict[Kind, int | None]:
        """What is still to be counted, and how far; None: all.

        The share of each depends on how many templates there are, and only counting tells which of them have messages
        that are not expired: so it is asked until nothing is left to count.
        """
        present = {kind.template for kind, found in self.messages.items() if found.may_be_more or found.count}
        wanted = caps(
            [self.templates[name] for name in present],
            self.settings,
            max_to_send=self.max_to_send,
            template_max=self.template_max,
            now=self.now,
        )
        further: dict[Kind, int | None] = {}
        for kind, found in self.messages.items():
            if not found.may_be_more:
                continue
            cap = wanted[kind.template].inside if kind.inside else wanted[kind.template].outside
            # One at least: a template that may send nothing now still counts as one that has messages.
            cap = None if cap is None else max(1, cap)
            if cap is None or (found.counted_to is not None and cap > found.counted_to):
                further[kind] = cap
        return further

    def note(self, counted: Mapping[Kind, int], asked: Mapping[Kind, int | None]) -> None:
        for kind, count in counted.items():
            self.messages[kind].count, self.messages[kind].counted_to = count, asked[kind]

    def plan(self) -> Plan:
        return plan(
            self._groups(),
            self.settings,
            max_to_send=self.max_to_send,
            template_max=self.template_max,
            now=self.now,
        )

    def _groups(self) -> Iterable[Group]:
        for name, priority in sorted({(kind.template, kind.priority) for kind in self.messages}):
            inside, outside = (self._count(Kind(name, priority, inside)) for inside in (True, False))
            yield Group(template=self.templates[name], priority=priority, inside=inside, outside=outside)

    def _count(self, kind: Kind) -> int:
        found = self.messages.get(kind)
        return 0 if found is None else found.count


def is_time(windows: Sequence[SendWindow], zone: str, now: datetime) -> bool:
    """Whether it is the right time of the day there; in a zone that this machine does not know it never is."""
    try:
        return bool(windows) and is_inside(windows, zone, now)
    except UnknownZone:
        return False
