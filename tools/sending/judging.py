"""Whether every promise was kept. Each check is one sentence; what it found is said beside it.

Nothing is asked of the product that can be known without it: the formula is written anew (formula.py), and what waited
is told from what was asked for and from what the handlers noted (waiting.py).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property

from playing import Check
from support.pacing import LATE_S, per_second, starts_too_many

from matrixsched.ops.evidence import Account
from matrixsched.rules.rates import Rate
from sending.campaigns import Cell, Letter
from sending.formula import Campaign, Kind, Turns, grants, most_between
from sending.records import Records, Window
from sending.waiting import Between, Waiting

PLANNING_S = 1.0
"""A plan does not take longer."""
NOTED_LATER_S = 0.05
"""How much later than it was called a handler may have taken its note, on a machine that is busy."""
STEADY_SHARE = 0.9
STEADY_SPEED_MAX = Rate(12_000, timedelta(minutes=1))
"""The highest speed at which workers must use what they are granted: two cores do four times as much, database
included."""
LOAD_MAX = 1.0
"""How many processes may want to run for each core: where there are more, some wait for others."""
KILL_FELT_S = 5.0
"""For how long after a kill less is sent: leases end, and others take over."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class Run:
    """Everything that is known of a run when it is over."""

    campaigns: Mapping[str, Campaign]
    letters: Mapping[str, Letter]
    speed: Rate
    pool: int
    interval: timedelta
    account: Account
    records: Records
    killed: Mapping[int, float]
    """Processes, with when that was, in seconds since 1970."""
    settled_at: float | None
    """When all messages were before their gates, as far as somebody looked."""
    load: float = 0.0
    """How many processes wanted to run for each core, when it was most."""

    @cached_property
    def starts(self) -> list[float]:
        return sorted(begun for notes in self.account.begun_at.values() for begun, _ in notes)

    @cached_property
    def starts_by_template(self) -> dict[str, list[float]]:
        found: dict[str, list[float]] = {name: [] for name in self.campaigns}
        for id, notes in self.account.begun_at.items():
            found[self.letters[id].template] += [begun for begun, _ in notes]
        return {name: sorted(starts) for name, starts in found.items()}

    @cached_property
    def waiting(self) -> list[Mapping[Cell, Between]]:
        """How many messages waited when each window was planned."""
        waiting = Waiting(self.letters.values(), self.account)
        return [dict(waiting.counts(window.begins.timestamp(), self._surely_by(window))) for window in self.windows]

    def _surely_by(self, window: Window) -> float:
        """What handlers begin later than that was waiting for sure when the window was planned."""
        if not self.is_settled(window):
            return float("inf")
        return max(window.planned_at.timestamp(), window.begins.timestamp() + LATE_S + NOTED_LATER_S)

    @cached_property
    def waiting_kinds(self) -> list[Mapping[Kind, Between]]:
        found = []
        for window, cells in zip(self.windows, self.waiting, strict=True):
            kinds: defaultdict[Kind, Between] = defaultdict(lambda: Between(0, 0))
            for cell, (least, most) in cells.items():
                kind = self.kind(cell, window)
                kinds[kind] = Between(kinds[kind].least + least, kinds[kind].most + most)
            found.append(kinds)
        return found

    @property
    def windows(self) -> list[Window]:
        return self.records.windows

    def window_at(self, moment: float) -> int:
        """The number of the last one that had begun; -1: none."""
        return bisect_right(self._begins, moment) - 1

    @cached_property
    def _begins(self) -> list[float]:
        return [window.begins.timestamp() for window in self.windows]

    def is_settled(self, window: Window) -> bool:
        # What a plan knows was counted before it was written, and that is the time it bears.
        return self.settled_at is not None and window.planned_at.timestamp() >= self.settled_at + PLANNING_S

    def kind(self, cell: Cell, window: Window) -> Kind:
        """What messages are to the plan of a window."""
        return Kind(cell.template, cell.priority, self.is_inside(cell, window))

    def is_inside(self, cell: Cell, window: Window) -> bool:
        return self.campaigns[cell.template].is_inside(cell.zone, window.planned_at)


def judge(run: Run) -> list[Check]:
    return [
        _nothing_lost(run),
        _ends_are_kept(run),
        _only_the_killed_repeat(run),
        _within_limit("the limit on all", run.starts, run.speed, run.pool),
        *_within_maxima(run),
        _planned_once(run),
        _counts_what_waits(run),
        _tells_the_time(run),
        _follows_the_formula(run),
        _within_total(run),
        _used_within_grants(run),
        _starts_within_grants(run),
        _uses_its_grants(run),
    ]


