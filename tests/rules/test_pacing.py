"""Limits played forward: their slots, and how those who want them share."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrixsched.rules.limits import Limit, in_nanoseconds
from matrixsched.rules.lots import TAKERS_MAX, Lot, gather
from matrixsched.rules.pacing import Pace, Room, Turn, share_out
from matrixsched.rules.rates import parse_rate

NOW = datetime(2026, 11, 16, 6, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


def a_limit(name: str = "global", rate: str | None = "6/min", **facts: object) -> Limit:
    return Limit(name=name, rate=None if rate is None else parse_rate(rate), updated_at=NOW, **facts)  # type: ignore[arg-type]


def test_a_limit_has_a_slot_every_period():
    pace = Pace(a_limit(next_slot_ns=in_nanoseconds(NOW + 4 * SECOND)))
    pace.open(NOW, NOW + MINUTE)
    assert pace.left == 6
    pace.take(6)
    assert pace.start_of(1) == NOW + 4 * SECOND
    assert pace.start_of(6) == NOW + 54 * SECOND
    pace.open(NOW + MINUTE, NOW + 2 * MINUTE)
    assert (pace.left, pace.start_of(1)) == (6, NOW + 64 * SECOND)


@pytest.mark.parametrize(("pool", "left"), [(0, 6), (1, 6), (3, 8)])
def test_what_nobody_takes_is_kept_as_far_as_the_pool_reaches(pool: int, left: int):
    pace = Pace(a_limit(pool=pool))
    pace.open(NOW, NOW + MINUTE)
    pace.open(NOW + 10 * MINUTE, NOW + 11 * MINUTE)
    assert pace.left == left


def test_a_closed_limit_opens_in_time():
    pace = Pace(a_limit(slow_until=NOW + 90 * SECOND, next_slot_ns=in_nanoseconds(NOW + 90 * SECOND)))
    pace.open(NOW, NOW + MINUTE)
    assert pace.left == 0
    pace.open(NOW + MINUTE, NOW + 2 * MINUTE)
    assert (pace.left, pace.start_of(1)) == (3, NOW + 90 * SECOND)


def test_what_is_only_slowed_down_has_no_limit_afterwards():
    pace = Pace(a_limit(rate=None, slow_until=NOW + 30 * SECOND, slow_rate=parse_rate("12/min")))
    pace.open(NOW, NOW + MINUTE)
    assert pace.left is None
    pace.open(NOW + MINUTE, NOW + 2 * MINUTE)
    assert pace.left is None


def test_keys_that_are_taken_together_have_as_many_slots():
    pace = Pace(a_limit(), keys=10)
    pace.open(NOW, NOW + MINUTE)
    assert pace.left == 60
    pace.take(25)
    assert pace.start_of(25) == NOW + 20 * SECOND


turns = st.lists(
    st.tuples(st.integers(0, 200), st.floats(0.1, 50), st.sets(st.integers(0, 3), max_size=3)), max_size=12
)


@given(turns, st.lists(st.one_of(st.none(), st.integers(0, 300)), min_size=4, max_size=4))
def test_nobody_gets_too_much_and_no_room_is_left_that_somebody_wants(wanted, sizes):
    rooms = [Room(size) for size in sizes]
    shared = [Turn(count, [rooms[number] for number in sorted(of)], weight) for count, weight, of in wanted]
    share_out(shared)
    for turn in shared:
        assert 0 <= turn.given <= turn.wanted
        assert turn.given == turn.wanted or any(room.left == 0 for room in turn.rooms)
    for room, size in zip(rooms, sizes, strict=True):
        given = sum(turn.given for turn in shared if room in turn.rooms)
        assert room.used == given
        assert size is None or (given <= size and room.left == size - given)


def test_those_who_wait_for_the_same_slots_take_turns_by_weight():
    room = Room(100)
    shared = [Turn(1_000, [room], 1), Turn(1_000, [room], 3), Turn(5, [room], 6)]
    share_out(shared)
    assert [turn.given for turn in shared] == [24, 71, 5]


def a_lot(key: str, count: int, template: str = "promo") -> Lot:
    facts = {"zone": None, "priority": 0, "handler": "send", "due_at": NOW, "expires_at": None}
    return Lot(template=template, key=key, count=count, **facts)  # type: ignore[arg-type]


def test_a_few_keys_are_played_each_for_itself():
    limits = {"key:*": a_limit("key:*"), "global": a_limit()}
    gathered = gather([a_lot("a", 3), a_lot("b", 5), a_lot("a", 4)], limits, NOW)
    assert (gathered.alone, gathered.together) == (["a", "b"], {})
    assert {lot.key: lot.count for lot in gathered.lots} == {"a": 7, "b": 5}


def test_a_key_without_a_limit_is_none():
    gathered = gather([a_lot("a", 3), a_lot("b", 5)], {"key:b": a_limit("key:b")}, NOW)
    assert {lot.key: lot.count for lot in gathered.lots} == {None: 3, "b": 5}


def test_of_many_keys_those_of_one_size_are_taken_together_and_the_largest_stay_alone():
    limits = {"key:*": a_limit("key:*"), "key:slow": a_limit("key:slow", slow_until=NOW + MINUTE)}
    stock = [a_lot(f"k{number}", 10 + number % 2, f"t{number % 3}") for number in range(10_000)]
    stock += [a_lot("large", 10**6), a_lot("slow", 1)]
    gathered = gather(stock, limits, NOW)
    assert gathered.alone[:2] == ["slow", "large"]
    assert sum(one.keys for one in gathered.together.values()) == 10_002 - len(gathered.alone)
    assert sum(lot.count for lot in gathered.lots) == sum(lot.count for lot in stock)
    assert len(gathered.lots) <= TAKERS_MAX
