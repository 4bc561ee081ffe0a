"""The selection: which messages a window of the quota is planned from, and how far they need to be counted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from matrixsched.rules.lanes import lane_of
from matrixsched.rules.quota import Group, Plan, QuotaSettings, Spare, caps, plan, turn
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
    last_served: Mapping[tuple[str, int], datetime | None] = field(default_factory=dict)
    """When templates that waited in the window before were last given something, each in its priority."""
    now: datetime
    messages: defaultdict[Kind, Messages] = field(init=False, default_factory=lambda: defaultdict(Messages))
    zones_inside: defaultdict[str, set[str]] = field(init=False, default_factory=lambda: defaultdict(set))
    """By template, as lanes have them: empty for recipients without a zone."""
    _rounds: int = field(init=False, default=0)

    def add(self, names: Iterable[str]) -> None:
        """Take up lanes; those of templates that are paused, or not there, have no part in it."""
        active = {name: template for name, template in self.templates.items() if not template.is_paused(self.now)}
        times = _Times(active.values(), self.settings, self.now)
        for name in names:
            lane = lane_of(name)
            template = active.get(lane.template or "")
            if template is None:
                continue
            inside = times.is_right(template, lane.zone)
            if inside:
                self.zones_inside[template.name].add(lane.zone or "")
            self.messages[Kind(template.name, lane.priority, inside)].lanes.append(name)

    def uncounted(self) -> dict[Kind, int | None]:
        """What is to be counted next, and how far; None: all. Asked until nothing is left to count.

        First whether there is any of each kind, for the shares depend on how many templates have messages. Then as far
        as each could be granted, in the order in which they are served: once the window is full, those that come later
        have nothing of it, however many they are.
        """
        if unseen := {kind: 1 for kind, found in self.messages.items() if found.counted_to == 0}:
            return dict(unseen)
        further = self._countable()
        if self.max_to_send is None or self.settings.spare is Spare.SHARE:
            return further
        self._rounds += 1
        return self._next_in_turn(further, self.max_to_send, reach=2**self._rounds)

    def _countable(self) -> dict[Kind, int | None]:
        """Kinds of which there may be more that could be granted."""
        present = {kind.template for kind, found in self.messages.items() if found.count}
        wanted = caps(
            [self.templates[name] for name in present],
            self.settings,
            max_to_send=self.max_to_send,
            template_max=self.template_max,
            now=self.now,
        )
        further: dict[Kind, int | None] = {}
        for kind, found in self.messages.items():
            if found.may_be_more:
                cap = wanted[kind.template].inside if kind.inside else wanted[kind.template].outside
                if cap is None or cap > found.count:
                    further[kind] = cap
        return further

    def _next_in_turn(self, further: dict[Kind, int | None], left: int, *, reach: int) -> dict[Kind, int | None]:
        """Of the kinds that are to be counted further those that come next, for `reach` times what is left for them."""
        granted: dict[tuple[str, int], int] = defaultdict(int)
        for grant in self.plan().grants:
            granted[grant.template, grant.priority] += grant.granted
        chosen: dict[Kind, int | None] = {}
        for group in sorted(self._groups(), key=turn):
            name, priority = group.template.name, group.priority
            mine = {
                kind: further[kind] for inside in (True, False) if (kind := Kind(name, priority, inside)) in further
            }
            if not mine and not chosen:
                left -= granted[name, priority]
            if left <= 0:
                break
            chosen |= mine
            if sum(cap or 0 for cap in chosen.values()) >= reach * left:
                break
        return chosen

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
            template = self.templates[name]
            last_served_at = self.last_served.get((name, priority), template.last_served_at)
            yield Group(
                template=template, priority=priority, inside=inside, outside=outside, last_served_at=last_served_at
            )

    def _count(self, kind: Kind) -> int:
        found = self.messages.get(kind)
        return 0 if found is None else found.count


class _Times:
    """Where it is the right time of the day for which template; worked out once for templates with the same windows."""

    def __init__(self, templates: Iterable[Template], settings: QuotaSettings, now: datetime) -> None:
        self._now = now
        self._windows = {template.name: windows_of(template, settings) for template in templates}
        self._known: dict[tuple[SendWindow, ...], dict[str, bool]] = {windows: {} for windows in self._windows.values()}
        self._by_template = {name: self._known[windows] for name, windows in self._windows.items()}

    def is_right(self, template: Template, zone: str | None) -> bool:
        known, place = self._by_template[template.name], zone or template.zone
        if place not in known:
            windows = self._windows[template.name]
            known[place] = bool(windows) and is_inside(windows, place, self._now)
        return known[place]
