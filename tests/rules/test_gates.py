"""Who goes next, and when: the laws that hold whatever waits, whoever claims, and however late things start."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from matrixsched.rules.action import Slot
from matrixsched.rules.gates import (
    LOOK_AGAIN,
    Allowance,
    Bucket,
    Gate,
    Gates,
    QuotaNow,
    admit,
    assign,
    drawn,
)
from matrixsched.rules.lanes import GLOBAL, Lane
from matrixsched.rules.limits import Limit, in_nanoseconds
from matrixsched.rules.rates import Rate, parse_rate

NOW = datetime(2026, 11, 16, 9, 30, tzinfo=UTC)
MS = timedelta(milliseconds=1)
SECOND = timedelta(seconds=1)
AHEAD = 50 * MS
MICROSECOND_NS = 1_000


def a_limit(name: str, rate: str | None = None, pool: int = 0, **facts: object) -> Limit:
    given = None if rate is None else parse_rate(rate)
    return Limit(name=name, rate=given, pool=pool, updated_at=NOW, **facts)  # type: ignore[arg-type]


def idle(name: str, rate: str, pool: int = 0) -> Limit:
    """With its next slot at hand now."""
    return a_limit(name, rate, pool, next_slot_ns=in_nanoseconds(NOW))


def gates(
    *limits: Limit,
    now: datetime = NOW,
    ahead: timedelta = timedelta(0),
    lead: timedelta = timedelta(0),
    busy: tuple[str, ...] = (),
    quotas: Mapping[str, QuotaNow] | None = None,
) -> Gates:
    buckets = {limit.name: Bucket(limit, now, limit.name in busy, lead) for limit in limits}
    return Gates(now=now, ahead=ahead, lead=lead, limits=buckets, quotas=quotas or {})


def named(*lanes: Lane) -> dict[str, Lane]:
    return {lane.name: lane for lane in lanes}


def a_quota(granted: int, used: int = 0, *, template: str = "promo", **facts: object) -> QuotaNow:
    allowances = {(0, False): Allowance(template, 0, False, granted, used)}
    return QuotaNow(window=(NOW, NOW + 60 * SECOND), allowances=allowances, **facts)  # type: ignore[arg-type]


def milliseconds(slots: list[Slot | None]) -> list[float]:
    return [(slot.starts_at - NOW) / MS for slot in slots if slot is not None]


SEND = Lane(handler="send")


# Examples.


def test_slots_are_taken_one_period_apart_as_far_ahead_as_allowed():
    lanes = named(SEND)
    limit = idle(GLOBAL, "100/s")
    admission = admit({SEND.name: 50}, lanes, gates(limit, ahead=AHEAD), room=50)
    assert admission.counts == {SEND.name: 6}
    assert milliseconds(assign([SEND.name] * 6, lanes, gates(limit, ahead=AHEAD))) == [0, 10, 20, 30, 40, 50]
    # When the next one is looked for, half of what was taken ahead is used up.
    assert admission.held[SEND.name].gate is Gate.LIMIT
    assert admission.held[SEND.name].ready_at == NOW + 60 * MS - AHEAD / 2


def test_a_slot_is_void_fifty_milliseconds_after_its_time():
    (slot,) = assign([SEND.name], named(SEND), gates(idle(GLOBAL, "1/s")))
    assert slot == Slot(NOW, NOW + 50 * MS)


def test_of_a_row_under_several_limits_the_latest_slot_counts_and_the_earliest_voids_it():
    lane = Lane(handler="send", key="mx")
    limits = (idle(GLOBAL, "100/s"), a_limit("key:mx", "1/s", next_slot_ns=in_nanoseconds(NOW + 20 * MS)))
    (slot,) = assign([lane.name], named(lane), gates(*limits, ahead=AHEAD))
    assert slot == Slot(NOW + 20 * MS, NOW + 50 * MS)


def test_a_row_under_no_limit_and_no_quota_needs_no_slot():
    assert assign([SEND.name], named(SEND), gates()) == [None]
    assert admit({SEND.name: 3}, named(SEND), gates(), room=50).counts == {SEND.name: 3}


def test_a_row_under_a_quota_alone_starts_within_a_second():
    lane = Lane(handler="send", template="promo")
    (slot,) = assign([lane.name], named(lane), gates(quotas={"promo": a_quota(5)}))
    assert slot == Slot(NOW, NOW + SECOND)


def test_the_pool_goes_at_once():
    limit = a_limit(GLOBAL, "10/s", pool=5)
    admission = admit({SEND.name: 50}, named(SEND), gates(limit), room=50)
    assert admission.counts == {SEND.name: 5}


def test_slowed_down_nothing_is_kept_and_the_slow_rate_holds():
    slowed = idle(GLOBAL, "1000/s", pool=100).slowed(NOW + 10 * SECOND, parse_rate("1/s"), None, NOW)
    assert admit({SEND.name: 50}, named(SEND), gates(slowed), room=50).counts == {}
    later = gates(slowed, now=NOW + 5 * SECOND)
    assert admit({SEND.name: 50}, named(SEND), later, room=50).counts == {SEND.name: 1}


def test_closed_nothing_goes_until_the_end():
    closed = idle(GLOBAL, "1000/s").slowed(NOW + SECOND, None, "429", NOW)
    admission = admit({SEND.name: 1}, named(SEND), gates(closed), room=50)
    assert admission.counts == {}
    assert (admission.held[SEND.name].gate, admission.held[SEND.name].ready_at) == (Gate.SLOWED, NOW + SECOND)


@pytest.mark.parametrize("slow", ["1/h", "1/min", "1/s"])
def test_a_slow_down_delays_nothing_after_its_end(slow: str):
    until = NOW + 5 * SECOND
    limit = idle(GLOBAL, "100/s").slowed(until, parse_rate(slow), None, NOW)
    for second in range(5):
        taken = gates(limit, now=NOW + second * SECOND)
        admit({SEND.name: 1}, named(SEND), taken, room=1)
        limit = replace(limit, next_slot_ns=taken.limits[GLOBAL].next_slot_ns)
    assert admit({SEND.name: 1}, named(SEND), gates(limit, now=until + 10 * MS), room=1).counts == {SEND.name: 1}


def test_a_clock_that_was_set_back_shuts_no_limit():
    before = NOW - timedelta(hours=1)
    admission = admit({SEND.name: 2}, named(SEND), gates(idle(GLOBAL, "10/s"), now=before), room=2)
    assert admission.counts == {SEND.name: 1}
    assert admission.held[SEND.name].ready_at == before + 100 * MS


def test_a_slow_limit_is_not_taken_for_a_clock_that_was_set_back():
    limit = a_limit(GLOBAL, "1/day", next_slot_ns=in_nanoseconds(NOW + timedelta(hours=23)))
    (held,) = admit({SEND.name: 1}, named(SEND), gates(limit), room=1).held.values()
    assert held.ready_at == NOW + timedelta(hours=23)


def test_priority_zero_goes_first():
    urgent, usual = Lane(handler="send", priority=0), Lane(handler="send", priority=1)
    admission = admit({usual.name: 10, urgent.name: 4}, named(urgent, usual), gates(a_limit(GLOBAL, "1/s", 6)), 50)
    assert admission.turns == [urgent.name] * 4 + [usual.name] * 2
    assert set(admission.held) == {usual.name}


def test_lanes_of_one_importance_take_turns():
    lanes = named(*(Lane(handler="send", key=key) for key in "abc"))
    admission = admit(dict(zip(lanes, (9, 1, 9), strict=True)), lanes, gates(a_limit(GLOBAL, "1/s", 7)), 50)
    assert list(admission.counts.values()) == [3, 1, 3]


def test_the_lot_decides_among_lanes_of_one_importance_and_is_another_for_every_claim():
    lanes = named(*(Lane(handler="send", key=key, priority=priority) for key in "abc" for priority in (0, 1)))
    orders = [drawn(lanes, lanes, lot) for lot in range(300)]
    assert all([lanes[name].priority for name in order] == [0, 0, 0, 1, 1, 1] for order in orders)
    assert min(Counter(lanes[order[0]].key for order in orders).values()) > 60


def test_templates_share_their_turns_by_use_and_leave_the_others_theirs():
    plain, much, little = Lane(handler="send"), Lane(handler="send", template="a"), Lane(handler="send", template="b")
    quotas = {"a": a_quota(10, 9, template="a"), "b": a_quota(10, 1, template="b")}
    waiting = dict.fromkeys((much.name, plain.name, little.name), 1)
    admission = admit(waiting, named(plain, much, little), gates(quotas=quotas), 50)
    assert admission.turns == [little.name, plain.name, much.name]


def test_a_lane_that_is_held_back_holds_up_no_other():
    shut, open_ = Lane(handler="send", key="shut"), Lane(handler="send", priority=9)
    closed = a_limit("key:shut", "1/s").slowed(NOW + SECOND, None, "429", NOW)
    admission = admit({shut.name: 100, open_.name: 5}, named(shut, open_), gates(closed, idle(GLOBAL, "1/s", 5)), 50)
    assert admission.counts == {open_.name: 1}


def test_templates_whose_quota_is_used_the_least_go_first():
    lanes = named(Lane(handler="send", template="a"), Lane(handler="send", template="b"))
    quotas = {"a": a_quota(10, 9, template="a"), "b": a_quota(10, 1, template="b")}
    admission = admit(dict.fromkeys(lanes, 5), lanes, gates(a_limit(GLOBAL, "1/s", 1), quotas=quotas), 50)
    assert [lanes[name].template for name in admission.turns] == ["b"]


@pytest.mark.parametrize(
    ("quota", "gate", "ready_in"),
    [
        (QuotaNow(exists=False), Gate.NO_TEMPLATE, LOOK_AGAIN),
        (a_quota(5, is_paused=True), Gate.PAUSED, LOOK_AGAIN),
        (a_quota(5, is_paused=True, paused_until=NOW + 7 * SECOND), Gate.PAUSED, 7 * SECOND),
        (QuotaNow(), Gate.UNPLANNED, timedelta(0)),
        (a_quota(5, 5), Gate.QUOTA, 60 * SECOND),
        (QuotaNow(window=(NOW, NOW + 60 * SECOND)), Gate.QUOTA, 60 * SECOND),
    ],
)
def test_what_a_quota_holds_back_says_why_and_how_long(quota: QuotaNow, gate: Gate, ready_in: timedelta):
    lane = Lane(handler="send", template="promo")
    admission = admit({lane.name: 1}, named(lane), gates(quotas={"promo": quota}), room=50)
    assert (admission.counts, admission.held[lane.name].gate) == ({}, gate)
    assert admission.held[lane.name].ready_at == NOW + ready_in


def test_recipients_for_whom_it_is_the_right_time_have_an_allowance_of_their_own():
    tokyo, berlin = (Lane(handler="send", template="promo", zone=zone) for zone in ("Asia/Tokyo", "Europe/Berlin"))
    allowances = {(0, True): Allowance("promo", 0, True, 3, 0), (0, False): Allowance("promo", 0, False, 1, 0)}
    quota = QuotaNow(window=(NOW, NOW + SECOND), zones_inside=frozenset({"Asia/Tokyo"}), allowances=allowances)
    admission = admit(
        dict.fromkeys((tokyo.name, berlin.name), 9), named(tokyo, berlin), gates(quotas={"promo": quota}), 50
    )
    assert admission.counts == {tokyo.name: 3, berlin.name: 1}


def test_while_somebody_else_takes_slots_a_lane_is_left_alone():
    admission = admit({SEND.name: 1}, named(SEND), gates(idle(GLOBAL, "1/s"), busy=(GLOBAL,)), room=50)
    assert (admission.counts, admission.held[SEND.name].gate) == ({}, Gate.BUSY)


def test_a_narrow_limit_does_not_use_up_the_slots_of_a_wide_one():
    """The key's next slot is 40 ms away. Taken now, forty slots of the global limit would pass unused."""
    narrow = Lane(handler="send", key="mx")
    limits = (idle(GLOBAL, "1000/s"), a_limit("key:mx", "1/s", next_slot_ns=in_nanoseconds(NOW + 40 * MS)))
    admission = admit({narrow.name: 5}, named(narrow), gates(*limits, ahead=AHEAD), room=50)
    assert (admission.counts, admission.held[narrow.name].gate) == ({}, Gate.LIMIT)
    ready_at = admission.held[narrow.name].ready_at
    assert NOW < ready_at < NOW + 40 * MS
    assert admit({narrow.name: 5}, named(narrow), gates(*limits, now=ready_at, ahead=AHEAD), room=50).counts == {
        narrow.name: 1
    }


