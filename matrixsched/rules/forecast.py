"""A forecast: how the messages that wait now will go out over the next hours, if nothing else comes.

It plays the quota and the limits forward, window after window, with counts instead of messages (`rules/play.py`). Far
ahead several windows are taken as one, more and more of them: so a finish does not depend on how far is foreseen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from matrixsched.rules.lanes import GLOBAL
from matrixsched.rules.limits import Limit
from matrixsched.rules.lots import Lot, Together
from matrixsched.rules.play import HOUR, Play, PresentWindow
from matrixsched.rules.quota import Held, QuotaSettings, most, window_at
from matrixsched.rules.templates import Template

HOURS_MAX = 24 * 14
WORK_MAX = 50_000
"""So many windows, times the sets of messages that are told apart, are played one by one, …"""
EXACT_MIN = 100
"""… but so many at the least. Later ones are taken together: a finish is told to a hundredth of the time, about."""
NEVER_COUNTED = ("retries", "later runs of what repeats", "what is scheduled from now on")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """How it will go with the messages of one template."""

    template: str
    waiting: int
    """All that are not finished, due or not."""
    inside: int
    """Of those that are due: how many it is the right time of the day for."""
    planned: int
    """How many go in the rest of the present window."""
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
    is_planned: bool
    """Whether the present window was planned before: then what is left of it counts."""
    templates: int
    """How many of them have messages in it."""
    max_to_send: int | None
    """What the global limit allows in all of it."""
    others: int
    """How many actions without a template were counted, because they share limits."""
    outlooks: tuple[Outlook, ...]
    """By name of the template."""
    not_counted: tuple[str, ...] = NEVER_COUNTED
    """What would make it come otherwise."""


def foresee(
    stock: Iterable[Lot],
    templates: Iterable[Template],
    settings: QuotaSettings,
    limits: Mapping[str, Limit],
    *,
    now: datetime,
    hours: int,
    window: PresentWindow | None = None,
    together: Mapping[str, Together] | None = None,
    not_counted: Iterable[str] = (),
) -> Forecast:
    """Play `hours` forward from what waits now.

    `limits` by name: all that the stock is under. `together`: what stands for several keys there.
    """
    if window is None:
        begins, ends = window_at(now, settings.interval, None)
        window = PresentWindow(at=now, begins_at=begins, ends_at=ends)
    since = window.begins_at + (now - window.begins_at) // HOUR * HOUR
    until = max(since + hours * HOUR, window.ends_at)
    play = Play(
        stock,
        {template.name: template for template in templates},
        settings,
        limits,
        together or {},
        now=now,
        since=since,
        hours=hours,
    )
    play.begin(window)
    _play_on(play, window.ends_at, until, settings.interval)
    max_to_send = _most(limits.get(GLOBAL), window)
    return Forecast(
        at=now,
        since=since,
        hours=hours,
        begins_at=window.begins_at,
        ends_at=window.ends_at,
        is_planned=window.left is not None,
        templates=play.templates,
        max_to_send=max_to_send,
        others=play.others.waiting,
        outlooks=tuple(
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
            for name, sender in sorted(play.senders.items())
        ),
        not_counted=(*NEVER_COUNTED, *not_counted),
    )


def _play_on(play: Play, moment: datetime, until: datetime, interval: timedelta) -> None:
    """From one window to the next, and over the time in which nothing is due."""
    began, exact = moment, max(EXACT_MIN, WORK_MAX // (play.size + 1))
    while moment < until:
        play.reach(moment)
        if not play.is_anything_due:
            moment = min(play.next_due, until)
            continue
        begins, ends = window_at(moment, interval, None)
        windows = max(1, (begins - began) // interval // exact) if moment == begins else 1
        ends = min(ends + (windows - 1) * interval, until)
        play.step(moment, ends, begins, windows=windows)
        moment = ends
    play.reach(until)


def _most(limit: Limit | None, window: PresentWindow) -> int | None:
    if limit is None:
        return None
    return most(limit.rate, window.begins_at, window.ends_at, slow_until=limit.slow_until, slow_rate=limit.slow_rate)
