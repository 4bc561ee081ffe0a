"""The formulae of the model; pure. Times are seconds, rates are per second."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import exp, inf, sqrt

LADDER_MAX = 60
"""Rests that are doubled so often have long reached their longest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Looking:
    """Workers that look for what comes due in the shards of an installation, and visit those where they find it."""

    workers: int
    shards: int
    rate: float
    """Actions that come due, by chance."""
    look_s: float
    """What a look takes, from the question to the answer."""
    answer_s: float
    """How long after the database has told the time its answer is there."""
    early_s: float
    """So much too early may a worker wake, since it knows the database's time no better."""
    visit_s: float
    """What follows a look that has found something."""
    rest_max: float
    jitter_s: float
    overdue_rest_s: float
    hold_s: float
    """How long a worker holds back that has looked in vain twice, on average."""


@dataclass(frozen=True, slots=True)
class Looks:
    """What that comes to."""

    visits: float
    """A second; each is a look that found something."""
    fruitless: float
    batch: float
    """Actions that a visit finds."""
    claim_s: float
    """From the instant at which an action is due until its shard is visited, on average."""

    @property
    def all(self) -> float:
        return self.visits + self.fruitless

    @property
    def found_share(self) -> float:
        return self.visits / self.all if self.all else 0.0


def looks_of(one: Looking) -> Looks:
    """How often a fleet looks and finds.

    A worker that finds nothing is told when the next action of all is due, and looks again then; so do all others that
    are free: of those one finds it. Who hears of it too late looks at once, then after rests that are doubled. Who has
    looked in vain twice holds back.
    """
    if one.rate <= 0:
        return Looks(0.0, one.workers / (one.look_s + one.rest_max), 0.0, 0.0)
    visits = visits_per_s(one)
    least, most = visits, visits + one.workers / one.look_s
    for _ in range(80):
        middle = (least + most) / 2
        if middle * _cycle_s(one, visits, middle) < one.workers:
            least = middle
        else:
            most = middle
    return Looks(visits, least - visits, one.rate / visits, claim_s(one, visits, least))


def rate_of_looks(one: Looking, looks: float) -> float:
    """Actions a second that come due one by one, for which a fleet makes so many looks."""
    least, most = 0.0, looks
    for _ in range(60):
        middle = (least + most) / 2
        if looks_of(replace(one, rate=middle)).all < looks:
            least = middle
        else:
            most = middle
    return least


def visits_per_s(one: Looking) -> float:
    """As many as there are shards that have become ready, or workers that can visit them."""
    as_ready = one.shards / (_held_s(one) + _until_ready_s(one) + _reaction_s(one))
    as_able = one.workers / (one.look_s + one.visit_s)
    return min(as_ready, as_able)


def claim_s(one: Looking, visits: float, looks: float) -> float:
    """From the instant at which an action is due until a worker has it, on average.

    The first that comes due in a shard waits for the shard's turn; those after it for the rest of that, or of a visit.
    """
    turn_s = max(_reaction_s(one), one.shards / visits - _held_s(one) - _until_ready_s(one))
    each = one.rate / one.shards
    begun_by_one = exp(-each * _held_s(one))
    """The share of visits before which the shard was empty."""
    waited_s = begun_by_one * turn_s + (1 - begun_by_one) * (turn_s + _held_s(one) / 2) + each * turn_s**2 / 2
    return waited_s / (1 + each * turn_s) + one.answer_s + _until_somebody_is_free_s(one, visits, looks)


def _until_somebody_is_free_s(one: Looking, visits: float, looks: float) -> float:
    """How long all wait who are at work or hold back, on average: as long as a visit takes where one is at work; where
    many are, one of them is free sooner, by the square root of how many, as in queues before just enough servers."""
    if one.workers == 1 or looks <= visits:
        return 0.0
    waiting = (looks - visits - held_back_share(visits / looks) * looks) * until_due_s(one)
    at_work = visits * (one.look_s + one.visit_s)
    return exp(-waiting) * (one.look_s + one.visit_s) / sqrt(max(1.0, at_work))


def _held_s(one: Looking) -> float:
    return one.answer_s + one.visit_s


def _until_ready_s(one: Looking) -> float:
    """From the end of a visit until something is due in the shard, which may have come while it was held."""
    each = one.rate / one.shards
    return exp(-each * _held_s(one)) / each