# Laws.

names = st.sampled_from([GLOBAL, "handler:send", "key:a", "key:b"])
rates = st.builds(
    Rate, st.integers(1, 2_000), st.sampled_from([timedelta(milliseconds=100), SECOND, timedelta(minutes=1)])
)
limits = st.dictionaries(names, st.tuples(rates, st.integers(0, 20)), max_size=4)
all_lanes = named(
    *(
        Lane(handler=handler, priority=priority, key=key)
        for handler in ("send", "ring")
        for priority in (0, 1)
        for key in (None, "a", "b")
    )
)
waitings = st.dictionaries(st.sampled_from(sorted(all_lanes)), st.sampled_from([1, 3, 40, 200]), min_size=1, max_size=4)
aheads = st.sampled_from([timedelta(0), 10 * MS, AHEAD])


@dataclass(frozen=True)
class Look:
    """A worker looks for what may go, some time after the one before."""

    later: timedelta
    waiting: dict[str, int]
    room: int
    ahead: timedelta
    lead: timedelta = timedelta(0)
    lost: frozenset[int] = field(default_factory=frozenset)
    """Which of the rows that were admitted turn out to be dead, or somebody else's."""
    lateness: float = 0.0
    """When the rows start: 0 at the beginning of their slots, 1 at the last moment."""


