"""The quota: how much of each template is sent in a window of time, so that no campaign crowds out the others.

At the beginning of each window the messages that are due are counted per template and priority, and apart from each
other those for whose recipients it is the right time of the day (inside) and the others (outside). With n templates
in that selection, MaxToSend messages in all and TemplateMaxToSend of one template, a template may send

    inside    min(max(0.05, 1/n) × MaxToSend, TemplateMaxToSend)
    outside   min(max(0.01, 1/n) × MaxToSend, TemplateMaxToSend)
    uniform   min(max(0.03, 1/n) × MaxToSend, TemplateMaxToSend)

If it has messages inside, it sends those, up to the count for inside; only if they are fewer than that, and fewer than
the count for outside, it fills up to the latter with messages outside. Weights shift the shares: a template of weight w
has max(constant × w, w / sum of weights), at most everything. A share is rounded down, but not to nothing: where n is
above MaxToSend the count for outside can be 0 while that for inside is not, and templates that have only messages
outside would wait for as long as others have any inside; with 1 they have their turn.

The counts of many templates add up to more than MaxToSend. So the lower numbers of priority go first, and among equals
those that were served longest ago in this priority: the next windows begin with those that this one could not serve.

All sums are made in whole numbers: 0.29 of 100 messages are 29, not 28.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache
from itertools import groupby
from math import lcm

from matrixsched.errors import BadInput, InvalidDuration, shown
from matrixsched.rules.durations import duration_text
from matrixsched.rules.rates import Rate
from matrixsched.rules.templates import Distribution, SendWindow, Template
from matrixsched.rules.times import TIME_MIN, check_number
from matrixsched.rules.windows import check_window

INTERVAL_MIN = timedelta(seconds=1)
INTERVAL_MAX = timedelta(days=1)
SHARE_MIN = 0.000_001
WEIGHT_MIN = 0.001
WEIGHT_MAX = 1000.0
RATIO_MAX = 1000.0
_MICROSECOND = timedelta(microseconds=1)


class Spare(StrEnum):
    """What becomes of the room that the shares leave in a window."""

    LEAVE = "leave"
    SHARE = "share"


class Held(StrEnum):
    """Why no more messages of a template go."""

    NOT_DUE = "not_due"
    PAUSED = "paused"
    NO_TEMPLATE = "no_template"
    """The template they belong to is not there."""
    SHARE = "share"
    """It has sent its share."""
    TEMPLATE_MAX = "template_max"
    TOTAL = "total"
    """There is no room left in the window."""
    QUOTA = "quota"
    """The window is planned already, and what it has for them is used up."""
    LIMIT = "limit"
    """Its limits have no slots for them in the rest of the window: those of handlers and keys, or others share them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaSettings:
    interval: timedelta = timedelta(minutes=1)
    inside_share: float = 0.05
    outside_share: float = 0.01
    uniform_share: float = 0.03
    inside_times_outside: float | None = None
    """Instead of `inside_share`: that many times `outside_share`."""
    spare: Spare = Spare.LEAVE
    morning: SendWindow = SendWindow(time(8), time(12))
    day: SendWindow = SendWindow(time(12), time(18))
    evening: SendWindow = SendWindow(time(18), time(22))

    def __post_init__(self) -> None:
        _check_interval(self.interval)
        for argument in ("inside_share", "outside_share", "uniform_share"):
            check_number(argument, getattr(self, argument), least=SHARE_MIN, most=1)
        if self.inside_times_outside is not None:
            check_number("inside_times_outside", self.inside_times_outside, least=1 / RATIO_MAX, most=RATIO_MAX)
        # Written as text, as on a command line, they become what they stand for.
        object.__setattr__(self, "spare", _check_spare(self.spare))
        for argument in ("morning", "day", "evening"):
            object.__setattr__(self, argument, check_window(getattr(self, argument)))

    @property
    def inside(self) -> Fraction:
        """The share of messages inside, however it was said."""
        if self.inside_times_outside is None:
            return _exact(self.inside_share)
        return min(Fraction(1), _exact(self.inside_times_outside) * _exact(self.outside_share))