# Messages.


def _nothing_lost(run: Run) -> Check:
    messages, states = run.records.messages, run.records.states
    sent = {id for id, message in messages.items() if message.state == "done"}
    asked = {id: letter.template for id, letter in run.letters.items()}
    unlike = dict(asked.items() ^ {id: message.template for id, message in messages.items()}.items())
    unended = [
        id for id, m in messages.items() if m.state == "expired" and id in asked and not run.letters[id].expires_at
    ]
    faults = {
        "are not as they were asked for": len(unlike),
        "are neither": len(messages) - states["done"] - states["expired"],
        "expired without an end": len(unended),
        "disagree with the handlers' notes": len(sent ^ set(run.account.done)),
        "did not succeed once": sum(messages[id].succeeded != 1 for id in sent),
        "rows are left in queues": sum(run.records.rows_left),
    }
    found = [f"{count:,} {state}" for state, count in sorted(states.items())]
    found += [f"{count:,} {fault}" for fault, count in faults.items() if count]
    promise = f"nothing is lost: all {len(run.letters):,} messages are done or expired"
    return Check(promise, not any(faults.values()), ", ".join(found))


def _ends_are_kept(run: Run) -> Check:
    ends = {id: letter.expires_at.timestamp() for id, letter in run.letters.items() if letter.expires_at is not None}
    starts = {id: max(at for at, _ in run.account.begun_at[id]) for id in ends if id in run.account.begun_at}
    expired = {
        id: message.finished_at.timestamp()
        for id in ends
        if (message := run.records.messages.get(id)) and message.state == "expired" and message.finished_at
    }
    late = [id for id, at in starts.items() if at > ends[id] + NOTED_LATER_S]
    early = [id for id, at in expired.items() if at < ends[id] - NOTED_LATER_S]
    found = f"of {len(ends):,} with an end {len(starts):,} started, {len(late):,} of them after it; "
    found += f"{len(expired):,} expired, {len(early):,} of them before it"
    return Check("nothing starts after its end, and nothing expires before it", not late and not early, found)


def _only_the_killed_repeat(run: Run) -> Check:
    repeated = {id: sorted(notes) for id, notes in run.account.begun_at.items() if len(notes) > 1}
    strays = [id for id, notes in repeated.items() if any(pid not in run.killed for _, pid in notes[:-1])]
    found = f"{len(repeated):,} sent again, {len(strays):,} of them not from a killed worker's hands"
    return Check("sent twice is only what a killed worker had in its hands", not strays, found)


# Limits.


def _within_limit(name: str, starts: Sequence[float], rate: Rate, pool: int) -> Check:
    excess = starts_too_many(starts, rate, pool)
    found = f"the fullest stretch of time was {abs(excess):.1f} starts {'over' if excess > 0 else 'below'} the bound"
    return Check(f"{name}: never above {rate} × (any time + {LATE_S * 1000:.0f} ms) + {pool}", excess <= 0, found)


def _within_maxima(run: Run) -> Iterator[Check]:
    limited = {name: campaign.max_speed for name, campaign in run.campaigns.items() if campaign.max_speed is not None}
    over = {name: starts_too_many(run.starts_by_template[name], rate) for name, rate in limited.items()}
    if over:
        worst = max(over, key=lambda name: over[name])
        yield Check(
            f"no maximum of a template's own is passed ({len(over)} have one)",
            over[worst] <= 0,
            f"{worst} was {abs(over[worst]):.1f} starts {'over' if over[worst] > 0 else 'below'} its bound",
        )


# The plan.


def _planned_once(run: Run) -> Check:
    """Where windows overlap, or are shorter than the interval, more than MaxSendSpeed could be granted."""
    strays = [
        window
        for window in run.windows
        if (window.begins - _EPOCH) % run.interval
        or window.ends - window.begins != run.interval
        or not window.begins <= window.planned_at < window.ends
    ]
    again = len(run.windows) - len({window.begins for window in run.windows})
    left_out = [
        window
        for window, following, known in zip(run.windows, run.windows[1:], run.waiting[1:], strict=False)
        if window.ends < following.begins and any(least for least, _ in known.values())
    ]
    found = f"{len(run.windows)} windows, {len(strays) + again:,} otherwise, {len(left_out):,} followed by none"
    delays = [window.planned_at - window.begins for window in run.windows if run.is_settled(window)]
    if delays:
        found += f"; planned up to {max(delays).total_seconds() * 1000:,.0f} ms after they began"
    promise = "while messages wait every interval is planned, once and within itself"
    return Check(promise, not strays and not again and not left_out, found)


