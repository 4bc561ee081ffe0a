"""What must be true of the gates after every commit, whatever its faults; a function each, which yields its objections.

The product decides at the commit that claims: what was claimed before a limit was closed, slowed down or removed, or a
template paused, still starts, in its slot; what is claimed after that commit obeys it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from fractions import Fraction
from math import floor

from matrixsched.rules.action import Attempt
from matrixsched.rules.lanes import GLOBAL, Lane, handler_limit, is_gated, lane_of, template_limit
from matrixsched.rules.quota import Spare
from matrixsched.rules.semaphore import semaphore_of
from matrixsched.store.values import Claimed
from simulation.commit_checkers import Commit, Objections, name_of
from simulation.database import microseconds, moment
from simulation.faults import Noted
from simulation.gate_notes import GateState, Grant, Kind, Window, gated, lanes_asked, notes_of

LATE_US = 50_000
"""How late a slot may be used."""
SPREAD_US = 25_000
"""How old a slot may be when it is taken, if none are kept."""
_OPENING = frozenset(
    {"set_limit", "remove_limit", "resume_limit", "put_template", "pause_template", "resume_template"},
)


# Limits.


def no_way_round_gates(commit: Commit) -> Objections:
    """What is under a limit or of a template is claimed by the claim that passes gates, and by no other."""
    if not isinstance(commit.answer, Claimed):
        return
    before = notes_of(commit.world).before
    for attempt in commit.answer.attempts:
        if semaphore_of(attempt.handler) is not None:
            continue  # events pass no gate
        lane = before.lanes.get(str(attempt.claim.guid))
        if lane is not None:
            yield f"{name_of(attempt)} waits in {lane}"
        for name in (GLOBAL, handler_limit(attempt.handler)):
            pace = before.pace(name)
            if pace is not None and pace.at(commit.now) is not None:
                yield f"{name_of(attempt)} is under {name}"


def closed(commit: Commit) -> Objections:
    """Nothing is claimed under a limit that was told to let nothing go."""
    before = notes_of(commit.world).before
    for attempt, lane in gated(commit):
        for name in lane.limits:
            pace = before.pace(name)
            if pace is not None and pace.at(commit.now) == 0:
                yield f"{name_of(attempt)}, but {name} is closed until {moment(pace.slow_until or 0)}"


def slots_are_taken(commit: Commit) -> Objections:
    """Whoever goes takes a slot of every limit it is under, one period long, which nobody had before."""
    notes = notes_of(commit.world)
    for name, count in Counter(name for _, lane in gated(commit) for name in lane.limits).items():
        pace, row = notes.before.pace(name), notes.after.limits.get(name)
        if pace is None or pace.rate is None or pace.is_slowed(commit.now):
            continue
        period_ns = 1000 / pace.rate
        kept_ns = max((max(1, pace.pool) - 1) * period_ns, SPREAD_US * 1000)
        earlier = notes.before.limits.get(name)
        first_ns = max(0 if earlier is None else earlier.next_slot_ns, commit.now * 1000 - kept_ns)
        if row is None or row.next_slot_ns < first_ns + count * period_ns - 1000:
            yield f"{count} went under {name}, whose next slot is {row and row.next_slot_ns} after {first_ns:.0f}"


def told_is_told(commit: Commit) -> Objections:
    """Being told to slow down never shortens or weakens what was told before, and is written as it was told."""
    if commit.transition.name != "slow_down" or commit.answer is None:
        return
    name, until = commit.transition.arguments  # type: ignore[attr-defined]
    notes = notes_of(commit.world)
    before, after = notes.before.pace(name), notes.after.pace(name)
    ends_at = _ends_at(until, commit.now)
    if after is None or after.slow_until is None or after.slow_until < ends_at:
        yield f"{name} was told to slow down until {moment(ends_at)}, but is {after}"
    elif before is not None and before.is_slowed(commit.now):
        was, is_now = before.at(commit.now), after.at(commit.now)
        if after.slow_until < (before.slow_until or 0) or (was is not None and (is_now is None or is_now > was)):
            yield f"{name} was {before}, and is {after}"


def set_as_asked(commit: Commit) -> Objections:
    """A limit that is set has the rate and the pool that were asked for."""
    if commit.transition.name != "set_limit" or not isinstance(commit.transition, Noted):
        return
    name, rate = commit.transition.arguments
    row = notes_of(commit.world).after.limits.get(name)
    wanted = (None, None) if rate is None else (rate.requests, rate.per // timedelta(microseconds=1))
    if row is None or (row.requests, row.per_us, row.pool) != (*wanted, commit.transition.options["pool"]):
        yield f"{name} was set to {rate}, but is {row}"


def paused_as_asked(commit: Commit) -> Objections:
    """A template that is paused is so until the end that was asked for; one that is resumed is not."""
    if commit.transition.name not in ("pause_template", "resume_template") or not commit.answer:
        return
    if not isinstance(commit.transition, Noted):
        return
    name, *until = commit.transition.arguments
    template = notes_of(commit.world).after.templates[name]
    ends_at = _ends_at(until[0], commit.now) if until and until[0] is not None else None
    wanted = (commit.now if until else None, ends_at)
    if (template.paused_at, template.paused_until) != wanted:
        yield f"{name} was to be paused at and until {wanted}, but is {template}"


def _ends_at(until: datetime | timedelta, now: int) -> int:
    return microseconds(until) if isinstance(until, datetime) else now + until // timedelta(microseconds=1)


def opens_at_once(commit: Commit) -> Objections:
    """When a limit or a template is changed, every lane that waits is worth a look at once."""
    if commit.transition.name not in _OPENING:
        return
    for lane, ready_at in notes_of(commit.world).after.listed.items():
        if ready_at > commit.now:
            yield f"{lane} is put off until {moment(ready_at)}"


def gated_claim_is_fenced(commit: Commit) -> Objections:
    """Whoever claims what passes gates holds the lock of its shard under the guid that claims."""
    claims = [attempt.claim for attempt, _ in gated(commit)]
    locked = {(lock.shard, lock.guid) for lock in commit.world.database.locked()} if claims else set()
    for claim in claims:
        if (claim.shard, str(claim.claimed_by)) not in locked:
            yield f"shard {claim.shard} is not locked under {claim.claimed_by}"


# Order.


def oldest_first(commit: Commit) -> Objections:
    """Inside a shard and a lane, what was due first goes first."""
    if not any(gated(commit)):
        return
    shard = commit.transition.arguments[0]  # type: ignore[attr-defined]
    taken = {str(attempt.claim.guid): attempt for attempt, _ in gated(commit)}
    notes = notes_of(commit.world)
    left = {row.guid for row in notes.after.rows}
    for lane in lanes_asked(commit):
        rows = [row for row in notes.before.rows_of(lane, shard) if row.may_go(commit.now)]
        latest = max((row.due for row in rows if row.guid in taken), default=None)
        for row in rows:
            if latest is not None and row.due < latest and row.guid not in taken and row.guid in left:
                still = next(one for one in notes.after.rows if one.guid == row.guid)
                if still.lane == lane and still.due == row.due:
                    yield f"{row.id} in {lane} is due since {moment(row.due)}, but later ones went"


def important_first(commit: Commit) -> Objections:
    """Inside a shard nothing goes while something more important waits that needs to pass no other gates."""
    if not any(gated(commit)):
        return
    shard, after = commit.transition.arguments[0], notes_of(commit.world).after  # type: ignore[attr-defined]
    waiting = {
        name: lane
        for name, lane in lanes_asked(commit).items()
        if lane.template is None
        and any(row.may_go(commit.now) and row.claimed_by is None for row in after.rows_of(name, shard))
    }
    for attempt, lane in gated(commit):
        for name, other in waiting.items():
            if other.priority < lane.priority and set(_in_force(other, after)) <= set(lane.limits):
                yield f"{name_of(attempt)} of {lane.name} goes while {name} waits"


def _in_force(lane: Lane, state: GateState) -> Iterator[str]:
    return (name for name in lane.limits if state.pace(name) is not None)


# Templates.


def paused(commit: Commit) -> Objections:
    """Nothing is claimed of a template that is paused, or not there."""
    templates = notes_of(commit.world).before.templates
    for attempt, lane in gated(commit):
        if lane.template is None:
            continue
        template = templates.get(lane.template)
        if template is None or template.is_paused(commit.now):
            yield f"{name_of(attempt)} is of {template or lane.template}"


def in_its_window(commit: Commit) -> Objections:
    """What is of a template is claimed in a window that is planned, and starts before its end."""
    for attempt, lane in gated(commit):
        if lane.template is None:
            continue
        window = notes_of(commit.world).before.window_at(commit.now)
        if window is None:
            yield f"{name_of(attempt)} at {moment(commit.now)}, for which no window is planned"
        elif attempt.slot is None or microseconds(attempt.slot.starts_at) >= window.ends_at:
            yield f"{name_of(attempt)} starts at {attempt.slot}, after its window"


def quota_is_counted(commit: Commit) -> Objections:
    """What a window grants is used by those that are claimed, one by one, and never more than granted."""
    notes = notes_of(commit.world)
    claimed = Counter(_kind(attempt, lane, commit, notes.before) for attempt, lane in gated(commit) if lane.template)
    for kind, grant in notes.after.grants.items():
        was = notes.before.grants.get(kind)
        used = grant.used - (0 if was is None else was.used)
        if used != claimed.pop(kind, 0) or not 0 <= grant.used <= grant.granted:
            yield f"{kind} was {was}, and is {grant}"
    for kind in claimed:
        yield f"{claimed[kind]} of {kind} were claimed, of which nothing was granted"


def _kind(attempt: Attempt, lane: Lane, commit: Commit, state: GateState) -> Kind | None:
    window = state.window_at(commit.now)
    if window is None or lane.template is None:
        return None
    zones = {
        zone
        for kind, grant in state.grants.items()
        if kind.begins_at == window.begins_at and kind.template == lane.template and kind.inside
        for zone in _zones(grant)
    }
    return Kind(window.begins_at, lane.template, lane.priority, (lane.zone or "") in zones)


def _zones(grant: Grant) -> list[str]:
    return [zone.strip('" ') for zone in grant.zones.strip("[]").split(",")] if grant.zones != "[]" else []


# Plans.


def planned_once(commit: Commit) -> Objections:
    """A window holds the moment at which it is planned, overlaps no other, and is never planned again."""
    notes = notes_of(commit.world)
    for begins_at, window in notes.after.windows.items():
        was = notes.before.windows.get(begins_at)
        if was is not None and was != window:
            yield f"{was} became {window}"
        if was is None and not window.begins_at <= commit.now < window.ends_at:
            yield f"{window} does not hold {moment(commit.now)}"
        for other in notes.after.windows.values():
            if other.begins_at < begins_at < other.ends_at:
                yield f"{window} begins inside {other}"
    for kind, grant in notes.after.grants.items():
        was_granted = notes.before.grants.get(kind)
        if kind.begins_at in notes.before.windows and (was_granted and was_granted[:3]) != grant[:3]:
            yield f"{kind} was granted {was_granted}, and later {grant}"


def _planned(commit: Commit) -> Iterator[tuple[Window, dict[Kind, Grant]]]:
    """The window that this commit planned."""
    notes = notes_of(commit.world)
    for begins_at, window in notes.after.windows.items():
        if begins_at not in notes.before.windows:
            yield window, {kind: grant for kind, grant in notes.after.grants.items() if kind.begins_at == begins_at}


def within_the_room(commit: Commit) -> Objections:
    """A window grants no more than the limits of everything and of the template let go in it."""
    before = notes_of(commit.world).before
    for window, grants in _planned(commit):
        rooms = {name: _room(before, name, window) for name in (GLOBAL, *map(template_limit, before.templates))}
        total = sum(grant.granted for grant in grants.values())
        if (room := rooms[GLOBAL]) is not None and (window.max_to_send is None or window.max_to_send > room):
            yield f"{window}, but there is room for {room}"
        if window.max_to_send is not None and total > window.max_to_send:
            yield f"{window} grants {total}"
        for template in sorted({kind.template for kind in grants}):
            own = sum(grant.granted for kind, grant in grants.items() if kind.template == template)
            if (room := rooms[template_limit(template)]) is not None and own > room:
                yield f"{window} grants {own} of {template}, with room for {room}"


def no_more_than_waits(commit: Commit) -> Objections:
    """A window grants no more than what is due and has not expired."""
    rows = notes_of(commit.world).before.rows
    for _, grants in _planned(commit):
        counted, granted = Counter[tuple[str | None, int]](), Counter[tuple[str | None, int]]()
        for kind, grant in grants.items():
            counted[kind.template, kind.priority] += grant.waiting
            granted[kind.template, kind.priority] += grant.granted
        lanes = Counter(row.lane for row in rows if row.may_go(commit.now))
        waiting = Counter[tuple[str | None, int]]()
        for name, count in lanes.items():
            lane = lane_of(name)
            waiting[lane.template, lane.priority] += count
        for group, count in counted.items():
            if not granted[group] <= count <= waiting[group]:
                yield f"{group}: {granted[group]} granted, {count} counted, {waiting[group]} wait"


def _room(state: GateState, name: str, window: Window) -> int | None:
    pace = state.pace(name)
    return None if pace is None or pace.rate is None else floor(pace.rate * (window.ends_at - window.begins_at)) + 1


def only_to_those_at_work(commit: Commit) -> Objections:
    """A window grants nothing to a template that is paused."""
    before = notes_of(commit.world).before
    for _, grants in _planned(commit):
        for kind in grants:
            template = before.templates.get(kind.template)
            if template is None or template.is_paused(commit.now):
                yield f"{kind} of {template}"


def no_more_than_its_share(commit: Commit) -> Objections:
    """Where what is left over is left, a template has no more than the formula says: max(constant × w, w / sum) × M."""
    before = notes_of(commit.world).before
    for window, grants in _planned(commit):
        if before.settings.spare is not Spare.LEAVE or window.max_to_send is None:
            continue
        shares = _Shares(before, {kind.template for kind in grants}, window.max_to_send)
        groups: defaultdict[tuple[str, int], dict[bool, int]] = defaultdict(lambda: {True: 0, False: 0})
        for kind, grant in grants.items():
            groups[kind.template, kind.priority][kind.inside] = grant.granted
        for (template, priority), granted in groups.items():
            inside, outside = shares.of(template)
            total, most = sum(granted.values()), max(inside, outside)
            if granted[True] > inside or total > most or (granted[False] and total > outside):
                yield f"{template} of priority {priority} has {granted} of {window}; inside {inside}, outside {outside}"


class _Shares:
    def __init__(self, state: GateState, templates: set[str], total: int) -> None:
        self._state, self._total = state, total
        self._sum = sum(Fraction(repr(state.templates[name].weight)) for name in templates)

    def of(self, template: str) -> tuple[int, int]:
        settings, row = self._state.settings, self._state.templates[template]
        if row.distribution == "uniform":
            share = self._count(Fraction(repr(settings.uniform_share)), row.weight)
            return share, share
        outside = Fraction(repr(settings.outside_share))
        return self._count(settings.inside, row.weight), self._count(outside, row.weight)

    def _count(self, constant: Fraction, weight: float) -> int:
        exact = Fraction(repr(weight))
        share = max(constant * exact, exact / self._sum)
        return min(self._total, max(1, floor(share * self._total)))


def served_in_turn(commit: Commit) -> Objections:
    """Among equals whoever was served longest ago has something before the others have."""
    before = notes_of(commit.world).before
    for _, grants in _planned(commit):
        granted = Counter[tuple[str, int]]()
        for kind, grant in grants.items():
            granted[kind.template, kind.priority] += grant.granted
        for (name, priority), count in granted.items():
            if count or before.pace(template_limit(name)) is not None:
                continue
            for (other, its_priority), its_count in granted.items():
                if (
                    priority == its_priority
                    and its_count
                    and _turn(before, name, priority) < _turn(before, other, priority)
                ):
                    yield f"{other} of priority {priority} has {its_count}, {name}, whose turn was before, nothing"


def _turn(state: GateState, template: str, priority: int) -> tuple[int, str]:
    last = max(state.windows, default=None)
    in_window = {
        kind.template: grant.last_served_at
        for kind, grant in state.grants.items()
        if kind.begins_at == last and kind.priority == priority
    }
    served_at = in_window.get(template, state.templates[template].last_served_at)
    return served_at or 0, template


# Lists.


def listed_as_they_wait(commit: Commit) -> Objections:
    """Once lanes are listed anew, every lane with rows is listed, and no other."""
    if commit.transition.name == "relist_lanes":
        yield from unlisted(notes_of(commit.world).after)


def unlisted(state: GateState) -> Objections:
    """Lanes that nobody would look at, and those that are looked at in vain."""
    filled = {row.lane for row in state.rows}
    for lane in sorted(filled.symmetric_difference(state.listed)):
        yield f"{lane} has rows, and is not listed" if lane in filled else f"{lane} is listed, and has no rows"


def in_the_lane_of_its_action(commit: Commit) -> Objections:
    """What waits before a gate waits before its own."""
    state = notes_of(commit.world).after
    for row in state.rows:
        lane = state.lanes.get(row.guid)
        if lane is not None and is_gated(lane) and lane != row.lane:
            yield f"{row.id} at {row.guid} waits in {row.lane}, not in {lane}"


AT_EVERY_COMMIT: tuple[Callable[[Commit], Objections], ...] = (
    no_way_round_gates,
    closed,
    slots_are_taken,
    told_is_told,
    set_as_asked,
    paused_as_asked,
    opens_at_once,
    gated_claim_is_fenced,
    oldest_first,
    important_first,
    paused,
    in_its_window,
    quota_is_counted,
    planned_once,
    within_the_room,
    no_more_than_waits,
    only_to_those_at_work,
    no_more_than_its_share,
    served_in_turn,
    listed_as_they_wait,
    in_the_lane_of_its_action,
)
