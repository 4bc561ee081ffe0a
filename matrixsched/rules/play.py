"""The play behind a forecast: the quota and the limits, window after window, with counts instead of messages.

The same `plan`, the same windows of the recipients' days, slots as the limits have them. In each window

    1. `plan` says what each template may send; if the present one is planned already, what is left of that counts
    2. the more important priorities go first; those of one take turns where there are not slots for all

Actions without a template take their part of the limits. Left out are retries and the later runs of what repeats;
attempts under way count as if they waited.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from matrixsched.rules.lanes import GLOBAL, Lane, key_limit, template_limit
from matrixsched.rules.limits import Limit
from matrixsched.rules.lots import Lot, Together, key_limited
from matrixsched.rules.pacing import Pace, Room, Turn, share_out
from matrixsched.rules.quota import Group, Held, Plan, QuotaSettings, most, plan
from matrixsched.rules.templates import SendWindow, Template
from matrixsched.rules.times import TIME_MAX
from matrixsched.rules.windows import is_inside, next_change, windows_of

HOUR = timedelta(hours=1)

GroupName = tuple[str, int]
"""Template and priority."""
GrantName = tuple[str, int, bool]
"""And whether it is for recipients for whom it is the right time of the day."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PresentWindow:
    """The window of this moment, as far as it is planned."""

    at: datetime
    begins_at: datetime
    ends_at: datetime
    left: Mapping[GrantName, int] | None = None
    """What may still be sent; None: it is not planned yet."""
    zones_inside: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """By template, as they were when it was planned; empty for recipients without a zone."""
    last_served: Mapping[GroupName, datetime | None] = field(default_factory=dict)
    """When those that waited in it, or in the one before, were last given something."""


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
    """Those of a taker that are due, for one zone."""

    sender: Sender
    zone: str | None
    daytime: _Daytime | None
    """None: the template is uniform, or there is none."""
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
class _Taker:
    """What is under the same limits: of one template, or of none, and alike in priority, handler and key."""

    sender: Sender
    priority: int
    paces: Sequence[Pace]
    keys: int
    """How many are taken together in it; without a key one."""
    lanes: dict[str | None, _Lane] = field(default_factory=dict)
    odd_at: int = 0
    """The step in which it last got what could not be divided."""


@dataclass(slots=True, eq=False)
class Sender:
    """A template, and what has become of its messages so far; or all actions that have none."""

    name: str
    template: Template | None
    sent: list[int]
    waiting: int = 0
    """At the beginning."""
    left: int = 0
    due: int = 0
    expired: int = 0
    last_at: datetime | None = None
    """When the last one so far went, or expired."""
    # Of the present window:
    inside: int = 0
    planned: int = 0
    held: dict[Held, int] = field(default_factory=dict)

    @property
    def finished_at(self) -> datetime | None:
        return None if self.left else self.last_at

    def hold(self, by: Held, count: int) -> None:
        if count:
            self.held[by] = self.held.get(by, 0) + count

    def remove(self, count: int, at: datetime) -> None:
        self.left -= count
        if count:
            self.last_at = at if self.last_at is None else max(at, self.last_at)


@dataclass(slots=True)
class _Going:
    """A taker's turn in a step: those of its lanes that one grant is for."""

    taker: _Taker
    lanes: list[_Lane]
    grant: Room | None
    turn: Turn


