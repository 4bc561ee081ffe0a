"""A forecast: how the messages that wait now will go out over the next hours, if nothing else comes.

It plays the quota forward, window after window, with counts instead of messages: the same `plan`, the same windows of
the recipients' days, the limits as they are. Where that would be too many windows, several are taken as one. Left out
are retries, actions without a template, which may take a part of the global limit, and limits of handlers and keys.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from matrixsched.rules.lanes import GLOBAL, template_limit
from matrixsched.rules.limits import Limit
from matrixsched.rules.quota import Grant, Group, Held, Plan, QuotaSettings, most, plan, window_at
from matrixsched.rules.templates import SendWindow, Template
from matrixsched.rules.times import TIME_MAX
from matrixsched.rules.windows import is_inside, next_change, windows_of

HOURS_MAX = 24 * 14
STEPS_MAX = 288
"""So many windows are played at most: five minutes each, if a day is foreseen."""
_HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lot:
    """Messages that are alike: of one template, zone and priority, due and expiring at about the same time."""

    template: str
    zone: str | None
    """None: that of the template."""
    priority: int
    due_at: datetime
    """By then all of them are."""
    expires_at: datetime | None
    """By then all of them are, if they still wait; None: never, as far as is foreseen."""
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """How it will go with the messages of one template."""

    template: str
    waiting: int
    """All that are not finished, due or not."""
    inside: int
    """Of those that are due: how many it is the right time of the day for."""
    planned: int
    """How many go in the present window."""
    held: Mapping[Held, int]
    """How many do not, and why."""
    sent: tuple[int, ...]
    """In each of the coming hours, the first of which may have begun."""
    finishes_at: datetime | None
    """When none is left; None: not within the hours foreseen."""
    expires: int
    """How many will expire unsent in that time."""
    left: int
    """How many will still wait at its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    at: datetime
    since: datetime
    """When the first of the hours began: with the present window, or whole hours later."""
    hours: int
    begins_at: datetime
    ends_at: datetime
    """Of the present window."""
    templates: int
    """How many of them have messages in it."""
    max_to_send: int | None
    outlooks: tuple[Outlook, ...]
    """By name of the template."""


def foresee(
    stock: Iterable[Lot],
    templates: Iterable[Template],
    settings: QuotaSettings,
    limits: Mapping[str, Limit],
    *,
    now: datetime,
    hours: int,
) -> Forecast:
    """Play `hours` forward from what waits now. `limits` by name: the global one and those of templates."""
    begins, ends = window_at(now, settings.interval, None)
    since = begins + (now - begins) // _HOUR * _HOUR
    until = max(since + hours * _HOUR, ends)
    play = _Play(stock, {template.name: template for template in templates}, settings, limits, now, since, hours)
    # As if the present window were planned at this moment.
    play.reach(now)
    first = play.step(begins, ends)
    play.note_present(first)
    for later in _steps(ends, until, settings.interval):
        play.reach(later[0])
        play.step(*later)
    play.reach(until)
    return Forecast(
        at=now,
        since=since,
        hours=hours,
        begins_at=begins,
        ends_at=ends,
        templates=first.templates,
        max_to_send=first.max_to_send,
        outlooks=play.outlooks(),
    )


