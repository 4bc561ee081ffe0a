"""Whether every promise was kept. Each check is one sentence; what it found is said beside it."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from support.pacing import LATE_S, starts_too_many

from matrixsched.ops.evidence import Account
from matrixsched.rules.quota import Group, Plan, QuotaSettings, most, plan
from matrixsched.rules.rates import Rate
from matrixsched.rules.templates import Template
from sending.records import Records, Window

NOTED_LATER_S = 0.05
"""How much later than it was called a handler may have taken its note, on a machine that is busy."""


@dataclass(frozen=True, slots=True)
class Check:
    promise: str
    kept: bool
    found: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Everything that is known of a run when it is over."""

    settings: QuotaSettings
    templates: Mapping[str, Template]
    """As they were set, before anything was served."""
    speed: Rate
    pool: int
    messages: int
    account: Account
    records: Records
    killed: Collection[int]
    """Processes."""

    @property
    def starts(self) -> list[float]:
        return sorted(begun for notes in self.account.begun_at.values() for begun, _ in notes)

    def starts_by_template(self) -> dict[str, list[float]]:
        found: dict[str, list[float]] = {name: [] for name in self.templates}
        for id, notes in self.account.begun_at.items():
            found[self.records.messages[id].template] += [begun for begun, _ in notes]
        return {name: sorted(starts) for name, starts in found.items()}


def judge(run: Run) -> list[Check]:
    return [
        _nothing_lost(run),
        _only_the_killed_repeat(run),
        _within_limit("the limit on all", run.starts, run.speed, run.pool),
        *_within_maxima(run),
        _follows_the_formula(run),
        _within_total(run),
        _used_within_grants(run),
        _starts_within_grants(run),
    ]


def _nothing_lost(run: Run) -> Check:
    states = run.records.states
    sent = {id for id, message in run.records.messages.items() if message.state == "done"}
    well = all(run.records.messages[id].succeeded == 1 for id in sent)
    noted = sent == set(run.account.done)
    kept = (
        states["done"] + states["expired"] == run.messages == len(run.records.messages)
        and well
        and noted
        and not any(run.records.rows_left)
    )
    found = ", ".join(f"{count:,} {state}" for state, count in sorted(states.items()))
    if not noted:
        found += f"; {len(sent ^ set(run.account.done)):,} of them disagree with the handlers' notes"
    if any(run.records.rows_left):
        found += f"; {sum(run.records.rows_left):,} rows left in queues"
    return Check(f"nothing is lost: all {run.messages:,} messages are done or expired", kept, found)


def _only_the_killed_repeat(run: Run) -> Check:
    repeated = {id: sorted(notes) for id, notes in run.account.begun_at.items() if len(notes) > 1}
    strays = [id for id, notes in repeated.items() if any(pid not in run.killed for _, pid in notes[:-1])]
    found = f"{len(repeated):,} sent again, {len(strays):,} of them not from a killed worker's hands"
    return Check("sent twice is only what a killed worker had in its hands", not strays, found)


def _within_limit(name: str, starts: Sequence[float], rate: Rate, pool: int) -> Check:
    excess = starts_too_many(starts, rate, pool)
    found = f"the fullest stretch of time was {abs(excess):.1f} starts {'over' if excess > 0 else 'below'} the bound"
    return Check(f"{name}: never above {rate} × (any time + {LATE_S * 1000:.0f} ms) + {pool}", excess <= 0, found)


def _within_maxima(run: Run) -> Iterator[Check]:
    by_template = run.starts_by_template()
    limited = {name: template.max_speed for name, template in run.templates.items() if template.max_speed is not None}
    over = {name: starts_too_many(by_template[name], rate) for name, rate in limited.items()}
    if over:
        worst = max(over, key=lambda name: over[name])
        yield Check(
            f"no maximum of a template's own is passed ({len(over)} have one)",
            over[worst] <= 0,
            f"{worst} was {abs(over[worst]):.1f} starts {'over' if over[worst] > 0 else 'below'} its bound",
        )