class Play:
    def __init__(
        self,
        stock: Iterable[Lot],
        templates: Mapping[str, Template],
        settings: QuotaSettings,
        limits: Mapping[str, Limit],
        together: Mapping[str, Together],
        *,
        now: datetime,
        since: datetime,
        hours: int,
    ) -> None:
        self._settings, self._limits, self._together = settings, limits, together
        self._now, self._since, self._hours = now, since, hours
        self.senders: dict[str, Sender] = {}
        self.others = Sender("", None, [0] * hours)
        self.templates = 0
        """How many had messages in the present window."""
        self._templates = templates
        self._paces: dict[str, Pace | None] = {}
        self._daytimes: dict[tuple[tuple[SendWindow, ...], str], _Daytime] = {}
        self._takers: dict[tuple[str | None, int, str, str | None], _Taker] = {}
        self._groups: defaultdict[GroupName, list[_Taker]] = defaultdict(list)
        self._served: dict[GroupName, datetime | None] = {}
        """When the messages of a template with one priority were last given something."""
        self._steps = 0
        piles = [self._pile(lot) for lot in stock if lot.count]
        for name in templates:
            self._sender(name)
        self._coming = deque(sorted(piles, key=lambda pile: pile.turn))
        self._expiring = deque(sorted(piles, key=lambda pile: pile.expires_at))

    # What there is.

    def _pile(self, lot: Lot) -> _Pile:
        taker = self._taker(lot)
        sender = taker.sender
        sender.waiting += lot.count
        sender.left += lot.count
        if lot.zone not in taker.lanes:
            taker.lanes[lot.zone] = _Lane(sender, lot.zone, self._daytime(sender.template, lot.zone))
        return _Pile(taker.lanes[lot.zone], lot.due_at, lot.expires_at or TIME_MAX, lot.count)

    def _taker(self, lot: Lot) -> _Taker:
        name = lot.template, lot.priority, lot.handler, lot.key
        if name not in self._takers:
            sender = self.others if lot.template is None else self._sender(lot.template)
            together = self._together.get(lot.key or "")
            keys = 1 if together is None else together.keys
            taker = self._takers[name] = _Taker(sender, lot.priority, self._paces_of(lot), keys)
            if lot.template is not None:
                self._groups[lot.template, lot.priority].append(taker)
        return self._takers[name]

    def _sender(self, name: str) -> Sender:
        if name not in self.senders:
            self.senders[name] = Sender(name, self._templates.get(name), [0] * self._hours)
        return self.senders[name]

    def _paces_of(self, lot: Lot) -> list[Pace]:
        names = Lane(handler=lot.handler, template=lot.template).limits
        found = [self._pace(name, self._limits.get(name)) for name in names]
        if lot.key is not None:
            found.append(self._pace_of_key(lot.key))
        return [pace for pace in found if pace is not None]

    def _pace_of_key(self, key: str) -> Pace | None:
        if key in self._together:
            return self._pace(key, self._together[key].limit, self._together[key].keys)
        return self._pace(key_limit(key), key_limited(key, self._limits, self._now))

    def _pace(self, name: str, limit: Limit | None, keys: int = 1) -> Pace | None:
        if name not in self._paces:
            is_limiting = limit is not None and (limit.rate is not None or limit.is_slowed(self._now))
            self._paces[name] = Pace(limit, keys) if limit is not None and is_limiting else None
        return self._paces[name]

    def _daytime(self, template: Template | None, zone: str | None) -> _Daytime | None:
        windows = () if template is None else windows_of(template, self._settings)
        if template is None or not windows:
            return None
        key = windows, zone or template.zone
        if key not in self._daytimes:
            self._daytimes[key] = _Daytime(*key, is_inside(*key, self._now), next_change(*key, self._now) or TIME_MAX)
        return self._daytimes[key]

    @property
    def size(self) -> int:
        """How much there is to do in each step."""
        return len(self._takers)

    # How it goes on.

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
            sender.remove(pile.count, max(pile.expires_at, self._now))
            pile.count = 0
        for daytime in self._daytimes.values():
            daytime.reach(moment)

    @property
    def is_anything_due(self) -> bool:
        return self.others.due > 0 or any(sender.due and sender.template for sender in self.senders.values())

    @property
    def next_due(self) -> datetime:
        """When there is something to send again, unless it expires before that."""
        return self._coming[0].due_at if self._coming else TIME_MAX

    def begin(self, window: PresentWindow) -> None:
        """Play the present window from this moment on, and keep what is only true of it."""
        self.reach(self._now)
        self._served.update(window.last_served)
        if window.left is None:
            planned = self.step(self._now, window.ends_at, window.begins_at)
            self.templates = planned.templates
            for held in planned.held:
                self.senders[held.template].hold(held.by, held.count)
        else:
            self._go_on(window, window.left)
        for sender in self.senders.values():
            sender.planned = sum(sender.sent)
            sender.hold(Held.NOT_DUE, sender.left - sender.due)
            if sender.template is None:
                sender.hold(Held.NO_TEMPLATE, sender.due)
            else:
                # Slots were what it lacked, where neither plan nor pause held it back.
                sender.hold(Held.LIMIT, sender.due - sum(sender.held.values()) + sender.held.get(Held.NOT_DUE, 0))

    def _go_on(self, window: PresentWindow, left: Mapping[GrantName, int]) -> None:
        """With what the present window was planned for."""

        def is_inside(lane: _Lane) -> bool:
            return (lane.zone or "") in window.zones_inside.get(lane.sender.name, ())

        self.templates = len({template for template, *_ in left})
        waiting: defaultdict[GrantName, int] = defaultdict(int)
        for (name, priority), takers in self._groups.items():
            for lane in (lane for taker in takers for lane in taker.lanes.values() if lane.waiting):
                waiting[name, priority, is_inside(lane)] += lane.waiting
        rooms = {}
        for (name, priority, inside), count in waiting.items():
            sender = self.senders[name]
            if sender.template is None:
                continue
            sender.inside += count if inside else 0
            if sender.template.is_paused(self._now):
                sender.hold(Held.PAUSED, count)
            else:
                granted = min(count, left.get((name, priority, inside), 0))
                sender.hold(Held.QUOTA, count - granted)
                rooms[name, priority, inside] = Room(granted)
        self._send(self._now, window.ends_at, rooms, is_inside)

    def step(self, since: datetime, until: datetime, begins: datetime, *, windows: int = 1) -> Plan:
        """Plan a window that began then, or several as one, and send from `since` on what it grants."""
        groups = [group for name, takers in self._groups.items() if (group := self._group(name, takers))]
        templates = {group.template.name for group in groups}
        result = plan(
            groups,
            self._settings,
            max_to_send=self._most(GLOBAL, begins, until),
            template_max={name: self._most(template_limit(name), begins, until) for name in templates},
            now=since,
        )
        rooms = {}
        for grant in result.grants:
            self._served[grant.template, grant.priority] = grant.last_served_at
            rooms[grant.template, grant.priority, grant.inside] = Room(grant.granted)
            if not self._steps:
                self.senders[grant.template].inside += grant.waiting if grant.inside else 0
        self._send(since, until, rooms, lambda lane: lane.is_inside, windows=windows)
        return result

    def _group(self, name: GroupName, takers: Sequence[_Taker]) -> Group | None:
        sender = self.senders[name[0]]
        if sender.template is None or not sender.due:
            return None
        inside = outside = 0
        for taker in takers:
            for lane in taker.lanes.values():
                if lane.is_inside:
                    inside += lane.waiting
                else:
                    outside += lane.waiting
        return Group(
            template=sender.template,
            priority=name[1],
            inside=inside,
            outside=outside,
            last_served_at=self._served.get(name, sender.template.last_served_at),
        )

    def _most(self, name: str, begins: datetime, ends: datetime) -> int | None:
        limit = self._limits.get(name)
        if limit is None:
            return None
        return most(limit.rate, begins, ends, slow_until=limit.slow_until, slow_rate=limit.slow_rate)

    # Who goes.

    def _send(
        self,
        since: datetime,
        until: datetime,
        rooms: Mapping[GrantName, Room],
        is_inside: Callable[[_Lane], bool],
        *,
        windows: int = 1,
    ) -> None:
        """Let go what there are both grants and slots for."""
        self._steps += 1
        going: defaultdict[int, list[_Going]] = defaultdict(list)
        for taker in self._takers.values():
            if taker.sender.due:
                going[taker.priority] += self._going(taker, since, until, rooms, is_inside)
        for priority in sorted(going):
            equals = sorted(going[priority], key=lambda one: one.taker.odd_at)
            _weigh(equals)
            before = {pace: pace.used for one in equals for pace in one.taker.paces}
            share_out([one.turn for one in equals])
            for one in equals:
                if one.turn.given:
                    self._take_away(one)
                    ended_at = _ended_at(one, equals, before, since) if windows == 1 else until
                    self._note_gone(one, since, until, ended_at)

    def _going(
        self,
        taker: _Taker,
        since: datetime,
        until: datetime,
        rooms: Mapping[GrantName, Room],
        is_inside: Callable[[_Lane], bool],
    ) -> Iterable[_Going]:
        lanes: tuple[list[_Lane], list[_Lane]] = [], []
        for lane in taker.lanes.values():
            if lane.waiting:
                lanes[is_inside(lane)].append(lane)
        for inside, some in enumerate(lanes):
            room = rooms.get((taker.sender.name, taker.priority, bool(inside)))
            if not some or (taker.sender is not self.others and (room is None or not room.left)):
                continue
            for pace in taker.paces:
                pace.open(since, until)
            wanted = sum(lane.waiting for lane in some)
            yield _Going(taker, some, room, Turn(wanted, [*taker.paces, *([room] if room else [])], len(some)))

    def _take_away(self, gone: _Going) -> None:
        if gone.turn.got_odd:
            gone.taker.odd_at = self._steps
        left = gone.turn.given
        while left:
            firsts = [lane.first() for lane in gone.lanes if lane.waiting]
            turn = min(pile.turn for pile in firsts)
            left -= _take([pile for pile in firsts if pile.turn == turn], left)

    def _note_gone(self, gone: _Going, since: datetime, until: datetime, ended_at: datetime) -> None:
        sender, count = gone.taker.sender, gone.turn.given
        sender.due -= count
        self._note_sent(sender.sent, count, since, until)
        sender.remove(count, ended_at)

    def _note_sent(self, sent: list[int], count: int, begins: datetime, ends: datetime) -> None:
        """Add what is sent evenly over a time to the hours in which it lies."""
        since, until, noted = begins - self._since, ends - self._since, 0
        hour = since // HOUR
        while (hour + 1) * HOUR < until and hour + 1 < self._hours:
            hour += 1
            part = count * (hour * HOUR - since) // (until - since) - noted
            sent[hour - 1] += part
            noted += part
        sent[hour] += count - noted