looks = st.lists(
    st.builds(
        Look,
        later=st.one_of(
            st.integers(0, 60).map(lambda ms: ms * MS),
            st.sampled_from([timedelta(0), timedelta(microseconds=1), 25 * MS, 10 * SECOND]),
        ),
        waiting=waitings,
        room=st.sampled_from([1, 10, 200]),
        ahead=aheads,
        lead=st.sampled_from([timedelta(0), 7 * MS, AHEAD]),
        lost=st.frozensets(st.integers(0, 40), max_size=10),
        lateness=st.floats(0, 1),
    ),
    min_size=1,
    max_size=6,
)


class Fleet:
    """Limits as the database keeps them from one claim to the next."""

    def __init__(self, given: Mapping[str, tuple[Rate, int]]) -> None:
        self.now = NOW
        self.limits = {
            name: Limit(name=name, rate=rate, pool=pool, updated_at=NOW) for name, (rate, pool) in given.items()
        }
        self.starts: defaultdict[str, list[int]] = defaultdict(list)

    def open(self, ahead: timedelta, lead: timedelta = timedelta(0)) -> Gates:
        return gates(*self.limits.values(), now=self.now, ahead=ahead, lead=lead)

    def look(self, look: Look) -> None:
        self.now += look.later
        admission = admit(look.waiting, all_lanes, self.open(look.ahead, look.lead), look.room)
        claimed = [name for number, name in enumerate(admission.turns) if number not in look.lost]
        spent = self.open(look.ahead, look.lead)
        for name, slot in zip(claimed, assign(claimed, all_lanes, spent), strict=True):
            under = [limit for limit in all_lanes[name].limits if limit in self.limits]
            assert (slot is None) == (not under)
            if slot is not None:
                started = slot.starts_at + (slot.void_at - slot.starts_at) * look.lateness
                assert slot.starts_at >= self.now + look.lead
                for limit in under:
                    self.starts[limit].append(in_nanoseconds(started))
        for name, bucket in spent.limits.items():
            assert bucket.next_slot_ns >= self.limits[name].next_slot_ns
            self.limits[name] = replace(self.limits[name], next_slot_ns=bucket.next_slot_ns)

    def check(self) -> None:
        for name, starts in self.starts.items():
            limit = self.limits[name]
            assert limit.rate is not None
            late_ns = 50_000_000 + MICROSECOND_NS
            most = max(1, limit.pool)
            starts.sort()
            for first, begin in enumerate(starts):
                for last in range(first + most, len(starts)):
                    assert last - first < (starts[last] - begin + late_ns) // limit.rate.period_ns + most