def _follows_the_formula(run: Run) -> Check:
    wrong = []
    grants = 0
    for window, expected in zip(run.records.windows, plans(run), strict=True):
        planned = {(grant.template, grant.priority, grant.inside): grant.granted for grant in expected.grants}
        written = {
            (spent.grant.template, spent.grant.priority, spent.grant.inside): spent.grant.granted
            for spent in window.grants
        }
        grants += len(written)
        if planned != written or expected.templates != window.templates:
            wrong.append(f"{window.begins:%H:%M:%S}")
    found = f"{grants:,} grants in {len(run.records.windows)} windows"
    return Check(
        "every grant is what the formula makes of what was waiting",
        not wrong,
        f"{found}; others at {', '.join(wrong)}" if wrong else found,
    )


def plans(run: Run) -> Iterator[Plan]:
    """Each window, planned again from what waited when it was planned."""
    templates = dict(run.templates)
    last_served: dict[tuple[str, int], datetime | None] = {}
    for window in run.records.windows:
        made = plan(
            list(_groups(window, templates, last_served)),
            run.settings,
            max_to_send=most(run.speed, window.begins, window.ends),
            template_max={
                name: most(template.max_speed, window.begins, window.ends) for name, template in templates.items()
            },
            now=window.planned_at,
        )
        yield made
        last_served = {(grant.template, grant.priority): grant.last_served_at for grant in made.grants}
        templates |= {name: replace(templates[name], last_served_at=at) for name, at in made.last_served.items()}


def _groups(
    window: Window, templates: Mapping[str, Template], last_served: Mapping[tuple[str, int], datetime | None]
) -> Iterator[Group]:
    """What waited when the window was planned; `last_served` is what the window before knew."""
    waiting: dict[tuple[str, int], dict[bool, int]] = defaultdict(dict)
    for spent in window.grants:
        waiting[spent.grant.template, spent.grant.priority][spent.grant.inside] = spent.grant.waiting
    for (name, priority), of in waiting.items():
        yield Group(
            template=templates[name],
            priority=priority,
            inside=of.get(True, 0),
            outside=of.get(False, 0),
            last_served_at=last_served.get((name, priority), templates[name].last_served_at),
        )


def _within_total(run: Run) -> Check:
    allowed = [most(run.speed, window.begins, window.ends) or 0 for window in run.records.windows]
    over = [
        window
        for window, total in zip(run.records.windows, allowed, strict=True)
        if window.granted > total or window.max_to_send != total
    ]
    found = f"{sum(window.granted for window in run.records.windows):,} granted of {sum(allowed):,}"
    return Check("no window grants more than MaxSendSpeed × interval", not over, found)


def _used_within_grants(run: Run) -> Check:
    spent = [spent for window in run.records.windows for spent in window.grants]
    over = [one for one in spent if one.used > one.grant.granted]
    found = f"{sum(one.used for one in spent):,} used of {sum(one.grant.granted for one in spent):,}"
    return Check("no grant is overdrawn", not over, found)


def _starts_within_grants(run: Run) -> Check:
    windows, by_template = run.records.windows, run.starts_by_template()
    beyond = {
        name: starts_beyond(starts, windows, [window.granted_to(name) for window in windows])
        for name, starts in by_template.items()
    }
    over = {name: count for name, count in beyond.items() if count}
    found = f"{sum(map(len, by_template.values())):,} starts"
    if over:
        found += "; too many of " + ", ".join(f"{name} ({count})" for name, count in sorted(over.items()))
    return Check("no template starts more in a window than it was granted", not over, found)


def starts_beyond(starts: Sequence[float], windows: Sequence[Window], granted: Sequence[int]) -> int:
    """How many starts of a template no window has a grant left for.

    A start a moment after the end of a window may be the last one of it: it was taken before the end.
    """
    begins = [window.begins.timestamp() for window in windows]
    left = list(granted)
    beyond = 0
    for start in starts:
        own = bisect_right(begins, start) - 1
        border = [own - 1] if own > 0 and start - windows[own - 1].ends.timestamp() <= LATE_S + NOTED_LATER_S else []
        late = start - windows[own].ends.timestamp() if own >= 0 else float("inf")
        ours = [own] if late <= LATE_S + NOTED_LATER_S else []
        taken = next((number for number in [*border, *ours] if left[number] > 0), None)
        if taken is None:
            beyond += 1
        else:
            left[taken] -= 1
    return beyond