def _counts_what_waits(run: Run) -> Check:
    """What is counted need not be all, but it must be there; and whatever is there must be known of.

    Whether it was counted as far as it mattered is seen by what is granted.
    """
    wrong: Counter[str] = Counter()
    counts = doubts = 0
    for window, waiting in zip(run.windows, run.waiting_kinds, strict=True):
        stored = {grant.kind: grant.waiting for grant in window.grants}
        for kind in stored.keys() | waiting.keys():
            least, most = waiting.get(kind, Between(0, 0))
            counts += kind in stored
            doubts += most - least if run.is_settled(window) else 0
            if not min(least, 1) <= stored.get(kind, 0) <= most:
                wrong[f"{window.begins:%H:%M:%S}"] += 1
    both = sum(map(run.is_settled, run.windows))
    found = f"{counts:,} counts in {len(run.windows)} windows, {both} of which began with all before their gates"
    found += f" ({doubts / max(1, both):,.0f} messages in doubt in each)"
    if wrong:
        found += "; wrong are " + ", ".join(f"{count} at {when}" for when, count in wrong.items())
    return Check("what is counted was waiting, and what was waiting is counted", not wrong, found)


def _tells_the_time(run: Run) -> Check:
    """Whether each plan took the zones for inside in which it was the right time of the day, and no others."""
    wrong = []
    told = 0
    for window, cells in zip(run.windows, run.waiting, strict=True):
        taken = {(grant.kind.template, zone) for grant in window.grants for zone in grant.zones}
        told += len(taken)
        for cell, (least, _) in cells.items():
            was_taken, is_inside = (cell.template, cell.zone) in taken, run.is_inside(cell, window)
            if was_taken != is_inside and (was_taken or least):
                wrong.append(f"{cell.template} in {cell.zone or 'its own zone'} at {window.begins:%H:%M:%S}")
    found = f"{told:,} times that a zone was taken for inside"
    if wrong:
        found += f"; {len(wrong):,} wrong, such as {wrong[0]}"
    return Check("it is the right time of the day where the plan says so, and nowhere else", not wrong, found)


def _follows_the_formula(run: Run) -> Check:
    wrong = []
    count = 0
    for window, expected in zip(run.windows, plans(run), strict=True):
        written = {grant.kind: grant.granted for grant in window.grants}
        count += len(written)
        templates = len({kind.template for kind in expected})
        if window.templates != templates:
            wrong.append(f"at {window.begins:%H:%M:%S} n is {window.templates}, not {templates}")
        for kind in sorted(expected.keys() | written.keys()):
            if written.get(kind, 0) != expected.get(kind, 0):
                place = f"{kind.template}, priority {kind.priority}, {'inside' if kind.inside else 'outside'}"
                wrong.append(
                    f"at {window.begins:%H:%M:%S} {place} has {written.get(kind, 0)}, not {expected.get(kind, 0)}"
                )
    found = f"{count:,} grants in {len(run.windows)} windows"
    if wrong:
        found += f"; {len(wrong):,} differ: {'; '.join(wrong[:3])}"
    return Check("every grant is what the formula makes of what was waiting", not wrong, found)


def plans(run: Run) -> Iterator[Mapping[Kind, int]]:
    """What each window should have granted.

    Where the plan has counted fewer than were waiting for sure, these are taken: it may stop counting only where more
    would change nothing.
    """
    turns = Turns()
    for window, known in zip(run.windows, run.waiting_kinds, strict=True):
        stored = {grant.kind: grant.waiting for grant in window.grants}
        counts = {kind: max(stored.get(kind, 0), known.get(kind, Between(0, 0)).least) for kind in {*stored, *known}}
        waiting = {kind: count for kind, count in counts.items() if count}
        order = turns.order({kind.group for kind in waiting})
        yield grants(
            waiting,
            run.campaigns,
            order,
            max_to_send=most_between(run.speed, window.begins, window.ends),
            template_max={
                name: most_between(campaign.max_speed, window.begins, window.ends)
                for name, campaign in run.campaigns.items()
                if campaign.max_speed is not None
            },
        )
        # By what it did, not by what it should have done: one mistake is not to be counted in every later window.
        turns.note(order, {grant.kind.group for grant in window.grants if grant.granted})