def _steps(begins: datetime, until: datetime, interval: timedelta) -> Iterator[tuple[datetime, datetime]]:
    """The windows from `begins` on, so many of them taken together that there are not too many."""
    together = max(1, -(-(until - begins) // (interval * STEPS_MAX)))
    while begins < until:
        _, ends = window_at(begins, interval * together, begins)
        ends = min(ends, until)
        yield begins, ends
        begins = ends


@dataclass(slots=True)
class _Daytime:
    """Whether it is inside certain windows in a zone, at the time the play has reached."""

    windows: tuple[SendWindow, ...]
    zone: str
    inside: bool
    until: datetime

    def reach(self, moment: datetime) -> None:
        while self.until <= moment:
            self.inside = not self.inside
            self.until = next_change(self.windows, self.zone, self.until) or TIME_MAX


@dataclass(slots=True, eq=False)
class _Pile:
    """What is left of a lot."""

    lane: _Lane
    due_at: datetime
    expires_at: datetime
    count: int

    @property
    def turn(self) -> tuple[datetime, datetime]:
        return self.due_at, self.expires_at

    def take(self, count: int) -> int:
        self.count -= count
        self.lane.waiting -= count
        return count


@dataclass(slots=True, eq=False)
class _Lane:
    """The messages of a template for one zone, with one priority, that are due."""

    sender: _Sender
    daytime: _Daytime | None
    """None: the template is uniform."""
    piles: deque[_Pile] = field(default_factory=deque)
    """By (due, expiry)."""
    waiting: int = 0

    @property
    def is_inside(self) -> bool:
        return self.daytime is not None and self.daytime.inside

    def first(self) -> _Pile:
        """The next pile that is not empty; there must be one."""
        while not self.piles[0].count:
            self.piles.popleft()
        return self.piles[0]


@dataclass(slots=True, eq=False)
class _Sender:
    """A template, and what has become of its messages so far."""

    name: str
    template: Template | None
    sent: list[int]
    waiting: int = 0
    """At the beginning."""
    left: int = 0
    due: int = 0
    expired: int = 0
    finished_at: datetime | None = None
    # Of the present window:
    inside: int = 0
    planned: int = 0
    held: dict[Held, int] = field(default_factory=dict)

    def hold(self, by: Held, count: int) -> None:
        if count:
            self.held[by] = self.held.get(by, 0) + count


class _Play:
    def __init__(
        self,
        stock: Iterable[Lot],
        templates: Mapping[str, Template],
        settings: QuotaSettings,
        limits: Mapping[str, Limit],
        now: datetime,
        since: datetime,
        hours: int,
    ) -> None:
        self._settings, self._limits, self._now, self._since, self._hours = settings, limits, now, since, hours
        self._senders: dict[str, _Sender] = {}
        self._daytimes: dict[tuple[tuple[SendWindow, ...], str], _Daytime] = {}
        self._lanes: dict[tuple[str, int], dict[str | None, _Lane]] = {}
        self._served: dict[tuple[str, int], datetime | None] = {}
        """When the messages of a template with one priority were last given something."""
        piles = [self._pile(lot, templates) for lot in stock if lot.count]
        for name, template in templates.items():
            self._sender(name, template)
        self._coming = deque(sorted(piles, key=lambda pile: pile.turn))
        self._expiring = deque(sorted(piles, key=lambda pile: pile.expires_at))

    def _pile(self, lot: Lot, templates: Mapping[str, Template]) -> _Pile:
        sender = self._sender(lot.template, templates.get(lot.template))
        sender.waiting += lot.count
        sender.left += lot.count
        lanes = self._lanes.setdefault((lot.template, lot.priority), {})
        if lot.zone not in lanes:
            lanes[lot.zone] = _Lane(sender, self._daytime(sender.template, lot.zone))
        return _Pile(lanes[lot.zone], lot.due_at, lot.expires_at or TIME_MAX, lot.count)

    def _sender(self, name: str, template: Template | None) -> _Sender:
        return self._senders.setdefault(name, _Sender(name, template, [0] * self._hours))

    def _daytime(self, template: Template | None, zone: str | None) -> _Daytime | None:
        windows = () if template is None else windows_of(template, self._settings)
        if template is None or not windows:
            return None
        key = windows, zone or template.zone
        if key not in self._daytimes:
            self._daytimes[key] = _Daytime(*key, is_inside(*key, self._now), next_change(*key, self._now) or TIME_MAX)
        return self._daytimes[key]

    def reach(self, moment: datetime) -> None:
        """What has become due by then, and what has expired."""
        while self._coming and self._coming[0].due_at <= moment:
            pile = self._coming.popleft()
            if pile.count:
                pile.lane.piles.append(pile)
                pile.lane.waiting += pile.count
                pile.lane.sender.due += pile.count
        while self._expiring and self._expiring[0].expires_at <= moment:
            pile = self._expiring.popleft()
            sender = pile.lane.sender
            sender.expired += pile.count
            if pile.due_at <= moment:
                pile.lane.waiting -= pile.count
                sender.due -= pile.count
            self._remove(sender, pile.count, moment)
            pile.count = 0
        for daytime in self._daytimes.values():
            daytime.reach(moment)

    def _remove(self, sender: _Sender, count: int, moment: datetime) -> None:
        sender.left -= count
        if count and not sender.left:
            sender.finished_at = moment

    def step(self, begins: datetime, ends: datetime) -> Plan:
        """Plan a window and send what it grants."""
        groups = [
            group for (name, priority), lanes in self._lanes.items() if (group := self._group(name, priority, lanes))
        ]
        templates = {group.template.name for group in groups}
        result = plan(
            groups,
            self._settings,
            max_to_send=self._most(GLOBAL, begins, ends),
            template_max={name: self._most(template_limit(name), begins, ends) for name in templates},
            now=max(begins, self._now),
        )
        for grant in result.grants:
            self._served[grant.template, grant.priority] = grant.last_served_at
            if grant.granted:
                self._send(grant, begins, ends)
        return result

    def _group(self, name: str, priority: int, lanes: Mapping[str | None, _Lane]) -> Group | None:
        sender = self._senders[name]
        if sender.template is None or not sender.due:
            return None
        inside = outside = 0
        for lane in lanes.values():
            if lane.daytime is not None and lane.daytime.inside:
                inside += lane.waiting
            else:
                outside += lane.waiting
        return Group(
            template=sender.template,
            priority=priority,
            inside=inside,
            outside=outside,
            last_served_at=self._served.get((name, priority), sender.template.last_served_at),
        )

    def _most(self, name: str, begins: datetime, ends: datetime) -> int | None:
        limit = self._limits.get(name)
        if limit is None:
            return None
        return most(limit.rate, begins, ends, slow_until=limit.slow_until, slow_rate=limit.slow_rate)

    def _send(self, grant: Grant, begins: datetime, ends: datetime) -> None:
        lanes = self._lanes[grant.template, grant.priority].values()
        open_lanes = [lane for lane in lanes if lane.waiting and lane.is_inside == grant.inside]
        left = grant.granted
        while left:
            firsts = [lane.first() for lane in open_lanes if lane.waiting]
            turn = min(pile.turn for pile in firsts)
            left -= _take([pile for pile in firsts if pile.turn == turn], left)
        sender = self._senders[grant.template]
        sender.due -= grant.granted
        self._note_sent(sender.sent, grant.granted, begins, ends)
        self._remove(sender, grant.granted, ends)

    def _note_sent(self, sent: list[int], count: int, begins: datetime, ends: datetime) -> None:
        """Add what is sent evenly over a window to the hours in which it lies."""
        since, until, noted = max(begins, self._since) - self._since, ends - self._since, 0
        hour = since // _HOUR
        while (hour + 1) * _HOUR < until and hour + 1 < self._hours:
            hour += 1
            part = count * (hour * _HOUR - since) // (until - since) - noted
            sent[hour - 1] += part
            noted += part
        sent[hour] += count - noted

    def note_present(self, present: Plan) -> None:
        """Keep what is only true of the present window, which was just played."""
        for grant in present.grants:
            sender = self._senders[grant.template]
            sender.planned += grant.granted
            sender.inside += grant.waiting if grant.inside else 0
        for held in present.held:
            self._senders[held.template].hold(held.by, held.count)
        for sender in self._senders.values():
            sender.hold(Held.NOT_DUE, sender.left - sender.due)
            if sender.template is None:
                sender.hold(Held.NO_TEMPLATE, sender.due)

    def outlooks(self) -> tuple[Outlook, ...]:
        return tuple(
            Outlook(
                template=name,
                waiting=sender.waiting,
                inside=sender.inside,
                planned=sender.planned,
                held=sender.held,
                sent=tuple(sender.sent),
                finishes_at=sender.finished_at,
                expires=sender.expired,
                left=sender.left,
            )
            for name, sender in sorted(self._senders.items())
        )


def _take(piles: Sequence[_Pile], most: int) -> int:
    """Take from piles whose turn it is together, from each in proportion; how many in all."""
    whole = sum(pile.count for pile in piles)
    taken = min(most, whole)
    rest = taken
    for pile in piles:
        rest -= pile.take(taken * pile.count // whole)
    for pile in piles:
        rest -= pile.take(min(rest, 1, pile.count))
    return taken
