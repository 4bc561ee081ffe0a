"""How many attempts a worker may claim."""

import pytest

from matrixsched.rules.intake import gated_room, room


@pytest.mark.parametrize(
    ("held", "ended_per_s", "expected"),
    [(0, 0, 20), (20, 0, 0), (0, 400, 120), (130, 400, 0), (0, 1_000_000, 500)],
    ids=["idle", "all busy", "as many as start within a quarter of a second", "no more than that", "bounded"],
)
def test_room_is_for_what_can_start_soon(held: int, ended_per_s: float, expected: int):
    assert room(slots=20, held=held, ended_per_s=ended_per_s, most=500) == expected


@pytest.mark.parametrize(
    ("busy", "ended_per_s", "expected"),
    [(0, 0, 20), (15, 0, 5), (25, 0, 0), (20, 30, 0), (20, 1000, 80)],
    ids=["idle", "some are busy", "too many", "few may end in time, or not", "many will, nearly for sure"],
)
def test_what_must_start_in_its_slot_is_claimed_for_handlers_that_will_be_free(
    busy: int, ended_per_s: float, expected: int
):
    assert gated_room(slots=20, busy=busy, ended_per_s=ended_per_s, within_s=0.1) == expected