AFTER_A_LULL = [Look(lull, {SEND.name: 200}, 200, timedelta(0)) for lull in (timedelta(0), 70 * MS)]


@given(limits, looks)
@example({GLOBAL: (Rate(2_000, SECOND), 0)}, AFTER_A_LULL)
def test_no_limit_is_ever_exceeded_in_any_time_however_late_things_start(
    given_limits: dict[str, tuple[Rate, int]], given_looks: list[Look]
):
    fleet = Fleet(given_limits)
    for look in given_looks:
        fleet.look(look)
    fleet.check()


@given(limits, looks)
def test_a_lane_that_is_held_back_is_looked_at_later_and_something_goes_then(
    given_limits: dict[str, tuple[Rate, int]], given_looks: list[Look]
):
    """So nothing spins, and nothing is stuck: each look that is worth it brings a row on its way, or says when."""
    fleet = Fleet(given_limits)
    for look in given_looks:
        fleet.look(look)
        admission = admit(look.waiting, all_lanes, fleet.open(look.ahead, look.lead), look.room)
        assert all(held.ready_at > fleet.now for held in admission.held.values())
    (last,) = given_looks[-1:]
    for name in last.waiting:
        fleet.now, began_at = fleet.now, fleet.now
        for _ in range(20):
            admission = admit({name: 1}, all_lanes, fleet.open(last.ahead, last.lead), 1)
            if admission.counts:
                break
            fleet.now = admission.held[name].ready_at
        assert admission.counts == {name: 1}
        fleet.now = began_at