def _reaction_s(one: Looking) -> float:
    """From the instant at which something is due until the look of a free worker is there."""
    return one.jitter_s + (one.look_s - one.answer_s) / 2


def _cycle_s(one: Looking, visits: float, looks: float) -> float:
    """How long a worker takes from one look to the next, on average."""
    found = min(1.0, visits / looks)
    ahead = exp(-one.rate * (one.answer_s + one.early_s))
    """The chance that the next action is not yet due when the worker is told of it."""
    late = (1 - found) * (1 - ahead)
    ladder_s = sum(late**times * (1 - late) * overdue_rest_s(one, times) for times in range(1, LADDER_MAX))
    held_back = held_back_share(found)
    rest_s = (1 - found) * ahead * (until_due_s(one) + one.jitter_s) + ladder_s
    if one.workers == 1 or found == 1:
        return one.look_s + found * one.visit_s + rest_s
    usual = 1 - held_back / (1 - found)
    return one.look_s + found * one.visit_s + usual * rest_s + held_back * _held_back_s(one)


def held_back_share(found: float) -> float:
    """Of all looks, after which the worker holds back: the second in vain of those in a row, the fourth, …"""
    return (1 - found) ** 2 / (2 - found)


def _held_back_s(one: Looking) -> float:
    """How long a worker holds back, and until the next action of all is due, if that is later."""
    if one.hold_s == 0:
        return until_due_s(one)
    # Anything between nothing and twice as long; until something is due it takes as long then as at any other time.
    before_due = (1 - exp(-one.rate * 2 * one.hold_s)) / (one.rate * 2 * one.hold_s)
    return one.hold_s + before_due * until_due_s(one)


def hold_s(look_cpu_s: float, *, workers: int, vain_share: float, longest_s: float) -> float:
    """So long that looks in vain of all workers together take their share, or half of the longest."""
    return min(2 * look_cpu_s * workers / vain_share, longest_s / 2) if workers > 1 else 0.0


def until_due_s(one: Looking) -> float:
    """Until the next action of all is due, at most the longest rest."""
    return (1 - exp(-one.rate * one.rest_max)) / one.rate


def overdue_rest_s(one: Looking, times: int) -> float:
    """The rest of a worker that came too late so many times in a row."""
    return 0.0 if times == 1 else min(one.rest_max, one.overdue_rest_s * 2 ** (times - 2))


def same_shard_chance(looks: float, window_s: float) -> float:
    """That another look wants the shard that this one wants: all want the one that was served longest ago."""
    return 1 - exp(-looks * window_s)


def within(most: float, used: Callable[[float], float], first: float) -> float:
    """What a look takes where looks use no more than there is of something; at least `first`. The more it takes, the
    fewer looks there are."""
    if used(first) <= most:
        return first
    least, longest = first, first * 2
    while used(longest) > most and longest < 1e6:
        longest *= 2
    for _ in range(60):
        middle = (least + longest) / 2
        if used(middle) > most:
            least = middle
        else:
            longest = middle
    return longest


def page_images_bytes_s(*, pages: float, touched: float, every_s: float, page_bytes: float) -> float:
    """WAL for whole pages: of each that is touched at random after a checkpoint once, until the next."""
    distinct = pages * (1 - exp(-touched * every_s / pages)) if pages else 0.0
    return distinct * page_bytes / every_s


def pass_s(*, table_bytes: float, index_share: float, dirty_pages: float, bytes_s: float, page_bytes: float) -> float:
    """What a vacuum takes that nothing holds back: all indexes, and the pages with dead rows."""
    return (table_bytes * index_share + dirty_pages * page_bytes) / bytes_s


def throttled_bytes_s(*, cost_limit: float, delay_s: float, dirty_cost: float, page_bytes: float) -> float:
    """What a vacuum cleans when it has to rest after so many points."""
    return cost_limit / dirty_cost / delay_s * page_bytes


def pages_hit(pages: float, rows: float) -> float:
    """How many pages so many rows in random places lie in."""
    return pages * (1 - exp(-rows / pages)) if pages else 0.0


def drain_s(backlog: float, capacity: float, rate: float) -> float:
    return backlog / (capacity - rate) if capacity > rate else inf