def _within_total(run: Run) -> Check:
    allowed = [most_between(run.speed, window.begins, window.ends) for window in run.windows]
    over = [
        window
        for window, total in zip(run.windows, allowed, strict=True)
        if window.granted > total or window.max_to_send != total
    ]
    found = f"{sum(window.granted for window in run.windows):,} granted of {sum(allowed):,}"
    return Check("no window grants more than MaxSendSpeed × interval", not over, found)


# What is made of it.


def _used_within_grants(run: Run) -> Check:
    made = [grant for window in run.windows for grant in window.grants]
    over = [grant for grant in made if grant.used > grant.granted]
    found = f"{sum(grant.used for grant in made):,} used of {sum(grant.granted for grant in made):,}"
    return Check("no grant is overdrawn", not over, found)


def _starts_within_grants(run: Run) -> Check:
    """By template, priority and time of the day: what is inside must not go on the grants of what is outside."""
    starts = sorted((begun, run.letters[id].cell) for id, notes in run.account.begun_at.items() for begun, _ in notes)
    spending = Spending(run)
    for start, cell in starts:
        spending.charge(start, cell)
    found = f"{len(starts):,} starts"
    if spending.as_outside:
        found += f", {spending.as_outside:,} inside that went as outside: their zones came after the plan"
    if spending.beyond:
        names = sorted(spending.beyond.items())
        found += "; too many of " + ", ".join(f"{name} ({count:,})" for name, count in names)
    return Check("nothing starts in a window beyond what its kind was granted", not spending.beyond, found)


class Spending:
    """Grants, charged with starts in the order of time."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._left = [{grant.kind: grant.granted for grant in window.grants} for window in run.windows]
        self._seen = [
            {(grant.kind.template, zone) for grant in window.grants for zone in grant.zones} for window in run.windows
        ]
        self.as_outside = 0
        self.beyond: Counter[str] = Counter()
        """Starts that no window had a grant left for, by template."""

    def charge(self, start: float, cell: Cell) -> None:
        for number in self._windows(start):
            kind = self._run.kind(cell, self._run.windows[number])
            # A zone that had no messages there yet counts as outside until the next plan.
            is_new = kind.inside and (cell.template, cell.zone) not in self._seen[number]
            charged = Kind(*kind.group, False) if is_new else kind
            if self._left[number].get(charged, 0) > 0:
                self._left[number][charged] -= 1
                self.as_outside += is_new
                return
        self.beyond[cell.template] += 1

    def _windows(self, start: float) -> list[int]:
        """Those it may be of. The last one of a window may start a moment after its end: it was taken before."""
        last = self._run.window_at(start)
        numbers = range(max(0, last - 1), last + 1)
        return [n for n in numbers if start - self._run.windows[n].ends.timestamp() <= LATE_S + NOTED_LATER_S]


def _uses_its_grants(run: Run) -> Check:
    promise = f"at least {STEADY_SHARE:.0%} of what is granted is sent, away from start, end and kills"
    shares = [share_sent(run, window) for window in run.windows if _is_steady(run, window)]
    if not shares:
        return Check(promise, None, "no window was away from all three, and so nothing to judge")
    found = (
        f"{min(shares):.0%} to {max(shares):.0%} in {len(shares)} windows, {sum(shares) / len(shares):.0%} on average"
    )
    if per_second(run.speed) > per_second(STEADY_SPEED_MAX):
        return Check(promise, None, f"{found}; a figure only, for above {STEADY_SPEED_MAX} the machine decides")
    if run.load > LOAD_MAX:
        return Check(promise, None, f"{found}; a figure only, for {run.load:.1f} processes wanted to run for each core")
    return Check(promise, min(shares) >= STEADY_SHARE, found)


def share_sent(run: Run, window: Window) -> float:
    """Which part was started of what was granted, as far as the limit leaves time for it after the plan."""
    time_left = (window.ends - window.planned_at).total_seconds()
    started = bisect_left(run.starts, window.ends.timestamp()) - bisect_left(run.starts, window.begins.timestamp())
    return started / min(window.granted, per_second(run.speed) * time_left)


def _is_steady(run: Run, window: Window) -> bool:
    begins, ends = window.begins.timestamp(), window.ends.timestamp()
    is_disturbed = any(begins - KILL_FELT_S <= at < ends for at in run.killed.values())
    return run.is_settled(window) and not is_disturbed and 2 * window.granted >= window.max_to_send