@given(limits, waitings, st.integers(1, 60), aheads)
def test_all_the_room_is_used_unless_every_lane_is_empty_or_held_back(
    given_limits: dict[str, tuple[Rate, int]], waiting: dict[str, int], room: int, ahead: timedelta
):
    admission = admit(waiting, all_lanes, Fleet(given_limits).open(ahead), room)
    assert len(admission.turns) <= room
    assert all(admission.counts[name] <= waiting[name] for name in admission.counts)
    if len(admission.turns) < room:
        left = {name for name in waiting if admission.counts.get(name, 0) < waiting[name]}
        assert left == set(admission.held)


@given(limits, waitings, st.integers(1, 60), aheads)
def test_the_more_important_go_first_and_lanes_alike_in_turn(
    given_limits: dict[str, tuple[Rate, int]], waiting: dict[str, int], room: int, ahead: timedelta
):
    admission = admit(waiting, all_lanes, Fleet(given_limits).open(ahead), room)
    priorities = [all_lanes[name].priority for name in admission.turns]
    assert priorities == sorted(priorities)
    so_far: Counter[str] = Counter()
    for name in admission.turns:
        so_far[name] += 1
        alike = [other for other in waiting if all_lanes[other].priority == all_lanes[name].priority]
        # None is two rows ahead of another that may go on.
        behind = [other for other in alike if so_far[other] < min(waiting[other], so_far[name] - 1)]
        assert all(other in admission.held for other in behind)


@given(
    st.dictionaries(st.sampled_from(["a", "b", "c"]), st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1),
    st.integers(1, 60),
    st.frozensets(st.integers(0, 60)),
)
def test_no_more_is_spent_of_a_quota_than_was_granted(
    granted: dict[str, tuple[int, int]], room: int, lost: frozenset[int]
):
    def quotas() -> dict[str, QuotaNow]:
        return {name: a_quota(max(of), min(of), template=name) for name, of in granted.items()}

    lanes = named(
        *(Lane(handler="send", template=name, zone=zone) for name in granted for zone in (None, "Asia/Tokyo"))
    )
    admission = admit(dict.fromkeys(lanes, 20), lanes, gates(quotas=quotas()), room)
    claimed = [name for number, name in enumerate(admission.turns) if number not in lost]
    spent = gates(quotas=quotas())
    assign(claimed, lanes, spent)
    for name, (one, other) in granted.items():
        (allowance,) = spent.quotas[name].allowances.values()
        assert 0 <= allowance.used <= allowance.granted
        taken = sum(lanes[lane].template == name for lane in claimed)
        assert allowance.used == min(one, other) + taken
    if sum(abs(one - other) for one, other in granted.values()) >= room:
        assert len(admission.turns) == min(room, sum(min(40, abs(of[0] - of[1])) for of in granted.values()))