def _check_interval(interval: object) -> None:
    if not isinstance(interval, timedelta):
        raise InvalidDuration("interval", f"must be a timedelta, not {type(interval).__name__}")
    if not INTERVAL_MIN <= interval <= INTERVAL_MAX:
        raise InvalidDuration("interval", f"is {duration_text(interval)}, but must be between a second and a day")


def _check_spare(spare: object) -> Spare:
    try:
        return Spare(spare)  # type: ignore[arg-type]
    except ValueError:
        raise BadInput(f"spare is {shown(spare)}, but must be {' or '.join(Spare)}") from None


def check_weight(weight: object) -> float:
    return check_number("weight", weight, least=WEIGHT_MIN, most=WEIGHT_MAX)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The messages of a template with one priority that are due and not expired, counted as far as `caps` says."""

    template: Template
    priority: int
    inside: int
    outside: int
    """Of a uniform template: all."""
    last_served_at: datetime | None
    """When the template was last given something in this priority."""

    @property
    def waiting(self) -> int:
        return self.inside + self.outside


@dataclass(frozen=True, slots=True)
class Caps:
    """How many messages of a template need to be counted, in each priority; None: all."""

    inside: int | None
    outside: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What may be sent of a group in the window; nothing, where others took the room."""

    template: str
    priority: int
    inside: bool
    waiting: int
    granted: int
    last_served_at: datetime | None
    """When its group was last given something, with this window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldBack:
    """How many messages of a group that were counted do not go in this window, and why."""

    template: str
    priority: int
    count: int
    by: Held


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    grants: tuple[Grant, ...]
    """One for each group and kind of messages that wait, in the order in which they were served."""
    held: tuple[HeldBack, ...]
    templates: int
    """How many of them have messages: n."""
    max_to_send: int | None

    @property
    def last_served(self) -> dict[str, datetime]:
        """The templates that may send something, each with when it was last served in any priority."""
        times = [(one.template, one.last_served_at) for one in self.grants if one.granted and one.last_served_at]
        return dict(sorted(times, key=lambda one: one[1]))


def window_at(now: datetime, interval: timedelta, previous_end: datetime | None) -> tuple[datetime, datetime]:
    """The window of time that holds `now`, on the grid of the interval since 1970.

    It begins at the end of the previous one if that is later: the interval may have been changed meanwhile.
    """
    begins = now - (now - TIME_MIN) % interval
    if previous_end is not None and previous_end > begins:
        begins = previous_end
    return begins, begins - (begins - TIME_MIN) % interval + interval


def most(
    rate: Rate | None,
    begins: datetime,
    ends: datetime,
    *,
    slow_until: datetime | None = None,
    slow_rate: Rate | None = None,
) -> int | None:
    """How many messages a limit allows in a window: MaxToSend or TemplateMaxToSend; None: any number.

    Fractions of a message are carried over: over any row of windows the counts add up to the rate. `slow_until` is for
    a limit that was told to slow down until then to `slow_rate`, or, without one, to send nothing.
    """
    slow_ends = begins if slow_until is None else min(max(begins, slow_until), ends)
    slow = 0 if slow_rate is None else _between(slow_rate, begins, slow_ends)
    if slow_ends == ends:
        return slow if rate is None else min(slow, _between(rate, begins, ends))
    return None if rate is None else min(slow + _between(rate, slow_ends, ends), _between(rate, begins, ends))


def _between(rate: Rate, begins: datetime, ends: datetime) -> int:
    since, until = ((moment - TIME_MIN) // _MICROSECOND * rate.requests // rate.per_us for moment in (begins, ends))
    return until - since


def caps(
    templates: Collection[Template],
    settings: QuotaSettings,
    *,
    max_to_send: int | None,
    template_max: Mapping[str, int | None],
    now: datetime,
) -> dict[str, Caps]:
    """How far to count the messages of each template, given those that have any; the paused ones are left out.

    Counting further changes no grant, as long as all of them do have messages: where some turn out to have none after
    all, ask again without them. At least one is counted even where none can go, for the shares of the others depend on
    it.
    """
    selection = {template.name: template for template in templates if not template.is_paused(now)}
    shares = _Shares(selection.values(), settings, max_to_send)
    counted = {}
    for name, template in selection.items():
        inside, outside = shares.of(template) if settings.spare is Spare.LEAVE else (max_to_send, max_to_send)
        own = template_max.get(name)
        counted[name] = Caps(_cap(inside, own), _cap(outside, own))
    return counted


def _cap(*counts: int | None) -> int | None:
    least = _least(*counts)
    return None if least is None else max(1, least)


def plan(
    groups: Iterable[Group],
    settings: QuotaSettings,
    *,
    max_to_send: int | None,
    template_max: Mapping[str, int | None],
    now: datetime,
) -> Plan:
    """What may be sent in a window of the messages that wait at its beginning."""
    waiting = [group for group in groups if group.waiting]
    selection = {group.template.name: group.template for group in waiting if not group.template.is_paused(now)}
    shares = _Shares(selection.values(), settings, max_to_send)
    room = _Room(max_to_send, template_max)
    served = [_Served(group) for group in sorted(waiting, key=turn) if group.template.name in selection]
    for one in served:
        one.take_share(*shares.of(one.group.template), room)
    if settings.spare is Spare.SHARE:
        _share_out(served, shares, room)
    paused = [group for group in waiting if group.template.name not in selection]
    # After everybody's last turn, also where that lies in the future because the clock was set back.
    turns_from = max([now, *(group.last_served_at for group in waiting if group.last_served_at)])
    return Plan(
        # One a little after another: whoever came last in this window comes last in the next. If all had the same time,
        # their names would decide, and some would have their turn in every window.
        grants=tuple(
            grant
            for number, one in enumerate(served, start=1)
            for grant in one.grants(turns_from + number * _MICROSECOND)
        ),
        held=(
            *(_held_back(one.group, one.left, one.held) for one in served if one.left),
            *(_held_back(group, group.waiting, Held.PAUSED) for group in paused),
        ),
        templates=len(selection),
        max_to_send=max_to_send,
    )


def turn(group: Group) -> tuple[int, datetime, str]:
    """The order in which groups are served."""
    return group.priority, group.last_served_at or TIME_MIN, group.template.name


def _held_back(group: Group, count: int, by: Held) -> HeldBack:
    return HeldBack(template=group.template.name, priority=group.priority, count=count, by=by)


class _Shares:
    """How many messages the templates of a selection may send, before anybody's maximum."""

    def __init__(self, templates: Iterable[Template], settings: QuotaSettings, max_to_send: int | None) -> None:
        self._total = max_to_send
        exact = {template.name: _exact(template.weight) for template in templates}
        # Whole numbers in the same proportion, and what they were multiplied by.
        self._scale = lcm(*(weight.denominator for weight in exact.values()))
        self.weights = {name: weight.numerator * (self._scale // weight.denominator) for name, weight in exact.items()}
        self._sum = sum(self.weights.values())
        self._inside = settings.inside
        self._outside = _exact(settings.outside_share)
        self._uniform = _exact(settings.uniform_share)
        self._known: dict[tuple[int, bool], tuple[int, int]] = {}
        """The counts by weight and kind: most templates weigh the same."""

    def of(self, template: Template) -> tuple[int | None, int | None]:
        """The counts for inside and for outside, which are one for a uniform template; None: everything."""
        if self._total is None:
            return None, None
        weight, is_uniform = self.weights[template.name], template.distribution is Distribution.UNIFORM
        if (weight, is_uniform) not in self._known:
            constants = (self._uniform, self._uniform) if is_uniform else (self._inside, self._outside)
            inside, outside = (self._count(constant, weight, self._total) for constant in constants)
            self._known[weight, is_uniform] = inside, outside
        return self._known[weight, is_uniform]

    def _count(self, constant: Fraction, weight: int, total: int) -> int:
        by_constant = total * weight * constant.numerator // (constant.denominator * self._scale)
        by_number = total * weight // self._sum
        return min(max(by_constant, by_number, 1), total)


class _Room:
    """What is left of the window for all, and of each template's maximum."""

    def __init__(self, total: int | None, own: Mapping[str, int | None]) -> None:
        self.whole = self.total = total
        self.own = dict(own)

    def left(self, template: str) -> int | None:
        return _least(self.total, self.own.get(template))

    def take(self, template: str, count: int) -> None:
        if self.total is not None:
            self.total -= count
        own = self.own.get(template)
        if own is not None:
            self.own[template] = own - count


@dataclass(slots=True, eq=False)
class _Served:
    """A group, and what it was given so far."""

    group: Group
    inside: int = 0
    outside: int = 0
    held: Held = Held.SHARE

    @property
    def name(self) -> str:
        return self.group.template.name

    @property
    def is_uniform(self) -> bool:
        return self.group.template.distribution is Distribution.UNIFORM

    @property
    def left(self) -> int:
        return self.group.waiting - self.inside - self.outside

    def take_share(self, inside: int | None, outside: int | None, room: _Room) -> None:
        """Take what the shares allow, as far as there is room."""
        self.inside, self.outside = self._by_flow_chart(inside, outside, room.left(self.name))
        taken = self.inside + self.outside
        own = room.own.get(self.name)
        room.take(self.name, taken)
        if taken == own:
            self.held = Held.TEMPLATE_MAX
        elif room.total == 0 and (taken == room.whole or taken < sum(self._by_flow_chart(inside, outside, own))):
            self.held = Held.TOTAL

    def _by_flow_chart(self, inside: int | None, outside: int | None, left: int | None) -> tuple[int, int]:
        """How many messages inside and outside go, with these shares and so much room."""
        taken = _within(self.group.inside, inside, left)
        if taken == inside or (outside is not None and taken >= outside):
            return taken, 0
        fill = None if outside is None else outside - taken
        return taken, _within(self.group.outside, fill, None if left is None else left - taken)

    def grants(self, now: datetime) -> Iterator[Grant]:
        last_served_at = now if self.inside or self.outside else self.group.last_served_at
        counts = ((True, self.group.inside, self.inside), (False, self.group.outside, self.outside))
        for inside, waiting, granted in counts:
            if waiting:
                yield Grant(
                    template=self.name,
                    priority=self.group.priority,
                    inside=inside,
                    waiting=waiting,
                    granted=granted,
                    last_served_at=last_served_at,
                )


def _share_out(served: list[_Served], shares: _Shares, room: _Room) -> None:
    """Give away what is left: first to messages inside, then to uniform ones, then outside; by priority before that."""
    for _, equals in groupby(served, key=lambda one: one.group.priority):
        same = list(equals)
        _pour(same, shares, room, inside=True)
        _pour([one for one in same if one.is_uniform], shares, room, inside=False)
        _pour([one for one in same if not one.is_uniform], shares, room, inside=False)
    for one in served:
        one.held = Held.TEMPLATE_MAX if room.own.get(one.name) == 0 else Held.TOTAL


def _pour(takers: list[_Served], shares: _Shares, room: _Room, *, inside: bool) -> None:
    """Give takers as much as they can use, by weight; single messages that cannot be divided go by turns."""

    def use(one: _Served) -> int:
        rest = one.group.inside - one.inside if inside else one.group.outside - one.outside
        return _within(rest, room.left(one.name))

    def give(one: _Served, count: int) -> None:
        room.take(one.name, count)
        if inside:
            one.inside += count
        else:
            one.outside += count

    while room.total and (thirsty := [one for one in takers if use(one)]):
        total, weights = room.total, sum(shares.weights[one.name] for one in thirsty)
        parts = [total * shares.weights[one.name] // weights for one in thirsty]
        if not any(parts):
            parts = [1] * len(thirsty)
        for one, part in zip(thirsty, parts, strict=True):
            give(one, min(part, use(one)))


def _least(*counts: int | None) -> int | None:
    """The smallest of the counts; None: any number."""
    known = [count for count in counts if count is not None]
    return min(known) if known else None


def _within(count: int, *most: int | None) -> int:
    """The count, or the smallest of its limits; None: no limit."""
    for limit in most:
        if limit is not None and limit < count:
            count = limit
    return count


@lru_cache(maxsize=1024)
def _exact(number: float) -> Fraction:
    """The number as it is written: 0.29, not the nearest that fits the machine."""
    return Fraction(repr(number))