def _weigh(equals: Sequence[_Going]) -> None:
    """Every lane has its turn; the turns of templates go to those that have used the least of their grants."""
    granted: dict[Room, int] = {one.grant: one.grant.left or 0 for one in equals if one.grant}
    lanes: defaultdict[Room | None, int] = defaultdict(int)
    for one in equals:
        one.turn.weight = len(one.lanes) * one.taker.keys
        lanes[one.grant] += len(one.lanes) * one.taker.keys
    of_templates, whole = sum(lanes[grant] for grant in granted), sum(granted.values())
    for one in equals:
        if one.grant and whole:
            one.turn.weight *= of_templates * granted[one.grant] / (whole * lanes[one.grant])


def _ended_at(gone: _Going, equals: Sequence[_Going], before: Mapping[Pace, int], since: datetime) -> datetime:
    """When the last of them started, if none is left, with the turns that others had meanwhile."""
    if any(lane.waiting for lane in gone.lanes):
        return since
    rounds = (gone.turn.given - 1) / gone.turn.weight
    ends = [since]
    for pace in gone.taker.paces:
        others = (one.turn for one in equals if one is not gone and pace in one.taker.paces)
        started = sum(min(turn.given, rounds * turn.weight + 1) for turn in others)
        ends.append(pace.start_of(before[pace] + gone.turn.given + started))
    return max(ends)


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
